"""Windows of texts for training: drawn anew for each pool, with the label on a window that has the attack."""

import lzma

import numpy as np

WINDOW, STRIDE = 192, 128


class Set:
    def __init__(self, path):
        data = np.load(path)
        for name in data.files:
            setattr(self, name, data[name])
        self.tokens = np.frombuffer(lzma.decompress(path.with_name("tokens.xz").read_bytes()), np.uint16)
        self.offset = np.concatenate([[0], np.cumsum(self.size.astype(np.int64))])
        self.kinds = [str(one) for one in self.kinds]

    def kind_weights(self) -> np.ndarray:
        """Small kinds count more, large ones less; none by more than a few times."""
        train = self.held == 0
        sizes = np.bincount(self.kind[train], minlength=len(self.kinds)).astype(float)
        factor = np.clip((np.median(sizes[sizes > 0]) / np.maximum(sizes, 1)) ** 0.5, 0.5, 4.0)
        return (self.weight * factor[self.kind]).astype("f4")


def draw(data: Set, rows: np.ndarray, seed: int) -> dict:
    """One window or more of each text: text, start, length, label. Windows of one text follow each other."""
    random = np.random.default_rng(seed)
    found = []
    for text in rows:
        n, label = int(data.size[text]), int(data.label[text])
        start, end = int(data.start[text]), int(data.end[text])
        if start >= 0:
            found += around(random, text, n, start, end, label)
        elif n <= WINDOW:
            cut = label == 0 and n > 30 and random.random() < 0.1
            length = int(random.integers(15, n)) if cut else n
            found.append((text, int(random.integers(0, n - length + 1)), length, label))
        elif label == 0:
            count = min(3, 1 + (n - WINDOW + STRIDE - 1) // STRIDE)
            found += [(text, int(s), WINDOW, label) for s in random.integers(0, n - WINDOW + 1, count)]
        else:
            phase = int(random.integers(0, min(STRIDE, n - WINDOW) + 1)) if random.random() < 0.5 else 0
            starts = list(range(phase, max(n - WINDOW // 3, phase + 1), STRIDE))[:6]
            found += [(text, s, min(WINDOW, n - s), label) for s in starts]
    text, start, length, label = (np.array(column) for column in zip(*found))
    # Windows beside an attack are texts of their own: harmless ones.
    other = label != data.label[text]
    segment = text * 2 + other
    return {"text": text, "start": start, "length": length, "label": label, "segment": segment}


def around(random, text: int, n: int, start: int, end: int, label: int) -> list[tuple]:
    found = []
    if n <= WINDOW and random.random() < 0.8:
        found.append((text, 0, n, label))
    else:
        length = WINDOW if random.random() < 0.75 else int(random.integers(min(end - start + 8, WINDOW - 1), WINDOW + 1))
        low, high = max(0, end - length), max(0, min(start, n - length))
        if end - start > length - 10:
            low, high = max(0, start - 20), max(0, start - 20, end - length)
        first = int(random.integers(min(low, high), max(low, high) + 1))
        found.append((text, first, min(length, n - first), label))
    if random.random() < 0.35:
        if start > 60:
            length = min(WINDOW, start)
            found.append((text, int(random.integers(0, start - length + 1)), length, 0))
        elif n - end > 60:
            length = min(WINDOW, n - end)
            found.append((text, int(random.integers(end, n - length + 1)), length, 0))
    return found


def all_windows(data: Set, rows: np.ndarray) -> dict:
    """The windows as the runner has them."""
    found = []
    for text in rows:
        n, start = int(data.size[text]), 0
        while start == 0 or start - STRIDE + WINDOW < n:
            found.append((text, start, min(WINDOW, n - start), int(data.label[text])))
            start += STRIDE
    text, start, length, label = (np.array(column) for column in zip(*found))
    return {"text": text, "start": start, "length": length, "label": label, "segment": text}


def batches(pool: dict, size: int, random) -> list[tuple[np.ndarray, int]]:
    """Windows in batches of whole segments, those of one length together, and how many segments each has."""
    firsts = np.flatnonzero(np.concatenate([[True], pool["segment"][1:] != pool["segment"][:-1]]))
    ends = np.append(firsts[1:], len(pool["segment"]))
    longest = np.maximum.reduceat(pool["length"], firsts)
    order, found = random.permutation(len(firsts)), []
    for place in range(0, len(order), 16 * size):
        some = order[place : place + 16 * size]
        some = some[np.argsort(longest[some], kind="stable")]
        for part in range(0, len(some), size):
            few = some[part : part + size]
            if len(few) >= size // 2:
                found.append((np.concatenate([np.arange(firsts[one], ends[one]) for one in few]), len(few)))
    return [found[one] for one in random.permutation(len(found))]


def thresholds(raw: np.ndarray, data: Set, rows: np.ndarray, rates=(0.003, 0.01)) -> list[float]:
    """Where so large a share of the held-out harmless texts is flagged, every family weighted alike."""
    benign = data.label[rows] == 0
    weights = family_weights([data.kinds[kind] for kind in data.kind[rows][benign]])
    return [cut_at(raw[benign], weights, rate) for rate in rates]


def cut_at(raw: np.ndarray, weights: np.ndarray, rate: float) -> float:
    """The lowest value from which on no larger share of the weight lies."""
    order = np.argsort(-raw, kind="stable")
    place = np.searchsorted(np.cumsum(weights[order]), rate, "right")
    return float(raw[order][min(place, len(order) - 1)]) + 1e-4


SKIPPED = ()
# What counts as one kind of harmless text where kinds are weighted alike.
FAMILIES = {
    "two requests": "request", "question": "request", "harmless goal": "request", "S-Labs": "request", "about-attacks": "trigger",
    "instruction": "trigger", "agent-task": "agent task", "instruction from the user": "agent task",
    "harmless goal in neutral frame": "roleplay", "scene": "roleplay", "security request": "sensitive", "coding": "code", "filler in carrier": "tool", "output": "tool", "requests in a row": "request",
    "filler in tool output": "tool", "filler in document": "tool", "request and paste": "request", "task, question": "task",
}  # fmt: skip


# Made to be hard, not to be like life: a tenth of the say of the other kinds in their family.
CONTRASTS = {
    "filler in carrier", "filler in tool output", "filler in document", "harmless goal in neutral frame", "two requests",
    "request and paste", "instruction from the user", "requests in a row",
}  # fmt: skip


def family_weights(kinds: list[str]) -> np.ndarray:
    """Families alike, and within a family kinds alike but for contrasts; they sum to one."""
    counts = {kind: kinds.count(kind) for kind in set(kinds) if kind not in SKIPPED}
    families = {}
    for kind in counts:
        families.setdefault(FAMILIES.get(kind, kind), {})[kind] = 0.1 if kind in CONTRASTS else 1.0
    each = {
        kind: say / sum(some.values()) / len(families) / counts[kind] for some in families.values() for kind, say in some.items()
    }
    return np.array([each.get(kind, 0.0) for kind in kinds])


def figures(raw: np.ndarray, data: Set, rows: np.ndarray) -> dict:
    """By kind: the share that is flagged at the two thresholds; and the mean over kinds of attacks."""
    cuts = thresholds(raw, data, rows)
    table, recalls = {}, []
    for kind in np.unique(data.kind[rows]):
        for attack in (False, True):
            mine = (data.kind[rows] == kind) & ((data.label[rows] > 0) == attack)
            if mine.sum():
                shares = [float((raw[mine] >= cut).mean()) for cut in cuts]
                name = ("attack: " if attack else "benign: ") + data.kinds[kind]
                table[name] = [int(mine.sum()), *[round(100 * share, 1) for share in shares]]
                recalls += [sum(shares) / 2] if attack else []
    return {"thresholds": cuts, "mean recall": round(100 * float(np.mean(recalls)), 2), "kinds": table}

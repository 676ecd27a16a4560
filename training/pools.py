"""Windows to learn from, where the model is: drawn from texts, and spliced from two of them. Needs PyTorch."""

import os
from pathlib import Path

import numpy as np
import torch

from windows import WINDOW, Set, all_windows, batches, draw

POOLS = int(os.environ.get("POOLS", 4))
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def there(values) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(DEVICE)


class Drawn:
    """A pool of windows as they stand in texts."""

    def __init__(self, data: Set, pool: dict, tokens: torch.Tensor):
        self.pool, self.tokens, self.lengths = pool, tokens, pool["length"]
        self.first = there(data.offset[pool["text"]] + pool["start"])
        self.length, self.label = there(pool["length"].astype(np.int64)), there(pool["label"].astype(np.int64))
        self.channel = there(data.channel[pool["text"]].astype(np.int64))
        self.segment = there(pool["segment"].astype(np.int64))
        self.weight = there(data.kind_weights()[pool["text"]])

    def windows(self, some: np.ndarray):
        """Pieces, which places are inside, and channels."""
        most, chosen = int(self.lengths[some].max()), there(some)
        columns = torch.arange(most, device=DEVICE)
        inside = columns[None, :] < self.length[chosen][:, None]
        places = (self.first[chosen][:, None] + columns).clamp(max=len(self.tokens) - 1)
        return torch.where(inside, self.tokens[places].long(), 0), inside, self.channel[chosen]

    def batches(self, size: int, random):
        """Of whole texts: which windows, and of how many texts they are."""
        return batches(self.pool, size, random)


class Spliced:
    """Windows that nobody has written: the beginning of one and a later part of another. Only teachers know what they are. The same for the same
    pool and number."""

    def __init__(self, drawn: Drawn, number: int):
        count = len(drawn.lengths)
        random = np.random.default_rng(number)
        self.ids = torch.zeros((count, WINDOW), dtype=torch.int16, device=DEVICE)
        length, channel = [], []
        for some in parts_of(random.permutation(count), 4096):
            ids, inside, who = drawn.windows(some)
            size, most = inside.sum(1), ids.shape[1]
            other = there(random.permutation(len(some)))
            first = (there(random.random(len(some))) * (size + 1)).long()
            second = (there(random.random(len(some))) * (size[other] + 1)).long()
            whole = (first + size[other] - second).clamp(2, WINDOW)
            places = torch.arange(WINDOW, device=DEVICE).expand(len(some), -1)
            beginning, rest = ids.gather(1, places.clamp(max=most - 1)), ids[other].gather(1, (places - first[:, None] + second[:, None]).clamp(0, most - 1))
            start = sum(map(len, length))
            self.ids[start : start + len(some)] = torch.where(places < first[:, None], beginning, rest).to(torch.int16)
            length.append(whole)
            channel.append(who)
        self.length, self.channel = torch.cat(length), torch.cat(channel)
        self.lengths = self.length.cpu().numpy()

    def windows(self, some: np.ndarray):
        most, chosen = int(self.lengths[some].max()), there(some)
        inside = torch.arange(most, device=DEVICE)[None, :] < self.length[chosen][:, None]
        return torch.where(inside, self.ids[chosen, :most].long(), 0), inside, self.channel[chosen]

    def batches(self, size: int, random):
        order = random.permutation(len(self.lengths))
        found = [some[part] for some in parts_of(order, 16 * size) for part in parts_of(np.argsort(self.lengths[some], kind="stable"), size)]
        return [(found[one], len(found[one])) for one in random.permutation(len(found))]


def parts_of(some: np.ndarray, size: int) -> list[np.ndarray]:
    return [some[place : place + size] for place in range(0, len(some), size)]


def read(folder: Path) -> tuple[Set, list[Drawn]]:
    """The set, and its training texts' windows, drawn a few times."""
    data = Set(folder / "set.npz")
    tokens, train = there(data.tokens.astype(np.int32)), np.flatnonzero(data.held == 0)
    return data, [Drawn(data, draw(data, train, 100 + number), tokens) for number in range(POOLS)]


def held_out(data: Set) -> tuple[Drawn, np.ndarray]:
    rows = np.flatnonzero(data.held == 1)
    return Drawn(data, all_windows(data, rows), there(data.tokens.astype(np.int32))), rows


@torch.no_grad()
def logits_of(judge, pool, batch: int = 2048) -> torch.Tensor:
    """What `judge` says of every window of a pool."""
    found = torch.zeros((len(pool.lengths), 6), device=DEVICE)
    for some in parts_of(np.argsort(pool.lengths, kind="stable"), batch):
        found[there(some)] = judge(*pool.windows(some)).float()
    return found


class Lessons:
    """Windows with what somebody says of them. Of several, it is the mean of their logits."""

    def __init__(self, folder: Path, who: str):
        self.data, drawn = read(folder)
        self.pools = {"drawn": drawn, "spliced": [Spliced(one, number) for number, one in enumerate(drawn)]}
        files = [np.load(path) for path in sorted(folder.glob(f"said-{who}.npz"))]
        self.said = {name: [there(sum(file[f"{name}-{number}"].astype("f4") for file in files) / len(files)) for number in range(POOLS)] for name in self.pools}

    def batches(self, size: int, spliced_share: float, random):
        """Without an end: pieces, inside, channels, what was said of them; for drawn windows also the pool, which ones they are, and of how many texts."""
        plans = {name: self.plan(name, size, random) for name in self.pools}
        while True:
            name = "spliced" if random.random() < spliced_share else "drawn"
            number, some, count = next(plans[name])
            pool, said = self.pools[name][number], self.said[name][number]
            yield *pool.windows(some), said[there(some)], (pool, there(some), count) if name == "drawn" else None

    def plan(self, name: str, size: int, random):
        while True:
            for number, pool in enumerate(self.pools[name]):
                for some, count in pool.batches(size, random):
                    yield number, some, count


def say(judge, folder: Path, who: str, drawn: list[Drawn]) -> None:
    """Writes what a judge says of all windows."""
    found = {}
    for number, one in enumerate(drawn):
        for name, pool in (("drawn", one), ("spliced", Spliced(one, number))):
            found[f"{name}-{number}"] = logits_of(judge, pool).half().cpu().numpy()
    np.savez(folder / f"said-{who}.npz", **found)

#!/usr/bin/env python3
"""Makes the file that ships of a student and the encoder: eight bits, calibration, when to look again, threshold.

    training/export.py FOLDER STUDENT.npz --options STUDENT.json --out FILE.safetensors --threshold threshold.json --name VERSION

STUDENT.npz may be an older FILE.safetensors, whose convolutions are taken; it has its options itself.

FOLDER is what pack.py wrote, with encoder.npz and with held.npz, what both say of the held-out windows (fast.py). All numbers come
from the held-out groups of the set alone: run it before anything is evaluated.
"""

import argparse
import datetime
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from reference import default_config, quantise, read_file, write_file
from windows import Set, all_windows, cut_at, family_weights
from wordpiece import Asset

# The shares of held-out harmless texts that are looked at again, a user's and a tool's.
LOOK = (0.1, 0.4)
# How many of them may be flagged: of a tool's, all families together; of a user's, in every kind of which so many are held out. Users' requests
# differ more from one collection to the next than the mean over families says.
RATE, WORST, ENOUGH = 0.003, 0.005, 100


# What stands for the say of a network about a window that it did not see.
UNSEEN = -50.0


def student_tensors(path: Path) -> dict:
    data = np.load(path)
    tensors = {}
    for name in data.files:
        if name in ("pieces", "bigrams") or name.endswith(".gate.weight"):
            name = name.removesuffix(".weight")
            value = data[name] if name in data.files else data[f"{name}.weight"]
            tensors[f"{name}.weight"], tensors[f"{name}.scale"] = quantise(value.astype("f4"))
        elif name != "labels":
            tensors[name] = data[name].astype("f4")
    return tensors


def student_of(path: Path) -> tuple[dict, dict]:
    """The convolutions of a file that ships, and their sizes."""
    config, tensors = read_file(path)
    return {name: value for name, value in tensors.items() if not name.startswith("second.")}, config


SIZES = ("dim", "bigrams", "kernel", "dilations", "heads", "hidden")


def config_of(options: dict) -> dict:
    return default_config(Asset()) | {name: options[name] for name in SIZES}


class Held:
    """The held-out texts: what they are, what they count, and their windows."""

    def __init__(self, data: Set):
        self.rows = np.flatnonzero(data.held == 1)
        self.pool = all_windows(data, self.rows)
        self.attack, self.tool = data.label[self.rows] > 0, data.channel[self.rows] == 1
        self.kinds = np.array([data.kinds[kind] for kind in data.kind[self.rows]])
        self.place = np.searchsorted(self.rows, self.pool["text"])

    def largest(self, windows: np.ndarray) -> np.ndarray:
        """Of each text's windows."""
        best = np.full(len(self.rows), UNSEEN)
        np.maximum.at(best, self.place, windows)
        return best

    def weights(self, some: np.ndarray) -> np.ndarray:
        """Families of kinds alike; they sum to one over these texts."""
        found = np.zeros(len(self.rows))
        found[some] = family_weights(list(self.kinds[some]))
        return found / found.sum()

    def cuts(self, raw: np.ndarray, rates: tuple) -> np.ndarray:
        """Where so many of a channel's harmless texts lie above, a user's and a tool's."""
        found = []
        for tool, rate in zip((False, True), rates):
            some = ~self.attack & (self.tool == tool)
            found.append(cut_at(raw[some], self.weights(some)[some], rate))
        return np.array(found)

    def thresholds(self, raw: np.ndarray) -> np.ndarray:
        users = ~self.attack & ~self.tool
        kinds = [some for kind in set(self.kinds[users]) for some in [users & (self.kinds == kind)] if some.sum() >= ENOUGH]
        worst = max(float(np.quantile(raw[some], 1 - WORST, method="higher")) + 1e-4 for some in kinds)
        return np.array([worst, self.cuts(raw, (RATE, RATE))[1]])

    def calibration(self, raw: np.ndarray, cuts: np.ndarray) -> tuple[dict, float]:
        """A logistic regression on the raw value. The shift for tools is such that one score is the cut of both channels."""
        seen = raw > UNSEEN
        weights = 0.5 * self.weights(self.attack & seen) + 0.5 * self.weights(~self.attack & seen)
        scale, shift = logistic(raw, self.attack, weights)
        user, tool = cuts
        found = {"scale": round(scale, 6), "user": round(shift, 6), "tool": round(float(shift + scale * (user - tool)), 6)}
        return found, float(1 / (1 + np.exp(-(scale * user + shift))))


def logistic(raw: np.ndarray, attack: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Scale and shift, by Newton's method."""
    x = np.stack([np.clip(raw, -12, 12), np.ones_like(raw)], 1)
    loss = lambda w: float((weights * np.logaddexp(0, np.where(attack, -1, 1) * (x @ w))).sum() + 1e-4 * (w[0] - 1) ** 2)  # noqa: E731
    w = np.array([1.0, 0.0])
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ w))
        gradient = x.T @ (weights * (p - attack)) + np.array([2e-4 * (w[0] - 1), 0])
        hessian = (x * (weights * p * (1 - p))[:, None]).T @ x + 2e-4 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        while loss(w - step) > loss(w) and np.abs(step).max() > 1e-9:
            step = step / 2
        w = w - step
        if np.abs(step).max() < 1e-9:
            break
    return float(w[0]), float(w[1])


def looked_at(held: Held, screen: np.ndarray, second: np.ndarray, rates: tuple) -> np.ndarray:
    """What the second look says of the windows that it gets to see; very little of all others."""
    bars = held.cuts(held.largest(screen), rates)
    return held.largest(np.where(screen >= bars[held.tool[held.place].astype(int)], second, UNSEEN))


def shares(held: Held, raw: np.ndarray) -> dict:
    """How many of each kind are flagged, in percent."""
    found = {}
    cuts = held.thresholds(raw)[held.tool.astype(int)]
    for attack, kind in sorted(set(zip(held.attack.tolist(), held.kinds.tolist()))):
        mine = (held.attack == attack) & (held.kinds == kind)
        found[("attack: " if attack else "benign: ") + kind] = [int(mine.sum()), round(100 * float((raw >= cuts)[mine].mean()), 1)]
    return found


def found_by(held: Held, screen: np.ndarray, second: np.ndarray) -> dict:
    """The mean over kinds of attacks of what is flagged, in percent: by one network, and by both as they ship."""
    found = {"screen alone": held.largest(screen), "second look": looked_at(held, screen, second, LOOK)}
    if (second > UNSEEN).all():
        found["second look at everything"] = held.largest(second)
    return {name: recall(shares(held, raw)) for name, raw in found.items()}


def recall(found: dict) -> float:
    return round(float(np.mean([share for name, (_, share) in found.items() if name.startswith("attack")])), 2)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("student", type=Path)
    options.add_argument("--options", type=Path)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--threshold", type=Path, required=True)
    options.add_argument("--name", required=True, help="version")
    given = options.parse_args()
    if given.student.suffix == ".safetensors":
        student, sizes = student_of(given.student)
        trained = {name: sizes[name] for name in SIZES}
    else:
        student, trained = student_tensors(given.student), json.loads(given.options.read_text())["options"]
    config = config_of(trained) | {"version": given.name}
    encoder = dict(np.load(given.folder / "encoder.npz"))
    held, said = Held(Set(given.folder / "set.npz")), np.load(given.folder / "held.npz")
    screen, second = said["screen"].astype("f8"), said["second"].astype("f8")
    config["calibration"], start = held.calibration(held.largest(screen), held.cuts(held.largest(screen), LOOK))
    raw = looked_at(held, screen, second, LOOK)
    again, threshold = held.calibration(held.largest(second), held.thresholds(raw))
    if not start < threshold:
        sys.exit(f"windows are looked at from {start} on, which is not below the threshold of {threshold}")
    config["second"] = {"layers": 6, "width": 384, "heads": 12, "inner": 1536, "from": round(start, 6), "calibration": again}
    config["threshold"] = round(threshold, 6)
    write_file(given.out, config, student | encoder)
    found = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "look": LOOK, "rate": RATE, "worst": WORST, "enough": ENOUGH,
        "threshold": config["threshold"], "calibration": config["calibration"], "second": config["second"],
        "held_out": {"harmless": int((~held.attack).sum()), "attacks": int(held.attack.sum())},
        "mean_recall": found_by(held, screen, second),
        "flagged_percent": shares(held, raw), "file_sha256": hashlib.sha256(given.out.read_bytes()).hexdigest(),
        "options": trained,
    }  # fmt: skip
    given.threshold.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["mean_recall"]), config["threshold"], config["second"])
    print(f"{given.out}: {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()

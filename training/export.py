#!/usr/bin/env python3
"""Makes the file that ships of a trained student: eight bits, calibration, threshold.

    training/export.py student.npz set.jsonl.gz --options student.json --out FILE.safetensors --threshold threshold.json

Calibration and threshold come from the held-out groups of the set alone. Run it before anything is evaluated.
"""

import argparse
import datetime
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from overlap import read_rows
from reference import CHANNELS, Classifier, default_config, quantise, write_file
from windows import cut_at, family_weights
from wordpiece import Asset, WordPiece

RATE = 0.003


def tensors_of(path: Path) -> dict:
    data = np.load(path)
    tensors = {name: data[name].astype("f4") for name in data.files if name not in ("pieces", "bigrams", "labels")}
    for name in ("pieces", "bigrams"):
        tensors[f"{name}.weight"], tensors[f"{name}.scale"] = quantise(data[name].astype("f4"))
    return tensors


def weights_of(rows: list[dict]) -> np.ndarray:
    """Families of harmless texts alike, kinds of attacks alike, both halves alike."""
    benign = np.array([one["label"] == "benign" for one in rows])
    weights = np.zeros(len(rows))
    for half in (True, False):
        weights[benign == half] = 0.5 * family_weights([one["kind"] for one in rows if (one["label"] == "benign") == half])
    return weights


def calibrate(raw: np.ndarray, attack: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Scale and shift of a logistic regression on the raw value, by Newton's method."""
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("student", type=Path)
    options.add_argument("set", type=Path)
    options.add_argument("--options", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--threshold", type=Path, required=True)
    options.add_argument("--again", action="store_true", help="take calibration and threshold from the file that --threshold names")
    options.add_argument("--fast", action="store_true", help="with PyTorch")
    options.add_argument("--name", default="1", help="version")
    given = options.parse_args()
    asset = Asset()
    trained = json.loads(given.options.read_text())["options"]
    config = default_config(asset) | {key: trained[key] for key in ("dim", "bigrams", "kernel", "dilations", "heads", "hidden")}
    config["version"] = given.name
    if given.again:
        found = json.loads(given.threshold.read_text())
        config |= {"calibration": found["calibration"], "threshold": found["threshold"]}
        write_file(given.out, config, tensors_of(given.student))
        same = hashlib.sha256(given.out.read_bytes()).hexdigest() == found["file_sha256"]
        sys.exit(0 if same else f"{given.out}: not the file that {given.threshold} was made for")
    if given.fast:
        from fast import Fast as Network
    else:
        Network = Classifier
    model, pieces = Network(config, tensors_of(given.student)), WordPiece(asset)
    rows = [one for one in read_rows(given.set) if one["split"] == "dev"]
    raw, _ = model.raw_of_texts([pieces.ids(one["text"]) for one in rows], [CHANNELS[one["channel"]] for one in rows], 512 if given.fast else 64)
    raw = np.maximum(raw, -50)
    attack = np.array([one["label"] != "benign" for one in rows])
    weights = weights_of(rows)
    scale, shift = calibrate(raw, attack, weights)
    benign = ~attack & (weights > 0)
    cut = cut_at(raw[benign], weights[benign] / weights[benign].sum(), RATE)
    score = lambda value: float(1 / (1 + np.exp(-(scale * value + shift))))  # noqa: E731
    threshold = score(cut)
    others = {str(rate): round(score(cut_at(raw[benign], weights[benign] / weights[benign].sum(), rate)), 6) for rate in (0.005, 0.01, 0.02)}
    config["calibration"], config["threshold"] = {"scale": round(scale, 6), "shift": round(shift, 6)}, round(threshold, 6)
    write_file(given.out, config, model.tensors)
    kinds = {}
    for kind in sorted({(one["label"] != "benign", one["kind"]) for one in rows}):
        mine = np.array([(one["label"] != "benign", one["kind"]) == kind for one in rows])
        kinds[("attack: " if kind[0] else "benign: ") + kind[1]] = [int(mine.sum()), round(100 * float((raw[mine] >= cut).mean()), 1)]
    found = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "rate": RATE, "threshold": config["threshold"],
        "at_other_rates": others,
        "calibration": config["calibration"], "held_out": {"harmless": int(benign.sum()), "attacks": int(attack.sum())},
        "flagged_percent": kinds, "file_sha256": hashlib.sha256(given.out.read_bytes()).hexdigest(),
        "options": trained,
    }  # fmt: skip
    given.threshold.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    print(f"{given.out}: {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The classifier in numpy, which the Rust runner is held to.

    training/reference.py FILE [--tool] [TEXT …]       scores texts, or the lines of standard input
    training/reference.py FILE --vectors vectors.jsonl writes what FILE says of varied texts
    training/reference.py FILE --random                writes a file of random weights, for tests of a runner

A file is safetensors with a `config` among its metadata; see README.md for the network.
"""

import argparse
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np

from wordpiece import Asset, WordPiece

LABELS = ["benign", "jb_override", "exfil_prompt", "tool_escalation", "indirect_injection", "social_engineering"]
CHANNELS = {"user": 0, "tool": 1}
TYPES = {"I8": "i1", "F32": "<f4"}


def default_config(asset: Asset) -> dict:
    return {
        "name": "portcullis-classifier", "version": "1", "pieces": len(asset.tokens), "dim": 128, "bigrams": 16384,
        "kernel": 5, "dilations": [1, 2, 4, 8], "heads": 4, "hidden": 96, "window": 192, "stride": 128,
        "labels": LABELS, "calibration": {"scale": 1.0, "user": 0.0, "tool": 0.0}, "threshold": 0.5,
        "tokenizer_sha256": asset.sha256,
    }  # fmt: skip


def read_file(path: Path) -> tuple[dict, dict]:
    tensors, about = safetensors(Path(path).read_bytes())
    return json.loads(about["config"]), tensors


def safetensors(data: bytes) -> tuple[dict, dict]:
    """The tensors of a file, and what it says about itself. Those of other types than ours are left out."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    about, tensors = header.pop("__metadata__", {}), {}
    for name, tensor in header.items():
        if tensor["dtype"] in TYPES:
            start, end = tensor["data_offsets"]
            part = data[8 + length + start : 8 + length + end]
            tensors[name] = np.frombuffer(part, TYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return tensors, about


def write_file(path: Path, config: dict, tensors: dict) -> None:
    header, parts, place = {"__metadata__": {"config": json.dumps(config)}}, [], 0
    # Numbers of four bytes first, so that they lie at multiples of four.
    for name in sorted(tensors, key=lambda name: (tensors[name].dtype == np.int8, name)):
        tensor = tensors[name]
        kind = "I8" if tensor.dtype == np.int8 else "F32"
        part = np.ascontiguousarray(tensor, TYPES[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [place, place + len(part)]}
        parts.append(part)
        place += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def quantise(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight bits a number, with a scale for each row."""
    scale = np.abs(rows).max(axis=1) / 127
    scale[scale == 0] = 1.0
    scale = scale.astype("f4")
    return np.clip(np.rint(rows / scale[:, None]), -127, 127).astype(np.int8), scale


def bigram_slots(ids: np.ndarray, pieces: int, bigrams: int) -> np.ndarray:
    """ids: […, m]. The slot of each piece and the one before it."""
    before = np.concatenate([np.full(ids.shape[:-1] + (1,), pieces, np.uint64), ids[..., :-1].astype(np.uint64)], -1)
    mixed = (before * np.uint64(0x9E3779B1) + ids.astype(np.uint64) * np.uint64(0x85EBCA77)) & np.uint64(0xFFFFFFFF)
    return (mixed >> np.uint64(32 - (bigrams.bit_length() - 1))).astype(np.int64)


def windows(ids: list[int], window: int, stride: int) -> list[list[int]]:
    found, start = [], 0
    while start == 0 or start - stride + window < len(ids):
        if start >= len(ids):
            break
        found.append(ids[start : start + window])
        start += stride
    return found


class Classifier:
    def __init__(self, config: dict, tensors: dict):
        self.config, self.t = config, dequantised(tensors)
        self.second = Second(self.t, config["second"]) if "second" in config else None

    def logits(self, batch: list[list[int]], channel: int | list[int]) -> np.ndarray:
        """Windows, of at least one piece each, to their logits."""
        c, t = self.config, self.t
        lengths = np.array([len(one) for one in batch])
        most = lengths.max()
        ids = np.zeros((len(batch), most), np.int64)
        for row, one in zip(ids, batch):
            row[: len(one)] = one
        inside = np.arange(most)[None, :] < lengths[:, None]
        mask = inside[:, :, None].astype("f4")
        channels = np.broadcast_to(np.asarray(channel), len(batch))
        slots = bigram_slots(ids, c["pieces"], c["bigrams"])
        x = t["pieces.weight"][ids] + t["bigrams.weight"][slots] + t["channel.weight"][channels][:, None, :]
        reach = (c["kernel"] - 1) // 2
        for i, dilation in enumerate(c["dilations"]):
            part = f"blocks.{i}."
            mean = x.mean(-1, keepdims=True)
            y = (x - mean) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5))
            y = (y * t[part + "norm.weight"] + t[part + "norm.bias"]) * mask
            pad = np.pad(y, ((0, 0), (reach * dilation, reach * dilation), (0, 0)))
            conv = np.broadcast_to(t[part + "conv.bias"], y.shape).copy()
            for k in range(c["kernel"]):
                conv += t[part + "conv.weight"][k] * pad[:, k * dilation : k * dilation + most]
            gate = conv @ t[part + "gate.weight"].T + t[part + "gate.bias"]
            a, b = np.split(gate, 2, axis=-1)
            x = x + a * sigmoid(b)
        scores = np.where(inside[:, :, None], x @ t["pool.query"].T, np.float32(-1e30))
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        pooled = np.einsum("nth,ntd->nhd", weights, x)
        highest = np.where(inside[:, :, None], x, np.float32(-1e30)).max(1)
        f = np.concatenate([pooled.reshape(len(batch), -1), highest], -1)
        hidden = np.maximum(f @ t["head.0.weight"].T + t["head.0.bias"], 0)
        return hidden @ t["head.1.weight"].T + t["head.1.bias"]

    def windows(self, ids: list[int]) -> list[list[int]]:
        return windows(ids, self.config["window"], self.config["stride"])

    def judged(self, parts: list[list[int]], channel: int) -> list[tuple[np.ndarray, np.ndarray | None, float]]:
        """Of each window its logits, those of the second look if it had one, and its score."""
        found = []
        for part in parts:
            logits = self.logits([part], channel)[0]
            value, again = score(raw(logits.astype("f8")), self.config["calibration"], channel), None
            if self.second and value >= self.config["second"]["from"]:
                again = self.second.logits(part, channel)
                value = score(raw(again.astype("f8")), self.config["second"]["calibration"], channel)
            found.append((logits, again, float(value)))
        return found


class Second:
    """The encoder: BERT's layers over a window that begins with [CLS] and with who speaks."""

    def __init__(self, tensors: dict, config: dict):
        self.heads, self.layers = config["heads"], config["layers"]
        self.t = tensors

    def logits(self, pieces: list[int], channel: int) -> np.ndarray:
        words = self.t["second.words.weight"]
        extra = len(words) - 3
        x = words[[extra, extra + 1 + channel, *pieces]] + self.t["second.positions"][: len(pieces) + 2]
        x = self.normal(x, "second.norm")
        for i in range(self.layers):
            part = f"second.layer.{i}."
            q, k, v = (self.split(self.dense(x, f"{part}attention.self.{name}")) for name in ("query", "key", "value"))
            weights = softmax(q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(q.shape[-1])))
            attended = (weights @ v).transpose(1, 0, 2).reshape(x.shape)
            x = self.normal(x + self.dense(attended, part + "attention.output.dense"), part + "attention.output.LayerNorm")
            inner = gelu(self.dense(x, part + "intermediate.dense"))
            x = self.normal(x + self.dense(inner, part + "output.dense"), part + "output.LayerNorm")
        return self.dense(np.tanh(self.dense(x[:1], "second.pooler")), "second.labels")[0]

    def dense(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.t[name + ".weight"].T + self.t[name + ".bias"]

    def normal(self, x: np.ndarray, name: str) -> np.ndarray:
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-12))
        return y * self.t[name + ".weight"] + self.t[name + ".bias"]

    def split(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), self.heads, -1).transpose(1, 0, 2)


def dequantised(tensors: dict) -> dict:
    """All as floats."""
    found = {}
    for name, value in tensors.items():
        if not name.endswith(".scale"):
            scale = tensors.get(name.removesuffix("weight") + "scale") if value.dtype == np.int8 else None
            found[name] = value.astype("f4") if scale is None else value.astype("f4") * scale[:, None]
    return found


def raw(logits: np.ndarray) -> np.ndarray:
    attacks = logits[..., 1:]
    most = attacks.max(-1)
    return most + np.log(np.exp(attacks - most[..., None]).sum(-1)) - logits[..., 0]


def score(value, calibration: dict, channel: int):
    """Of a raw value, by who speaks."""
    return sigmoid(calibration["scale"] * value + calibration["tool" if channel else "user"])


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * x * (1 + np.vectorize(math.erf, otypes=["f4"])(x / np.float32(math.sqrt(2))))


def random_tensors(config: dict, seed: int) -> dict:
    random = np.random.default_rng(seed)
    d, hidden, heads = config["dim"], config["hidden"], config["heads"]
    near = lambda *shape: random.standard_normal(shape).astype("f4")  # noqa: E731
    tensors = {"channel.weight": 0.3 * near(2, d), "pool.query": 0.3 * near(heads, d)}
    tensors["pieces.weight"], tensors["pieces.scale"] = quantise(0.5 * near(config["pieces"], d))
    tensors["bigrams.weight"], tensors["bigrams.scale"] = quantise(0.5 * near(config["bigrams"], d))
    for i in range(len(config["dilations"])):
        part = f"blocks.{i}."
        tensors[part + "norm.weight"], tensors[part + "norm.bias"] = 1 + 0.1 * near(d), 0.1 * near(d)
        tensors[part + "conv.weight"], tensors[part + "conv.bias"] = 0.4 * near(config["kernel"], d), 0.1 * near(d)
        tensors[part + "gate.weight"], tensors[part + "gate.scale"] = quantise(near(2 * d, d) / math.sqrt(d))
        tensors[part + "gate.bias"] = 0.1 * near(2 * d)
    wide = (heads + 1) * d
    tensors["head.0.weight"], tensors["head.0.bias"] = near(hidden, wide) / math.sqrt(wide), 0.1 * near(hidden)
    tensors["head.1.weight"], tensors["head.1.bias"] = near(6, hidden) / math.sqrt(hidden), 0.1 * near(6)
    return tensors


def vectors(model: Classifier, pieces: WordPiece):
    from vector_texts import texts

    rounded = lambda rows: [[round(float(one), 5) for one in row] if row is not None else None for row in rows]  # noqa: E731
    for channel, text in texts():
        ids = pieces.ids(text)
        found = model.judged(model.windows(ids), CHANNELS[channel])
        best = max(found, key=lambda one: one[2], default=None)
        yield {
            "channel": channel, "text": text, "pieces": len(ids), "ids": model.windows(ids)[0] if ids else [],
            "logits": rounded([one[0] for one in found]), "second": rounded([one[1] for one in found]),
            "score": round(best[2], 6) if best else 0.0, "intent": intent(best) if best else None,
        }  # fmt: skip


def intent(window: tuple) -> str:
    logits = window[0] if window[1] is None else window[1]
    return LABELS[1 + int(logits[1:].argmax())]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", type=Path)
    options.add_argument("texts", nargs="*")
    options.add_argument("--tool", action="store_true", help="the texts are what a tool returned")
    options.add_argument("--vectors", type=Path, help="write the vectors here")
    options.add_argument("--random", action="store_true", help="write random weights first")
    given = options.parse_args()
    asset = Asset()
    if given.random:
        config = default_config(asset)
        config["calibration"] = {"scale": 0.8, "user": -0.3, "tool": -0.1}
        write_file(given.file, config, random_tensors(config, 1))
    config, tensors = read_file(given.file)
    if config["tokenizer_sha256"] != asset.sha256:
        sys.exit(f"{given.file}: made for other pieces than those of {asset.sha256[:12]}…")
    model, pieces = Classifier(config, tensors), WordPiece(asset)
    if given.vectors:
        lines = [json.dumps(one, ensure_ascii=False) for one in vectors(model, pieces)]
        given.vectors.write_text("\n".join(lines) + "\n", "utf-8")
        print(f"{given.vectors}: {len(lines)} texts")
        return
    for text in given.texts or (sys.stdin.read().splitlines() if not given.random else []):
        found = model.judged(model.windows(pieces.ids(text)), int(given.tool))
        if not found:
            print(f"0.0000         {text[:80]!r}")
            continue
        best = max(found, key=lambda one: one[2])
        mark = "attack" if best[2] >= config["threshold"] else "-"
        print(f"{best[2]:.4f} {mark:6} {intent(best)} {text[:80]!r}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The reference with PyTorch, for many windows at once. The numbers that ship are the reference's.

    fast.py FOLDER STUDENTS --run RUN.json --out OUT      says what each of RUN's students and the encoder find together of what was held out

The best becomes OUT/screen.npz and .json, and OUT/held.npz has what it and the encoder say of the held-out windows.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from pools import held_out, logits_of, there
from reference import bigram_slots, dequantised


class Screen:
    """The convolutions."""

    def __init__(self, config: dict, tensors: dict):
        self.config = config
        self.t = {name: there(value) for name, value in dequantised(tensors).items()}

    @torch.no_grad()
    def logits(self, ids, inside, channel) -> torch.Tensor:
        return self.forward(ids, inside, channel)

    def forward(self, ids, inside, channel) -> torch.Tensor:
        c, t = self.config, self.t
        slots = there(bigram_slots(ids.cpu().numpy(), c["pieces"], c["bigrams"]))
        most, inside = ids.shape[1], inside[:, :, None]
        x = t["pieces.weight"][ids] + t["bigrams.weight"][slots] + t["channel.weight"][channel][:, None]
        reach = (c["kernel"] - 1) // 2
        for i, dilation in enumerate(c["dilations"]):
            part = f"blocks.{i}."
            y = F.layer_norm(x, (c["dim"],), t[part + "norm.weight"], t[part + "norm.bias"], 1e-5) * inside
            y = F.pad(y, (0, 0, reach * dilation, reach * dilation))
            conv = t[part + "conv.bias"] + sum(t[part + "conv.weight"][k] * y[:, k * dilation : k * dilation + most] for k in range(c["kernel"]))
            a, b = F.linear(conv, t[part + "gate.weight"], t[part + "gate.bias"]).chunk(2, -1)
            x = x + a * torch.sigmoid(b)
        weights = (x @ t["pool.query"].T).masked_fill(~inside, -1e30).softmax(1)
        f = torch.cat([torch.einsum("nth,ntd->nhd", weights, x).flatten(1), x.masked_fill(~inside, -1e30).amax(1)], -1)
        hidden = F.relu(F.linear(f, t["head.0.weight"], t["head.0.bias"]))
        return F.linear(hidden, t["head.1.weight"], t["head.1.bias"])


class Second:
    """The encoder."""

    def __init__(self, tensors: dict, kind=torch.float32, heads: int = 12, layers: int | None = None):
        self.heads = heads
        self.t = {name: there(value).to(kind) for name, value in dequantised(tensors).items()}
        self.layers = layers or sum(name.endswith("intermediate.dense.bias") for name in self.t)

    @torch.no_grad()
    def logits(self, ids, inside, channel) -> torch.Tensor:
        return self.forward(ids, inside, channel)

    def forward(self, ids, inside, channel) -> torch.Tensor:
        t = self.t
        words = t["second.words.weight"]
        extra = len(words) - 3
        ids = torch.cat([torch.full_like(channel, extra)[:, None], channel[:, None] + extra + 1, ids], 1)
        mask = F.pad(inside, (2, 0), value=True)[:, None, None, :]
        x = self.normal(words[ids] + t["second.positions"][: ids.shape[1]], "second.norm")
        for i in range(self.layers):
            part = f"second.layer.{i}."
            q, k, v = (
                self.dense(x, f"{part}attention.self.{name}").unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in ("query", "key", "value")
            )
            attended = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
            x = self.normal(x + self.dense(attended, part + "attention.output.dense"), part + "attention.output.LayerNorm")
            inner = F.gelu(self.dense(x, part + "intermediate.dense"))
            x = self.normal(x + self.dense(inner, part + "output.dense"), part + "output.LayerNorm")
        return self.dense(torch.tanh(self.dense(x[:, 0], "second.pooler")), "second.labels").float()

    def dense(self, x, name: str):
        return F.linear(x, self.t[name + ".weight"], self.t[name + ".bias"])

    def normal(self, x, name: str):
        return F.layer_norm(x, x.shape[-1:], self.t[name + ".weight"], self.t[name + ".bias"], 1e-12)


def raw_of_windows(model, pool) -> np.ndarray:
    logits = logits_of(model.logits, pool, 1024).double()
    return (logits[:, 1:].logsumexp(-1) - logits[:, 0]).cpu().numpy()


def main() -> None:
    from export import Held, config_of, found_by, student_tensors
    from windows import Set

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("students", type=Path)
    options.add_argument("--run", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    data = Set(given.folder / "set.npz")
    held, pool = Held(data), held_out(data)[0]
    second = raw_of_windows(Second(dict(np.load(given.folder / "encoder.npz"))), pool)
    best = {}
    for name in json.loads(given.run.read_text())["students"]:
        path = given.students / f"{name}.npz"
        trained = json.loads(path.with_suffix(".json").read_text())
        screen = raw_of_windows(Screen(config_of(trained["options"]), student_tensors(path)), pool)
        recall = found_by(held, screen, second)["second look"]
        print(f"{path.stem}: {recall} % of held-out attacks with the second look", flush=True)
        if recall > best.get("recall", -1):
            best = {"recall": recall, "path": path, "said": {"screen": screen.astype("f4"), "second": second.astype("f4")}}
    print(f"chosen: {best['path'].stem}")
    np.savez(given.out / "held.npz", **best["said"])
    for suffix in (".npz", ".json"):
        shutil.copy(best["path"].with_suffix(suffix), given.out / f"screen{suffix}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The reference with PyTorch, for many windows at once. The numbers that ship are the reference's.

    fast.py FOLDER STUDENT.npz --options STUDENT.json      writes FOLDER/held.npz: the raw values of the held-out windows
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from reference import bigram_slots, dequantised

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def there(value) -> torch.Tensor:
    return torch.from_numpy(np.array(value)).to(DEVICE)


class Screen:
    """The convolutions."""

    def __init__(self, config: dict, tensors: dict):
        self.config = config
        self.t = {name: there(value) for name, value in tensors.items() if value.dtype != np.int8}
        table = lambda name: there(tensors[f"{name}.weight"].astype("f4") * tensors[f"{name}.scale"][:, None])  # noqa: E731
        self.tables = table("pieces"), table("bigrams")

    @torch.no_grad()
    def logits(self, ids, inside, channel) -> torch.Tensor:
        c, t = self.config, self.t
        slots = there(bigram_slots(ids.cpu().numpy(), c["pieces"], c["bigrams"]))
        most, inside = ids.shape[1], inside[:, :, None]
        x = self.tables[0][ids] + self.tables[1][slots] + t["channel.weight"][channel][:, None]
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

    def __init__(self, tensors: dict, kind=torch.float32, heads: int = 12):
        self.heads = heads
        self.t = {name: there(value).to(kind) for name, value in dequantised(tensors).items()}
        self.layers = sum(name.endswith("intermediate.dense.bias") for name in self.t)

    @torch.no_grad()
    def logits(self, ids, inside, channel) -> torch.Tensor:
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


def raw_of_windows(model, data, pool: dict, batch: int = 1024) -> np.ndarray:
    """The raw value of each window of a pool."""
    order, found = np.argsort(pool["length"], kind="stable"), np.zeros(len(pool["length"]), "f8")
    tokens, first = there(data.tokens.astype(np.int64)), there(data.offset[pool["text"]] + pool["start"])
    for place in range(0, len(order), batch):
        some = order[place : place + batch]
        columns = torch.arange(int(pool["length"][some].max()), device=DEVICE)
        inside = columns[None, :] < there(pool["length"][some])[:, None]
        places = (first[there(some)][:, None] + columns).clamp(max=len(tokens) - 1)
        channel = there(data.channel[pool["text"][some]].astype(np.int64))
        logits = model.logits(torch.where(inside, tokens[places], 0), inside, channel).double()
        found[some] = (logits[:, 1:].logsumexp(-1) - logits[:, 0]).cpu().numpy()
    return found


def main() -> None:
    from export import config_of, student_tensors
    from windows import Set, all_windows

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("student", type=Path)
    options.add_argument("--options", type=Path, required=True)
    given = options.parse_args()
    data = Set(given.folder / "set.npz")
    pool = all_windows(data, np.flatnonzero(data.held == 1))
    screen = Screen(config_of(json.loads(given.options.read_text())["options"]), student_tensors(given.student))
    second = Second(dict(np.load(given.folder / "encoder.npz")))
    said = {name: raw_of_windows(model, data, pool).astype("f4") for name, model in (("screen", screen), ("second", second))}
    np.savez(given.folder / "held.npz", **said)


if __name__ == "__main__":
    main()

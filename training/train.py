#!/usr/bin/env python3
"""Trains teachers and students on a machine with a GPU and PyTorch. Needs the folder that pack.py writes.

    train.py FOLDER --teach SEED           one teacher; leaves its logits of the pools beside the set
    train.py FOLDER --student NAME JSON    one student with these options; writes OUT/NAME.npz and .json
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from reference import LABELS
from windows import Set, all_windows, batches, draw, figures
from wordpiece import Asset

POOLS = int(os.environ.get("POOLS", 4))
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPTIONS = {
    "dim": 128, "bigrams": 16384, "kernel": 5, "dilations": [1, 2, 4, 8], "heads": 4, "hidden": 96, "epochs": 12, "batch": 512,
    "rate": 2e-3, "piece_rate": 1e-3, "dropout": 0.2, "word_dropout": 0.1, "smoothing": 0.005, "teacher": 0.9,
    "decay": 0.02, "pair_dropout": 0.4, "seed": 1, "benign": 2.0, "seconds": 1e9, "scale": 1.0,
}  # fmt: skip


class Student(nn.Module):
    def __init__(self, o: dict, asset: Asset):
        super().__init__()
        d, h = o["dim"], o["heads"]
        self.o, self.unknown, self.count = o, asset.unknown, len(asset.tokens)
        vectors = torch.tensor(asset.vectors())
        vectors -= vectors.mean(0)
        _, _, directions = torch.linalg.svd(vectors, full_matrices=False)
        start = vectors @ directions[:d].T
        self.pieces = nn.Parameter(start / start.std() * 0.5 * o["scale"])
        self.bigrams = nn.Parameter(torch.zeros(o["bigrams"], d))
        self.channel = nn.Parameter(0.02 * torch.randn(2, d))
        self.blocks = nn.ModuleList()
        for _ in o["dilations"]:
            block = nn.Module()
            block.norm = nn.LayerNorm(d)
            block.conv = nn.Parameter(torch.randn(o["kernel"], d) / math.sqrt(o["kernel"]))
            block.conv_bias = nn.Parameter(torch.zeros(d))
            block.gate = nn.Linear(d, 2 * d)
            self.blocks.append(block)
        self.query = nn.Parameter(torch.randn(h, d) / math.sqrt(d))
        self.head0, self.head1 = nn.Linear((h + 1) * d, o["hidden"]), nn.Linear(o["hidden"], 6)
        self.drop = nn.Dropout(o["dropout"])

    def forward(self, ids, slots, inside, channel):
        o = self.o
        pairs = F.embedding(slots, self.bigrams)
        if self.training:
            # Pairs learn texts by heart: they have to be done without now and then.
            pairs = pairs * (torch.rand(*ids.shape, 1, device=ids.device) >= o["pair_dropout"])
        x = F.embedding(ids, self.pieces) + pairs
        x = F.dropout(x, 0.1, self.training) + self.channel[channel][:, None]
        mask = inside[:, :, None].to(x.dtype)
        for block, dilation in zip(self.blocks, o["dilations"]):
            y = block.norm(x) * mask
            reach = (o["kernel"] - 1) // 2 * dilation
            y = F.pad(y, (0, 0, reach, reach))
            # Sums of shifted copies: faster than a convolution of one channel a group.
            conv = block.conv_bias + sum(block.conv[k] * y[:, k * dilation : k * dilation + x.shape[1]] for k in range(o["kernel"]))
            a, b = block.gate(conv).chunk(2, -1)
            x = x + F.dropout(a * torch.sigmoid(b), o["dropout"] / 2, self.training)
        scores = (x @ self.query.T).masked_fill(~inside[:, :, None], -1e30)
        pooled = torch.einsum("nth,ntd->nhd", scores.softmax(1), x).flatten(1)
        highest = x.masked_fill(~inside[:, :, None], -1e30).amax(1)
        f = self.drop(torch.cat([pooled, highest], -1))
        return self.head1(self.drop(F.relu(self.head0(f))))

    def tensors(self) -> dict:
        found = {"pieces": self.pieces, "bigrams": self.bigrams, "channel.weight": self.channel, "pool.query": self.query}
        for i, block in enumerate(self.blocks):
            part = f"blocks.{i}."
            found |= {part + "norm.weight": block.norm.weight, part + "norm.bias": block.norm.bias}
            found |= {part + "conv.weight": block.conv, part + "conv.bias": block.conv_bias}
            found |= {part + "gate.weight": block.gate.weight, part + "gate.bias": block.gate.bias}
        found |= {"head.0.weight": self.head0.weight, "head.0.bias": self.head0.bias}
        return found | {"head.1.weight": self.head1.weight, "head.1.bias": self.head1.bias}


class Teacher(nn.Module):
    def __init__(self, path: Path):
        super().__init__()
        from transformers import BertConfig, BertModel

        data = np.load(path)
        state = {}
        for name in data.files:
            if name.endswith("|q"):
                state[name[:-2]] = torch.tensor(data[name].astype("f4") * data[name[:-2] + "|s"][:, None])
            elif not name.endswith("|s") and name != "numbers":
                state[name] = torch.tensor(data[name])
        config = BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        self.bert = BertModel(config, add_pooling_layer=False)
        missing = self.bert.load_state_dict(state, strict=False)
        print("teacher's weights, missing:", missing.missing_keys, flush=True)
        self.register_buffer("numbers", torch.tensor(data["numbers"]).long())
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(768, 384), nn.GELU(), nn.Dropout(0.1), nn.Linear(384, 6))

    def forward(self, ids, inside, channel):
        n = len(ids)
        front = torch.stack([torch.full_like(channel, 101), channel + 1], 1)  # [CLS] and [unused0] or [unused1]
        ids = torch.cat([front, torch.where(inside, self.numbers[ids], 0)], 1)
        mask = torch.cat([torch.ones(n, 2, dtype=torch.bool, device=ids.device), inside], 1)
        out = self.bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        mean = (out * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(torch.cat([out[:, 0], mean], -1))


class OnDevice:
    """A pool of windows where the model is."""

    def __init__(self, data: Set, pool: dict, tokens):
        there = lambda values: torch.from_numpy(np.ascontiguousarray(values)).to(DEVICE)  # noqa: E731
        self.pool, self.tokens = pool, tokens
        self.first = there(data.offset[pool["text"]] + pool["start"])
        self.length, self.label = there(pool["length"].astype(np.int64)), there(pool["label"].astype(np.int64))
        self.channel = there(data.channel[pool["text"]].astype(np.int64))
        self.segment = there(pool["segment"].astype(np.int64))
        self.weight = there(data.kind_weights()[pool["text"]])

    def windows(self, some: np.ndarray):
        """Pieces, which places are inside, channels, and the windows' numbers."""
        most = int(self.pool["length"][some].max())
        chosen = torch.from_numpy(some).to(DEVICE)
        columns = torch.arange(most, device=DEVICE)
        inside = columns[None, :] < self.length[chosen][:, None]
        places = (self.first[chosen][:, None] + columns).clamp(max=len(self.tokens) - 1)
        return torch.where(inside, self.tokens[places].long(), 0), inside, self.channel[chosen], chosen


def slots_of(ids, pieces: int, bigrams: int):
    before = F.pad(ids[:, :-1], (1, 0), value=pieces)
    mixed = (before * 0x9E3779B1 + ids * 0x85EBCA77) & 0xFFFFFFFF
    return mixed >> (32 - (bigrams.bit_length() - 1))


def raw_of(logits):
    return logits[:, 1:].logsumexp(-1) - logits[:, 0]


def loss_of(logits, there: OnDevice, chosen, count: int, smoothing, benign_weight, teacher=None, share=0.0):
    """By segment: an attack has to show in one of its windows, a harmless text in none."""
    label, ids = there.label[chosen], there.segment[chosen]
    segment = F.pad((ids[1:] != ids[:-1]).long().cumsum(0), (1, 0))
    raw = raw_of(logits.detach())
    most = torch.full((count,), -1e9, device=DEVICE).scatter_reduce(0, segment, raw, "amax")
    part = torch.exp(2 * (raw - most[segment]))
    part = part / torch.zeros(count, device=DEVICE).index_add(0, segment, part)[segment]
    even = 1 / torch.zeros(count, device=DEVICE).index_add(0, segment, torch.ones_like(raw))[segment]
    mixed = torch.where(label == 0, 0.5 * part + 0.5 * even, 0.9 * part + 0.1 * even)
    weight = mixed * there.weight[chosen]
    weight = torch.where(label == 0, benign_weight * weight, weight)
    each = F.cross_entropy(logits, label, reduction="none", label_smoothing=smoothing)
    if teacher is not None:
        t = 1.5
        soft = F.kl_div(F.log_softmax(logits / t, -1), F.softmax(teacher / t, -1), reduction="none").sum(-1) * t * t
        # What the teacher says of a window counts for each alike: it needs no attack to show.
        return ((1 - share) * (each * weight).sum() + share * (soft * there.weight[chosen] * even).sum()) / count
    return (each * weight).sum() / count


def rate_at(done: float, warm: float = 0.05) -> float:
    return done / warm if done < warm else 0.5 * (1 + math.cos(math.pi * (done - warm) / (1 - warm))) + 0.01


@torch.no_grad()
def logits_of(model, there: OnDevice, is_teacher: bool, batch: int = 2048) -> np.ndarray:
    model.eval()
    order = np.argsort(there.pool["length"], kind="stable")
    found = np.zeros((len(order), 6), "f4")
    for place in range(0, len(order), batch):
        some = order[place : place + batch]
        ids, inside, channel, _ = there.windows(some)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=is_teacher):
            more = () if is_teacher else (slots_of(ids, model.count, model.o["bigrams"]),)
            logits = model(ids, *more, inside, channel)
        found[some] = logits.float().cpu().numpy()
    return found


def text_raw(logits: np.ndarray, pool: dict, rows: np.ndarray) -> np.ndarray:
    raw = np.logaddexp.reduce(logits[:, 1:], axis=1) - logits[:, 0]
    best = np.full(int(rows.max()) + 1, -np.inf)
    np.maximum.at(best, pool["text"], raw)
    return best[rows]


def pools(data: Set) -> list[dict]:
    train = np.flatnonzero(data.held == 0)
    return [draw(data, train, 100 + number) for number in range(POOLS)]


def teach(folder: Path, seed: int, epochs: int, seconds: float) -> None:
    torch.manual_seed(seed)
    data = Set(folder / "set.npz")
    model, unknown = Teacher(folder / "teacher.npz").to(DEVICE), Asset().unknown
    tokens = torch.from_numpy(data.tokens.astype(np.int32)).to(DEVICE)
    drawn, random = [OnDevice(data, pool, tokens) for pool in pools(data)], np.random.default_rng(seed)
    head = [p for n, p in model.named_parameters() if n.startswith("head")]
    body = [p for n, p in model.named_parameters() if not n.startswith("head")]
    optimiser = torch.optim.AdamW([{"params": body, "lr": 6e-5, "top": 6e-5}, {"params": head, "lr": 5e-4, "top": 5e-4}], weight_decay=0.01)
    plan = [(there, *some) for epoch in range(epochs) for there in [drawn[(epoch + seed) % POOLS]] for some in batches(there.pool, 256, random)]
    began = time.time()
    for step, (there, some, count) in enumerate(plan):
        # Whatever comes first: all steps, or the time that there is.
        done = max(step / len(plan), (time.time() - began) / seconds)
        if done >= 1:
            break
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = group["top"] * rate_at(done)
        ids, inside, channel, chosen = there.windows(some)
        # Some words are hidden, so that it does not learn texts by heart.
        hidden = (torch.rand(ids.shape, device=DEVICE) < 0.06) & inside
        with torch.autocast(DEVICE.type, torch.bfloat16):
            logits = model(torch.where(hidden, unknown, ids), inside, channel).float()
        loss = loss_of(logits, there, chosen, count, 0.005, 1.0)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 200 == 0:
            print(f"teacher {seed}: {step}/{len(plan)} loss {loss.item():.4f} {time.time() - began:.0f} s", flush=True)
    held = np.flatnonzero(data.held == 1)
    pool = all_windows(data, held)
    said = logits_of(model, OnDevice(data, pool, tokens), True)
    np.save(folder / f"held-{seed}.npy", said.astype("f2"))
    result = figures(text_raw(said, pool, held), data, held)
    print(f"teacher {seed}, {time.time() - began:.0f} s:", json.dumps(result), flush=True)
    (folder / f"teacher-{seed}.json").write_text(json.dumps(result))
    for number, there in enumerate(drawn):
        np.save(folder / f"logits-{seed}-{number}.npy", logits_of(model, there, True).astype("f2"))
    print(f"teacher {seed}: done after {time.time() - began:.0f} s", flush=True)


def study(folder: Path, out: Path, name: str, given: dict) -> None:
    o = {**OPTIONS, **given}
    torch.manual_seed(o["seed"])
    torch.backends.cuda.matmul.allow_tf32 = True
    data, asset = Set(folder / "set.npz"), Asset()
    model = Student(o, asset).to(DEVICE)
    tokens = torch.from_numpy(data.tokens.astype(np.int32)).to(DEVICE)
    drawn, random = [OnDevice(data, pool, tokens) for pool in pools(data)], np.random.default_rng(o["seed"])
    said = []
    if o["teacher"] > 0:
        files = lambda n: sorted(folder.glob(f"logits-*-{n}.npy"))  # noqa: E731
        said = [torch.tensor(np.mean([np.load(f).astype("f4") for f in files(n)], 0)).to(DEVICE) for n in range(POOLS)]
    tables = [model.pieces]
    rest = [p for n, p in model.named_parameters() if n != "pieces"]
    groups = [{"params": tables, "top": o["piece_rate"], "weight_decay": 0.0}, {"params": rest, "top": o["rate"], "weight_decay": o["decay"]}]
    optimiser = torch.optim.AdamW(groups, lr=1e-3)
    average = {n: p.detach().clone() for n, p in model.named_parameters()}
    plan = [(epoch % POOLS, *some) for epoch in range(o["epochs"]) for some in batches(drawn[epoch % POOLS].pool, o["batch"], random)]
    began = time.time()
    for step, (number, some, count) in enumerate(plan):
        done = max(step / len(plan), (time.time() - began) / o["seconds"])
        if done >= 1:
            break
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = group["top"] * rate_at(done)
        ids, inside, channel, chosen = drawn[number].windows(some)
        # Some windows are whole; of the others some words are unknown.
        lost = (torch.rand(ids.shape, device=DEVICE) < o["word_dropout"]) & (torch.rand((len(ids), 1), device=DEVICE) < 0.7)
        ids = torch.where(lost, asset.unknown, ids)
        logits = model(ids, slots_of(ids, model.count, o["bigrams"]), inside, channel)
        taught = said[number][chosen] if said else None
        loss = loss_of(logits, drawn[number], chosen, count, o["smoothing"], o["benign"], taught, o["teacher"])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        keep = min(0.998, (step + 1) / (step + 10))
        with torch.no_grad():
            for n, p in model.named_parameters():
                average[n].lerp_(p, 1 - keep)
        if step % 500 == 0:
            print(f"{name}: {step}/{len(plan)} loss {loss.item():.4f} {time.time() - began:.0f} s", flush=True)
    model.load_state_dict(average, strict=False)
    held = np.flatnonzero(data.held == 1)
    pool = all_windows(data, held)
    raw = text_raw(logits_of(model, OnDevice(data, pool, tokens), False), pool, held)
    result = {"options": o, "took": round(time.time() - began), "steps": step, **figures(raw, data, held)}
    print(f"{name}: mean recall {result['mean recall']}, {result['steps']} of {len(plan)} steps, {result['took']} s", flush=True)
    (out / f"{name}.json").write_text(json.dumps(result))
    tensors = {n: t.detach().float().cpu().numpy() for n, t in model.tensors().items()}
    tensors = {n: t.astype("f2") if n in ("pieces", "bigrams") else t for n, t in tensors.items()}
    np.savez(out / f"{name}.npz", labels=np.array(LABELS), **tensors)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--teach", type=int)
    options.add_argument("--epochs", type=int, default=4)
    options.add_argument("--seconds", type=float, default=1e9, help="at most so long for the teacher's steps")
    options.add_argument("--student", nargs=2)
    options.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    given = options.parse_args()
    if given.teach is not None:
        teach(given.folder, given.teach, given.epochs, given.seconds)
    if given.student:
        study(given.folder, given.out, given.student[0], json.loads(given.student[1]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains students by the encoder's opinions, on a machine with a GPU and PyTorch. Needs the folder that pack.py writes, and encoder.npz in it.

    train.py FOLDER --students RUN.json    RUN's students; writes OUT/NAME.npz and .json for each
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fast import Second
from reference import LABELS
from windows import WINDOW, Set, all_windows, batches, draw, figures
from wordpiece import Asset

POOLS = int(os.environ.get("POOLS", 4))
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPTIONS = {
    "dim": 128, "bigrams": 16384, "kernel": 7, "dilations": [1, 2, 4, 8], "heads": 8, "hidden": 96,
    "rate": 2e-3, "piece_rate": 1e-3, "dropout": 0.1, "word_dropout": 0.1, "smoothing": 0.005, "teacher": 0.9,
    "decay": 0.02, "pair_dropout": 0.3, "seed": 1, "benign": 2.0, "scale": 1.0, "recall": 0.0,
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


def kept_to(logits, teacher, recall: float = 0.0, t: float = 1.5):
    """How far a window's logits are from the teacher's; what it takes for an attack counts for more by `recall`."""
    far = F.kl_div(F.log_softmax(logits / t, -1), F.softmax(teacher / t, -1), reduction="none").sum(-1) * t * t
    return far * (1 + recall * torch.sigmoid(raw_of(teacher)))


def loss_of(logits, there: OnDevice, chosen, count: int, smoothing, benign_weight, teacher=None, share=0.0, recall=0.0):
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
        # What the teacher says of a window counts for each alike: it needs no attack to show.
        soft = kept_to(logits, teacher, recall)
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


class Learner:
    """A student, what moves its numbers, and their running mean, which is what ships."""

    def __init__(self, name: str, given: dict, asset: Asset):
        self.name, self.o = name, {**OPTIONS, **given}
        torch.manual_seed(self.o["seed"])
        self.model = Student(self.o, asset).to(DEVICE)
        rest = [p for n, p in self.model.named_parameters() if n != "pieces"]
        self.optimiser = torch.optim.AdamW([
            {"params": [self.model.pieces], "top": self.o["piece_rate"], "weight_decay": 0.0},
            {"params": rest, "top": self.o["rate"], "weight_decay": self.o["decay"]},
        ], lr=1e-3, fused=DEVICE.type == "cuda")  # fmt: skip
        self.average = [p.detach().clone() for p in self.model.parameters()]

    def learn(self, ids, inside, channel, loss_of_logits, step: int, steps: int) -> float:
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = group["top"] * rate_at(step / steps)
        # Some windows are whole; of the others some words are unknown.
        lost = (torch.rand(ids.shape, device=DEVICE) < self.o["word_dropout"]) & (torch.rand((len(ids), 1), device=DEVICE) < 0.7)
        ids = torch.where(lost, self.model.unknown, ids)
        loss = loss_of_logits(self.model(ids, slots_of(ids, self.model.count, self.o["bigrams"]), inside, channel), self.o)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, list(self.model.parameters()), 1 - min(0.999, (step + 1) / (step + 10)))
        return loss

    def state(self) -> tuple:
        return self.model.state_dict(), self.optimiser.state_dict(), self.average

    def go_on(self, state: tuple) -> None:
        model, optimiser, self.average = state
        self.model.load_state_dict(model)
        self.optimiser.load_state_dict(optimiser)

    def finish(self) -> None:
        with torch.no_grad():
            for p, mean in zip(self.model.parameters(), self.average):
                p.copy_(mean)


def spliced(ids, inside):
    """Windows that nobody has written: the beginning of one and a later part of another. Only the encoder, or who teaches it, knows what they are."""
    n, most = ids.shape
    other = torch.randperm(n, device=DEVICE)
    length = inside.sum(1)
    first = (torch.rand(n, device=DEVICE) * (length + 1)).long()
    second = (torch.rand(n, device=DEVICE) * (length[other] + 1)).long()
    size = (first + length[other] - second).clamp(2, WINDOW)
    places = torch.arange(int(size.max()), device=DEVICE).expand(n, -1)
    mine = places < first[:, None]
    found = torch.where(
        mine,
        ids.gather(1, places.clamp(max=most - 1)),
        ids[other].gather(1, (places - first[:, None] + second[:, None]).clamp(0, most - 1)),
    )
    return found, places < size[:, None]


def study(folder: Path, out: Path, run: dict) -> None:
    """All students learn from the same windows, and the encoder is asked once for all of them."""
    torch.backends.cuda.matmul.allow_tf32 = True
    data, asset = Set(folder / "set.npz"), Asset()
    tokens = torch.from_numpy(data.tokens.astype(np.int32)).to(DEVICE)
    drawn, random = [OnDevice(data, pool, tokens) for pool in pools(data)], np.random.default_rng()
    second = Second(dict(np.load(folder / "encoder.npz")), torch.bfloat16)
    learners = [Learner(name, given, asset) for name, given in run["students"].items()]

    def batch_of(number: int):
        there = drawn[number % POOLS]
        for some, count in batches(there.pool, run.get("batch", 512), random):
            yield there, *there.windows(some), count

    def each_step():
        for epoch in range(10**6):
            yield from batch_of(epoch)

    def take(step: int, steps: int, there, ids, inside, channel, chosen, count) -> list:
        mixed = bool(random.random() < run["spliced"])
        if mixed:
            ids, inside = spliced(ids, inside)
        said = second.logits(ids, inside, channel)

        def loss(logits, o):
            if mixed:
                return kept_to(logits, said, o["recall"]).mean()
            return loss_of(logits, there, chosen, count, o["smoothing"], o["benign"], said, o["teacher"], o["recall"])

        return [learner.learn(ids, inside, channel, loss, step, steps) for learner in learners]

    began, steps, first, windows = time.time(), run["steps"], 0, each_step()
    halfway = folder / "halfway.pt"
    if halfway.exists():
        first, states = torch.load(halfway, weights_only=False)
        for learner, state in zip(learners, states):
            learner.go_on(state)
    for step in range(first, steps):
        if time.time() - began > run.get("seconds", math.inf):
            torch.save((step, [learner.state() for learner in learners]), halfway)
            sys.exit(f"{step} of {steps} steps: the same command goes on from here")
        losses = take(step, steps, *next(windows))
        if step % 500 == 0:
            said = ", ".join(f"{learner.name} {loss.item():.4f}" for learner, loss in zip(learners, losses))
            print(f"{step}/{steps}: {said}, {time.time() - began:.0f} s", flush=True)
    halfway.unlink(missing_ok=True)
    held = np.flatnonzero(data.held == 1)
    pool = all_windows(data, held)
    there = OnDevice(data, pool, tokens)
    for learner in learners:
        learner.finish()
        raw = text_raw(logits_of(learner.model, there, False), pool, held)
        result = {"options": learner.o, "took": round(time.time() - began), "steps": steps, **figures(raw, data, held)}
        print(f"{learner.name}: mean recall {result['mean recall']}, {steps} steps, {result['took']} s", flush=True)
        (out / f"{learner.name}.json").write_text(json.dumps(result))
        tensors = {n: t.detach().float().cpu().numpy() for n, t in learner.model.tensors().items()}
        tensors = {n: t.astype("f2") if n in ("pieces", "bigrams") else t for n, t in tensors.items()}
        np.savez(out / f"{learner.name}.npz", labels=np.array(LABELS), **tensors)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--students", type=Path, required=True)
    options.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    given = options.parse_args()
    study(given.folder, given.out, json.loads(given.students.read_text()))


if __name__ == "__main__":
    main()

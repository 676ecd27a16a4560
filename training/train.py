#!/usr/bin/env python3
"""Trains students by what the encoder said, on a machine with a GPU and PyTorch. Needs the folder that pack.py writes, after `encoder.py --distil`.

    train.py FOLDER --students RUN.json --out OUT    RUN's students; writes OUT/NAME.npz and .json for each
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pools import DEVICE, Drawn, Lessons, held_out, logits_of, there
from reference import LABELS
from windows import figures
from wordpiece import Asset

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


def loss_of(logits, pool: Drawn, some, count: int, smoothing, benign_weight, teacher=None, share=0.0, recall=0.0):
    """By segment: an attack has to show in one of its windows, a harmless text in none."""
    chosen = there(some) if isinstance(some, np.ndarray) else some
    label, ids = pool.label[chosen], pool.segment[chosen]
    segment = F.pad((ids[1:] != ids[:-1]).long().cumsum(0), (1, 0))
    raw = raw_of(logits.detach())
    most = torch.full((count,), -1e9, device=DEVICE).scatter_reduce(0, segment, raw, "amax")
    part = torch.exp(2 * (raw - most[segment]))
    part = part / torch.zeros(count, device=DEVICE).index_add(0, segment, part)[segment]
    even = 1 / torch.zeros(count, device=DEVICE).index_add(0, segment, torch.ones_like(raw))[segment]
    mixed = torch.where(label == 0, 0.5 * part + 0.5 * even, 0.9 * part + 0.1 * even)
    weight = mixed * pool.weight[chosen]
    weight = torch.where(label == 0, benign_weight * weight, weight)
    each = F.cross_entropy(logits, label, reduction="none", label_smoothing=smoothing)
    if teacher is not None:
        # What the teacher says of a window counts for each alike: it needs no attack to show.
        soft = kept_to(logits, teacher, recall)
        return ((1 - share) * (each * weight).sum() + share * (soft * pool.weight[chosen] * even).sum()) / count
    return (each * weight).sum() / count


def rate_at(done: float, warm: float = 0.05) -> float:
    return done / warm if done < warm else 0.5 * (1 + math.cos(math.pi * (done - warm) / (1 - warm))) + 0.01


def text_raw(logits: np.ndarray, pool: dict, rows: np.ndarray) -> np.ndarray:
    raw = np.logaddexp.reduce(logits[:, 1:], axis=1) - logits[:, 0]
    best = np.full(int(rows.max()) + 1, -np.inf)
    np.maximum.at(best, pool["text"], raw)
    return best[rows]


class Average:
    """The running mean of a model's numbers, which is what ships."""

    def __init__(self, model: nn.Module, most: float):
        self.model, self.most, self.steps = model, most, 0
        self.mean = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def follow(self) -> None:
        self.steps += 1
        torch._foreach_lerp_(self.mean, list(self.model.parameters()), 1 - min(self.most, self.steps / (self.steps + 9)))

    @torch.no_grad()
    def take(self) -> None:
        for p, mean in zip(self.model.parameters(), self.mean):
            p.copy_(mean)


class Learner:
    """A student, and what moves its numbers."""

    def __init__(self, name: str, given: dict, asset: Asset):
        self.name, self.o = name, {**OPTIONS, **given}
        torch.manual_seed(self.o["seed"])
        self.model = Student(self.o, asset).to(DEVICE)
        rest = [p for n, p in self.model.named_parameters() if n != "pieces"]
        self.optimiser = torch.optim.AdamW([
            {"params": [self.model.pieces], "top": self.o["piece_rate"], "weight_decay": 0.0},
            {"params": rest, "top": self.o["rate"], "weight_decay": self.o["decay"]},
        ], lr=1e-3, fused=DEVICE.type == "cuda")  # fmt: skip
        self.average = Average(self.model, 0.999)

    def judge(self, ids, inside, channel):
        return self.model(ids, slots_of(ids, self.model.count, self.o["bigrams"]), inside, channel)

    def learn(self, ids, inside, channel, said, plain, done: float) -> torch.Tensor:
        self.model.train()
        o = self.o
        for group in self.optimiser.param_groups:
            group["lr"] = group["top"] * rate_at(done)
        # Some windows are whole; of the others some words are unknown.
        lost = (torch.rand(ids.shape, device=DEVICE) < o["word_dropout"]) & (torch.rand((len(ids), 1), device=DEVICE) < 0.7)
        logits = self.judge(torch.where(lost, self.model.unknown, ids), inside, channel)
        if plain:
            loss = loss_of(logits, *plain, o["smoothing"], o["benign"], said, o["teacher"], o["recall"])
        else:
            loss = kept_to(logits, said, o["recall"]).mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.average.follow()
        return loss

    def state(self) -> tuple:
        return self.model.state_dict(), self.optimiser.state_dict(), self.average.mean, self.average.steps

    def go_on(self, state: tuple) -> None:
        model, optimiser, self.average.mean, self.average.steps = state
        self.model.load_state_dict(model)
        self.optimiser.load_state_dict(optimiser)


def study(folder: Path, out: Path, run: dict) -> None:
    """All students learn from the same windows."""
    torch.backends.cuda.matmul.allow_tf32 = True
    asset, lessons = Asset(), Lessons(folder, "encoder")
    learners = [Learner(name, given, asset) for name, given in run["students"].items()]
    began, steps, first = time.time(), run["steps"], 0
    halfway = folder / "halfway.pt"
    if halfway.exists():
        first, states = torch.load(halfway, weights_only=False)
        for learner, state in zip(learners, states):
            learner.go_on(state)
    for step, lesson in zip(range(first, steps), lessons.batches(run.get("batch", 512), run["spliced"], np.random.default_rng(first))):
        if time.time() - began > run.get("seconds", math.inf):
            torch.save((step, [learner.state() for learner in learners]), halfway)
            sys.exit(f"{step} of {steps} steps: the same command goes on from here")
        losses = [learner.learn(*lesson, step / steps) for learner in learners]
        if step % 500 == 0:
            said = ", ".join(f"{learner.name} {loss.item():.4f}" for learner, loss in zip(learners, losses))
            print(f"{step}/{steps}: {said}, {time.time() - began:.0f} s", flush=True)
    halfway.unlink(missing_ok=True)
    pool, rows = held_out(lessons.data)
    for learner in learners:
        learner.average.take()
        learner.model.eval()
        raw = text_raw(logits_of(learner.judge, pool).cpu().numpy(), pool.pool, rows)
        result = {"options": learner.o, "took": round(time.time() - began), "steps": steps, **figures(raw, lessons.data, rows)}
        print(f"{learner.name}: mean recall {result['mean recall']}, {steps} steps, {result['took']} s", flush=True)
        (out / f"{learner.name}.json").write_text(json.dumps(result))
        tensors = {n: t.detach().float().cpu().numpy() for n, t in learner.model.tensors().items()}
        tensors = {n: t.astype("f2") if n in ("pieces", "bigrams") else t for n, t in tensors.items()}
        np.savez(out / f"{learner.name}.npz", labels=np.array(LABELS), **tensors)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--students", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    study(given.folder, given.out, json.loads(given.students.read_text()))


if __name__ == "__main__":
    main()

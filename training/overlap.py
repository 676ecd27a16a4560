#!/usr/bin/env python3
"""Is any training text an evaluation text, or nearly one?

    PORTCULLIS_DATA=FOLDER training/overlap.py set.jsonl.gz …     exits with 1 if there is one

Texts are normalised (NFKC, lower case, anything but letters and digits a space). A training text overlaps if

- it is equal to an evaluation text;
- the sets of their runs of five characters have a Jaccard index of 0.5 or more (three characters where the training
  text is shorter than 60);
- it has 60 % of the runs of eight words of an evaluation text of twelve words or more, or the other way around;
- it has an evaluation text of five to eleven words in it, word for word.

Prints counts by source and evaluation set, never a text.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import re
import sys
import unicodedata
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

JACCARD, CONTAINED, SHORT = 0.5, 0.6, 60
SENTENCE = range(5, 12)
ODD = np.uint64(0x9E3779B97F4A7C15)
NOT_WORD = re.compile(r"[\W_]+")
CJK = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])")


def normalise(text: str) -> str:
    return NOT_WORD.sub(" ", unicodedata.normalize("NFKC", text).lower()).strip()


def runs(codes: np.ndarray, length: int) -> np.ndarray:
    """The set of runs of so many codes, hashed; one run for what is shorter."""
    if len(codes) == 0:
        return np.zeros(0, np.uint64)
    length = min(length, len(codes))
    count = len(codes) - length + 1
    state = np.full(count, length, np.uint64)
    with np.errstate(over="ignore"):
        for i in range(length):
            state = (state ^ codes[i : i + count]) * ODD
            state ^= state >> np.uint64(29)
    return np.unique(state)


def characters(text: str, length: int) -> np.ndarray:
    return runs(np.frombuffer(text.encode("utf-32-le", "replace"), "<u4").astype(np.uint64), length)


def words_of(text: str) -> list[str]:
    return CJK.sub(r" \1 ", text).split()


def word_runs(text: str) -> tuple[np.ndarray, int]:
    words = words_of(text)
    codes = np.array([zlib.crc32(word.encode("utf-8", "replace")) for word in words], np.uint64)
    return runs(codes, 8) if len(words) >= 12 else np.zeros(0, np.uint64), len(words)


class Index:
    """From runs to the texts that have them."""

    def __init__(self, sets: list[np.ndarray]):
        self.sizes = np.array([len(one) for one in sets])
        every = np.concatenate(sets) if sets else np.zeros(0, np.uint64)
        owners = np.repeat(np.arange(len(sets)), self.sizes)
        order = np.argsort(every, kind="stable")
        self.runs, starts = np.unique(every[order], return_index=True)
        self.owners = owners[order].astype(np.int32)
        self.ends = np.append(starts, len(every))

    def shared(self, some: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
        """Texts that share `least` of these runs or more, and how many they share.

        The most common runs are looked up only for texts that share enough of the rest."""
        if len(some) == 0 or len(self.runs) == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        places = np.minimum(np.searchsorted(self.runs, some), len(self.runs) - 1)
        places = places[self.runs[places] == some]
        if len(places) < least:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        lengths = self.ends[places + 1] - self.ends[places]
        places = places[np.argsort(lengths, kind="stable")]
        late = int(least // 2)
        rare, common = places[: len(places) - late], places[len(places) - late :]
        counts = np.bincount(self.of(rare), minlength=len(self.sizes))
        found = np.flatnonzero(counts >= max(least - late, 1))
        if len(found) == 0:
            return found, found
        if late:
            counts = counts + np.bincount(self.of(common), minlength=len(self.sizes))
        found = found[counts[found] >= least]
        return found, counts[found]

    def of(self, places: np.ndarray) -> np.ndarray:
        parts = [self.owners[self.ends[place] : self.ends[place + 1]] for place in places]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)


class Evaluation:
    def __init__(self, folder: Path):
        texts = {}
        for path in sorted(folder.glob("*.jsonl.gz")):
            name = path.name.removesuffix(".jsonl.gz")
            for line in gzip.open(path, "rt", encoding="utf-8"):
                row = json.loads(line)
                meta = row.get("meta") or {}
                for text in (row["text"], *(meta.get(key) for key in ("tool_output", "goal", "attack", "behavior"))):
                    if isinstance(text, str):
                        texts.setdefault(normalise(text), name)
        if not texts:
            sys.exit(f"{folder}: no evaluation texts")
        texts.pop("", None)
        self.names, self.texts = list(texts.values()), texts
        self.fives = Index([characters(text, 5) for text in texts])
        self.threes = Index([characters(text, 3) if len(text) < 3 * SHORT else np.zeros(0, np.uint64) for text in texts])
        self.eights = Index([word_runs(text)[0] for text in texts])
        self.sentences = {}
        for text, name in texts.items():
            words = words_of(text)
            if len(words) in SENTENCE:
                self.sentences.setdefault(len(words), {})[" ".join(words)] = name

    def overlap(self, text: str) -> tuple[str, str] | None:
        """Which evaluation set a text overlaps with, and how."""
        text = normalise(text)
        if text in self.texts:
            return self.texts[text], "equal"
        index, length = (self.threes, 3) if len(text) < SHORT else (self.fives, 5)
        some = characters(text, length)
        found, counts = index.shared(some, JACCARD * len(some))
        alike = found[counts >= JACCARD * (len(some) + index.sizes[found] - counts)]
        if len(alike):
            return self.names[alike[0]], "alike"
        some, _ = word_runs(text)
        found, counts = self.eights.shared(some, 1)
        held = found[(counts >= CONTAINED * self.eights.sizes[found]) | (counts >= CONTAINED * len(some))]
        if len(held):
            return self.names[held[0]], "contained"
        words = words_of(text)
        for length, sentences in self.sentences.items():
            for start in range(len(words) - length + 1):
                name = sentences.get(" ".join(words[start : start + length]))
                if name:
                    return name, "holding a sentence"
        return None


def data_folder() -> Path:
    folder = os.environ.get("PORTCULLIS_DATA")
    if not folder:
        sys.exit("PORTCULLIS_DATA is not set: it names the folder of the corpora, with public_eval in it")
    return Path(folder)


def read_rows(path: Path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with opened as lines:
        for line in lines:
            yield json.loads(line)


EVALUATION = None


def overlap_of(text: str):
    return EVALUATION.overlap(text)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("files", nargs="+", type=Path)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    global EVALUATION
    EVALUATION = Evaluation(data_folder() / "public_eval")
    print(f"{len(EVALUATION.names)} evaluation texts", flush=True)
    texts = [(row.get("source", path.stem), row["text"]) for path in given.files for row in read_rows(path)]
    with multiprocessing.get_context("fork").Pool(given.jobs) as workers:
        said = workers.map(overlap_of, [text for _, text in texts], chunksize=200)
    rows = Counter((source, found) for (source, _), found in zip(texts, said))
    total, wrong = sum(rows.values()), 0
    for (source, found), count in sorted(rows.items(), key=str):
        if found:
            wrong += count
            print(f"{source}: {count} {found[1]} in {found[0]}")
    print(f"{total} training texts, {wrong} of them overlap with an evaluation text")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

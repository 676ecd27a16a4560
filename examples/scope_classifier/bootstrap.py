#!/usr/bin/env python3
"""Expands a few dozen labelled seeds into a training set, with the help of any model of OpenAI's protocol.

    python bootstrap.py --base-url http://127.0.0.1:11434/v1 --model llama3.1 --out examples.jsonl
    python bootstrap.py --dry-run        # prints what the model would be asked

Needs Python alone. The key, where there is one, is read from the environment variable that --key-env names. What the
model writes is checked, freed of repetitions and balanced; read it before you train on it.
"""

import argparse
import difflib
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

SCOPE = "analytics reporting, metrics, charts"
TOOLS = "query_metrics, chart_line, table_summary"
LABELS = {
    "in_scope": f"the user wants something of an assistant for {SCOPE}, or answers a question that it asked about them",
    "out_of_scope": f"the user wants something that has nothing to do with {SCOPE}, whatever was said before; or answers "
    "where nothing was asked, so that nobody can know what is meant",
}
LONGEST = 400
TOO_ALIKE = 0.88


class Refused(Exception):
    """What cannot be used, and what to do about it."""


def read_seeds(path):
    seeds = []
    with open(path, encoding="utf-8-sig") as file:
        try:
            lines = file.read().split("\n")
        except UnicodeDecodeError as error:
            raise Refused(f"{path} is not UTF-8: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{path}, line {number}: not JSON: {error}") from None
        why = problem(row)
        if why:
            raise Refused(f"{path}, line {number}: {why}")
        seeds.append(row)
    for label in LABELS:
        count = sum(seed["label"] == label for seed in seeds)
        if count < 5:
            raise Refused(f"{path} has {count} seeds of `{label}`: write at least 5, better 20")
    return seeds


def problem(row):
    """What is wrong with an example, if anything."""
    if not isinstance(row, dict):
        return "expected an object"
    if row.get("label") not in list(LABELS):
        return f"`label` must be one of {', '.join(LABELS)}"
    if not isinstance(row.get("user"), str) or not row["user"].strip():
        return "`user` must be a text"
    if not isinstance(row.get("last_assistant", ""), str):
        return "`last_assistant` must be a text"
    texts = [row["user"], row.get("last_assistant", "")]
    if any(len(text) > LONGEST for text in texts):
        return f"longer than {LONGEST} characters"
    if any(re.search("[\ud800-\udfff]", text) for text in texts):
        return "half a character: `\\ud800` to `\\udfff` come in pairs"
    return None


def prompt(seeds, label, count, turn):
    """Asks for examples of one label; every turn shows other seeds."""
    of_label = [seed for seed in seeds if seed["label"] == label]
    start = turn * 8 % len(of_label)
    shown = (of_label[start:] + of_label[:start])[:8]
    lines = "\n".join(
        json.dumps({"user": seed["user"], "last_assistant": seed.get("last_assistant", "")}, ensure_ascii=False)
        for seed in shown
    )
    return (
        f"We train a classifier that tells which messages an assistant for {SCOPE} should answer. "
        f"It has the tools {TOOLS}.\n\n"
        f"Write {count} new examples where {LABELS[label]}.\n\n"
        f"Here are some that we have:\n{lines}\n\n"
        "`user` is what the user writes; `last_assistant` is what the assistant said before, or empty. Vary topic, length, "
        "tone and wording: questions, orders, fragments, typos. In about a third of them the user's message is short and "
        "means nothing without `last_assistant` (\"yes, go on\", \"the second one\"). Do not repeat or paraphrase the "
        "examples.\n\n"
        'Answer with one JSON object a line, {"user": "...", "last_assistant": "..."}, and nothing else.'
    )


def ask(options, text):
    headers = {"Content-Type": "application/json"}
    key = os.environ.get(options.key_env, "").strip()
    if key:
        headers["Authorization"] = f"Bearer {key}"
    body = {
        "model": options.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": options.temperature,
    }
    url = options.base_url.rstrip("/") + "/chat/completions"
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=options.timeout) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        hint = f"; is the key in {options.key_env}?" if error.code in (401, 403) else ""
        raise Refused(f"{url} answers {error.code}{hint}") from None
    except (OSError, http.client.HTTPException) as error:
        raise Refused(f"{url} cannot be reached: {error}") from None
    except ValueError:
        # What it says may have the key in it.
        raise Refused(f"{url} cannot be asked: the address, or the key in {options.key_env}, is not one") from None
    try:
        return content(json.loads(answer))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError):
        raise Refused(f"{url} does not answer as OpenAI's protocol says") from None


def content(answer):
    """What the model says: a text, or a list of parts."""
    said = answer["choices"][0]["message"]["content"] or ""
    if isinstance(said, list):
        said = "".join(part["text"] for part in said if part.get("type") == "text")
    if not isinstance(said, str):
        raise TypeError
    return said


def parse(answer, label):
    """The usable examples of an answer, and how many were not. Fences and numbers before a line are forgiven."""
    good, bad = [], 0
    for line in answer.split("\n"):
        line = re.sub(r"^\s*(?:\d+[.)]|[-*])\s*", "", line).strip().rstrip(",")
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            bad += 1
            continue
        row = {**row, "label": label}
        if problem(row):
            bad += 1
        else:
            good.append({"user": row["user"].strip(), "last_assistant": row.get("last_assistant", "").strip(), "label": label})
    return good, bad


def key(row):
    """What two examples must not share: their words, without case and marks."""
    return " | ".join(
        " ".join(re.findall(r"\w+", row.get(part, "").casefold())) for part in ("user", "last_assistant")
    )


def is_new(row, keys):
    mine = key(row)
    return all(
        difflib.SequenceMatcher(None, mine, other, autojunk=False).quick_ratio() < TOO_ALIKE
        or difflib.SequenceMatcher(None, mine, other, autojunk=False).ratio() < TOO_ALIKE
        for other in keys
    )


def balanced(rows, target):
    """As many of each label, and no more than the target in all."""
    by_label = {label: [row for row in rows if row["label"] == label] for label in LABELS}
    each = min(target // len(LABELS), *(len(of_label) for of_label in by_label.values()))
    return [row for of_label in by_label.values() for row in of_label[:each]]


def rendered(row):
    """The text as the rule will see it: `input` of the pack has the same form."""
    text = (
        f"[USER] {row['user']}\n[LAST_ASSISTANT] {row.get('last_assistant', '')}\n"
        f"[TASK_SCOPE] {SCOPE}\n[AVAILABLE_TOOLS] {TOOLS}"
    )
    return {"text": text, "label": row["label"]}


def expand(options, seeds):
    rows, keys = list(seeds), [key(seed) for seed in seeds]
    wanted = options.target // len(LABELS)
    for turn in range(options.most_calls):
        counts = {label: sum(row["label"] == label for row in rows) for label in LABELS}
        label = min(counts, key=counts.get)
        if counts[label] >= wanted:
            break
        try:
            answer = ask(options, prompt(seeds, label, options.at_once, turn))
        except Refused as error:
            if len(rows) == len(seeds):
                raise
            # What came before has been paid for.
            print(f"{error}: stopping with what there is", file=sys.stderr)
            break
        good, bad = parse(answer, label)
        fresh = 0
        for row in good:
            if is_new(row, keys):
                rows.append(row)
                keys.append(key(row))
                fresh += 1
        print(
            f"{label}: {fresh} new, {len(good) - fresh} repeated, {bad} unusable; {len(rows)} in all", file=sys.stderr
        )
    return balanced(rows, options.target)


def check(options):
    """Says before the first call what would be found out after the last one has been paid for."""
    if not options.model:
        raise Refused("name a model with --model or OPENAI_MODEL")
    try:
        url = urllib.parse.urlsplit(options.base_url)
        is_url = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise Refused(f"--base-url {options.base_url}: expected an address such as https://api.example.com/v1")
    if os.path.isdir(options.out):
        raise Refused(f"--out {options.out} is a folder: name a file in it")
    there = os.path.exists(options.out)
    if there and os.path.samefile(options.out, options.seeds):
        raise Refused(f"--out {options.out} would write over --seeds {options.seeds}: name another file")
    if not os.access(options.out if there else os.path.dirname(os.path.abspath(options.out)), os.W_OK):
        raise Refused(f"--out {options.out} cannot be written")


def between(least, most, kind=int):
    """Reads a number of an option."""

    def read(text):
        number = kind(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return number

    read.__name__ = kind.__name__
    return read


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--seeds", default=os.path.join(here, "seeds.jsonl"))
    parser.add_argument("--out", default="examples.jsonl")
    parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"))
    parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", ""))
    parser.add_argument("--key-env", default="OPENAI_API_KEY", help="the environment variable with the key")
    parser.add_argument(
        "--target",
        type=between(len(LABELS), 100_000),
        default=160,
        help="how many examples in all (100 to 200 are a good start)",
    )
    parser.add_argument("--at-once", type=between(1, 1000), default=20, help="how many to ask for in one call")
    parser.add_argument("--most-calls", type=between(1, 100_000), default=30)
    parser.add_argument("--temperature", type=between(0, 10, float), default=1.0)
    parser.add_argument("--timeout", type=between(1, 86_400, float), default=120.0, help="seconds for one call")
    parser.add_argument("--dry-run", action="store_true", help="print the prompt and stop")
    options = parser.parse_args()
    try:
        seeds = read_seeds(options.seeds)
        if options.dry_run:
            print(prompt(seeds, "in_scope", options.at_once, 0))
            return 0
        check(options)
        rows = expand(options, seeds)
        with open(options.out, "w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(rendered(row), ensure_ascii=False) + "\n")
    except (Refused, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {len(rows)} examples to {options.out}: read them before you train on them", file=sys.stderr)
    if len(rows) < options.target - 1:
        print(f"fewer than {options.target}: the model repeats itself; run again, or write more seeds", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

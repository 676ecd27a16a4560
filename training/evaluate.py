#!/usr/bin/env python3
"""What a file finds in the public sets. Prints totals, never a text.

    PORTCULLIS_DATA=FOLDER training/evaluate.py FILE.safetensors [--json totals.json] [--threshold T]

Intervals are Wilson's, 95 %.
"""

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

from overlap import data_folder, read_rows
from reference import CHANNELS, Classifier, read_file, sigmoid
from wordpiece import Asset, WordPiece

TOOL = ("llm_pieval", "bipia_test", "agentdojo", "ipi_coding")
SETS = (
    "deepset_test", "jbb_artifacts", "bipia_test", "agentdojo", "llm_pieval", "ipi_coding", "notinject", "wildguard_benign",
    "xstest_safe", "fpr_panel",
)  # fmt: skip
# Of the panel: what people write to an assistant. The rest is what tools return.
REQUEST_KINDS = {"question", "user_query", "user_turn", "instruction", "task", "system_prompt"}
REQUEST_SOURCES = ("WritingBench", "TheBigPromptLibrary", "awesome-chatgpt", "CyberSecEval", "Alpaca", "AgentBench")
LANGUAGES = {
    "English": "en", "Hindi": "hi", "Spanish": "es", "German": "de", "Portuguese": "pt", "French": "fr", "Thai": "th", "Italian": "it",
    "zh-cn": "zh",
}  # fmt: skip


def channel_of(name: str, one: dict) -> str:
    if name == "fpr_panel":
        is_request = (one.get("meta") or {}).get("kind") in REQUEST_KINDS or one["source"].startswith(REQUEST_SOURCES)
        return "user" if is_request else "tool"
    return "tool" if name in TOOL else "user"


def buckets(name: str, one: dict) -> list[str]:
    """Which totals a row counts in."""
    meta, attack = one.get("meta") or {}, one["label"] != "benign"
    found = [f"{name} {'recall' if attack else 'false positives'}"]
    if name == "jbb_artifacts":
        found.append(f"  {name}, {meta['method']}")
    if name == "notinject":
        found.append(f"  {name}, {meta['category']}")
    if name == "bipia_test" and attack:
        found.append(f"  {name}, {meta['domain']}")
    if name == "fpr_panel":
        length = len(one["text"])
        size = next(text for most, text in ((100, "up to 100"), (500, "101 to 500"), (2000, "501 to 2,000"), (math.inf, "over 2,000")) if length <= most)
        language = meta.get("lang", "not stated")
        found += [f"  {name}, {size}", f"  {name}, {LANGUAGES.get(language, language)}", f"  {name}, {one['source']}"]
    return found


def wilson(hits: int, of: int) -> tuple[float, float]:
    share, scale = hits / of, 1 + 1.96**2 / of
    middle = (share + 1.96**2 / (2 * of)) / scale
    half = 1.96 / scale * math.sqrt(share * (1 - share) / of + 1.96**2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", type=Path)
    options.add_argument("--json", type=Path)
    options.add_argument("--threshold", type=float)
    options.add_argument("--others", type=Path, help="a threshold.json: totals at its other rates too")
    options.add_argument("--fast", action="store_true", help="with PyTorch")
    options.add_argument("--sets", nargs="*", default=SETS)
    given = options.parse_args()
    config, tensors = read_file(given.file)
    if given.fast:
        from fast import Fast as Network
    else:
        Network = Classifier
    model, pieces = Network(config, tensors), WordPiece(Asset())
    threshold = config["threshold"] if given.threshold is None else given.threshold
    calibration = config["calibration"]
    cuts = {"": threshold}
    if given.others:
        cuts |= {f" at {rate}": value for rate, value in json.loads(given.others.read_text())["at_other_rates"].items()}
    totals = defaultdict(lambda: [0, 0])

    def count(buckets: list[str], value: float) -> None:
        score = sigmoid(calibration["scale"] * value + calibration["shift"])
        for name, cut in cuts.items():
            for bucket in buckets:
                totals[bucket + name][0] += int(score >= cut)
                totals[bucket + name][1] += 1

    for name in given.sets:
        rows = list(read_rows(data_folder() / "public_eval" / f"{name}.jsonl.gz"))
        texts = [(one.get("meta") or {}).get("tool_output") or one["text"] for one in rows]
        channels = [CHANNELS[channel_of(name, one)] for one in rows]
        raw, _ = model.raw_of_texts([pieces.ids(text) for text in texts], channels, 512 if given.fast else 64)
        for one, value in zip(rows, raw):
            count(buckets(name, one), value)
        if name == "agentdojo":
            goals = sorted({one["meta"]["goal"] for one in rows if one["meta"].get("goal")})
            raw, _ = model.raw_of_texts([pieces.ids(goal) for goal in goals], [CHANNELS["tool"]] * len(goals))
            for value in raw:
                count(["agentdojo, raw goals, recall"], value)
    print(f"{given.file.name}, threshold {threshold}")
    for bucket, (hits, of) in totals.items():
        low, high = wilson(hits, of)
        print(f"{bucket:62}{100 * hits / of:6.1f} % ({100 * low:.1f}–{100 * high:.1f}) of {of}")
    if given.json:
        given.json.write_text(json.dumps({"threshold": threshold, "totals": totals}, indent=1) + "\n")


if __name__ == "__main__":
    main()

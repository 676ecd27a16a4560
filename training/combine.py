"""Texts made of parts: goals in frames, instructions in carriers and documents, suffixes, noise.

All of it draws from one `random.Random`, so that a seed makes one set.
"""

import json
import random
import re

SENTENCE_ENDS = re.compile(r"(?<=[.!?。])\s+|\n+")
JSON_STRING = re.compile(r"(?<=[:\[,]\s)\"([^\"\\]{6,})\"|(?<=[:\[,])\"([^\"\\]{6,})\"|(?<=: )'([^'\\]{6,})'")

# Crumbs of optimised suffixes: nothing here is from one, only the sorts of things that search finds.
GLUE = [" "] * 40 + ["", "\\", "](", ")", "{", "}", "**", "--", "::", ";", "\"", "'", "=", "+", "/", "<", ">", "|", "$", "_", "\n"]
CODE = [
    "}}%", "\\\\", "());", "printf(", "==>", "/*", "*/", "<br>", "</p>", "&nbsp;", "[/", "?>", "!--", "({", "})", "[]:", "=\\\"",
    "return(", "def ", "import ", "\\n", "\\t", "::", "->", "=>", "<?", "#{", "${", "@@", "%%", "[[", "]]", "var=", "NULL", "void",
    "self.", "().", "\\begin{", "\\end{", "\\textbf{", "\\frac{", "\\item", "$\\", "^{", "_{", "&&", "||", "<<", ">>", "~~", "```",
]  # fmt: skip
STEER = [
    "Sure", "here", "Now", "please", "write", "begin", "reply", "answer", "tutorial", "Step", "English", "similarly", "inverse", "sentence",
    "format", "title", "list", "paragraph", "example", "then", "opposite", "repeat", "first", "above", "translate", "output", "start", "with",
    "steps", "complete", "text", "JSON", "table", "summary", "style", "quote", "script", "certainly", "Ok", "Response", "instead", "again",
]  # fmt: skip
def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def goal_text(goal: str, rng: random.Random) -> str:
    goal = capital(goal.strip()) if rng.random() < 0.7 else goal.strip()
    return goal + rng.choice(["", ".", "."]) if goal[-1:] not in ".!?" else goal


def in_frame(frame: str, goal: str, rng: random.Random) -> str:
    """A goal in the place of {goal}; with a capital where a sentence starts."""
    place = frame.find("{goal}")
    before = frame[:place].rstrip(" ")
    if before == "" or (before[-1] in ".!?\n" and rng.random() < 0.9) or (before[-1] in ":\"" and rng.random() < 0.4):
        goal = capital(goal)
    after = frame[place + 6 :]
    if after[:1] in ".!?":
        goal = goal.rstrip(".!?")
    return frame[:place] + goal + after.replace("{goal}", goal)


def soup(words: dict[str, list[str]], rng: random.Random) -> str:
    """A suffix as an optimiser leaves it: crumbs of words, names from programs, other languages, markup; glued or not.

    `words` has lists `piece`, `name` and `foreign`."""
    length = rng.randint(6, 45)
    if rng.random() < 0.04:
        return " ".join(["!"] * length)
    shares = rng.choice(
        [(4, 2, 1, 2, 1), (2, 3, 3, 1, 1), (2, 1, 1, 4, 2), (1, 4, 1, 1, 3), (1, 1, 5, 2, 1), (5, 1, 0, 0, 1), (1, 1, 1, 5, 0), (2, 2, 2, 2, 2)]
    )
    glued = rng.choice([0.1, 0.3, 0.5, 0.7])
    text = ""
    for _ in range(length):
        kind = rng.choices(("piece", "name", "foreign", "steer", "code"), shares)[0]
        if kind == "code":
            word = rng.choice(CODE)
        elif kind == "steer":
            word = rng.choice(STEER)
            word = rng.choice([word, word, word.lower(), word.upper()])
        else:
            word = rng.choice(words[kind]).removeprefix("##")
            if kind == "foreign" and word > "\u2000":  # Scripts without spaces: a sign or two.
                word = word[: rng.randint(1, 2)]
            if kind != "piece" and len(word) > 5 and rng.random() < 0.4:
                word = word[: rng.randint(3, len(word))] if rng.random() < 0.6 else word[rng.randint(1, len(word) - 3) :]
            word = rng.choice([word, word, word, capital(word)])
        text += ("" if rng.random() < glued else rng.choice(GLUE)) + word
        if rng.random() < 0.15:
            text += rng.choice(".,:;!?)]}\"'*({[")
    return text.strip()


def plant(document: str, attack: str, rng: random.Random) -> tuple[str, list[int]]:
    """An attack at the start, in the middle or at the end of a text, and where it came to lie."""
    where = rng.random()
    ends = [match.end() for match in SENTENCE_ENDS.finditer(document)]
    if where < 0.2:
        place, between = 0, rng.choice(["\n", "\n\n", " "])
        text, start = attack + between + document, 0
    elif where < 0.55 or not ends:
        between = rng.choice(["\n", "\n\n", " ", " "])
        text, start = document.rstrip() + between + attack, len(document.rstrip()) + len(between)
    else:
        place = rng.choice(ends)
        before = document[:place].rstrip(" ")
        between = "\n" if before.endswith("\n") or rng.random() < 0.3 else " "
        before += "" if before.endswith("\n") else between
        text, start = before + attack + between + document[place:], len(before)
    return text, [start, start + len(attack)]


def plant_json(document: str, attack: str, rng: random.Random) -> tuple[str, list[int]] | None:
    """An attack in one of the strings of a JSON text."""
    strings = [match for match in JSON_STRING.finditer(document) if " " in match.group(0)] or list(JSON_STRING.finditer(document))
    if not strings:
        return None
    match = rng.choice(strings)
    group = next(i for i in (1, 2, 3) if match.group(i) is not None)
    start, end = match.span(group)
    escaped = json.dumps(attack, ensure_ascii=False)[1:-1] if group < 3 else attack.replace("'", "\\'")
    if rng.random() < 0.5:
        before = document[:end] + " "
        return before + escaped + document[end:], [len(before), len(before) + len(escaped)]
    return document[:start] + escaped + document[end:], [start, start + len(escaped)]


def in_carrier(carrier: str, content: str, rng: random.Random) -> tuple[str, list[int]]:
    """Content in the place of {slot}, escaped where the carrier is JSON."""
    place = carrier.find("{slot}")
    if carrier.lstrip()[:1] in "{[" and '"' in carrier[:place]:
        content = json.dumps(content, ensure_ascii=False)[1:-1]
    return carrier.replace("{slot}", content), [place, place + len(content)]


LEET = str.maketrans({"a": "4", "e": "3", "i": "1", "o": "0", "s": "5", "t": "7"})
LOOKALIKE = str.maketrans({"a": "а", "e": "е", "o": "о", "c": "с", "p": "р", "x": "х", "i": "і"})


def noise(text: str, rng: random.Random, attack: bool) -> str:
    """What happens to texts on their way: case, typing, spaces. Keeps the length roughly, not exactly."""
    kind = rng.random()
    if kind < 0.10:
        return text.lower()
    if kind < 0.125:
        return text.upper()
    if kind < 0.19:
        return typed(text, rng, rng.choice([0.01, 0.02, 0.04]))
    if kind < 0.23:
        return re.sub(r"[.,!?;:'\"]", "", text)
    if kind < 0.26:
        return re.sub(r" ", lambda _: rng.choice([" "] * 8 + ["  ", "\n"]), text)
    if kind < (0.28 if attack else 0.265):
        table = rng.choice([LEET, LOOKALIKE])
        return "".join(c.translate(table) if rng.random() < 0.6 else c for c in text)
    return text


def typed(text: str, rng: random.Random, rate: float) -> str:
    found = []
    for c in text:
        if c.isalpha() and rng.random() < rate:
            found.append(rng.choice(["", c + c, chr(rng.randrange(97, 123))]))
        else:
            found.append(c)
    return "".join(found)

#!/usr/bin/env python3
"""Rebuilds the labelled retrieval sets from pinned registry packages.

Needs: python3 (standard library only), pip, apt-get, dpkg-deb. Deterministic: same
packages in, same bytes out (sampling by SHA-256 of ids, gzip without a time stamp).

    python3 build.py [--work DIR] [--out DIR]

Packages (name, version, where):
    enterpriseattack 1.0.4 (PyPI, sdist)    tests/data/enterprise-attack.json  (MITRE ATT&CK Enterprise)
    cwe2 3.0.0 (PyPI, wheel)                cwe2/database_v49/cwec_v4.14.xml   (MITRE CWE 4.14)
    python3.11-doc 3.11.2-6+deb12u9 (Debian)  What's New sources + changelog   (CPython, PSF licence)
"""
import argparse, collections, glob, gzip, hashlib, html, json, os, re, subprocess, sys, tarfile, zipfile
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

PINS = {
    "attack": ("enterpriseattack", "1.0.4"),
    "cwe": ("cwe2", "3.0.0"),
    "pydoc": ("python3.11-doc", "3.11.2-6+deb12u9"),
}
SHA256 = {  # of the downloaded archives; a difference is reported and ends the build
    "enterpriseattack-1.0.4.tar.gz": "75806637ecba649033419bf1c945d0f11b75d6a1760a8688c764d891518b954b",
    "cwe2-3.0.0-py3-none-any.whl": "abef03eb853f5c1851df6af5167bd9fe73a53dddb119fdbc5c3afc7d50b9f55b",
    "python3.11-doc_3.11.2-6+deb12u9_all.deb": "5b3594189d6ef9a6963ce0347fd307a1cc67620ad697e144db366070e2e146be",
}
DEV_SHARE = 0.4
COMMON = set("the and are but for into not such that their then there these they this was will with has have can its from also which".split())


def rank(s):
    """A fixed pseudo-random number in [0,1) for a string."""
    return int.from_bytes(hashlib.sha256(("portcullis/" + s).encode()).digest()[:8], "big") / 2**64


def split_of(key):
    return "dev" if rank("split/" + key) < DEV_SHARE else "test"


def fetch(work):
    os.makedirs(work, exist_ok=True)
    def have(pat):
        got = glob.glob(os.path.join(work, pat))
        return got[0] if got else None
    out = {}
    n, v = PINS["attack"]
    if not have(f"{n}-{v}.tar.gz"):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", n, "-d", work, f"{n}=={v}"], check=True)
    out["attack"] = have(f"{n}-{v}.tar.gz")
    n, v = PINS["cwe"]
    if not have(f"{n}-{v}-*.whl"):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", work, f"{n}=={v}"], check=True)
    out["cwe"] = have(f"{n}-{v}-*.whl")
    n, v = PINS["pydoc"]
    if not have(f"{n}_*.deb"):
        subprocess.run(["apt-get", "download", f"{n}={v}"], check=True, cwd=work)
    out["pydoc"] = have(f"{n}_*.deb")
    for p in out.values():
        b = os.path.basename(p)
        h = hashlib.sha256(open(p, "rb").read()).hexdigest()
        if SHA256.get(b) != h:
            sys.exit(f"{b}: sha256 {h}, expected {SHA256.get(b)}")
    return out


def squeeze(s):
    return re.sub(r"\s+", " ", s).strip()


def write(out, name, docs, queries):
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, name + ".jsonl.gz")
    ids = {d["id"] for d in docs}
    assert len(ids) == len(docs), name
    assert len({q["id"] for q in queries}) == len(queries), name
    words = lambda t: {w for w in re.findall(r"[a-z0-9_]+", t.lower()) if len(w) > 2 and w not in COMMON}
    text = {d["id"]: words(d["title"] + " " + d["text"]) for d in docs}
    for q in queries:  # how much of the query stands word for word in its best relevant document
        w = words(q["text"])
        q["overlap"] = round(max(len(w & text[r]) for r in q["relevant"]) / max(len(w), 1), 3)
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=9) as z:
        for d in docs:
            z.write((json.dumps({"kind": "doc", **d}, ensure_ascii=False) + "\n").encode())
        for q in queries:
            assert q["relevant"] and set(q["relevant"]) <= ids, q
            z.write((json.dumps({"kind": "query", **q}, ensure_ascii=False) + "\n").encode())
    sp = collections.Counter(q["split"] for q in queries)
    rel = sum(len(q["relevant"]) for q in queries) / len(queries)
    print(f"{name}: {len(docs)} docs, {len(queries)} queries (dev {sp['dev']}, test {sp['test']}), "
          f"{rel:.2f} relevant/query, {os.path.getsize(path)} bytes")


# ---- MITRE ATT&CK -----------------------------------------------------------------------------

def attack_clean(s):
    s = re.sub(r"\(Citation:[^()]*(?:\([^()]*\)[^()]*)*\)", "", s)
    s = re.sub(r"\[([^\]]*)\]\((?:[^()]|\([^()]*\))*\)", r"\1", s)
    s = re.sub(r"</?(?:code|br|p|b|i)\s*/?>", " ", s)
    s = html.unescape(s)
    s = squeeze(s)
    return re.sub(r"\s+([.,;:])(?=\s|$)", r"\1", s)


def attack_load(path):
    with tarfile.open(path) as t:
        n, v = PINS["attack"]
        objs = json.load(t.extractfile(f"{n}-{v}/tests/data/enterprise-attack.json"))["objects"]
    live = lambda o: not o.get("revoked") and not o.get("x_mitre_deprecated")
    ext = lambda o: next(r["external_id"] for r in o["external_references"] if r["source_name"] == "mitre-attack")
    tech = {o["id"]: o for o in objs if o["type"] == "attack-pattern" and live(o)}
    by_ext = {ext(o): o for o in tech.values()}
    title = {}
    for e, o in by_ext.items():
        parent = by_ext.get(e.split(".")[0]) if "." in e else None
        title[e] = f"{parent['name']}: {o['name']}" if parent else o["name"]
    alive = {o["id"] for o in objs if live(o)}
    name_of = {o["id"]: o["name"] for o in objs if "name" in o}
    procs = []  # (text, the same with the actor's name replaced, technique id, relationship id)
    for o in objs:
        if (o["type"] == "relationship" and o["relationship_type"] == "uses" and live(o) and o.get("description")
                and o["target_ref"] in tech and o["source_ref"] in alive):
            text, actor = attack_clean(o["description"]), name_of[o["source_ref"]]
            neutral = re.sub(r"(?<!\w)" + re.escape(actor) + r"(?!\w)", "The actor", text)
            procs.append((text, neutral, ext(tech[o["target_ref"]]), o["id"].split("--")[1]))
    procs.sort(key=lambda p: p[3])
    return by_ext, title, procs


def merge(procs, neutral=False):
    """One record a distinct text: (text, first id, set of techniques)."""
    m = {}
    for named, plain, t, rid in procs:
        text = plain if neutral else named
        m.setdefault(text.lower(), [text, rid, set()])[2].add(t)
    return [tuple(x) for x in m.values() if len(x[0]) >= 30]


def attack_technique(by_ext, title, procs, out):
    docs = [{"id": e, "title": title[e], "text": attack_clean(o.get("description", ""))} for e, o in sorted(by_ext.items())]
    cand = []
    for text, rid, techs in merge(procs):
        # a query that says a right answer's own name is no paraphrase: left out
        names = [by_ext[t]["name"] for t in techs]
        if any(re.search(r"(?<!\w)" + re.escape(n) + r"(?!\w)", text, re.I) for n in names):
            continue
        cand.append((rank("at/" + rid), text, rid, sorted(techs)))
    cand.sort()
    per, qs = collections.Counter(), []
    for _, text, rid, techs in cand:
        if per[techs[0]] >= 4 or len(qs) >= 1200:
            continue
        per[techs[0]] += 1
        qs.append({"id": "p-" + rid[:13], "text": text, "relevant": techs, "split": split_of("at/" + techs[0])})
    write(out, "attack-technique", docs, qs)


def attack_similar(procs, out):
    recs = merge(procs, neutral=True)
    size = collections.Counter(t for _, _, ts in recs for t in ts)
    cand = sorted((rank("as/" + rid), text, rid, ts) for text, rid, ts in recs if len(ts) == 1)
    per, held = collections.Counter(), []
    for _, text, rid, ts in cand:
        (t,) = ts
        # 4..25 known cases: two or three of them are held out as queries, at least two stay to be found
        if 4 <= size[t] <= 25 and per[t] < (3 if size[t] >= 6 else 2) and len(held) < 700:
            per[t] += 1
            held.append((text, rid, t))
    out_ids = {rid for _, rid, _ in held}
    docs, of = [], collections.defaultdict(list)
    for text, rid, ts in recs:
        if rid in out_ids:
            continue
        d = "p-" + rid[:13]
        docs.append({"id": d, "title": "", "text": text})
        for t in ts:
            of[t].append(d)
    qs = [{"id": "p-" + rid[:13], "text": text, "relevant": sorted(of[t]), "split": split_of("as/" + t)} for text, rid, t in held]
    write(out, "attack-similar", docs, qs)


# ---- MITRE CWE --------------------------------------------------------------------------------

def cwe(path, out):
    with zipfile.ZipFile(path) as z:
        root = ET.fromstring(z.read("cwe2/database_v49/cwec_v4.14.xml"))
    ns = {"c": "http://cwe.mitre.org/cwe-7"}
    flat = lambda e: squeeze(" ".join(e.itertext())) if e is not None else ""
    docs, examples, by_cve = [], [], collections.defaultdict(set)
    for w in root.iterfind("c:Weaknesses/c:Weakness", ns):
        if w.get("Status") == "Deprecated":
            continue
        i = "CWE-" + w.get("ID")
        docs.append({"id": i, "title": w.get("Name"),
                     "text": squeeze(flat(w.find("c:Description", ns)) + " " + flat(w.find("c:Extended_Description", ns)))})
        for o in w.iterfind("c:Observed_Examples/c:Observed_Example", ns):
            cve, text = flat(o.find("c:Reference", ns)), flat(o.find("c:Description", ns))
            examples.append((text, cve, i))
            by_cve[cve].add(i)
    ids, names = {d["id"] for d in docs}, {d["id"]: d["title"] for d in docs}
    docs.sort(key=lambda d: int(d["id"][4:]))
    m = {}
    for text, cve, i in examples:
        rel = {i} | (by_cve[cve] if cve.startswith("CVE-") else set())
        rel |= {x for x in re.findall(r"CWE-\d+", text) if x in ids}
        clean = re.sub(r"\(?\bCWE-\d+(?:\s*[,/]\s*CWE-\d+)*\)?", "", text)
        clean = re.sub(r"\(\s*\)|\b(?:CVE|VU)[-#]\d[\d-]*", "", clean)
        clean = re.sub(r"\s+([.,;:)])(?=\s|$)", r"\1", squeeze(clean))
        if len(clean) < 30:
            continue
        e = m.setdefault(clean.lower(), [clean, cve, i, set()])
        e[3] |= rel
    cand = sorted((rank("cwe/" + c + cve), c, cve, i, sorted(rel)) for c, cve, i, rel in m.values())
    per, qs = collections.Counter(), []
    for _, text, cve, i, rel in cand:
        if per[i] >= 4 or len(qs) >= 1200 or len(rel) > 10:
            continue
        if any(names[r].lower() in text.lower() for r in rel):
            continue
        per[i] += 1
        qs.append({"id": f"{i}/{hashlib.sha256(text.encode()).hexdigest()[:8]}", "text": text, "relevant": rel, "split": split_of("cwe/" + i)})
    write(out, "cwe-observed", docs, qs)


# ---- CPython: What's New -> changelog entries ---------------------------------------------------

class News(HTMLParser):
    """Collects (section, issue numbers, text) of the entries of the rendered changelog."""
    def __init__(self):
        super().__init__()
        self.depth, self.buf, self.out, self.inpre = 0, [], [], 0
    def handle_starttag(self, tag, attrs):
        if tag == "li":
            self.depth += 1
            if self.depth == 1:
                self.buf = []
        elif tag in ("p", "br", "div", "pre"):
            self.buf.append(" ")
    def handle_endtag(self, tag):
        if tag == "li":
            self.depth -= 1
            if self.depth == 0:
                self.out.append(squeeze("".join(self.buf)))
    def handle_data(self, d):
        if self.depth:
            self.buf.append(d)


ROLE = re.compile(r":[a-zA-Z][\w:+-]*:`([^`]*)`")


def rst_plain(s):
    def role(m):
        t = m.group(1)
        if m.group(0).startswith(":pep:"):
            return re.sub(r"\s*<[^>]*>$", "", t) if "<" in t else "PEP " + t
        t = re.sub(r"\s*<[^>]*>$", "", t)          # `text <target>`
        return t[2:] if t.startswith("~.") else t.lstrip("~!.")
    s = ROLE.sub(role, s)
    s = re.sub(r"`([^`<]*?)\s*<[^>`]*>`_+", r"\1", s)
    s = re.sub(r"``([^`]*)``", r"\1", s)
    s = re.sub(r"(?<!\w)[*`]{1,2}([^*`]+)[*`]{1,2}(?!\w)", r"\1", s)
    s = re.sub(r"\|(\w+)\|", r"\1", s)
    return squeeze(s)


def rst_units(src):
    """Bullets and paragraphs of a reStructuredText page (code blocks and directives left out)."""
    units, cur = [], []
    def flush():
        if cur:
            units.append("\n".join(cur))
            cur.clear()
    for block in re.split(r"\n\s*\n", src):
        lines = block.split("\n")
        if lines[0].lstrip().startswith(".. ") or re.match(r"^\s{3,}", lines[0]):
            # a continuation paragraph of a bullet that carries the issue number belongs to the bullet
            if units and re.search(r":(?:issue|gh):`", block) and re.match(r"^\s{2,3}\S", lines[0]) and not lines[0].lstrip().startswith(".."):
                units[-1] += "\n" + block
            continue
        if re.match(r"^\s{2}\S", lines[0]) and units and not lines[0].lstrip().startswith(("* ", "- ")):
            units[-1] += "\n" + block
            continue
        for ln in lines:
            if re.match(r"^\s*[*-] ", ln):
                flush()
            cur.append(ln)
        flush()
    return units


ISSUE = re.compile(r":(issue|gh):`(\d+)`")


def pychanges(path, out, work):
    tree = os.path.join(work, "pydoc")
    if not os.path.isdir(tree):
        subprocess.run(["dpkg-deb", "-x", path, tree], check=True)
    base = os.path.join(tree, "usr/share/doc/python3.11/html")
    page = gzip.open(os.path.join(base, "whatsnew/changelog.html.gz"), "rt", encoding="utf-8").read()
    page = page[page.index('<section id="python-3-11-2-final"'):]
    page = page[:page.rindex("</section>")]
    p = News()
    p.feed(page)
    merged = {}
    for item in p.out:
        m = re.match(r"((?:(?:bpo|gh|gh-issue)-\d+(?:\s*,\s*|\s+and\s+|\s*:\s*|\s+))+)(.*)", item)
        if not m:
            continue
        nums = re.findall(r"(bpo|gh)-(?:issue-)?(\d+)", m.group(1))
        text = re.sub(r"\s*\([^()]*\b(?:bpo|gh)-\d+\b[^()]*\)", "", m.group(2))
        text = re.sub(r"\s*(?:[Ii]ssue )?\b(?:bpo|gh)-\d+\b", "", text).strip()
        text = re.sub(r"\s*(?:Original |Initial |Based on )?\(?\b(?:[Pp]atch|[Cc]ontributed|[Rr]eported|[Ss]uggested)(?: written| contributed)? by [^.]*\.?\)?$", "", text).strip()
        if len(text) < 20:
            continue
        e = merged.setdefault(text.lower(), [text, set()])
        e[1] |= {f"{a}-{b}" for a, b in nums}
    docs, of = [], collections.defaultdict(list)
    for text, nums in merged.values():
        d = "n-" + hashlib.sha256(text.encode()).hexdigest()[:12]
        docs.append({"id": d, "title": "", "text": text})
        for n in nums:
            of[n].append(d)
    have = set(merged)
    m = {}
    for f in sorted(glob.glob(os.path.join(base, "_sources/whatsnew/3.*.rst.txt"))):
        ver = os.path.basename(f)[:-8]
        if int(ver.split(".")[1]) < 5:
            continue
        for u in rst_units(open(f, encoding="utf-8").read()):
            nums = {("bpo-" if k == "issue" else "gh-") + n for k, n in ISSUE.findall(u)}
            if not 1 <= len(nums) <= 3:
                continue
            t = re.sub(r"\((?:[^()]|\([^()]*\))*:(?:issue|gh):`(?:[^()]|\([^()]*\))*\)", "", u)       # (Contributed by … in :issue:`…`.)
            t = re.sub(r"\(?\s*(?:Contributed|Patch|Suggested|Implemented|PEP written|Reported)\b[^()]*?:(?:issue|gh):`\d+`[^()]*\)?\.?", "", t)
            t = re.sub(r"(?:See |\(see |in |\()?(?:also )?(?:issue )?:(?:issue|gh):`\d+`(?: for (?:more )?(?:details|information))?\)?\.?", "", t)
            t = re.sub(r"^\s*[*-] ", "", t)
            t = re.sub(r"^\s*\.\. .*$", "", t, flags=re.M)
            t = rst_plain(t.replace("::", ":"))
            if len(t) < 40 or len(t) > 900 or ":issue:" in t or ":gh:" in t or re.search(r"\b(?:bpo|gh)-\d+", t):
                continue
            if t.lower() in have:          # word for word a changelog entry: no test of anything
                continue
            rel = sorted({d for n in nums for d in of[n]})
            if 1 <= len(rel) <= 8:
                e = m.setdefault(t.lower(), [t, ver, set(), sorted(nums)[0]])
                e[2] |= set(rel)
    cand = sorted((rank("py/" + t), t, ver, sorted(rel), n) for t, ver, rel, n in m.values())[:1200]
    qs = [{"id": f"w{ver}-{hashlib.sha256(t.encode()).hexdigest()[:8]}", "text": t, "relevant": rel, "split": split_of("py/" + n)}
          for _, t, ver, rel, n in cand]
    write(out, "python-changes", docs, qs)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    a = argparse.ArgumentParser()
    a.add_argument("--work", default=os.path.join(here, "dl"))
    a.add_argument("--out", default=os.path.join(here, "sets"))
    o = a.parse_args()
    got = fetch(o.work)
    by_ext, title, procs = attack_load(got["attack"])
    attack_technique(by_ext, title, procs, o.out)
    attack_similar(procs, o.out)
    cwe(got["cwe"], o.out)
    pychanges(got["pydoc"], o.out, o.work)


if __name__ == "__main__":
    main()

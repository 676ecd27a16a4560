//! Deep rules, with every part a process of its own: a service that classifies, a gate, a Redis, workers, a sidecar.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::docs::blocks;
use crate::fixtures::{Files, portcullis, run};
use crate::serve::collector;
use crate::served::{CONFIG, Connection, Served, serve};

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_mins(1);

/// A child that does not outlive its test.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn terminate(mut self) -> i32 {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        self.0.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Says 0.97 of a text with `fraud` in it, 0.02 of any other.
fn classifier() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/score", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || classify(stream.unwrap()));
        }
    });
    url
}

fn classify(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let guilty = String::from_utf8_lossy(&body).contains("fraud");
        let answer = json!({"score": if guilty { 0.97 } else { 0.02 }}).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        let sent = stream.get_mut().write_all((head + &answer).as_bytes());
        if sent.is_err() {
            return;
        }
    }
}

/// A pack with one deep rule, that waits so long for it.
fn pack(files: &Files, url: &str, wait_ms: u32) -> String {
    files.write(
        "pack.yaml",
        &format!(
            "policy_pack: payments\nversion: '1'\ntool_risks: {{__default__: high}}\n\
             gateway: {{sync: {{timeout_ms: 60000}}, async: {{breaker: {{enabled: false}}}}}}\n\
             risk_router: {{high_risk_wait_ms: {wait_ms}}}\n\
             async_rules:\n  - id: fraud\n    rule: http-classifier\n    events: [tool_call_start]\n    config:\n      \
             url: {url}\n      timeout_ms: 20000\n      request: {{text: '{{tool_args}}'}}\n      \
             response: {{score: /score, threshold: 0.8}}\n      action: stop\n"
        ),
    )
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn redis(port: u16) -> Process {
    let child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(std::env::temp_dir())
        .stdout(Stdio::null())
        .spawn()
        .expect("this test needs `redis-server` (Debian: apt install redis-server)");
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            started.elapsed() < PATIENCE,
            "the redis-server does not listen"
        );
        thread::sleep(Duration::from_millis(10));
    }
    Process(child)
}

fn worker(config: &str) -> Process {
    let mut command = portcullis();
    command.args(["worker", "--config", config, "--log", "error"]);
    Process(spawn(&mut command, "Working for ").0)
}

fn sidecar(pack: &str, port: u16) -> Process {
    let mut command = portcullis();
    command.args(["sidecar", "--policy", pack, "--log", "error", "--port"]);
    command.arg(port.to_string());
    Process(spawn(&mut command, "Sidecar on ").0)
}

/// Starts it, and waits for its first words.
fn spawn(command: &mut Command, first: &str) -> (Child, String) {
    let mut child = command
        .env("TESTER", crate::served::TOKEN)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with(first), "{line}");
    // Whoever prints must not find the pipe closed.
    thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    (child, line)
}

fn gate(files: &Files, deep: &str, pack: &str) -> (Served, String) {
    let config = files.write(
        "server.yaml",
        &format!("{CONFIG}policy: {{pack: {pack:?}}}\nevidence: {{durability: os}}\n{deep}"),
    );
    let served = Served::start(
        serve(&files.path().join("data")).args(["--config", &config, "--log", "error"]),
    );
    (served, config)
}

fn evaluate(connection: &mut Connection, run: &str, memo: &str, headers: &str) -> Value {
    let event = json!({
        "event_type": "tool_call_start", "run_id": run, "tool_name": "bank.pay",
        "tool_args": {"memo": memo},
    });
    let body = json!({"event": event});
    let evaluation = connection.post_with("/v1/guard/evaluate", &body.to_string(), headers);
    evaluation.unwrap()
}

fn verdict(evaluation: &Value) -> (&str, &str) {
    let decision = &evaluation["decision"];
    let text = |field: &str| decision[field].as_str().unwrap_or("?");
    (text("action"), text("rule_id"))
}

const GUILTY: (&str, &str) = ("STOP", "fraud");
const CLEAR: (&str, &str) = ("ALLOW", "__default__");
const FALLBACK: (&str, &str) = ("PAUSE", "__timeout__");

/// Asks until the verdict is this one. Each event has a run of its own, so that a late answer is nobody's.
fn until(server: &Served, wanted: (&str, &str)) {
    let started = Instant::now();
    let mut connection = server.connect();
    for n in 0.. {
        let evaluation = evaluate(&mut connection, &format!("until-{n}"), "fraud", "");
        if verdict(&evaluation) == wanted {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{evaluation}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_verdict_is_the_same_wherever_the_rule_runs() {
    let files = Files::new();
    let url = classifier();
    let pack = pack(&files, &url, 30_000);
    let (redis_port, sidecar_port) = (free_port(), free_port());
    let _redis = redis(redis_port);
    let _sidecar = sidecar(&pack, sidecar_port);
    let places = [
        String::new(),
        format!("deep: {{redis: {{url: 'redis://127.0.0.1:{redis_port}'}}}}\n"),
        format!("deep: {{sidecar: {{url: 'http://127.0.0.1:{sidecar_port}'}}}}\n"),
    ];
    for place in &places {
        let (server, config) = gate(&files, place, &pack);
        let worker = place.contains("redis").then(|| worker(&config));
        until(&server, GUILTY);
        let mut connection = server.connect();
        for (memo, expected) in [("lunch", CLEAR), ("a fraud", GUILTY)] {
            let evaluation = evaluate(&mut connection, memo, memo, "");
            assert_eq!(verdict(&evaluation), expected, "{place}{evaluation}");
            assert_eq!(evaluation["coverage"]["unjudged"], json!([]));
        }
        if let Some(worker) = worker {
            assert_eq!(worker.terminate(), 0);
        }
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

/// docs/deep.md, line by line, but for its ports.
#[test]
fn the_five_minutes_of_the_guide_are_as_told() {
    let page = blocks("docs/deep.md", "sh");
    let file = |name: &str| {
        let start = format!("cat > {name} <<'EOF'\n");
        let (_, rest) = page[0].split_once(&start).unwrap();
        rest.split_once("\nEOF\n").unwrap().0.to_owned()
    };
    let port = free_port().to_string();
    let files = Files::new();
    let script = files.write(
        "classifier.py",
        &file("classifier.py").replace("9000", &port),
    );
    let pack = files.write("pack.yaml", &file("pack.yaml").replace("9000", &port));
    let python = std::env::var("PORTCULLIS_PYTHON").expect("PORTCULLIS_PYTHON is not set");
    let mut classifier = Process(Command::new(python).arg(script).spawn().unwrap());
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err() {
        assert!(
            started.elapsed() < PATIENCE,
            "the classifier does not listen"
        );
        thread::sleep(Duration::from_millis(20));
    }
    let (server, _) = gate(&files, "", &pack);
    let (_, body) = page[1].split_once("-d '").unwrap();
    let body = body.trim_end().trim_end_matches('\'');
    let mut connection = server.connect();
    let mut ask = || {
        let answer = connection.post_with("/v1/guard/evaluate", body, "");
        answer.unwrap()
    };
    // A busy machine may take longer than the 200 ms that the tool is worth.
    let answer = (0..50)
        .map(|_| ask())
        .find(|answer| verdict(answer) == GUILTY);
    assert!(answer.is_some(), "{}", ask());
    classifier.kill();
    let answers: Vec<Value> = (0..7).map(|_| ask()).collect();
    for answer in &answers {
        assert_eq!(verdict(answer), FALLBACK, "{answer}");
        assert_eq!(answer["coverage"]["unjudged"], json!(["fraud"]));
    }
    assert_eq!(
        answers[6]["coverage"]["rules"][0]["outcome"],
        "circuit_open"
    );
}

/// Asks from four connections at once until told to stop, and counts what came back.
struct Load {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    guilty: usize,
    fallbacks: usize,
    slowest: Duration,
}

impl Load {
    fn start(server: &Served) -> Self {
        let (stop, stopped) = mpsc::channel();
        let mut connections: Vec<Connection> = (0..4).map(|_| server.connect()).collect();
        let thread = thread::spawn(move || {
            let mut tally = Tally::default();
            for round in 0.. {
                if stopped.try_recv().is_ok() {
                    break;
                }
                thread::scope(|scope| {
                    let asked: Vec<_> = connections
                        .iter_mut()
                        .enumerate()
                        .map(|(n, connection)| {
                            scope.spawn(move || {
                                let started = Instant::now();
                                let run = format!("load-{round}-{n}");
                                let evaluation = evaluate(connection, &run, "fraud", "");
                                (evaluation, started.elapsed())
                            })
                        })
                        .collect();
                    for asked in asked {
                        let (evaluation, took) = asked.join().unwrap();
                        tally.slowest = tally.slowest.max(took);
                        match verdict(&evaluation) {
                            GUILTY => tally.guilty += 1,
                            FALLBACK => tally.fallbacks += 1,
                            other => panic!("{other:?}: {evaluation}"),
                        }
                    }
                });
            }
            tally
        });
        Self { stop, thread }
    }

    fn end(self) -> Tally {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

/// What a gate waits for a rule when something dies.
const WAIT_MS: u32 = 1_000;
/// And how late an answer may be on a busy machine. A request that hangs takes far longer.
const SLACK: Duration = Duration::from_secs(5);

fn assert_no_hang(tally: &Tally) {
    let longest = Duration::from_millis(WAIT_MS.into()) + SLACK;
    assert!(tally.slowest < longest, "{tally:?}");
}

#[test]
fn a_killed_worker_and_a_killed_redis_cost_a_fallback_and_nothing_else() {
    let files = Files::new();
    let pack = pack(&files, &classifier(), WAIT_MS);
    let port = free_port();
    let mut redis_server = redis(port);
    let place = format!("deep: {{redis: {{url: 'redis://127.0.0.1:{port}'}}}}\n");
    let (server, config) = gate(&files, &place, &pack);
    let (mut one, _two) = (worker(&config), worker(&config));
    until(&server, GUILTY);

    let load = Load::start(&server);
    thread::sleep(Duration::from_millis(500));
    one.kill();
    thread::sleep(Duration::from_secs(1));
    let tally = load.end();
    assert!(tally.guilty > 0, "{tally:?}");
    assert_no_hang(&tally);

    let load = Load::start(&server);
    thread::sleep(Duration::from_millis(500));
    redis_server.kill();
    until(&server, FALLBACK);
    let tally = load.end();
    assert!(tally.guilty > 0 && tally.fallbacks > 0, "{tally:?}");
    assert_no_hang(&tally);

    // Nobody restarts the gate or the worker.
    let _redis_again = redis(port);
    until(&server, GUILTY);
}

#[test]
fn a_killed_sidecar_costs_a_fallback_and_nothing_else() {
    let files = Files::new();
    let pack = pack(&files, &classifier(), WAIT_MS);
    let port = free_port();
    let mut first = sidecar(&pack, port);
    let place = format!("deep: {{sidecar: {{url: 'http://127.0.0.1:{port}'}}}}\n");
    let (server, _) = gate(&files, &place, &pack);
    until(&server, GUILTY);

    let load = Load::start(&server);
    thread::sleep(Duration::from_millis(500));
    first.kill();
    until(&server, FALLBACK);
    let tally = load.end();
    assert!(tally.guilty > 0 && tally.fallbacks > 0, "{tally:?}");
    assert_no_hang(&tally);

    let _again = sidecar(&pack, port);
    until(&server, GUILTY);
}

/// One trace, from the caller over the gate into the worker.
#[test]
fn a_trace_goes_on_in_the_worker() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let id: Vec<u8> = (0..16)
        .map(|n| u8::from_str_radix(&TRACE[2 * n..2 * n + 2], 16).unwrap())
        .collect();
    let files = Files::new();
    let pack = pack(&files, &classifier(), 30_000);
    let port = free_port();
    let _redis = redis(port);
    let (collector, posts) = collector();
    let place = format!(
        "deep: {{redis: {{url: 'redis://127.0.0.1:{port}'}}}}\ntelemetry: {{otlp_endpoint: '{collector}'}}\n"
    );
    let (server, config) = gate(&files, &place, &pack);
    let worker = worker(&config);
    until(&server, GUILTY);
    let header = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
    let evaluation = evaluate(&mut server.connect(), "traced", "fraud", &header);
    assert_eq!(verdict(&evaluation), GUILTY);
    // Both send the rest of their spans as they stop.
    assert_eq!(worker.terminate(), 0);
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let has = |body: &[u8], part: &[u8]| body.windows(part.len()).any(|window| window == part);
    let mut wanted = vec!["evaluate", "deep_rule", "deep_evaluate"];
    while !wanted.is_empty() {
        let post = posts.recv_timeout(PATIENCE);
        let (_, body) = post.unwrap_or_else(|_| panic!("no span of the trace: {wanted:?}"));
        if has(&body, &id) {
            wanted.retain(|name| !has(&body, name.as_bytes()));
        }
    }
}

#[test]
fn what_keeps_a_worker_or_a_sidecar_from_starting_is_said() {
    let files = Files::new();
    let pack = pack(&files, "http://127.0.0.1:1/", 100);
    let bare = files.write("bare.yaml", "policy_pack: p\nversion: '1'\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["worker", "--policy", &pack], 2, "--redis URL"),
        (
            &["worker", "--policy", &pack, "--redis", "http://here"],
            2,
            "redis://",
        ),
        (
            &["worker", "--policy", &bare, "--redis", "redis://127.0.0.1"],
            2,
            "async_rules",
        ),
        (
            &[
                "worker",
                "--policy",
                "nowhere.yaml",
                "--redis",
                "redis://127.0.0.1",
            ],
            2,
            "nowhere.yaml",
        ),
        (&["sidecar", "--policy", &bare], 2, "async_rules"),
        (
            &["sidecar", "--policy", &pack, "--port", &port],
            3,
            "cannot listen on",
        ),
        (
            &["sidecar", "--policy", &pack, "--certificate", "x.pem"],
            2,
            "--key",
        ),
    ];
    for (args, code, said) in cases {
        let done = run(args, "");
        assert_eq!(done.code(), code, "{args:?}: {}", done.err());
        assert!(done.err().contains(said), "{args:?}: {}", done.err());
    }
}

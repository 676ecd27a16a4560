//! `portcullis serve`, and the commands that go with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::fixtures::{Files, root, run};
use crate::served::{CONFIG, Served, TOKEN, evidence, serve};

/// A server with [`CONFIG`] and more, and its files.
fn configured(more: &str, log: &str) -> (Served, Files) {
    let files = Files::new();
    let config = files.write("server.yaml", &format!("{CONFIG}{more}"));
    let served =
        Served::start(serve(&files.path().join("data")).args(["--config", &config, "--log", log]));
    (served, files)
}

#[test]
fn the_first_run_needs_no_configuration_and_its_commands_work() {
    let files = Files::new();
    let mut server = Served::start(&mut serve(&files.path().join("data")));
    let commands = server.commands(3);
    assert!(
        server
            .welcome
            .contains("token of agent `local`, for this run only: pc_"),
        "{}",
        server.welcome
    );
    assert!(server.welcome.contains("evidence in "));
    let answers: Vec<Value> = commands
        .iter()
        .map(|command| {
            assert!(command.contains(&server.url));
            let output = Command::new("sh")
                .args([
                    "-c",
                    &format!(
                        "{} -sS --fail --max-time 20 --noproxy '*'",
                        command.trim_end()
                    ),
                ])
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{command}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            serde_json::from_slice(&output.stdout).unwrap()
        })
        .collect();
    assert_eq!(answers[0]["name"], "portcullis");
    assert_eq!(answers[1]["result"]["allowed"], false);
    assert_eq!(
        answers[1]["result"]["violations"][0]["guardrailId"],
        "no-production-without-review"
    );
    assert_eq!(answers[2]["decision"]["action"], "STOP");
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let folder = evidence(&files.path().join("data"));
    assert_eq!(
        run(&["evidence", "verify", folder.to_str().unwrap()], "").code(),
        0
    );
}

#[test]
fn what_prevents_a_start_is_said_and_tells_input_from_service() {
    let files = Files::new();
    let wrong = files.write("wrong.yaml", "server: {prot: 1}\n");
    let unset = files.write(
        "unset.yaml",
        "auth: {tokens: [{agent: a, token: \"${PORTCULLIS_TEST_UNSET}\"}]}\n",
    );
    let none = files.write("none.yaml", "agent: {name: x}\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = files.path().join("data");
    let data = data.to_str().unwrap();
    for (args, code, said) in [
        (
            &["--config", wrong.as_str()] as &[&str],
            2,
            "did you mean `port`?",
        ),
        (&["--config", &unset], 2, "PORTCULLIS_TEST_UNSET"),
        (&["--config", &none], 2, "portcullis token new"),
        (&["--config", "nowhere.yaml"], 2, "nowhere.yaml"),
        (&["--port", &port], 3, "cannot listen on"),
        (
            &["--port", "0", "--policy", "nowhere.yaml"],
            2,
            "nowhere.yaml",
        ),
        (&["--port", "0", "--env", "produktion"], 2, "produktion"),
        (&["--port", "0", "--guardrails", "nowhere"], 2, "nowhere"),
        (&["--port", "0", "--log", "=loud="], 2, "log filter"),
    ] {
        let args: Vec<&str> = ["serve", "--data-dir", data]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let done = run(&args, "");
        assert_eq!(done.code(), code, "{args:?}: {}", done.err());
        assert!(done.err().contains(said), "{args:?}: {}", done.err());
    }
}

#[test]
fn a_check_is_asked_of_the_server_and_answered_by_exit_code() {
    let (server, files) = configured("", "error");
    let allowed = server.ask(&["check", "Rename a variable"]);
    assert_eq!(allowed.code(), 0, "{}", allowed.err());
    let blocked = server.ask(&[
        "check",
        "Deploy auth",
        "--stakes",
        "high",
        "--confidence",
        "0.9",
        "-x",
        "affectsProduction=true",
    ]);
    assert_eq!(blocked.code(), 1);
    insta::assert_snapshot!(format!("{}\n{}", allowed.out(), blocked.out()));
    let json = server.ask(&[
        "check",
        "Deploy auth",
        "-x",
        "affectsProduction=true",
        "--format",
        "json",
    ]);
    assert_eq!(
        (json.code(), &json.lines()[0]["allowed"]),
        (1, &Value::Bool(false))
    );
    let params = files.write(
        "action.json",
        r#"{"action": {"description": "x", "stakes": "low"}}"#,
    );
    assert_eq!(server.ask(&["check", "--params", &params]).code(), 0);

    // Wrong usage, wrong parameters, a wrong token.
    for (args, said) in [
        (&["check"] as &[&str], "required"),
        (&["check", "x", "-x", "novalue"], "key=value"),
        (&["check", "x", "--stakes", "hihg"], "did you mean `high`?"),
        (&["check", "x", "--confidence", "2"], "from 0 to 1"),
        (&["check", "x", "--confidence", "nan"], "from 0 to 1"),
        (
            &["check", "x", "--token", "wrong-token-of-nobody"],
            "PORTCULLIS_TOKEN",
        ),
        (
            &["check", "x", "--url", "ftp://x"],
            "not the URL of a server",
        ),
    ] {
        let done = server.ask(args);
        assert_eq!(done.code(), 2, "{args:?}: {}", done.err());
        assert!(done.err().contains(said), "{args:?}: {}", done.err());
    }
    // Nobody there.
    let done = server.ask(&[
        "check",
        "x",
        "--url",
        "http://127.0.0.1:1",
        "--retries",
        "0",
    ]);
    assert_eq!(done.code(), 3);
    assert!(done.err().contains("portcullis serve"), "{}", done.err());

    // Intents and lists go the same way.
    let intent = server.ask(&[
        "intent",
        "Deploy auth",
        "--note",
        "PR #42",
        "-x",
        "affectsProduction=true",
        "--format",
        "json",
    ]);
    assert_eq!(intent.code(), 1, "{}", intent.err());
    assert_eq!(intent.lines()[0]["guardrailStatus"]["allowed"], false);
    let listed = server.ask(&["guardrail", "list", "--format", "json"]);
    assert_eq!(listed.lines()[0]["total"], 5);

    // Everything that was answered is in the log, under the token's agent.
    let folder = evidence(&files.path().join("data"));
    let folder = folder.to_str().unwrap();
    let shown = run(&["evidence", "show", folder, "--format", "json"], "").lines();
    assert_eq!(shown.len(), 5);
    assert!(
        shown
            .iter()
            .all(|entry| entry["requesting_agent"] == "tester")
    );
    assert_eq!(
        run(
            &["evidence", "show", folder, "--blocked", "--format", "json"],
            ""
        )
        .lines()
        .len(),
        3
    );
    assert_eq!(
        run(&["evidence", "show", folder, "--agent", "nobody"], "").out(),
        ""
    );
    let tail = run(
        &[
            "evidence",
            "tail",
            folder,
            "--no-follow",
            "-n",
            "2",
            "--format",
            "json",
        ],
        "",
    )
    .lines();
    assert_eq!(
        tail.iter()
            .map(|entry| entry["seq"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [4, 5]
    );
    assert!(
        run(&["evidence", "tail", folder, "--no-follow"], "")
            .out()
            .contains("BLOCKED")
    );
    assert_eq!(server.terminate().0.code(), Some(0));

    // It holds, until somebody changes a single byte.
    let verified = run(&["evidence", "verify", folder, "--format", "json"], "");
    assert_eq!(
        (verified.code(), &verified.lines()[0]["entries"]),
        (0, &Value::from(5))
    );
    let segment = evidence(&files.path().join("data")).join("evidence-0000000000000001.ndjson");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|part| part == b"false").unwrap();
    bytes.splice(at..at + 5, *b"true ");
    std::fs::write(&segment, bytes).unwrap();
    let found = run(&["evidence", "verify", folder], "");
    assert_eq!(found.code(), 1);
    assert!(
        found.out().contains("evidence-0000000000000001.ndjson:"),
        "{}",
        found.out()
    );
    assert!(found.out().contains("THE CHAIN DOES NOT HOLD"));
    assert_eq!(run(&["evidence", "verify", "nowhere"], "").code(), 2);
}

#[test]
fn checks_and_lists_work_without_a_server() {
    let files = Files::new();
    let mine = files.write("mine/a.yaml", "guardrails:\n  - {id: no-x, name: No X, when: \"action.description.contains('x')\", severity: block, message: no x}\n");
    let folder = files.path().join("mine");
    let folder = folder.to_str().unwrap();
    for (args, code) in [
        (&["check", "--local", "Rename a variable"] as &[&str], 0),
        (
            &["check", "--local", "Deploy", "-x", "affectsProduction=true"],
            1,
        ),
        (&["check", "--local", "--guardrails", folder, "a x"], 1),
        (&["check", "--local", "--guardrails", &mine, "nothing"], 0),
        (&["check", "--local", " "], 2),
        (&["check", "--local", "--guardrails", "nowhere", "x"], 2),
        (&["check", "--guardrails", folder, "x"], 2),
        (&["guardrail", "lint"], 0),
        (&["guardrail", "lint", folder], 0),
        (&["guardrail", "lint", "nowhere"], 2),
        (&["guardrail", "list", "--local"], 0),
    ] {
        let done = run(args, "");
        assert_eq!(done.code(), code, "{args:?}: {}{}", done.out(), done.err());
    }
    let listed = run(
        &["guardrail", "list", "--local", "--guardrails", folder],
        "",
    );
    assert!(listed.out().contains("no-x"), "{}", listed.out());
    let broken = files.write(
        "broken.yaml",
        "guardrails:\n  - {id: x, name: X, when: '(', severity: blokc, message: m}\n",
    );
    let lint = run(&["guardrail", "lint", &broken], "");
    assert_eq!(lint.code(), 1, "{}", lint.err());
    assert!(
        lint.out().contains("broken.yaml:2") && lint.out().contains("did you mean `block`?"),
        "{}",
        lint.out()
    );
}

#[test]
fn a_new_token_is_one_that_the_configuration_takes() {
    let made = run(&["token", "new", "claude-ops", "--format", "json"], "")
        .lines()
        .remove(0);
    assert_eq!(made["agent"], "claude-ops");
    assert_eq!(made["variable"], "CSTP_TOKEN_CLAUDE_OPS");
    let token = made["token"].as_str().unwrap();
    assert!(token.starts_with("pc_") && token.len() >= 64);
    let text = run(&["token", "new", "claude-ops"], "").out();
    assert!(text.contains("export CSTP_TOKEN_CLAUDE_OPS=pc_"), "{text}");
    assert!(
        text.contains("token: \"${CSTP_TOKEN_CLAUDE_OPS}\""),
        "{text}"
    );
    assert!(!text.contains(token));
    assert_eq!(run(&["token", "new", "two words"], "").code(), 2);
}

/// The disk is full: a limit on the size of files makes one that has room for the memory, and for not many
/// checks.
#[test]
fn a_full_disk_fails_checks_and_the_log_says_which() {
    let files = Files::new();
    let config = files.write(
        "server.yaml",
        &format!("{CONFIG}rate_limits: {{enabled: false}}\ntelemetry: {{log_format: json}}\n"),
    );
    let mut limited = Command::new("bash");
    let data = files.path().join("data");
    limited
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_portcullis"),
            "serve",
            "--port",
            "0",
            "--config",
            &config,
            "--data-dir",
        ])
        .arg(&data)
        .env("TESTER", TOKEN);
    let server = Served::start(&mut limited);
    let mut connection = server.connect();
    let mut answered = 0;
    let failed = loop {
        let request_id = format!("request-{answered}");
        let answer = connection
            .check(&format!("check {answered}"), &request_id)
            .unwrap();
        if answer["result"]["allowed"] != true {
            break answer;
        }
        answered += 1;
        assert!(answered < 1000, "the limit is not in force");
    };
    assert_eq!(failed["error"]["code"], -32603, "{failed}");
    assert!(answered > 0);
    for _ in 0..3 {
        assert_eq!(
            connection.check("again", "again").unwrap()["error"]["code"],
            -32603
        );
    }
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let errors: Vec<&Value> = lines
        .iter()
        .filter(|line| line["level"] == "ERROR")
        .collect();
    let named = |id: &str| errors.iter().any(|line| line["span"]["request_id"] == id);
    assert!(
        named(&format!("request-{answered}")) && named("again"),
        "{log}"
    );
    assert!(!log.contains(TOKEN));
    let folder = evidence(&data);
    let shown = run(
        &[
            "evidence",
            "show",
            folder.to_str().unwrap(),
            "--event",
            "guardrail_check",
            "--format",
            "json",
        ],
        "",
    );
    assert_eq!(shown.lines().len(), answered);
    assert_eq!(
        run(&["evidence", "verify", folder.to_str().unwrap()], "").code(),
        0
    );
}

/// Takes one request after the other, and passes on what was posted where.
pub(crate) fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (posted, posts) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n")
                && stream.read_line(&mut head).is_ok_and(|read| read > 0)
            {}
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().unwrap())
            });
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body).unwrap();
            let _ = stream
                .get_mut()
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if posted.send((head, body)).is_err() {
                return;
            }
        }
    });
    (url, posts)
}

#[test]
fn spans_of_requests_are_exported() {
    let (url, posts) = collector();
    let (server, _files) = configured(
        &format!("agent: {{name: gate-under-test}}\ntelemetry: {{otlp_endpoint: \"{url}\"}}\n"),
        "error",
    );
    server.connect().check("x", "the-request-to-find").unwrap();
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let (head, body) = posts.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(head.starts_with("POST /v1/traces "), "{head}");
    assert!(
        head.to_ascii_lowercase()
            .contains("content-type: application/x-protobuf"),
        "{head}"
    );
    for wanted in [
        "service.name",
        "gate-under-test",
        "request",
        "the-request-to-find",
        "/cstp",
    ] {
        let found = body
            .windows(wanted.len())
            .any(|part| part == wanted.as_bytes());
        assert!(
            found,
            "{wanted} is not in {}",
            String::from_utf8_lossy(&body)
        );
    }
    assert!(
        !body
            .windows(TOKEN.len())
            .any(|part| part == TOKEN.as_bytes())
    );
}

#[test]
fn an_a2a_client_reads_the_agent_card() {
    let python = std::env::var("PORTCULLIS_PYTHON")
        .expect("PORTCULLIS_PYTHON is not set: scripts/test makes a .venv with scripts/requirements.txt and sets it");
    let (server, _files) = configured("", "error");
    let output = Command::new(python)
        .arg(root().join("scripts/a2a_card.py"))
        .arg(&server.url)
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(": ok").count(), 2, "{said}");
}

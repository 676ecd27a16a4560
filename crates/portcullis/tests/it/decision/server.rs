//! The same with a server, and both at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Memory, dozen, lasting};
use crate::fixtures::{Files, run, run_with};
use crate::served::{CONFIG, Served, TOKEN, evidence, memory, serve};

/// A server with a dozen decisions, its files and the memory's.
fn served() -> (Served, Files, String) {
    let files = Files::new();
    let config = files.write(
        "server.yaml",
        &format!("{CONFIG}rate_limits: {{enabled: false}}\n"),
    );
    let data = files.path().join("data");
    let path = memory(&data).to_str().unwrap().to_owned();
    let dozen = files.write("dozen.jsonl", &dozen());
    assert_eq!(
        run(&["decision", "import", &dozen, "-m", &path], "").code(),
        0
    );
    let server = Served::start(serve(&data).args(["--config", &config, "--log", "error"]));
    (server, files, path)
}

/// Without what depends on who answers, and when.
fn same(mut answer: Value) -> Value {
    let members = answer.as_object_mut().unwrap();
    members.remove("queryTimeMs");
    if !members.contains_key("reviews") {
        members.remove("agent");
    }
    answer
}

#[test]
fn a_server_answers_as_its_file_does() {
    let (server, _files, path) = served();
    for args in [
        &["show", "dec-3"] as &[&str],
        &["list"],
        &["list", "--limit", "3", "--next", "dec-9"],
        &["list", "--outcome", "failure", "--stakes", "medium"],
        &["query", "roll out the login service", "--reasons"],
        &["query", "Use SQLite for the memory", "--category", "use"],
        &["calibration"],
        &["calibration", "--category", "deploy"],
    ] {
        let args = [&["decision"], args, &["--format", "json"]].concat();
        let asked = server.ask(&args);
        assert_eq!(asked.code(), 0, "{args:?}: {}", asked.err());
        let read = run(&[&args[..], &["-m", &path]].concat(), "");
        assert_eq!(
            same(asked.lines().remove(0)),
            same(read.lines().remove(0)),
            "{args:?}"
        );
    }
    // Both refuse the same, with the same exit codes.
    for (args, code, said) in [
        (
            &["show", "dec-99"] as &[&str],
            2,
            "portcullis decision list",
        ),
        (&["review", "dec-99", "success"], 2, "there is no decision"),
        (&["review", "dec-1", "sucess"], 2, "did you mean `success`?"),
        (
            &["record", "another", "--id", "dec-1"],
            2,
            "another decision has it",
        ),
        (&["list", "--next", "dec-99"], 2, "take `next`"),
    ] {
        let args = [&["decision"], args].concat();
        for done in [
            server.ask(&args),
            run(&[&args[..], &["-m", &path]].concat(), ""),
        ] {
            assert_eq!(done.code(), code, "{args:?}: {}", done.err());
            assert!(done.err().contains(said), "{args:?}: {}", done.err());
        }
    }
    let nobody = server.ask(&[
        "decision",
        "list",
        "--url",
        "http://127.0.0.1:1",
        "--retries",
        "0",
    ]);
    assert_eq!(nobody.code(), 3);
    assert!(
        nobody.err().contains("--memory") && !nobody.err().contains("--local"),
        "{}",
        nobody.err()
    );
}

/// Asks until it is so.
fn soon(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "not within two seconds"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_and_the_command_line_see_each_others_decisions() {
    let (server, files, path) = served();
    let mut connection = server.connect();
    let recorded = run(
        &[
            "decision",
            "record",
            "Freeze the schema",
            "--id",
            "cli-1",
            "-m",
            &path,
        ],
        "",
    );
    assert_eq!(recorded.code(), 0, "{}", recorded.err());
    let connection = std::cell::RefCell::new(&mut connection);
    let call = |method: &str, params: Value| {
        let answer = connection
            .borrow_mut()
            .call(method, &params, "test")
            .unwrap();
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    };
    let finds = |id: &str| {
        let found = call(
            "cstp.queryDecisions",
            json!({"query": "freeze the schema", "limit": 50}),
        );
        let decisions = found["decisions"].as_array().unwrap();
        decisions.iter().any(|decision| decision["id"] == id)
    };
    soon(|| finds("cli-1"));

    // The other way round: also what the server says the agent is.
    call(
        "cstp.recordDecision",
        json!({"id": "http-1", "decision": "Thaw the schema"}),
    );
    let shown = run(
        &[
            "decision", "show", "http-1", "-m", &path, "--format", "json",
        ],
        "",
    );
    assert_eq!(shown.lines()[0]["agent"], "tester");
    assert_eq!(
        run(
            &["decision", "review", "http-1", "success", "-m", &path],
            ""
        )
        .code(),
        0
    );
    soon(|| call("cstp.getDecision", json!({"id": "http-1"}))["outcome"] == "success");
    soon(|| {
        call(
            "cstp.listDecisions",
            json!({"filters": {"outcome": ["success"]}}),
        )["total"]
            == 6
    });
    assert_eq!(
        run(&["decision", "forget", "cli-1", "-m", &path], "").code(),
        0
    );
    soon(|| !finds("cli-1"));

    // A file that is typed counts more than a server in the environment.
    let other = files.path().join("other.db");
    let other = other.to_str().unwrap();
    let done = server.ask(&["decision", "record", "Elsewhere", "-m", other]);
    assert_eq!(done.code(), 0, "{}", done.err());
    assert!(std::path::Path::new(other).exists());
    // The server hears of what was forgotten in its file a moment later.
    soon(|| {
        let done = run_with(
            &["decision", "list", "--url", &server.url, "--format", "json"],
            "",
            |command| {
                command
                    .env("PORTCULLIS_TOKEN", TOKEN)
                    .env("PORTCULLIS_MEMORY", other);
            },
        );
        done.lines()[0]["total"] == 13
    });
    assert_eq!(server.terminate().0.code(), Some(0));
    let folder = evidence(&files.path().join("data"));
    assert_eq!(
        run(&["evidence", "verify", folder.to_str().unwrap()], "").code(),
        0
    );
}

#[test]
fn an_export_is_a_moment_of_a_server_that_writes() {
    let (server, _files, path) = served();
    let mut connection = server.connect();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut written = 0;
        while stopped.try_recv().is_err() {
            let decision =
                json!({"id": format!("http-{written}"), "decision": format!("Decision {written}")});
            let answer = connection
                .call("cstp.recordDecision", &decision, "test")
                .unwrap();
            assert!(answer["result"].is_object(), "{answer}");
            written += 1;
        }
        written
    });
    let mut last = 12;
    for _ in 0..5 {
        let done = run(&["decision", "export", "-m", &path], "");
        assert_eq!(done.code(), 0, "{}", done.err());
        let lines = done.lines();
        assert!(lines.len() >= last);
        last = lines.len();
        // In their order, and none left out.
        for (n, line) in lines[12..].iter().enumerate() {
            assert_eq!(line["id"], format!("http-{n}"));
        }
    }
    stop.send(()).unwrap();
    let written = writer.join().unwrap();
    let done = run(&["decision", "export", "-m", &path], "");
    assert_eq!(done.lines().len(), 12 + written);
}

#[test]
fn checks_and_intents_tell_what_came_of_the_like() {
    let (server, files, _) = served();
    let action = [
        "Deploy the login service",
        "--category",
        "deploy",
        "-x",
        "affectsProduction=true",
        "-x",
        "codeReviewCompleted=true",
        "-x",
        "hasTests=true",
        "-x",
        "ciPassing=true",
    ];
    let check = server.ask(&[&["check"], &action[..]].concat());
    assert_eq!(check.code(), 0, "{}", check.err());
    let intent = server.ask(&[&["intent"], &action[..], &["--correlation-id", "plan-1"]].concat());
    assert_eq!(intent.code(), 0, "{}", intent.err());
    insta::assert_snapshot!(lasting(&format!("{}----\n{}", check.out(), intent.out())));
    // A check that no guardrail asks the memory about has nothing to tell.
    let check = server.ask(&["check", "Rename a variable"]);
    assert_eq!(check.out().lines().count(), 1, "{}", check.out());

    // What somebody wrote down cannot steer a terminal.
    let hostile = json!({"id": "dec-x", "decision": "Deploy the \u{1b}[2Jlogin service", "outcome": "failure", "lessons": "a\u{1b}]0;x\u{7}\nBLOCKED"});
    let file = files.write("hostile.json", &hostile.to_string());
    let memory = Memory::new();
    memory.ok(&["import", &file]);
    for args in [
        &["list"] as &[&str],
        &["show", "dec-x"],
        &["query", "login"],
    ] {
        assert!(!memory.ok(args).contains('\u{1b}'), "{args:?}");
    }
}

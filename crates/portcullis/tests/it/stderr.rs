//! Standard error that cannot be written: a full disk, a terminal that is gone.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::fixtures::{Files, portcullis};
use crate::served::serve;

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn an_answer_does_not_depend_on_what_is_said_beside_it() {
    let files = Files::new();
    files.put("key.txt", "AKIAIOSFODNN7EXAMPLE");
    files.put("none.txt", "");
    for (args, code) in [
        (&["scan", "--family", "rfc", "key.txt"][..], 1),
        (&["scan", "--family", "rfc", "none.txt"], 0),
        (&["scan", "--family", "rfc", "nowhere"], 2),
        (&["rule", "explain", "nope"], 2),
        (&["check", "x", "--url", "http://127.0.0.1:1"], 3),
    ] {
        let done = portcullis()
            .args(args)
            .current_dir(files.path())
            .stderr(full())
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(code), "{args:?}");
        let found = String::from_utf8(done.stdout).unwrap();
        assert_eq!(found.contains("AWS_KEY"), code == 1, "{args:?}: {found}");
    }
}

#[test]
fn a_server_that_cannot_log_stops_as_orderly_as_any() {
    let files = Files::new();
    let mut server = serve(&files.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(full())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut welcome = String::new();
    stdout.read_line(&mut welcome).unwrap();
    assert!(welcome.contains("listens on"), "{welcome}");
    let pid = server.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(sent.success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

//! Exports, and several processes with one file.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Memory, dozen};
use crate::fixtures::portcullis;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A memory whose export no pipe holds.
fn with_many() -> Memory {
    let memory = Memory::new();
    let padding = "x".repeat(100);
    let lines = (0..3000)
        .map(|n| format!("{{\"id\":\"dec-{n}\",\"decision\":\"Decision {n} {padding}\"}}\n"));
    let file = memory.files.write("many.jsonl", &lines.collect::<String>());
    memory.ok(&["import", &file]);
    memory
}

#[test]
fn an_export_is_whole_or_not_there() {
    let memory = Memory::with_a_dozen();
    memory
        .files
        .write("out/other.jsonl.partial", "of somebody who was killed");
    let out = memory.files.path().join("out");
    let at = |name: &str| out.join(name).to_str().unwrap().to_owned();
    assert!(
        memory
            .ok(&["export", &at("other.jsonl")])
            .starts_with("12 decisions in ")
    );
    assert_eq!(
        std::fs::read_to_string(at("other.jsonl")).unwrap(),
        memory.exported()
    );
    assert_eq!(memory.ok(&["export", "-"]), memory.exported());

    // A link stays one.
    std::os::unix::fs::symlink("real.jsonl", at("link.jsonl")).unwrap();
    std::fs::write(at("real.jsonl"), "old").unwrap();
    memory.ok(&["export", &at("link.jsonl")]);
    assert!(
        std::fs::symlink_metadata(at("link.jsonl"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        std::fs::read_to_string(at("real.jsonl")).unwrap(),
        memory.exported()
    );

    // What cannot be written to is named, and nothing is left behind.
    let before = names(&out);
    for (to, code, said) in [
        (at(""), 2, "is a directory: name a file in it"),
        (at("nowhere/x.jsonl"), 3, "nowhere/x.jsonl"),
        (at("real.jsonl/x"), 3, "cannot write"),
    ] {
        let done = memory.run(&["export", &to]);
        assert_eq!(done.code(), code, "{to}: {}", done.err());
        assert!(done.err().contains(said), "{to}: {}", done.err());
    }
    assert_eq!(names(&out), before);
}

#[test]
fn an_export_does_not_replace_the_memory() {
    let memory = Memory::with_a_dozen();
    let link = memory.files.path().join("link.jsonl");
    std::os::unix::fs::symlink(&memory.path, &link).unwrap();
    let before = memory.exported();
    let beside = format!("{}-wal", memory.path);
    for to in [memory.path.as_str(), link.to_str().unwrap(), &beside] {
        let done = memory.run(&["export", to]);
        assert_eq!(done.code(), 2, "{to}: {}", done.err());
        assert!(done.err().contains("would write over the memory"), "{to}");
    }
    assert_eq!(memory.exported(), before);
}

/// As root it could be.
#[test]
fn an_export_replaces_no_pipe_or_device() {
    let memory = Memory::with_a_dozen();
    let pipe = memory.files.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    memory.ok(&["export", pipe.to_str().unwrap()]);
    assert_eq!(reader.join().unwrap(), memory.exported());
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn a_full_disk_leaves_no_half_export() {
    let memory = with_many();
    let to = memory.files.path().join("backup.jsonl");
    let output = Command::new("bash")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_portcullis"),
        ])
        .args(["decision", "export", "--memory", &memory.path])
        .arg(&to)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("backup.jsonl"), "{error}");
    let left = names(memory.files.path());
    assert!(!left.iter().any(|name| name.contains("backup")), "{left:?}");
}

#[test]
fn who_reads_an_export_may_stop() {
    let memory = with_many();
    let mut child = portcullis()
        .args(["decision", "export", "--memory", &memory.path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::with_capacity(64, child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains("dec-0"), "{line}");
    drop(out);
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(String::from_utf8(done.stderr).unwrap(), "");

    // So may who reads a single word.
    let gone = Command::new("sh")
        .args([
            "-c",
            "\"$0\" decision forget dec-1 --memory \"$1\" | true",
            env!("CARGO_BIN_EXE_portcullis"),
            &memory.path,
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(gone.stderr).unwrap(), "");
}

#[test]
fn several_may_record_at_once() {
    let memory = Memory::new();
    let all: Vec<_> = (0..8)
        .map(|n| {
            portcullis()
                .args([
                    "decision",
                    "record",
                    &format!("Decision {n}"),
                    "--memory",
                    &memory.path,
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in all {
        let done = child.wait_with_output().unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    assert_eq!(memory.json(&["list"])["total"], 8);
}

/// The whole of a memory is read while others write, and each time it is one that there was.
#[test]
fn two_exports_do_not_mix() {
    let memory = Memory::with_a_dozen();
    let to = memory.files.path().join("same.jsonl");
    let all: Vec<_> = (0..4)
        .map(|_| {
            let mut command = portcullis();
            command
                .args(["decision", "export", "--memory", &memory.path])
                .arg(&to);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in all {
        assert!(child.wait().unwrap().success());
    }
    let exported = std::fs::read_to_string(&to).unwrap();
    assert_eq!(exported.lines().count(), dozen().lines().count());
    assert_eq!(exported, memory.exported());
}

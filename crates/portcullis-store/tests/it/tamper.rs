//! What somebody may do to the files of a log, and that it is found.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::LazyLock;

use portcullis_core::evidence::{Digest, Link, SigningKey};
use portcullis_store::evidence::{Options, VerifyOptions, segments, verify};
use tempfile::TempDir;

use crate::files::{check, copy, small, write};

/// Made once: to make one is to wait for the disk again and again.
static ORIGINAL: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    write(small(directory.path()), 12);
    directory
});

/// Whether a copy of a closed log is still whole after a change.
fn after(change: impl Fn(&Path)) -> bool {
    let changed = tempfile::tempdir().unwrap();
    copy(ORIGINAL.path(), changed.path());
    change(changed.path());
    check(changed.path()).is_ok()
}

fn lines(path: &Path) -> Vec<Vec<u8>> {
    let text = fs::read(path).unwrap();
    text.split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

#[test]
fn an_untouched_copy_is_whole() {
    assert!(after(|_| {}));
}

#[test]
fn every_single_byte_edit_is_found() {
    let directory = tempfile::tempdir().unwrap();
    // Every check verifies every signature, so there are only two: before the first entry and at the end.
    let options = Options {
        checkpoint_every: 100,
        segment_bytes: 600,
        ..small(directory.path())
    };
    write(options, 3);
    assert!(check(directory.path()).is_ok());
    let mut files: Vec<_> = segments(directory.path())
        .unwrap()
        .into_iter()
        .map(|segment| segment.path)
        .collect();
    files.push(directory.path().join("checkpoints.ndjson"));
    for path in files {
        let text = fs::read(&path).unwrap();
        let mut file = fs::File::options().write(true).open(&path).unwrap();
        let mut put = |at: usize, byte: u8| {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[byte]).unwrap();
        };
        for (at, &was) in text.iter().enumerate() {
            for byte in [was ^ 1, b'\n', b' ', 0] {
                if byte == was {
                    continue;
                }
                put(at, byte);
                assert!(
                    !check(directory.path()).is_ok(),
                    "{} {at} {byte}",
                    path.display()
                );
            }
            put(at, was);
        }
    }
    assert!(check(directory.path()).is_ok());
}

#[test]
fn every_removed_repeated_and_moved_line_is_found() {
    let entries = 12;
    let place = |path: &Path, n: usize| {
        let mut before = 0;
        for segment in segments(path).unwrap() {
            let lines = lines(&segment.path);
            if n < before + lines.len() {
                return (segment.path, lines, n - before);
            }
            before += lines.len();
        }
        panic!("{n}");
    };
    for n in 0..entries {
        assert!(
            !after(|path| {
                let (path, mut lines, at) = place(path, n);
                lines.remove(at);
                fs::write(path, lines.concat()).unwrap();
            }),
            "removed {n}"
        );
        assert!(
            !after(|path| {
                let (path, mut lines, at) = place(path, n);
                lines.insert(at, lines[at].clone());
                fs::write(path, lines.concat()).unwrap();
            }),
            "repeated {n}"
        );
        assert!(
            !after(|path| {
                let (path, mut lines, at) = place(path, n);
                let other = if at == 0 { 1 } else { at - 1 };
                lines.swap(at, other);
                fs::write(path, lines.concat()).unwrap();
            }),
            "moved {n}"
        );
    }
}

#[test]
fn every_removed_repeated_and_emptied_segment_is_found() {
    let count = segments(ORIGINAL.path()).unwrap().len();
    assert!(count >= 4);
    for n in 0..count {
        assert!(
            !after(|path| fs::remove_file(&segments(path).unwrap()[n].path).unwrap()),
            "removed {n}"
        );
        assert!(
            !after(|path| fs::write(&segments(path).unwrap()[n].path, "").unwrap()),
            "emptied {n}"
        );
        assert!(
            !after(|path| {
                let name = "evidence-0000000000000099.ndjson";
                fs::copy(&segments(path).unwrap()[n].path, path.join(name))
                    .map(drop)
                    .unwrap();
            }),
            "repeated {n}"
        );
    }
    assert!(!after(|path| {
        for segment in segments(path).unwrap() {
            fs::remove_file(segment.path).unwrap();
        }
    }));
}

#[test]
fn every_cut_of_the_end_is_found() {
    let directory = tempfile::tempdir().unwrap();
    write(small(directory.path()), 5);
    let last = segments(directory.path()).unwrap().pop().unwrap();
    let file = fs::File::options().write(true).open(&last.path).unwrap();
    for len in (0..last.bytes).rev() {
        file.set_len(len).unwrap();
        assert!(!check(directory.path()).is_ok(), "{len}");
    }
}

#[test]
fn other_checkpoints_are_found() {
    assert!(!after(|path| fs::remove_file(
        path.join("checkpoints.ndjson")
    )
    .unwrap()));
    assert!(!after(|path| fs::write(
        path.join("checkpoints.ndjson"),
        ""
    )
    .unwrap()));
    // Those of another log, of the same length and by another key, and by the same.
    for seed in [1, 2] {
        let (mine, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = |path, seed| Options {
            key: Some(SigningKey::from_seed([seed; 32])),
            ..small(path)
        };
        write(options(mine.path(), 1), 4);
        write(options(other.path(), seed), 6);
        let name = "checkpoints.ndjson";
        fs::copy(other.path().join(name), mine.path().join(name)).unwrap();
        assert!(!check(mine.path()).is_ok(), "{seed}");
    }
}

#[test]
fn a_whole_log_written_anew_is_found_by_its_key_or_by_one_receipt() {
    let (mine, forged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let links = write(small(mine.path()), 4);
    let key = std::fs::read_to_string(mine.path().join("signing.pub")).unwrap();
    write(small(forged.path()), 3);
    assert!(check(forged.path()).is_ok());
    let check = |options: &VerifyOptions| {
        let report = verify(forged.path(), options, |_| {}).unwrap();
        assert!(!report.is_ok());
        report.faults[0].problem.to_string()
    };
    let keyed = VerifyOptions {
        public_key: Some(key.trim().parse().unwrap()),
        ..VerifyOptions::default()
    };
    assert!(check(&keyed).contains("signed by key"));
    let expecting = |link| VerifyOptions {
        expected: Some(link),
        ..VerifyOptions::default()
    };
    assert!(check(&expecting(links[3])).contains("entry 4 was expected"));
    let other = Link {
        seq: 2,
        digest: Digest::ZERO,
    };
    assert!(check(&expecting(other)).contains("was expected"));
}

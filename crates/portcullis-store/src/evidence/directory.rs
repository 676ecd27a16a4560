//! The files of a log, by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) const CHECKPOINTS: &str = "checkpoints.ndjson";
pub(super) const LOCK: &str = "LOCK";
pub(super) const SIGNING_KEY: &str = "signing.key";
pub(super) const PUBLIC_KEY: &str = "signing.pub";

const PREFIX: &str = "evidence-";
const SUFFIX: &str = ".ndjson";
/// As many digits as 2^53 has, so that names sort as numbers do.
const DIGITS: usize = 16;

/// A file of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it is.
    pub path: PathBuf,
    /// The number of its first entry, by its name.
    pub first: u64,
    /// How long it was when it was listed.
    pub bytes: u64,
}

/// Where the segment is that begins with this entry.
pub(super) fn segment_path(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{first:0DIGITS$}{SUFFIX}"))
}

/// The segments in their order.
pub(super) fn list(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some(first) = entry.file_name().to_str().and_then(first_of) {
            segments.push(Segment {
                path: entry.path(),
                first,
                bytes: entry.metadata()?.len(),
            });
        }
    }
    segments.sort_by_key(|segment| segment.first);
    Ok(segments)
}

fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_named_by_their_first_entry() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for first in [40, 1, 1_000_000] {
            fs::write(segment_path(path, first), "x").unwrap();
        }
        for other in [
            "evidence-1.ndjson",
            "evidence-000000000000000x.ndjson",
            CHECKPOINTS,
        ] {
            fs::write(path.join(other), "").unwrap();
        }
        let segments = list(path).unwrap();
        let firsts: Vec<u64> = segments.iter().map(|segment| segment.first).collect();
        assert_eq!(firsts, [1, 40, 1_000_000]);
        assert_eq!(segments[0].path, segment_path(path, 1));
        assert_eq!(segments[0].bytes, 1);
    }
}

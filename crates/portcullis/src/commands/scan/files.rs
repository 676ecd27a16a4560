//! Which files, and what is in them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};

use crate::cli::ScanArgs;
use crate::output::{Failure, tell};

/// How much of a file is looked at to tell whether it is text.
const SNIFFED: usize = 8 << 10;

/// What to scan.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// In the order of their paths.
    pub(super) files: Vec<Target>,
    /// What could not be reached, and why.
    pub(super) problems: Vec<String>,
    /// How many hidden files and folders were left out.
    pub(super) hidden: usize,
}

/// One thing to scan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Stdin,
    File(PathBuf),
}

impl Target {
    /// As people and programs read it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stdin => "<stdin>".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Its bytes; none if there are more than so many.
    pub(super) fn read(&self, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        // A file can grow while it is read, and a pipe has no length.
        let limit = max_bytes.saturating_add(1);
        match self {
            Self::Stdin => {
                let stdin = io::stdin();
                if stdin.is_terminal() {
                    tell("reading text from the terminal; end with Ctrl-D");
                }
                stdin.lock().take(limit).read_to_end(&mut bytes)?;
            }
            Self::File(path) => {
                File::open(path)?.take(limit).read_to_end(&mut bytes)?;
            }
        }
        Ok((bytes.len() as u64 <= max_bytes).then_some(bytes))
    }
}

/// What the arguments name. What cannot be reached does not keep the rest from being scanned.
pub(super) fn collect(args: &ScanArgs) -> Result<Targets, Failure> {
    let excluded = excluded(&args.exclude)?;
    let ours: Vec<PathBuf> = [&args.output, &args.baseline]
        .into_iter()
        .flatten()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let mut targets = Targets::default();
    let mut files = BTreeSet::new();
    if args.paths.is_empty() {
        files.insert(Target::Stdin);
    }
    for path in &args.paths {
        if path == Path::new("-") {
            files.insert(Target::Stdin);
        } else {
            walk(path, args, &excluded, &mut targets, &mut files);
        }
    }
    let is_ours = |target: &Target| match target {
        Target::Stdin => false,
        Target::File(path) => path.canonicalize().is_ok_and(|path| ours.contains(&path)),
    };
    files.retain(|target| ours.is_empty() || !is_ours(target));
    targets.files = files.into_iter().collect();
    Ok(targets)
}

fn excluded(globs: &[String]) -> Result<Override, Failure> {
    let mut builder = OverrideBuilder::new(".");
    for glob in globs {
        let wrong = |why: &str| Failure::Input(anyhow::anyhow!("--exclude {glob:?}: {why}"));
        // As of a variable that is not set. Taken for a glob, it would leave out everything.
        if glob.trim().trim_start_matches("./").is_empty() {
            return Err(wrong(
                "it names nothing: name a glob, such as `target/`, or leave the option out",
            ));
        }
        if glob.starts_with('!') {
            return Err(wrong(
                "nothing is taken back in by `!`: name what to leave out, and write `\\!` for a name that begins so",
            ));
        }
        // `./x` is the one here, not each of that name.
        let glob = match glob.strip_prefix("./") {
            Some(here) => format!("/{}", here.trim_start_matches("./").trim_start_matches('/')),
            None => glob.clone(),
        };
        // In an override, what begins with `!` is left out.
        builder
            .add(&format!("!{glob}"))
            .map_err(|error| Failure::Input(anyhow::anyhow!("--exclude {glob}: {error}")))?;
    }
    builder
        .build()
        .map_err(|error| Failure::Input(anyhow::Error::from(error).context("--exclude")))
}

fn walk(
    path: &Path,
    args: &ScanArgs,
    excluded: &Override,
    targets: &mut Targets,
    files: &mut BTreeSet<Target>,
) {
    let left_out = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&left_out);
    let hidden = args.hidden;
    let mut builder = WalkBuilder::new(path);
    builder
        .standard_filters(!args.no_ignore)
        // What is found must not depend on whose machine it is, or on whether git is used.
        .git_global(false)
        .require_git(false)
        .hidden(false)
        .overrides(excluded.clone())
        .filter_entry(move |entry| {
            let name = entry.file_name();
            if entry.depth() == 0 || !name.as_encoded_bytes().starts_with(b".") {
                return true;
            }
            let pass = hidden && name != ".git";
            if !hidden && name != ".git" {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            pass
        });
    for entry in builder.build() {
        match entry {
            Ok(entry) => {
                // What is named is scanned, whether it is a file, a link or a pipe; a link to a folder is walked as one.
                let is_folder = match entry.depth() {
                    0 => entry.path().is_dir(),
                    _ => entry.file_type().is_some_and(|kind| kind.is_dir()),
                };
                let wanted = entry.depth() == 0 || entry.file_type().is_some_and(|k| k.is_file());
                let path = entry.into_path();
                if wanted && !is_folder && !excluded.matched(&path, false).is_ignore() {
                    let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
                    files.insert(Target::File(path));
                }
            }
            Err(error) => targets.problems.push(unreachable(path, &error)),
        }
    }
    targets.hidden += left_out.load(Ordering::Relaxed);
}

/// The error names the path in most cases, but not in the same words as ours.
fn unreachable(root: &Path, error: &ignore::Error) -> String {
    let (path, reason) = cause(error);
    let path = path.unwrap_or(root);
    format!("cannot read {}: {reason}", path.display())
}

fn cause(error: &ignore::Error) -> (Option<&Path>, String) {
    match error {
        ignore::Error::WithPath { path, err } => (Some(path), cause(err).1),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            cause(err)
        }
        ignore::Error::Io(error) => {
            // The walker puts its own words around the system's.
            let inner = error.get_ref().and_then(|inner| inner.source());
            let system = inner.and_then(|inner| inner.downcast_ref::<io::Error>());
            (None, system.unwrap_or(error).to_string())
        }
        other => (None, other.to_string()),
    }
}

/// Bytes as text, none if they are not. UTF-8 where nothing says otherwise; what is not valid is
/// replaced, one character for each mistake.
pub(super) fn decode(bytes: Vec<u8>) -> Option<String> {
    let utf16 = |unit: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks(2).map(|pair| match pair {
            [a, b] => unit([*a, *b]),
            // Half a character at the end is none.
            _ => 0xfffd,
        });
        char::decode_utf16(units)
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    };
    if bytes.starts_with(b"\xff\xfe") {
        return Some(utf16(u16::from_le_bytes));
    }
    if bytes.starts_with(b"\xfe\xff") {
        return Some(utf16(u16::from_be_bytes));
    }
    if bytes[..bytes.len().min(SNIFFED)].contains(&0) {
        return None;
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    match text.strip_prefix('\u{feff}') {
        Some(rest) => Some(rest.to_owned()),
        None => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text_by_their_mark() {
        for (bytes, text) in [
            (&b""[..], Some("")),
            (b"\xef\xbb\xbfa", Some("a")),
            (b"a\xffb", Some("a\u{fffd}b")),
            (b"\xff\xfea\0\xe9\0", Some("aé")),
            (b"\xfe\xff\0a\0\xe9", Some("aé")),
            (b"\xff\xfea\0b", Some("a\u{fffd}")),
            (b"\xff\xfe\0\xd8a\0", Some("\u{fffd}a")),
            (b"a\0b", None),
        ] {
            assert_eq!(decode(bytes.to_vec()).as_deref(), text, "{bytes:?}");
        }
    }
}

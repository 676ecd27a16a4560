//! Findings with their place in a file, and which of them count.

use std::collections::HashMap;

use portcullis_core::canonical;
use portcullis_core::detectors::{Finder, Finding, Kind};

use super::excerpt::{self, Excerpt, Excerpts};

/// What lets a line pass.
const ALLOW: &str = "portcullis:allow";

/// A finding in a file.
#[derive(Debug)]
pub(super) struct Located<'f> {
    pub(super) finding: Finding<'f>,
    pub(super) start: Position,
    /// One past the last character.
    pub(super) end: Position,
    /// The same for the same finding in the next scan; says nothing about the value.
    pub(super) fingerprint: String,
    /// Where people read it.
    pub(super) excerpt: Option<Excerpt>,
}

impl Located<'_> {
    /// `secrets/aws-access-key`
    pub(super) fn rule_id(&self) -> String {
        rule_id(&self.finding)
    }
}

/// Line and column, from 1; a column is a code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// What a text holds.
#[derive(Debug, Default)]
pub(super) struct Found<'f> {
    pub(super) located: Vec<Located<'f>>,
    /// How many a line's `portcullis:allow` let pass.
    pub(super) allowed: usize,
}

/// Everything in a text that `wanted` wants and no comment lets pass.
pub(super) fn find<'f>(
    finder: &'f Finder,
    excerpts: Option<&Excerpts>,
    (path, text): (&str, &str),
    heeds_allow: bool,
    wanted: impl Fn(&Finding<'_>) -> bool,
) -> Result<Found<'f>, serde_json::Error> {
    let findings = finder.find(text);
    let secret = excerpt::secret(&findings);
    let mut found = Found::default();
    let mut cursor = Cursor::new(text);
    let mut allowed = (0, None);
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for finding in findings.iter().filter(|finding| wanted(finding)) {
        cursor.advance(finding.range.start);
        if allowed.0 != cursor.line {
            allowed = (cursor.line, allowance(cursor.whole_line()));
        }
        if heeds_allow && allowed.1.is_some_and(|ids| allows(ids, finding)) {
            found.allowed += 1;
            continue;
        }
        let mut end = cursor;
        end.advance(finding.range.end);
        let count = counts.entry(finding.id).or_default();
        *count += 1;
        found.located.push(Located {
            start: cursor.position(),
            end: end.position(),
            fingerprint: fingerprint(finding, path, text, *count)?,
            excerpt: excerpts.map(|excerpts| excerpts.of(text, finding, &secret)),
            finding: finding.clone(),
        });
    }
    Ok(found)
}

pub(super) fn rule_id(finding: &Finding<'_>) -> String {
    format!("{}/{}", finding.kind.as_str(), finding.id)
}

/// A secret is the same wherever it is moved, and another one in its place is not. Personal data are
/// too easy to guess for a digest to hide them: the n-th of a file is known by its number.
fn fingerprint(
    finding: &Finding<'_>,
    path: &str,
    text: &str,
    count: usize,
) -> Result<String, serde_json::Error> {
    let id = rule_id(finding);
    match finding.kind {
        Kind::Pii => canonical::digest(&(id, path, count)),
        _ => canonical::digest(&(id, &text[finding.range.clone()])),
    }
}

/// A place in a text that only moves on, so that all places together cost one pass.
#[derive(Debug, Clone, Copy)]
struct Cursor<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    line_start: usize,
    column: usize,
}

impl<'t> Cursor<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
            line_start: 0,
            column: 1,
        }
    }

    fn advance(&mut self, to: usize) {
        let passed = &self.text[self.at..to];
        if let Some(last) = passed.rfind('\n') {
            self.line += passed.bytes().filter(|byte| *byte == b'\n').count();
            self.line_start = self.at + last + 1;
            self.at = self.line_start;
            self.column = 1;
        }
        self.column += self.text[self.at..to].chars().count();
        self.at = to;
    }

    fn position(&self) -> Position {
        Position {
            line: self.line,
            column: self.column,
        }
    }

    /// The line it is on.
    fn whole_line(&self) -> &'t str {
        let line = &self.text[self.line_start..];
        line.split('\n').next().unwrap_or(line)
    }
}

/// What a line allows: the ids after the word, empty for everything.
fn allowance(line: &str) -> Option<&str> {
    let (_, after) = line.split_once(ALLOW)?;
    let after = after.trim_start();
    let is_id = |c: char| c.is_ascii_alphanumeric() || "-_/,".contains(c);
    let end = after.find(|c: char| !is_id(c)).unwrap_or(after.len());
    let ids = &after[..end];
    // `*/`, `-->` and the like close a comment and name nothing.
    let names = ids.starts_with(|c: char| c.is_ascii_alphanumeric());
    Some(if names { ids } else { "" })
}

fn allows(ids: &str, finding: &Finding<'_>) -> bool {
    ids.is_empty()
        || ids
            .split(',')
            .any(|id| id == finding.id || id == rule_id(finding))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_allows_everything_or_what_it_names() {
        for (line, allowance_of_it) in [
            ("key = x", None),
            ("key = x # portcullis:allow", Some("")),
            ("/* portcullis:allow */ x", Some("")),
            ("<!-- portcullis:allow --> x", Some("")),
            ("x # portcullis:allow -- a test key", Some("")),
            ("x # portcullis:allow aws-key", Some("aws-key")),
            (
                "x # portcullis:allow aws-key,secrets/b: why",
                Some("aws-key,secrets/b"),
            ),
        ] {
            assert_eq!(allowance(line), allowance_of_it, "{line}");
        }
    }

    #[test]
    fn an_unknown_id_allows_nothing() {
        let finder = Finder::new(&[Kind::Secrets], &["rfc"]).unwrap();
        let text = "AKIAIOSFODNN7EXAMPLE # portcullis:allow ";
        for (id, left) in [
            ("", 0),
            ("aws-access-key", 0),
            ("a,secrets/aws-access-key", 0),
            ("aws", 1),
        ] {
            let text = format!("{text}{id}\n");
            let found = find(&finder, None, ("f", &text), true, |_| true).unwrap();
            assert_eq!((found.located.len(), found.allowed), (left, 1 - left));
            let found = find(&finder, None, ("f", &text), false, |_| true).unwrap();
            assert_eq!(found.located.len(), 1);
        }
    }

    proptest! {
        #[test]
        fn the_cursor_counts_lines_and_code_points(text in "[aé\n\r]{0,30}", cuts in prop::collection::vec(0usize..40, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| text.floor_char_boundary(cut)).collect();
            cuts.sort_unstable();
            let mut cursor = Cursor::new(&text);
            for cut in cuts {
                cursor.advance(cut);
                let line = text[..cut].matches('\n').count() + 1;
                let column = text[..cut].rsplit('\n').next().unwrap().chars().count() + 1;
                prop_assert_eq!(cursor.position(), Position { line, column });
                prop_assert_eq!(cursor.whole_line(), text.split('\n').nth(line - 1).unwrap());
            }
        }
    }
}

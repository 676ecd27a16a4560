//! A line for people to read, with the values in it masked.

use std::ops::Range;

use portcullis_core::detectors::{Finder, FinderError, Finding, Kind};

use crate::output::printable;

/// How many bytes are shown around a finding.
const BEFORE: usize = 60;
const AFTER: usize = 40;

/// How much of an attack is shown.
const SHOWN: usize = 120;

/// How far around the excerpt values are looked for, so that none is shown in part.
const MARGIN: usize = 1 << 10;

/// How many characters of a value may be shown.
const VISIBLE: usize = 4;

/// A part of a line, and where the finding is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    /// In characters.
    pub(super) marked: Range<usize>,
}

/// Makes excerpts. It knows all secrets and personal data, whatever the scan is for: a line with an
/// attack in it may hold a key too.
#[derive(Debug)]
pub(super) struct Excerpts {
    finder: Finder,
}

impl Excerpts {
    pub(super) fn new() -> Result<Self, FinderError> {
        let finder = Finder::new(&[Kind::Secrets, Kind::Pii], &[""; 0])?;
        Ok(Self {
            finder: finder.seeing_through(),
        })
    }

    /// The line around one of the findings in a text, without what may not be shown.
    pub(super) fn of(&self, text: &str, one: &Finding<'_>, secret: &[Range<usize>]) -> Excerpt {
        let shown = window(text, one);
        let mut out = Writer::default();
        let mut at = shown.start;
        out.ellipsis(shown.start > 0 && !text[..shown.start].ends_with('\n'));
        for value in self.masked(text, &shown, secret) {
            out.plain(text, at..value.start.max(at), &one.range);
            let cut = value.start < shown.start;
            out.masked(&text[value.clone()], cut, overlaps(&value, &one.range));
            at = value.end.min(shown.end);
        }
        out.plain(text, at..shown.end, &one.range);
        out.ellipsis(!ends_line(text, shown.end));
        out.finish()
    }

    /// What may not be shown whole in the excerpt, in order and without overlaps.
    fn masked(
        &self,
        text: &str,
        shown: &Range<usize>,
        secret: &[Range<usize>],
    ) -> Vec<Range<usize>> {
        let from = text.floor_char_boundary(shown.start.saturating_sub(MARGIN));
        let to = text.ceil_char_boundary(shown.end.saturating_add(MARGIN));
        let near = self.finder.covered(&text[from..to]).into_iter();
        let near = near.map(|value| value.start + from..value.end + from);
        let first = secret.partition_point(|value| value.end <= shown.start);
        let known = secret[first..].iter().cloned();
        merge(
            near.chain(known.take_while(|value| value.start < shown.end))
                .filter(|value| overlaps(value, shown))
                .collect(),
        )
    }
}

/// Where the secrets and personal data are among these findings.
pub(super) fn secret(findings: &[Finding<'_>]) -> Vec<Range<usize>> {
    let secret = findings.iter().filter(|one| one.kind != Kind::Injection);
    merge(secret.map(|one| one.range.clone()).collect())
}

fn merge(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The part of the line to show.
fn window(text: &str, one: &Finding<'_>) -> Range<usize> {
    let start = text.ceil_char_boundary(one.range.start.saturating_sub(BEFORE));
    let before = &text[start..one.range.start];
    let start = before.rfind('\n').map_or(start, |at| start + at + 1);
    let end = match one.kind {
        Kind::Injection => one.range.end.min(one.range.start + SHOWN),
        _ => one.range.end,
    };
    let end = text.floor_char_boundary(end.saturating_add(AFTER));
    let after = &text[one.range.start..end];
    let end = after.find('\n').map_or(end, |at| one.range.start + at);
    start..end
}

fn ends_line(text: &str, at: usize) -> bool {
    text[at..].is_empty() || text[at..].starts_with('\n')
}

fn overlaps(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

#[derive(Default)]
struct Writer {
    text: String,
    len: usize,
    marked: Option<Range<usize>>,
}

impl Writer {
    fn push(&mut self, c: char, marked: bool) {
        self.text.push(c);
        if marked {
            let start = self.marked.as_ref().map_or(self.len, |known| known.start);
            self.marked = Some(start..self.len + 1);
        }
        self.len += 1;
    }

    fn plain(&mut self, text: &str, range: Range<usize>, marked: &Range<usize>) {
        for (offset, c) in text[range.clone()].char_indices() {
            self.push(printable(c), marked.contains(&(range.start + offset)));
        }
    }

    /// A value's first characters, and not more than a third of it.
    fn masked(&mut self, value: &str, cut: bool, marked: bool) {
        let visible = match value.chars().take(3 * VISIBLE).count() / 3 {
            _ if cut => 0,
            some => some,
        };
        for c in value.chars().take(visible).map(printable).chain(['…']) {
            self.push(c, marked);
        }
    }

    fn ellipsis(&mut self, wanted: bool) {
        if wanted && !self.text.ends_with('…') {
            self.push('…', false);
        }
    }

    fn finish(self) -> Excerpt {
        let text = self.text.trim_end().to_owned();
        let marked = self.marked.unwrap_or(0..0);
        // An indented line is moved to the left.
        let indent = text.chars().take_while(|c| *c == ' ').count();
        let indent = indent.min(marked.start);
        Excerpt {
            text: text[indent..].to_owned(),
            marked: marked.start - indent..marked.end - indent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::sync::LazyLock;

    const KEY: &str = "AKIAIOSFODNN7EXAMPL2";
    const TOKEN: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";

    static FINDER: LazyLock<Finder> =
        LazyLock::new(|| Finder::new(&[Kind::Secrets, Kind::Injection], &["rfc"]).unwrap());
    static MAKER: LazyLock<Excerpts> = LazyLock::new(|| Excerpts {
        finder: Finder::new(&[Kind::Secrets], &["rfc"]).unwrap(),
    });

    fn excerpts(text: &str) -> Vec<String> {
        let all = FINDER.find(text);
        all.iter()
            .map(|one| {
                let Excerpt { text, marked } = MAKER.of(text, one, &secret(&all));
                let carets = "^".repeat(marked.len());
                format!("{text}\n{}{carets}", " ".repeat(marked.start))
            })
            .collect()
    }

    #[test]
    fn values_are_masked_and_marked() {
        let long = "x".repeat(300);
        for (text, expected) in [
            (format!("\tkey = {KEY};\n"), "key = AKIA…;\n      ^^^^^"),
            (format!("a\né {KEY} {TOKEN}\nb"), "é AKIA… ghp_…\n  ^^^^^"),
            (
                format!("{long} {KEY} {long}"),
                "…xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx AKIA… xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\n                                                             ^^^^^",
            ),
            (
                format!("jailbreak\u{202e}\u{1b}[2J {KEY}"),
                "jailbreak\u{fffd} [2J AKIA…\n^^^^^^^^^",
            ),
        ] {
            assert_eq!(excerpts(&text)[0], expected);
        }
    }

    proptest! {
        /// However the values lie, no excerpt shows more of one than its first characters.
        #[test]
        fn no_value_is_shown(pieces in prop::collection::vec(select(vec![KEY, TOKEN, "jailbreak", " ", "\n", "é", "'", "run as root", "----------------------------------------"]), 1..12)) {
            for excerpt in excerpts(&pieces.concat()) {
                prop_assert!(!excerpt.contains("AKIAI"), "{excerpt}");
                prop_assert!(!excerpt.contains("ghp_a"), "{excerpt}");
                prop_assert!(!excerpt.contains("EXAMPL2"), "{excerpt}");
                prop_assert!(!excerpt.contains("456789"), "{excerpt}");
            }
        }
    }
}

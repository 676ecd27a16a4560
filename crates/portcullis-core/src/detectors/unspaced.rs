//! Patterns of attacks as they read when words run together.

use std::ops::Range;

use super::{EntryPattern, Kind};
use crate::event::EventType;
use crate::scan::{EventSet, PatternId, PatternSpec, Scanner, ScannerBuilder};
use crate::views::View;

/// Looks where letters were set apart, so that nobody knows where the words ended.
#[derive(Debug)]
pub(crate) struct Unspaced {
    scanner: Scanner,
    /// Each with its place in the list.
    patterns: Vec<(PatternId, usize)>,
}

impl Unspaced {
    /// Shorter patterns would be found in ordinary words that run together.
    const MIN_LEN: usize = 12;

    /// Patterns, each with the number that its matches are to have.
    pub(crate) fn new<'p>(patterns: impl Iterator<Item = (usize, &'p EntryPattern)>) -> Self {
        let mut scanner = ScannerBuilder::default();
        let mut ids = Vec::new();
        for (index, pattern) in patterns {
            let spec = PatternSpec {
                keywords: &[],
                unspaced: true,
                ..pattern.spec(Kind::Injection)
            };
            if let Ok(id) = scanner.add(&spec, &EventSet::any())
                && scanner.min_len(id) >= Self::MIN_LEN
            {
                ids.push((id, index));
            }
        }
        Self {
            scanner: scanner.build(),
            patterns: ids,
        }
    }

    /// Every match in a view, by the number of its pattern, and where in the view.
    pub(crate) fn each(
        &self,
        view: &View,
        event_type: &EventType,
        mut found: impl FnMut(usize, Range<usize>),
    ) {
        let text = view.text();
        let candidates = self.scanner.scan(text, event_type);
        for (id, index) in &self.patterns {
            if candidates.contains(*id) {
                self.scanner
                    .find_all(*id, text, &candidates, 0..text.len(), |range| {
                        found(*index, range);
                    });
            }
        }
    }
}

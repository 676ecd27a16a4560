//! Texts of any length as they read once a disguise is taken off.

use std::ops::Range;

use crate::scan::Features;
use crate::views::{self, View};

/// How much of a text is read at once: as much as the gate takes for one event. What views may hold is bounded for each
/// text that they are made of, and in a long one would not reach its end.
const PIECE: usize = 1 << 20;

/// How much of a piece the next begins with, so that what lies across its end is whole in one of them.
const OVERLAP: usize = 16 << 10;

/// How far before a place the end of a line is looked for.
const LINE: usize = 4 << 10;

/// A part of a text without a disguise.
pub(super) struct Reading {
    pub(super) view: View,
    /// Where the part is.
    part: Range<usize>,
    /// How long the text is.
    len: usize,
}

impl Reading {
    /// Where in the text this span of the view came from; none if it touches the end of the part and so may go on: the
    /// part before or behind has it whole.
    pub(super) fn original(&self, span: Range<usize>) -> Option<Range<usize>> {
        let span = self.view.original(span);
        let (start, end) = (self.part.start + span.start, self.part.start + span.end);
        let cut = start == self.part.start && start > 0 || end == self.part.end && end < self.len;
        (!cut).then_some(start..end)
    }
}

/// Every reading that the gate has of a text, part by part. `features` are the text's.
pub(super) fn each(text: &str, features: Features, mut found: impl FnMut(Reading)) {
    if !views::may_be_disguised(features) {
        return;
    }
    for part in parts(text, PIECE) {
        let piece = &text[part.clone()];
        let features = if part.len() == text.len() {
            features
        } else {
            Features::of(piece)
        };
        let mut add = |view| {
            found(Reading {
                view,
                part: part.clone(),
                len: text.len(),
            });
        };
        // Without these a text folds to itself.
        if features.intersects(Features::UNUSUAL) {
            views::fold(piece).into_iter().for_each(&mut add);
        }
        views::unmask(piece, features)
            .views
            .into_iter()
            .for_each(&mut add);
    }
}

/// Parts of about this length that take in all of a text, each beginning before the last one's end.
fn parts(text: &str, len: usize) -> impl Iterator<Item = Range<usize>> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let end = cut(text, start + len);
        next = (end < text.len()).then(|| cut(text, end - OVERLAP));
        Some(start..end)
    })
}

/// Where the line begins that a place is in, if that is near, or else the place itself.
fn cut(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    let at = text.floor_char_boundary(at);
    let from = text.floor_char_boundary(at.saturating_sub(LINE));
    let line = text[from..at].rfind('\n');
    line.map_or(at, |offset| from + offset + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is shorter than what parts share is whole in one of them, and not at its end.
        #[test]
        fn parts_take_in_everything(line in "[a-zé🔑]{1,40}\n?", at in any::<prop::sample::Index>(), span in 1usize..(OVERLAP - LINE)) {
            let text = line.repeat((5 * OVERLAP) / line.len());
            let start = text.floor_char_boundary(at.index(text.len()));
            let end = text.floor_char_boundary((start + span).min(text.len()));
            let parts: Vec<_> = parts(&text, 2 * OVERLAP).collect();
            prop_assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, text.len()));
            let whole = |part: &Range<usize>| {
                (part.start == 0 || part.start < start) && (part.end == text.len() || end < part.end)
            };
            prop_assert!(parts.iter().any(whole), "{start}..{end} of {parts:?}");
            prop_assert!(parts.iter().all(|part| text.get(part.clone()).is_some() && part.len() <= 2 * OVERLAP));
        }
    }
}

//! A text as it reads once a disguise is taken off.
//!
//! Instructions and secrets are hidden from patterns by writing them so that a pattern does not see
//! them and a model does: in letters that look like others, with invisible characters, spelled out,
//! or encoded. [`fold`] and [`unmask`] give the readings, and each leads back to the original: what
//! is found in a [`View`] is reported, and redacted, where it stands in the text.
//!
//! Invariant: ordinary text costs one look at each character that is not ASCII, and nothing if all
//! are. Everything is linear in the text, and what is made of it is bounded.

mod encoded;
mod fold;
mod hidden;
mod map;
mod reversed;
mod skip;
mod spaced;
mod terminal;
mod words;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

pub use hidden::hidden;

use crate::scan::Features;
use map::{Map, Rewrite};

/// How many encodings inside each other are taken off.
pub const MAX_DEPTH: usize = 3;

/// Bytes that any share of a text's views may have. What of it is over is cut off.
pub const SMALL_VIEW_BYTES: usize = 4 << 10;

/// Bytes that a share may have, whatever the text's size.
pub const MAX_VIEW_BYTES: usize = 2 << 20;

/// What layers under another may have, as a multiple of what the text itself may have. Two disguises all over a text, under
/// each other and with digits for letters under both, fit in.
pub const DEEP_SHARES: usize = 3;

/// Bytes that the views of a text may have that come of one [way to rewrite](Way) it. No rewriting grows by more than a third,
/// so that nothing of the text itself is cut, but of one that is longer than the gate takes.
fn share(len: usize) -> usize {
    let bytes = len.saturating_add(len / 3).saturating_add(SMALL_VIEW_BYTES);
    bytes.min(MAX_VIEW_BYTES)
}

/// Bytes of all views that [`unmask`] makes of a text of this length, at most.
pub fn max_view_bytes(len: usize) -> usize {
    WAYS * (1 + DEEP_SHARES) * share(len)
}

/// What was taken off a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disguise {
    /// Invisible characters, and characters that are another way to write plain ones.
    Folded,
    /// Letters of another script, or with marks, that look like plain ones.
    Lookalikes,
    /// Digits and symbols in place of letters.
    Leet,
    /// Letters set apart. Where all gaps were alike, the words of the view run together.
    Spaced,
    /// Characters that a backspace takes back, and codes that a terminal does not show.
    Erased,
    /// Letters in reverse order, upside down or behind a direction override.
    Reversed,
    /// Characters written as `%69`, `&#105;`, `\u0069` and the like.
    Escaped,
    /// Base64 or hexadecimal.
    Encoded,
}

impl Disguise {
    /// The name, as a decision's reason has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Lookalikes => "lookalikes",
            Self::Leet => "leet",
            Self::Spaced => "spaced",
            Self::Erased => "erased",
            Self::Reversed => "reversed",
            Self::Escaped => "escaped",
            Self::Encoded => "encoded",
        }
    }

    /// Whether it leaves letters, digits and their order alone: a value behind it is still the value.
    pub(crate) const fn keeps_values(self) -> bool {
        matches!(
            self,
            Self::Folded | Self::Erased | Self::Escaped | Self::Encoded
        )
    }
}

/// A text as it reads once a disguise is taken off, and the way back to the original.
///
/// Long stretches that the disguise does not touch are left out: a match there is found in the
/// original.
#[derive(Debug, Clone)]
pub struct View {
    text: String,
    disguise: Disguise,
    /// Whether there was no room for all of it.
    cut: bool,
    map: Arc<Map>,
}

impl View {
    /// The text without the disguise.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was taken off. With several layers the innermost is named; [`Disguise::Spaced`] is named
    /// before the others, because it asks for patterns without white space.
    pub fn disguise(&self) -> Disguise {
        self.disguise
    }

    /// The smallest span of the original, on character boundaries, that this span of the view came
    /// from. Spans past the end are cut.
    pub fn original(&self, span: Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.ceil_char_boundary(span.end.max(start));
        self.map.original(start..end)
    }
}

/// A text with invisible characters gone, and compatibility forms, symbols that stand for a single
/// plain character and tag characters made plain. None if that changes nothing.
///
/// Every character is folded by itself: the folding of a text is the foldings of its parts, wherever
/// it is divided. The view is at most a third longer than the text.
pub fn fold(text: &str) -> Option<View> {
    let rewrite = fold::fold(text)?;
    rewrite.into_view(Disguise::Folded, None)
}

/// What [`unmask`] makes of a text.
#[derive(Debug, Clone)]
pub struct Unmasked {
    /// The readings, those of the text itself first.
    pub views: Vec<View>,
    /// Whether there was room for all of them. If not, something may be hidden in what was cut off.
    pub complete: bool,
}

/// The readings of a text under every disguise but the one [`fold`] takes off; that one is taken off
/// first. `features` are the text's.
pub fn unmask(text: &str, features: Features) -> Unmasked {
    let mut unmasking = Unmasking {
        unmasked: Unmasked {
            views: Vec::new(),
            complete: true,
        },
        inside: BinaryHeap::new(),
        room: [share(text.len()); WAYS],
        original: text,
    };
    if may_be_disguised(features) {
        unmasking.take_off(&Layer::of(text), features, 0);
        unmasking.room = [DEEP_SHARES * share(text.len()); WAYS];
        unmasking.look_inside();
    }
    unmasking.unmasked
}

/// Whether a text with these features may be in disguise.
pub(crate) const fn may_be_disguised(features: Features) -> bool {
    features.intersects(SUSPECT)
}

/// The features without which a text has no disguise.
const SUSPECT: Features = Features::NON_ASCII
    .union(Features::CONTROL)
    .union(Features::ESCAPES)
    .union(Features::LONG_RUN)
    .union(Features::SPACED)
    .union(Features::LEET);

/// A text on the way from the original to a view.
struct Layer<'a> {
    text: &'a str,
    /// The way to the original, if this is not it.
    map: Option<&'a Arc<Map>>,
    spaced: bool,
}

impl<'a> Layer<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            map: None,
            spaced: false,
        }
    }

    fn of_view(view: &'a View) -> Self {
        Self {
            text: &view.text,
            map: Some(&view.map),
            spaced: view.disguise == Disguise::Spaced,
        }
    }

    fn view(&self, rewrite: Option<Rewrite<'_>>, disguise: Disguise) -> Option<View> {
        let disguise = if self.spaced {
            Disguise::Spaced
        } else {
            disguise
        };
        rewrite?.into_view(disguise, self.map.cloned())
    }
}

/// Ways to rewrite a text. What one of them makes takes no room from another.
#[derive(Clone, Copy)]
enum Way {
    Erase,
    Reverse,
    Fold,
    Unescape,
    Decode,
    Join,
    /// The first of the [readings](words::READINGS).
    Plain,
}

const WAYS: usize = Way::Plain as usize + words::READINGS;

/// The views made so far, and what may still be made.
struct Unmasking<'a> {
    unmasked: Unmasked,
    /// Views to be looked into: how long each is, which it is, and how many layers it has under it. The shortest is first, so
    /// that what is short is never left out for what is long.
    inside: BinaryHeap<Reverse<(usize, usize, usize)>>,
    room: [usize; WAYS],
    original: &'a str,
}

impl Unmasking<'_> {
    fn look_inside(&mut self) {
        while let Some(Reverse((_, index, depth))) = self.inside.pop() {
            let view = self.unmasked.views[index].clone();
            let features = Features::of(&view.text);
            if features.intersects(SUSPECT) {
                self.take_off(&Layer::of_view(&view), features, depth);
            }
        }
    }

    fn take_off(&mut self, layer: &Layer<'_>, features: Features, depth: usize) {
        let text = layer.text;
        if !features.intersects(Features::UNUSUAL) {
            return self.take_off_folded(layer, features, depth);
        }
        let rewrite = terminal::erase(text, self.room(Way::Erase));
        let view = layer.view(rewrite, Disguise::Erased);
        self.add_to_look_inside(Way::Erase, view, depth);
        let rewrite = reversed::reverse(text, self.room(Way::Reverse));
        let view = layer.view(rewrite, Disguise::Reversed);
        self.add_to_look_inside(Way::Reverse, view, depth);
        let view = layer.view(fold::fold_without_tags(text), Disguise::Folded);
        self.add_to_look_inside(Way::Fold, view, depth);
        match layer.view(fold::fold(text), Disguise::Folded) {
            None => self.take_off_folded(layer, features, depth),
            Some(view) => {
                let folded = Features::of(&view.text);
                self.take_off_folded(&Layer::of_view(&view), folded, depth);
                // The caller has the folding of the original.
                if depth > 0 {
                    self.add(Way::Fold as usize, view);
                }
            }
        }
    }

    fn take_off_folded(&mut self, layer: &Layer<'_>, features: Features, depth: usize) {
        let text = layer.text;
        if features.intersects(Features::NON_ASCII.union(Features::LEET)) {
            let limits = std::array::from_fn(|n| self.room[Way::Plain as usize + n]);
            let readings = words::plain(text, features, limits);
            for (n, (rewrite, disguise)) in readings.into_iter().enumerate() {
                if let Some(view) = layer.view(Some(rewrite), disguise) {
                    self.add(Way::Plain as usize + n, view);
                }
            }
        }
        if features.contains(Features::SPACED) {
            let rewrite = spaced::join(text, self.room(Way::Join));
            let view = layer.view(rewrite, Disguise::Spaced);
            self.add_to_look_inside(Way::Join, view, depth);
        }
        if features.contains(Features::ESCAPES) {
            let rewrite = encoded::unescape(text, self.room(Way::Unescape));
            let view = layer.view(rewrite, Disguise::Escaped);
            self.add_to_look_inside(Way::Unescape, view, depth);
        }
        if features.contains(Features::LONG_RUN) {
            let rewrite = encoded::decode(text, self.room(Way::Decode));
            let view = layer.view(rewrite, Disguise::Encoded);
            self.add_to_look_inside(Way::Decode, view, depth);
        }
    }

    fn room(&self, way: Way) -> usize {
        self.room[way as usize]
    }

    fn add_to_look_inside(&mut self, way: Way, view: Option<View>, depth: usize) {
        let Some(view) = view else { return };
        let len = view.text.len();
        if self.add(way as usize, view) && depth + 1 < MAX_DEPTH {
            let index = self.unmasked.views.len() - 1;
            self.inside.push(Reverse((len, index, depth + 1)));
        }
    }

    /// Whether the view is new, and there is room for it. One that is known takes room too, because it took the time to make.
    fn add(&mut self, way: usize, view: View) -> bool {
        let room = self.room[way].checked_sub(view.text.len());
        self.unmasked.complete &= room.is_some() && !view.cut;
        let Some(room) = room else { return false };
        self.room[way] = room;
        let views = &mut self.unmasked.views;
        let new = !view.text.is_empty()
            && view.text != self.original
            && views.iter().all(|known| known.text != view.text);
        if new {
            views.push(view);
        }
        new
    }
}

#[cfg(test)]
mod tests;

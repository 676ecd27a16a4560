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
mod spaced;
mod terminal;
mod words;

use std::ops::Range;
use std::sync::Arc;

pub use hidden::hidden;

use crate::scan::Features;
use map::{Map, Rewrite};

/// How many encodings inside each other are taken off.
pub const MAX_DEPTH: usize = 3;

/// Bytes of all views that [`unmask`] makes of a text, as a multiple of the text's, on top of
/// [`SMALL_VIEW_BYTES`].
pub const MAX_VIEW_RATIO: usize = 2;

/// Bytes of views that any text may have.
pub const SMALL_VIEW_BYTES: usize = 4 << 10;

/// Bytes of all views that [`unmask`] makes of a text, whatever its size. What is over is cut off.
pub const MAX_VIEW_BYTES: usize = 2 << 20;

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

/// The readings of a text under every disguise but the one [`fold`] takes off; that one is taken off
/// first. `features` are the text's.
pub fn unmask(text: &str, features: Features) -> Vec<View> {
    if !may_be_disguised(features) {
        return Vec::new();
    }
    let bytes = text
        .len()
        .saturating_mul(MAX_VIEW_RATIO)
        .saturating_add(SMALL_VIEW_BYTES);
    let mut unmasking = Unmasking {
        views: Vec::new(),
        bytes: bytes.min(MAX_VIEW_BYTES),
        original: text,
    };
    unmasking.take_off(&Layer::of(text), features, 0);
    unmasking.views
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

/// The views made so far, and what may still be made.
struct Unmasking<'a> {
    views: Vec<View>,
    bytes: usize,
    original: &'a str,
}

impl Unmasking<'_> {
    fn take_off(&mut self, layer: &Layer<'_>, features: Features, depth: usize) {
        if !features.intersects(Features::UNUSUAL) {
            return self.take_off_folded(layer, features, depth);
        }
        let view = layer.view(terminal::erase(layer.text, self.bytes), Disguise::Erased);
        self.add_and_look_inside(view, depth);
        let view = layer.view(
            reversed::reverse(layer.text, self.bytes),
            Disguise::Reversed,
        );
        self.add_and_look_inside(view, depth);
        match layer.view(fold::fold(layer.text), Disguise::Folded) {
            None => self.take_off_folded(layer, features, depth),
            Some(view) => {
                let folded = Features::of(&view.text);
                self.take_off_folded(&Layer::of_view(&view), folded, depth);
                // The caller has the folding of the original.
                if depth > 0 {
                    self.add(view);
                }
            }
        }
    }

    fn take_off_folded(&mut self, layer: &Layer<'_>, features: Features, depth: usize) {
        let text = layer.text;
        if features.intersects(Features::NON_ASCII.union(Features::LEET)) {
            for (rewrite, disguise) in words::plain(text, features, self.bytes) {
                if let Some(view) = layer.view(Some(rewrite), disguise) {
                    self.add(view);
                }
            }
        }
        if features.contains(Features::SPACED) {
            let view = layer.view(spaced::join(text, self.bytes), Disguise::Spaced);
            self.add_and_look_inside(view, depth);
        }
        if features.contains(Features::ESCAPES) {
            let view = layer.view(encoded::unescape(text, self.bytes), Disguise::Escaped);
            self.add_and_look_inside(view, depth);
        }
        if features.contains(Features::LONG_RUN) {
            let view = layer.view(encoded::decode(text, self.bytes), Disguise::Encoded);
            self.add_and_look_inside(view, depth);
        }
    }

    fn add_and_look_inside(&mut self, view: Option<View>, depth: usize) {
        let Some(view) = view.filter(|view| self.add(view.clone())) else {
            return;
        };
        if depth + 1 < MAX_DEPTH {
            let features = Features::of(&view.text);
            if features.intersects(SUSPECT) {
                self.take_off(&Layer::of_view(&view), features, depth + 1);
            }
        }
    }

    /// Whether the view is new, and there is room for it.
    fn add(&mut self, view: View) -> bool {
        let new = !view.text.is_empty()
            && view.text.len() <= self.bytes
            && view.text != self.original
            && self.views.iter().all(|known| known.text != view.text);
        if new {
            self.bytes -= view.text.len();
            self.views.push(view);
        }
        new
    }
}

#[cfg(test)]
mod tests;

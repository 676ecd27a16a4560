//! The way back from a rewritten text to the one it was made of.

use std::ops::Range;
use std::sync::Arc;

use super::{Disguise, View};

/// How much of an untouched stretch stays on either side of a change. A pattern that matches across
/// a change sees this much around it.
const CONTEXT: usize = 512;

/// Stands for an untouched stretch that is left out. No pattern asks for it.
const GAP: &str = "\u{fffc}";

/// Where the bytes of a rewritten text come from.
#[derive(Debug)]
pub(super) struct Map {
    /// In the order of the rewritten text, without holes.
    pieces: Vec<Piece>,
    /// Length of the rewritten text.
    len: usize,
    /// Where the text that was rewritten comes from in turn.
    parent: Option<Arc<Map>>,
}

/// A stretch of units: each so many bytes of the rewritten text that come, as a whole, from so many
/// bytes of the source. A copy is a stretch of single bytes.
#[derive(Debug, Clone, Copy)]
struct Piece {
    at: usize,
    source: usize,
    unit: usize,
    source_unit: usize,
}

impl Map {
    /// What a span came from in the original.
    pub(super) fn original(&self, span: Range<usize>) -> Range<usize> {
        let mut span = self.source(span);
        let mut map = self.parent.as_deref();
        while let Some(parent) = map {
            span = parent.source(span);
            map = parent.parent.as_deref();
        }
        span
    }

    fn source(&self, span: Range<usize>) -> Range<usize> {
        let Some(last) = self.len.checked_sub(1) else {
            return 0..0;
        };
        let start = span.start.min(self.len);
        let end = span.end.min(self.len);
        if start >= end {
            let unit = self.unit(start.min(last));
            let place = if start > last { unit.end } else { unit.start };
            return place..place;
        }
        // A reversed stretch comes from later in the source the earlier it stands.
        let (first, last) = (self.unit(start), self.unit(end - 1));
        first.start.min(last.start)..first.end.max(last.end)
    }

    /// The source of the unit that a byte lies in.
    fn unit(&self, at: usize) -> Range<usize> {
        let index = self.pieces.partition_point(|piece| piece.at <= at);
        let Some(piece) = index.checked_sub(1).map(|index| self.pieces[index]) else {
            return 0..0;
        };
        let start = piece.source + (at - piece.at) / piece.unit * piece.source_unit;
        start..start + piece.source_unit
    }
}

/// A text being rewritten from front to back.
pub(super) struct Rewrite<'a> {
    source: &'a str,
    /// How much of the source is dealt with.
    done: usize,
    text: String,
    pieces: Vec<Piece>,
    changed: bool,
    /// Whether long untouched stretches stay.
    whole: bool,
    /// Bytes that the text may grow to.
    limit: usize,
    /// Whether something did not fit.
    cut: bool,
}

impl<'a> Rewrite<'a> {
    /// Keeps all of the source, but for what is replaced.
    pub(super) fn whole(source: &'a str) -> Self {
        Self {
            source,
            done: 0,
            text: String::with_capacity(source.len()),
            pieces: Vec::new(),
            changed: false,
            whole: true,
            limit: usize::MAX,
            cut: false,
        }
    }

    /// Keeps what is near a replacement, and no more than so many bytes.
    pub(super) fn excerpt(source: &'a str, limit: usize) -> Self {
        Self {
            whole: false,
            limit,
            text: String::new(),
            ..Self::whole("")
        }
        .with_source(source)
    }

    fn with_source(mut self, source: &'a str) -> Self {
        self.source = source;
        self
    }

    /// Replaces a span of the source. What lies between it and the one before is kept.
    pub(super) fn replace(&mut self, span: Range<usize>, with: &str) {
        self.keep_to(span.start);
        self.unit(span.clone(), with);
        self.done = span.end;
        self.changed = true;
    }

    /// Appends what stands for a span of the source, wherever that lies.
    pub(super) fn unit(&mut self, span: Range<usize>, with: &str) {
        if with.is_empty() {
            return;
        }
        if self.text.len() + with.len() <= self.limit {
            self.piece(span.start, with.len(), span.len());
            self.text.push_str(with);
        } else {
            self.cut = true;
        }
    }

    /// Goes on after this place of the source.
    pub(super) fn skip_to(&mut self, place: usize) {
        self.done = place;
        self.changed = true;
    }

    /// Keeps the source up to here.
    pub(super) fn keep_to(&mut self, end: usize) {
        let start = self.done;
        self.done = end.max(start);
        if self.whole || end.saturating_sub(start) <= 2 * CONTEXT + GAP.len() {
            return self.copy(start..end);
        }
        // Nothing comes before the first change, and nothing after the last.
        let head = if self.changed {
            self.source.floor_char_boundary(start + CONTEXT)
        } else {
            start
        };
        let tail = if end == self.source.len() {
            end
        } else {
            self.source.ceil_char_boundary(end - CONTEXT)
        };
        self.copy(start..head);
        if head > 0 && tail < self.source.len() {
            self.unit(head..tail, GAP);
        }
        self.copy(tail..end);
    }

    /// Whether something did not fit.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// The view, if something was changed.
    pub(super) fn into_view(
        mut self,
        disguise: Disguise,
        parent: Option<Arc<Map>>,
    ) -> Option<View> {
        if !self.changed {
            return None;
        }
        self.keep_to(self.source.len());
        let Self {
            text, pieces, cut, ..
        } = self;
        let map = Map {
            pieces,
            len: text.len(),
            parent,
        };
        Some(View {
            text,
            disguise,
            cut,
            map: Arc::new(map),
        })
    }

    fn copy(&mut self, span: Range<usize>) {
        let room = self.limit.saturating_sub(self.text.len());
        let end = span.end.min(span.start.saturating_add(room));
        let end = self.source.floor_char_boundary(end);
        self.cut |= end < span.end;
        if span.start < end {
            self.piece(span.start, 1, 1);
            self.text.push_str(&self.source[span.start..end]);
        }
    }

    /// Notes where what is appended next comes from. Units like the ones before join them, so that a
    /// text all in wide letters takes one piece.
    fn piece(&mut self, source: usize, unit: usize, source_unit: usize) {
        let at = self.text.len();
        let joins = self.pieces.last().is_some_and(|last| {
            let units = (at - last.at) / last.unit;
            (last.unit, last.source_unit) == (unit, source_unit)
                && last.source + units * source_unit == source
        });
        if !joins {
            self.pieces.push(Piece {
                at,
                source,
                unit,
                source_unit,
            });
        }
    }
}

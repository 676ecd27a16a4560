//! The texts of one connection, frame by frame.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::json::{Kind, Tree, encode};
use super::path::{Found, Key, TextPath};
use super::split::{Payload, Shape};
use super::{FramingProblem, MAX_FRAME_BYTES, MAX_OPEN_TEXTS, Out};
use crate::decision::RedactionSpec;
use crate::stream::StreamGuard;

/// Most texts of one connection, those that have ended included.
const MAX_TEXTS: usize = 1024;

/// Most bytes of the indexes of a text.
const MAX_KEY_BYTES: usize = 1 << 10;

/// What comes after the last frame, instead of JSON.
const DONE: &str = "[DONE]";

pub(super) struct Texts {
    shape: Shape,
    path: TextPath,
    open: Box<dyn FnMut() -> StreamGuard + Send>,
    /// `None` for those that have ended.
    streams: BTreeMap<Key, Option<Stream>>,
    whole: Whole,
}

/// One text that is not at its end.
struct Stream {
    guard: StreamGuard,
    /// Where its last piece was.
    pointer: String,
    again: Again,
}

/// The last frame with a piece of the text, to be sent again with the rest of it.
#[derive(Default)]
struct Again {
    frame: String,
    /// Where in it the text is, which is empty.
    hole: usize,
}

/// A part of a frame that is to be replaced.
#[derive(Debug, Clone)]
struct Edit {
    span: Range<usize>,
    with: String,
}

/// A frame that has been read.
struct Read<'f> {
    frame: &'f str,
    payload: &'f Payload<'f>,
    tree: Tree<'f>,
    found: Found,
}

impl Texts {
    pub(super) fn new(
        shape: Shape,
        path: TextPath,
        mut open: Box<dyn FnMut() -> StreamGuard + Send>,
    ) -> Self {
        let whole = Whole {
            guard: open(),
            clean: HashSet::new(),
        };
        Self {
            shape,
            path,
            open,
            streams: BTreeMap::new(),
            whole,
        }
    }

    /// Judges a frame. After the last one, which may be cut short or empty, there is no text.
    pub(super) fn frame(
        &mut self,
        frame: &[u8],
        last: bool,
        out: &mut Out,
    ) -> Result<(), FramingProblem> {
        let frame = std::str::from_utf8(frame).map_err(|error| FramingProblem::NotUtf8 {
            at: error.valid_up_to() as u64,
        })?;
        let payload = Payload::of(self.shape, frame);
        let read = self.read(frame, &payload, last)?;
        let mut edits = self.judge_lines(&read, out);
        edits.extend(self.judge_strings(&read, out));
        if out.halted {
            return Ok(());
        }
        let mut texts = self.push(&read, out)?;
        if !out.halted && !self.end(&read.found, &mut texts, out) {
            return Ok(());
        }
        if out.halted && texts.iter().all(String::is_empty) {
            return Ok(());
        }
        self.remember(&read, &edits)?;
        for ((node, _), text) in read.found.texts.iter().zip(texts) {
            if read.text(*node) != text {
                edits.push(read.edit(*node, encode(&text)));
            }
        }
        edits.sort_by_key(|edit| edit.span.start);
        let frame = rewrite(frame, &edits, None).frame;
        out.bytes.extend_from_slice(frame.as_bytes());
        Ok(())
    }

    fn read<'f>(
        &self,
        frame: &'f str,
        payload: &'f Payload<'f>,
        last: bool,
    ) -> Result<Read<'f>, FramingProblem> {
        let json = payload.json.trim();
        let (tree, mut found) = if json.is_empty() || json == DONE {
            (Tree { nodes: Vec::new() }, Found::default())
        } else {
            let tree = Tree::parse(&payload.json)
                .map_err(|error| FramingProblem::NotJson(error.to_string()))?;
            let found = self.path.find(&tree);
            (tree, found)
        };
        if last || json == DONE {
            found.ends.push(Vec::new());
        }
        Ok(Read {
            frame,
            payload,
            tree,
            found,
        })
    }

    /// Judges the lines that are not data: comments, names of events, and what no one knows.
    fn judge_lines(&mut self, read: &Read<'_>, out: &mut Out) -> Vec<Edit> {
        let mut edits = Vec::new();
        for span in &read.payload.others {
            let line = &read.frame[span.clone()];
            if let Some(text) = self
                .whole
                .judge(line, || RedactionSpec::TEXT.to_owned(), out)
            {
                edits.push(Edit {
                    span: span.clone(),
                    with: text.replace(['\r', '\n'], " "),
                });
            }
        }
        edits
    }

    /// Judges the strings that are not pieces of a text, member names included.
    fn judge_strings(&mut self, read: &Read<'_>, out: &mut Out) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut texts = read.found.texts.iter().map(|(node, _)| *node).peekable();
        let mut withheld = read.found.withheld.iter().copied().peekable();
        let mut withheld_to = 0;
        for (at, node) in read.tree.nodes.iter().enumerate() {
            if withheld.next_if_eq(&at).is_some() {
                withheld_to = node.span.end;
                edits.push(read.edit(at, read.nothing(at).to_owned()));
            }
            if texts.next_if_eq(&at).is_some() || node.span.start < withheld_to || out.halted {
                continue;
            }
            let (Kind::Text(text) | Kind::Name(text)) = &node.kind else {
                continue;
            };
            let pointer = || read.tree.pointer(at);
            if let Some(text) = self.whole.judge(text, pointer, out) {
                edits.push(read.edit(at, encode(&text)));
            }
        }
        edits
    }

    /// Pushes the pieces of texts and gives what comes out, for each.
    fn push(&mut self, read: &Read<'_>, out: &mut Out) -> Result<Vec<String>, FramingProblem> {
        let mut texts = vec![String::new(); read.found.texts.len()];
        for ((node, key), released) in read.found.texts.iter().zip(&mut texts) {
            let piece = read.text(*node);
            if piece.is_empty() {
                continue;
            }
            if !self.streams.contains_key(key) {
                self.add(key.clone())?;
            }
            let Some(Some(stream)) = self.streams.get_mut(key) else {
                return Err(FramingProblem::AfterEnd(read.tree.pointer(*node)));
            };
            let mine = stream.guard.push(piece);
            released.push_str(mine.text);
            out.decided(mine.decisions, || read.tree.pointer(*node));
            if mine.halted {
                out.halted = true;
                break;
            }
        }
        Ok(texts)
    }

    fn add(&mut self, key: Key) -> Result<(), FramingProblem> {
        let open = self.streams.values().flatten().count();
        let bytes: usize = key.1.iter().map(String::len).sum();
        if open >= MAX_OPEN_TEXTS || self.streams.len() >= MAX_TEXTS || bytes > MAX_KEY_BYTES {
            return Err(FramingProblem::TooManyTexts);
        }
        let stream = Stream {
            guard: (self.open)(),
            pointer: String::new(),
            again: Again::default(),
        };
        self.streams.insert(key, Some(stream));
        Ok(())
    }

    /// Ends the texts that end in this frame. What was held back goes into the frame if that has a
    /// place for it, else into another one before it. Whether the frame may follow.
    fn end(&mut self, found: &Found, texts: &mut [String], out: &mut Out) -> bool {
        if found.ends.is_empty() {
            return true;
        }
        for (key, entry) in &mut self.streams {
            if !found.ends.iter().any(|end| key.1.starts_with(end)) {
                continue;
            }
            let Some(mut stream) = entry.take() else {
                continue;
            };
            let tail = stream.guard.finish();
            out.halted = tail.halted;
            out.decided(tail.decisions, || stream.pointer.clone());
            let place = found.texts.iter().rposition(|(_, other)| other == key);
            if let Some(text) = place.and_then(|place| texts.get_mut(place)) {
                text.push_str(tail.text);
            } else if !tail.text.is_empty() {
                stream.again.send(tail.text, out);
            }
            if out.halted {
                return place.is_some();
            }
        }
        true
    }

    /// Keeps the frame for the texts that are open after it.
    fn remember(&mut self, read: &Read<'_>, edits: &[Edit]) -> Result<(), FramingProblem> {
        let pieces = read.found.texts.iter().map(|(node, _)| *node);
        let emptied = pieces.chain(read.found.once.iter().copied());
        let mut all: BTreeMap<usize, Edit> = BTreeMap::new();
        let emptied = emptied.map(|node| read.edit(node, "\"\"".to_owned()));
        for edit in edits.iter().cloned().chain(emptied) {
            all.insert(edit.span.start, edit);
        }
        let last: BTreeMap<&Key, usize> = read
            .found
            .texts
            .iter()
            .map(|(node, key)| (key, *node))
            .collect();
        for (key, node) in last {
            if let Some(Some(stream)) = self.streams.get_mut(key) {
                let place = read.edit(node, String::new()).span.start;
                stream.again = rewrite(read.frame, all.values(), Some(place));
                stream.pointer = read.tree.pointer(node);
            }
        }
        let kept = self.streams.values().flatten();
        if kept.map(|stream| stream.again.frame.len()).sum::<usize>() > MAX_FRAME_BYTES {
            return Err(FramingProblem::TooManyTexts);
        }
        Ok(())
    }
}

impl Read<'_> {
    fn text(&self, node: usize) -> &str {
        match &self.tree.nodes[node].kind {
            Kind::Text(text) => text,
            _ => "",
        }
    }

    /// What stands for a value that is withheld: an array stays one.
    fn nothing(&self, node: usize) -> &'static str {
        let from = self.tree.nodes[node].span.start;
        if self.payload.json[from..].starts_with('[') {
            "[]"
        } else {
            "null"
        }
    }

    fn edit(&self, node: usize, with: String) -> Edit {
        Edit {
            span: self.payload.in_frame(&self.tree.nodes[node].span),
            with,
        }
    }
}

impl Again {
    fn send(&self, text: &str, out: &mut Out) {
        let (before, after) = self.frame.split_at(self.hole);
        let after = after.strip_prefix("\"\"").unwrap_or(after);
        for part in [before, &encode(text), after] {
            out.bytes.extend_from_slice(part.as_bytes());
        }
    }
}

/// Judges texts that are whole.
struct Whole {
    guard: StreamGuard,
    /// Short texts that nothing was said of. Frames repeat who sends them, and for which model.
    clean: HashSet<Box<str>>,
}

impl Whole {
    const LONGEST: usize = 64;
    const MOST: usize = 256;

    /// What may be passed on of the text, if that is not all of it.
    fn judge(&mut self, text: &str, pointer: impl Fn() -> String, out: &mut Out) -> Option<String> {
        if text.is_empty() || self.clean.contains(text) {
            return None;
        }
        let released = self.guard.push(text);
        let (mut passed, mut decisions) = (released.text.to_owned(), released.decisions);
        let tail = self.guard.finish();
        passed.push_str(tail.text);
        decisions.extend(tail.decisions);
        out.halted |= tail.halted;
        if passed == text && decisions.is_empty() {
            if text.len() <= Self::LONGEST {
                if self.clean.len() >= Self::MOST {
                    self.clean.clear();
                }
                self.clean.insert(text.into());
            }
            return None;
        }
        out.decided(decisions, pointer);
        (passed != text).then_some(passed)
    }
}

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Texts")
            .field("shape", &self.shape)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

/// The frame with these parts replaced, and where that is which began at `place`.
///
/// The parts come in the order of the frame.
fn rewrite<'e>(
    frame: &str,
    edits: impl IntoIterator<Item = &'e Edit>,
    place: Option<usize>,
) -> Again {
    let mut written = Again::default();
    let mut copied = 0;
    for edit in edits {
        written.frame.push_str(&frame[copied..edit.span.start]);
        if place == Some(edit.span.start) {
            written.hole = written.frame.len();
        }
        written.frame.push_str(&edit.with);
        copied = edit.span.end;
    }
    written.frame.push_str(&frame[copied..]);
    written
}

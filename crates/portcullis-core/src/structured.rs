//! Walks over the structured part of an event: what it weighs, and what is in it.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::event::{Event, EventType, Structured};
use crate::redact::Path;
use crate::rules::Leaf;
use crate::scan::{BETWEEN, Candidates, Features, Scanner};
use crate::views::{self, Disguise, View};

/// How many bytes of paths an event may have, given how many bytes of text it may have. A finding is
/// named by its JSON Pointer, so one long member name over thousands of findings would be copied
/// thousands of times.
pub(crate) fn max_paths(max_text: usize) -> usize {
    const PER_TEXT: usize = 16;
    const AT_LEAST: usize = 1 << 20;
    max_text.saturating_mul(PER_TEXT).max(AT_LEAST)
}

/// How texts are scanned.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'s> {
    pub(crate) scanner: &'s Scanner,
    pub(crate) event_type: &'s EventType,
    /// Whether some rule wants to see through disguises.
    pub(crate) evasive: bool,
}

impl Scan<'_> {
    /// Notes which patterns may match a text; its views that some may match become leaves.
    pub(crate) fn text<'e>(
        self,
        text: &'e str,
        path: impl Fn() -> Cow<'static, str>,
        candidates: &mut Candidates,
        leaves: &mut Vec<Leaf<'e>>,
    ) {
        let features = if self.evasive || self.scanner.uses_features() {
            Features::of(text)
        } else {
            Features::default()
        };
        let mut add = |view: View| {
            let candidates = self.scanner.scan(view.text(), self.event_type);
            // Patterns without white space are the rule's own.
            if !candidates.is_empty() || view.disguise() == Disguise::Spaced {
                leaves.push(Leaf {
                    path: path(),
                    text,
                    view: Some(view),
                    from: 0,
                    candidates,
                });
            }
        };
        if self.evasive {
            // Without these a text folds to itself.
            if features.intersects(Features::UNUSUAL) {
                views::fold(text).into_iter().for_each(&mut add);
            }
            // A streamed answer is folded only: everything else depends on more than a character, and
            // so on how the answer is cut.
            if *self.event_type != EventType::LlmStreamChunk {
                views::unmask(text, features).into_iter().for_each(&mut add);
            }
        }
        self.scanner
            .scan_into(text, features, self.event_type, candidates);
    }

    /// Every string and member name that some pattern may match, and their views.
    pub(crate) fn structured<'e>(self, structured: Structured<'e>, leaves: &mut Vec<Leaf<'e>>) {
        let short = Short::all(self, structured);
        if short.are_clean && !short.others {
            return;
        }
        let mut walk = Walk {
            scan: self,
            skip_short: short.are_clean,
            candidates: self.scanner.no_candidates(),
            leaves,
        };
        match structured {
            Structured::ToolArgs(args) => walk.members(args, &Path::Root),
            Structured::Result(result) => walk.value(result, &Path::Root),
        }
    }

    /// Whether a text has nothing in it for anybody: no pattern may match it, and nothing is disguised.
    fn is_clean(self, text: &str, candidates: &mut Candidates) -> bool {
        let features = Features::of(text);
        let disguised = self.evasive && views::may_be_disguised(features);
        if !disguised {
            self.scanner
                .scan_into(text, features, self.event_type, candidates);
        }
        !disguised && candidates.is_empty()
    }
}

/// Short strings, one after the other. Of each by itself most of the time would go into getting ready; one scan says of all of
/// them that there is nothing in any.
struct Short<'s> {
    scan: Scan<'s>,
    texts: [u8; SHORT_TOGETHER],
    len: usize,
    candidates: Candidates,
    are_clean: bool,
    /// Whether there are strings that are not short.
    others: bool,
}

/// Bytes of a string that is short.
const SHORT: usize = 128;

/// Bytes of short strings that are looked at together.
const SHORT_TOGETHER: usize = 512;

impl<'s> Short<'s> {
    fn all(scan: Scan<'s>, structured: Structured<'_>) -> Self {
        let mut short = Self {
            scan,
            texts: [0; SHORT_TOGETHER],
            len: 0,
            candidates: scan.scanner.no_candidates(),
            are_clean: scan.scanner.joins(scan.event_type),
            others: false,
        };
        match structured {
            Structured::ToolArgs(args) => short.members(args),
            Structured::Result(result) => short.value(result),
        }
        short.look();
        short
    }

    fn members(&mut self, members: &Map<String, Value>) {
        for (name, value) in members {
            self.text(name);
            self.value(value);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            _ if !self.are_clean => {}
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            Value::Object(members) => self.members(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        if text.len() > SHORT {
            self.others = true;
            return;
        }
        if self.len + text.len() + 2 * BETWEEN.len() > SHORT_TOGETHER {
            self.look();
        }
        for part in [BETWEEN, text] {
            self.texts[self.len..][..part.len()].copy_from_slice(part.as_bytes());
            self.len += part.len();
        }
    }

    fn look(&mut self) {
        if self.are_clean && self.len > 0 {
            self.texts[self.len..][..BETWEEN.len()].copy_from_slice(BETWEEN.as_bytes());
            let texts = std::str::from_utf8(&self.texts[..self.len + BETWEEN.len()]);
            self.are_clean =
                texts.is_ok_and(|texts| self.scan.is_clean(texts, &mut self.candidates));
        }
        self.len = 0;
    }
}

/// What JSON weighs, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Measure {
    /// Its strings and member names, and a few bytes for anything else.
    pub(crate) text: usize,
    /// The paths to them.
    pub(crate) paths: usize,
}

impl Measure {
    /// All that is structured in an event, its whole payload included.
    pub(crate) fn of(event: &Event) -> Self {
        let mut measure = Self::default();
        if let Some(args) = &event.tool_args {
            measure.members(args, 0);
        }
        for (name, value) in &event.payload {
            // The name is ours, not the sender's.
            if name != "result" {
                measure.text += name.len();
            }
            measure.value(value, 0);
        }
        measure
    }

    fn members(&mut self, members: &Map<String, Value>, path: usize) {
        for (name, value) in members {
            let path = path + 1 + name.len();
            self.text += name.len();
            self.paths = self.paths.saturating_add(path);
            self.value(value, path);
        }
    }

    fn value(&mut self, value: &Value, path: usize) {
        /// As many digits as an index of an array in memory can have, give or take.
        const INDEX: usize = 8;
        /// What a number costs whoever looks at it.
        const OTHER: usize = 4;
        match value {
            Value::String(text) => {
                self.text += text.len();
                self.paths = self.paths.saturating_add(path);
            }
            Value::Array(items) => {
                for item in items {
                    self.value(item, path + INDEX);
                }
            }
            Value::Object(members) => self.members(members, path),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.text += OTHER,
        }
    }
}

struct Walk<'w, 'e> {
    scan: Scan<'w>,
    /// Whether there is nothing in short strings.
    skip_short: bool,
    /// None so far of the text at hand.
    candidates: Candidates,
    leaves: &'w mut Vec<Leaf<'e>>,
}

impl<'e> Walk<'_, 'e> {
    fn members(&mut self, members: &'e Map<String, Value>, path: &Path<'_>) {
        for (name, value) in members {
            let path = Path::Member(path, name);
            self.text(name, "#", &path);
            self.value(value, &path);
        }
    }

    fn value(&mut self, value: &'e Value, path: &Path<'_>) {
        match value {
            Value::String(text) => self.text(text, "", path),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, &Path::Item(path, index));
                }
            }
            Value::Object(members) => self.members(members, path),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &'e str, prefix: &str, path: &Path<'_>) {
        if self.skip_short && text.len() <= SHORT {
            return;
        }
        let path = || Cow::Owned(path.pointer_after(prefix));
        self.scan
            .text(text, path, &mut self.candidates, self.leaves);
        if !self.candidates.is_empty() {
            let none = self.scan.scanner.no_candidates();
            self.leaves.push(Leaf {
                path: path(),
                text,
                view: None,
                from: 0,
                candidates: std::mem::replace(&mut self.candidates, none),
            });
        }
    }
}

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
        // No pattern matches it, and the events of tools mostly have no other.
        if text.is_empty() {
            return;
        }
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
        let mut short = Short::new(self);
        short.all(structured);
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

/// Each begins at a multiple of this, as it would by itself, so that a long run in it is seen as it would be then.
const ALIGNMENT: usize = 16;

/// What is left over between them. One at least comes behind each, as [`BETWEEN`] begins with it too.
const FILLER: u8 = b'\n';

impl<'s> Short<'s> {
    fn new(scan: Scan<'s>) -> Self {
        Self {
            scan,
            texts: [FILLER; SHORT_TOGETHER],
            len: 0,
            candidates: scan.scanner.no_candidates(),
            are_clean: scan.scanner.joins(scan.event_type),
            others: false,
        }
    }

    fn all(&mut self, structured: Structured<'_>) {
        match structured {
            Structured::ToolArgs(args) => self.members(args),
            Structured::Result(result) => self.value(result),
        }
        self.look();
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
        let aligned = (self.len + BETWEEN.len()).next_multiple_of(ALIGNMENT);
        let start = if aligned + text.len() + BETWEEN.len() <= SHORT_TOGETHER {
            aligned
        } else {
            self.look();
            self.texts.fill(FILLER);
            BETWEEN.len().next_multiple_of(ALIGNMENT)
        };
        self.put(start - BETWEEN.len(), BETWEEN);
        self.put(start, text);
    }

    fn put(&mut self, at: usize, text: &str) {
        self.len = at + text.len();
        self.texts[at..self.len].copy_from_slice(text.as_bytes());
    }

    fn look(&mut self) {
        if self.are_clean && self.len > 0 {
            self.put(self.len, BETWEEN);
            let texts = std::str::from_utf8(&self.texts[..self.len]);
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

#[cfg(test)]
mod tests {
    use std::sync::{LazyLock, OnceLock};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decision::Decision;
    use crate::detectors;
    use crate::event::Context;
    use crate::pack;
    use crate::policy::Policy;
    use crate::rules::{EventScan, RuleInput};
    use crate::snapshot::{ContextBuilder as _, DefaultContextBuilder, Signals};

    static POLICY: LazyLock<Policy> = LazyLock::new(|| pack::load_default().unwrap().policy);

    /// What the rules say of an event, given what was found in its structured part.
    fn decisions(event: &Event, leaves: Vec<Leaf<'_>>) -> Vec<Option<Decision>> {
        let context = Context::new("r");
        let (risks, signals) = (POLICY.tool_risks(), Signals::default());
        let snapshot = DefaultContextBuilder.build(event, &context, risks, signals);
        let input = RuleInput {
            event,
            context: &context,
            snapshot: &snapshot,
        };
        let scan = EventScan {
            text: POLICY.scanner().no_candidates(),
            window: 0..0,
            leaves,
            names_hosts: OnceLock::new(),
        };
        let subject = POLICY.subject(input, &scan);
        let rules = POLICY.rules().iter();
        let rules = rules.filter(|rule| rule.events().contains(&event.event_type));
        rules.map(|rule| rule.evaluate(&subject).unwrap()).collect()
    }

    fn strings() -> impl Strategy<Value = String> {
        let families = detectors::all().map(|(_, family)| family.unwrap());
        let entries = families.flat_map(|family| family.entries);
        let examples: Vec<String> = entries.flat_map(|entry| entry.matches).collect();
        prop_oneof![
            4 => "[a-z_]{1,12}( [a-z]{1,9}){0,5}",
            1 => "[ -~]{0,60}",
            1 => any::<String>(),
            1 => prop::sample::select(examples),
            1 => "[ -~]{10,30}".prop_map(|text| base64(&text)),
        ]
    }

    fn base64(text: &str) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let groups = text.as_bytes().chunks(3).flat_map(|group| {
            let bits = group
                .iter()
                .fold(0, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - group.len()));
            (0..=group.len()).map(move |place| (bits >> (18 - 6 * place) & 63) as usize)
        });
        groups.map(|digit| char::from(DIGITS[digit])).collect()
    }

    proptest! {
        /// Whether short strings are looked at together or one by one, the rules say the same.
        #[test]
        fn short_strings_together_are_judged_as_each_by_itself(
            members in prop::collection::vec((strings(), strings()), 0..8),
            is_result: bool,
        ) {
            let members: Map<String, Value> =
                members.into_iter().map(|(name, text)| (name, json!([text, 1]))).collect();
            let event = if is_result {
                let mut event = Event::new(EventType::ToolCallResult, "r");
                event.payload.insert("result".to_owned(), Value::Object(members));
                event
            } else {
                Event::tool_call_start("r", "t", members)
            };
            let scan = Scan {
                scanner: POLICY.scanner(),
                event_type: &event.event_type,
                evasive: true,
            };
            let structured = event.structured().unwrap();
            let (mut together, mut apart) = (Vec::new(), Vec::new());
            scan.structured(structured, &mut together);
            let mut walk = Walk {
                scan,
                skip_short: false,
                candidates: POLICY.scanner().no_candidates(),
                leaves: &mut apart,
            };
            match structured {
                Structured::ToolArgs(args) => walk.members(args, &Path::Root),
                Structured::Result(result) => walk.value(result, &Path::Root),
            }
            prop_assert_eq!(decisions(&event, together), decisions(&event, apart));
        }
    }

    #[test]
    fn the_built_in_patterns_of_calls_can_be_searched_for_together() {
        assert!(POLICY.scanner().joins(&EventType::ToolCallStart));
    }
}

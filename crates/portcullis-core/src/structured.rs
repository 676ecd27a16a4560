//! Walks over the structured part of an event: what it weighs, and what is in it.

use std::borrow::Cow;
use std::io::Write as _;

use serde_json::{Map, Number, Value};

use crate::event::{Event, EventType, Structured};
use crate::redact::Path;
use crate::rules::{Leaf, Named, Searched};
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
    /// Notes which patterns may match a text; its views that some may match become leaves. Whether there was room for all views.
    pub(crate) fn text<'e>(
        self,
        text: &'e str,
        path: impl Fn() -> Cow<'static, str>,
        candidates: &mut Candidates,
        leaves: &mut Vec<Leaf<'e>>,
    ) -> bool {
        // No pattern matches it, and the events of tools mostly have no other.
        if text.is_empty() {
            return true;
        }
        let mut complete = true;
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
                    text: Cow::Borrowed(text),
                    searched: Searched::View(view),
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
                let unmasked = views::unmask(text, features);
                complete = unmasked.complete;
                unmasked.views.into_iter().for_each(&mut add);
            }
        }
        self.scanner
            .scan_into(text, features, self.event_type, candidates);
        complete
    }

    /// Every string and member name that some pattern may match, and their views. Whether there was room for all views.
    pub(crate) fn structured<'e>(
        self,
        structured: Structured<'e>,
        leaves: &mut Vec<Leaf<'e>>,
    ) -> bool {
        let mut short = Short::new(self);
        short.all(structured);
        if short.are_clean && !short.others {
            return true;
        }
        let mut walk = Walk {
            scan: self,
            skip_short: short.are_clean,
            candidates: Candidates::none(),
            leaves,
            complete: true,
        };
        match structured {
            Structured::ToolArgs(args) => walk.members(args, &Path::Root),
            Structured::Result(result) => walk.value(None, result, &Path::Root),
        }
        walk.complete
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
            candidates: Candidates::none(),
            are_clean: scan.scanner.joins(scan.event_type),
            others: false,
        }
    }

    fn all(&mut self, structured: Structured<'_>) {
        match structured {
            Structured::ToolArgs(args) => self.members(args),
            Structured::Result(result) => self.value(None, result),
        }
        self.look();
    }

    fn members(&mut self, members: &Map<String, Value>) {
        for (name, value) in members {
            self.text(name);
            self.value(Some(name), value);
        }
    }

    fn value(&mut self, name: Option<&str>, value: &Value) {
        match value {
            _ if !self.are_clean => {}
            Value::String(text) => {
                self.text(text);
                self.named(name, text);
            }
            Value::Number(number) => {
                if let Some(number) = telling(number) {
                    self.named(name, digits(number, &mut [0; MOST_DIGITS]));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.value(name, item)),
            Value::Object(members) => self.members(members),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        if text.len() > SHORT {
            self.others = true;
            return;
        }
        self.begin(text.len());
        self.put(self.len, text);
    }

    fn named(&mut self, name: Option<&str>, value: &str) {
        let Some(name) = name.filter(|_| may_be_named(value) && value.len() <= SHORT) else {
            return;
        };
        let name = end_of(name);
        self.begin(OPEN.len() + name.len() + SAYS.len() + value.len() + CLOSE.len());
        for part in [OPEN, name, SAYS] {
            self.put(self.len, part);
        }
        for part in unquoted(value) {
            self.put(self.len, part);
        }
        self.put(self.len, CLOSE);
    }

    /// Makes room for so many bytes.
    fn begin(&mut self, len: usize) {
        let aligned = (self.len + BETWEEN.len()).next_multiple_of(ALIGNMENT);
        let start = if aligned + len + BETWEEN.len() <= SHORT_TOGETHER {
            aligned
        } else {
            self.look();
            self.texts.fill(FILLER);
            BETWEEN.len().next_multiple_of(ALIGNMENT)
        };
        self.put(start - BETWEEN.len(), BETWEEN);
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

/// How a value is written behind its name.
const OPEN: &str = "\"";
const SAYS: &str = "\": \"";
const CLOSE: &str = "\"";

/// So much of a name says what stands behind it, in bytes.
const TELLING_NAME: usize = 48;

/// The end of a name, which says most: names are repeated for each item of a list, and must not weigh more than it.
fn end_of(name: &str) -> &str {
    &name[name.ceil_char_boundary(name.len().saturating_sub(TELLING_NAME))..]
}

/// Whether a value may be one that is known by its name: no shorter, and no longer ones are, and no few ordinary words.
fn may_be_named(value: &str) -> bool {
    (3..=4 << 10).contains(&value.len()) && !is_ordinary(value)
}

/// Whether a value is a few words, as most arguments are. Words for a wallet are many, and words that a machine made for a
/// password long, or four of four letters.
fn is_ordinary(value: &str) -> bool {
    const FEW: usize = 40;
    const LONG: usize = 10;
    let bytes = value.as_bytes();
    if bytes.len() >= FEW {
        return false;
    }
    let (mut plain, mut blank) = (true, false);
    for byte in bytes {
        blank |= *byte == b' ';
        plain &= matches!(byte, b'a'..=b'z' | b' ');
    }
    let mut words = bytes.split(|byte| *byte == b' ');
    plain
        && if blank {
            words.any(|word| word.len() != 4)
        } else {
            bytes.len() < LONG
        }
}

/// A number that may be known by its name: cards, accounts and the like are whole, and not short.
fn telling(number: &Number) -> Option<u64> {
    let whole = number.as_u64().or_else(|| whole(number.as_f64()?));
    whole.filter(|number| *number >= 100)
}

/// The whole number that this is: `4111111111111111.0` is a card as well.
#[expect(clippy::cast_sign_loss, reason = "what is below zero is not within")]
fn whole(number: f64) -> Option<u64> {
    const END: f64 = u64::MAX as f64;
    let within = number.fract() == 0.0 && (0.0..END).contains(&number);
    within.then_some(number as u64)
}

/// Of the largest number.
const MOST_DIGITS: usize = 20;

/// The number as it is written.
fn digits(number: u64, room: &mut [u8; MOST_DIGITS]) -> &str {
    let mut rest = room.as_mut_slice();
    let len = match write!(rest, "{number}") {
        Ok(()) => MOST_DIGITS - rest.len(),
        Err(_) => 0,
    };
    std::str::from_utf8(&room[..len]).unwrap_or_default()
}

/// A value without the quotes in it, which would end it where it does not end.
fn unquoted(value: &str) -> impl Iterator<Item = &str> {
    value.split_inclusive(['"', '\'', '`']).flat_map(|part| {
        let plain = part.trim_end_matches(['"', '\'', '`']);
        [plain, &"."[..part.len() - plain.len()]]
    })
}

impl Named {
    fn of(name: &str, value: &str) -> Self {
        let mut text = [OPEN, end_of(name), SAYS].concat();
        let start = text.len();
        text.extend(unquoted(value));
        let end = text.len();
        text.push_str(CLOSE);
        Self {
            text,
            value: start..end,
            view: None,
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
    complete: bool,
}

impl<'e> Walk<'_, 'e> {
    fn members(&mut self, members: &'e Map<String, Value>, path: &Path<'_>) {
        for (name, value) in members {
            let path = Path::Member(path, name);
            self.text(name, "#", &path);
            self.value(Some(name), value, &path);
        }
    }

    fn value(&mut self, name: Option<&str>, value: &'e Value, path: &Path<'_>) {
        match value {
            Value::String(text) => {
                self.text(text, "", path);
                self.named(name, Cow::Borrowed(text), path);
            }
            Value::Number(number) => {
                if let Some(number) = telling(number) {
                    self.named(name, Cow::Owned(number.to_string()), path);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(name, item, &Path::Item(path, index));
                }
            }
            Value::Object(members) => self.members(members, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The same value behind its name, if that says something of it.
    fn named(&mut self, name: Option<&str>, value: Cow<'e, str>, path: &Path<'_>) {
        let is_known = self.skip_short && value.len() <= SHORT;
        let Some(name) = name.filter(|_| !is_known && may_be_named(&value)) else {
            return;
        };
        let named = Named::of(name, &value);
        let view = self.scan.evasive.then(|| views::fold(&named.text));
        if let Some(view) = view.flatten() {
            let candidates = self.scan.scanner.scan(view.text(), self.scan.event_type);
            let named = Named {
                text: String::new(),
                value: named.value.clone(),
                view: Some(view),
            };
            self.push_named(value.clone(), named, candidates, path);
        }
        let candidates = self.scan.scanner.scan(&named.text, self.scan.event_type);
        self.push_named(value, named, candidates, path);
    }

    fn push_named(
        &mut self,
        value: Cow<'e, str>,
        named: Named,
        candidates: Candidates,
        path: &Path<'_>,
    ) {
        if !candidates.is_empty() {
            self.leaves.push(Leaf {
                path: Cow::Owned(path.pointer()),
                text: value,
                searched: Searched::Named(named),
                from: 0,
                candidates,
            });
        }
    }

    fn text(&mut self, text: &'e str, prefix: &str, path: &Path<'_>) {
        if self.skip_short && text.len() <= SHORT {
            return;
        }
        let path = || Cow::Owned(path.pointer_after(prefix));
        self.complete &= self
            .scan
            .text(text, path, &mut self.candidates, self.leaves);
        if !self.candidates.is_empty() {
            self.leaves.push(Leaf {
                path: path(),
                text: Cow::Borrowed(text),
                searched: Searched::Plain,
                from: 0,
                candidates: std::mem::replace(&mut self.candidates, Candidates::none()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decision::Decision;
    use crate::detectors;
    use crate::event::Context;
    use crate::pack;
    use crate::policy::Policy;
    use crate::rules::{Answer, EventScan, RuleInput};
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
            text: Candidates::none(),
            window: 0..0,
            leaves,
            complete: true,
            names_hosts: Answer::default(),
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
                members.into_iter().map(|(name, text)| (name, json!([text, 123_456]))).collect();
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
                candidates: Candidates::none(),
                leaves: &mut apart,
                complete: true,
            };
            match structured {
                Structured::ToolArgs(args) => walk.members(args, &Path::Root),
                Structured::Result(result) => walk.value(None, result, &Path::Root),
            }
            prop_assert_eq!(decisions(&event, together), decisions(&event, apart));
        }
    }

    #[test]
    fn the_built_in_patterns_of_calls_can_be_searched_for_together() {
        assert!(POLICY.scanner().joins(&EventType::ToolCallStart));
    }
}

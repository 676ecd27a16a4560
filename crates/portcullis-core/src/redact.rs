//! Applying redactions, to text and to JSON.
//!
//! Spans are bytes inside the scanner and code points in a [`RedactionSpec`]; this module holds both
//! conversions and everything that replaces text.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use crate::decision::RedactionSpec;
use crate::event::Event;

/// A redaction that names a place the event does not have. What cannot be redacted must not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("redaction path `{path}` names nothing in this event: withhold the event instead")]
pub struct RedactError {
    /// The path as given.
    pub path: String,
}

/// Joins overlapping spans and drops what a larger span covers, path by path: `text` first, then
/// pointers in order. A joined span keeps the replacement and entity of the one that starts first.
pub fn merge(redactions: impl IntoIterator<Item = RedactionSpec>) -> Vec<RedactionSpec> {
    let mut sorted: Vec<RedactionSpec> = redactions
        .into_iter()
        .filter(|spec| start(spec) < end(spec))
        .collect();
    sorted.sort_by(|a, b| {
        let order = |spec: &RedactionSpec| (spec.path != RedactionSpec::TEXT, start(spec));
        (order(a).0, &a.path, order(a).1)
            .cmp(&(order(b).0, &b.path, order(b).1))
            .then(end(b).cmp(&end(a)))
    });
    let mut merged: Vec<RedactionSpec> = Vec::with_capacity(sorted.len());
    for spec in sorted {
        match merged.last_mut() {
            Some(last) if last.path == spec.path && start(&spec) < end(last) => {
                if end(last) < end(&spec) {
                    last.end_offset = spec.end_offset;
                }
                // A value that is to be forgotten must not come back as part of another.
                last.restorable &= spec.restorable;
            }
            _ => merged.push(spec),
        }
    }
    merged
}

/// In how many places there is something to redact: what overlaps is one, whoever found it and how often.
pub(crate) fn places(redactions: &[RedactionSpec]) -> usize {
    let mut spans: Vec<(&str, usize, usize)> = redactions
        .iter()
        .map(|spec| (&*spec.path, start(spec), end(spec)))
        .filter(|(_, start, end)| start < end)
        .collect();
    spans.sort_unstable();
    let mut covered: Option<(&str, usize)> = None;
    let mut places = 0;
    for (path, start, end) in spans {
        match &mut covered {
            Some((known, to)) if *known == path && start < *to => *to = end.max(*to),
            _ => {
                places += 1;
                covered = Some((path, end));
            }
        }
    }
    places
}

/// The text with the redactions of its `path` applied. Overlaps are joined first; offsets past the
/// end mean the end.
pub fn redact_text<'t>(text: &'t str, path: &str, redactions: &[RedactionSpec]) -> Cow<'t, str> {
    let mine: Vec<&RedactionSpec> = redactions.iter().filter(|spec| spec.path == path).collect();
    apply(text, &mine)
}

/// Applies redactions to the event: its text, and strings inside its structured part.
///
/// JSON stays JSON, because only whole strings are rewritten. A pointer to something that is not a
/// string replaces it whole. A path `#/a/b` means the *name* of the member at `/a/b`.
pub fn redact_event(event: &mut Event, redactions: &[RedactionSpec]) -> Result<(), RedactError> {
    let mut by_path: BTreeMap<&str, Vec<&RedactionSpec>> = BTreeMap::new();
    for spec in redactions {
        by_path.entry(&spec.path).or_default().push(spec);
    }
    if let Some(specs) = by_path.remove(RedactionSpec::TEXT) {
        let text = event.text_content.as_mut();
        let text = text.ok_or_else(|| not_found(RedactionSpec::TEXT))?;
        if let Cow::Owned(redacted) = apply(text, &specs) {
            *text = redacted;
        }
    }
    let (mut names, values): (Vec<_>, Vec<_>) = by_path
        .into_iter()
        .partition(|(path, _)| path.starts_with('#'));
    for (path, specs) in values {
        let value = structured_mut(event, path).ok_or_else(|| not_found(path))?;
        *value = Value::String(match &*value {
            Value::String(text) => apply(text, &specs).into_owned(),
            _ => specs[0].replacement.to_string(),
        });
    }
    // Deepest names first, so that renaming one does not move another.
    names.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    let mut namesakes = HashMap::new();
    for (path, specs) in names {
        rename(event, path, &specs, &mut namesakes).ok_or_else(|| not_found(path))?;
    }
    Ok(())
}

/// What a redaction takes out of the event.
pub fn redacted_value<'e>(event: &'e Event, spec: &RedactionSpec) -> Option<Cow<'e, str>> {
    let text: Cow<'e, str> = match spec.path.strip_prefix('#') {
        None if spec.path == RedactionSpec::TEXT => Cow::Borrowed(event.text_content.as_deref()?),
        None => match structured_at(event, &spec.path)? {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Number(number) => Cow::Owned(number.to_string()),
            _ => return None,
        },
        Some(pointer) => Cow::Owned(unescape(pointer.rsplit_once('/')?.1)),
    };
    let mut cursor = Cursor::new(&text);
    let range = cursor.byte_of(start(spec))..cursor.byte_of(end(spec));
    Some(match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(range)?),
        Cow::Owned(text) => Cow::Owned(text.get(range)?.to_owned()),
    })
}

/// The text with these spans replaced.
fn apply<'t>(text: &'t str, specs: &[&RedactionSpec]) -> Cow<'t, str> {
    let spans = merge(specs.iter().copied().cloned());
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut cursor = Cursor::new(text);
    let mut copied = 0;
    for spec in &spans {
        let from = cursor.byte_of(start(spec));
        let to = cursor.byte_of(end(spec));
        if from == to {
            continue;
        }
        out.push_str(&text[copied..from]);
        out.push_str(&spec.replacement);
        copied = to;
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Turns byte offsets into code-point offsets and back, walking the text once for ascending
/// offsets.
#[derive(Debug)]
pub(crate) struct Cursor<'t> {
    text: &'t str,
    ascii: bool,
    byte: usize,
    code_point: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self::knowing(text, text.is_ascii())
    }

    /// The same where somebody has looked already whether the text is all ASCII.
    pub(crate) fn knowing(text: &'t str, ascii: bool) -> Self {
        Self {
            text,
            ascii,
            byte: 0,
            code_point: 0,
        }
    }

    /// The code point that starts at this byte.
    pub(crate) fn code_point_of(&mut self, byte: usize) -> usize {
        if self.ascii {
            return byte;
        }
        if byte < self.byte {
            (self.byte, self.code_point) = (0, 0);
        }
        self.code_point += self.text[self.byte..byte].chars().count();
        self.byte = byte;
        self.code_point
    }

    /// The byte at which this code point starts, or the end.
    fn byte_of(&mut self, code_point: usize) -> usize {
        if self.ascii {
            return code_point.min(self.text.len());
        }
        if code_point < self.code_point {
            (self.byte, self.code_point) = (0, 0);
        }
        for c in self.text[self.byte..].chars() {
            if self.code_point == code_point {
                break;
            }
            self.byte += c.len_utf8();
            self.code_point += 1;
        }
        self.byte
    }
}

/// Where a value stands. Written out only when somebody is told.
#[derive(Clone, Copy)]
pub(crate) enum Path<'p> {
    Root,
    Member(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// As a JSON Pointer.
    pub(crate) fn pointer(&self) -> String {
        self.pointer_after("")
    }

    /// As much of it as a message should hold.
    pub(crate) fn short_pointer(&self) -> String {
        const LONGEST: usize = 200;
        let mut pointer = self.pointer();
        if pointer.len() > LONGEST {
            pointer.truncate(pointer.floor_char_boundary(LONGEST));
            pointer.push('…');
        }
        pointer
    }

    /// The same with something before it.
    pub(crate) fn pointer_after(&self, prefix: &str) -> String {
        match self {
            Self::Root => prefix.to_owned(),
            Self::Member(parent, name) => {
                let mut pointer = parent.pointer_after(prefix);
                push_pointer(&mut pointer, name);
                pointer
            }
            Self::Item(parent, index) => format!("{}/{index}", parent.pointer_after(prefix)),
        }
    }
}

/// Adds one member to a JSON Pointer.
pub(crate) fn push_pointer(pointer: &mut String, member: &str) {
    pointer.push('/');
    for c in member.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(c),
        }
    }
}

fn start(spec: &RedactionSpec) -> usize {
    spec.start_offset.unwrap_or(0)
}

fn end(spec: &RedactionSpec) -> usize {
    spec.end_offset.unwrap_or(usize::MAX)
}

fn not_found(path: &str) -> RedactError {
    RedactError {
        path: path.to_owned(),
    }
}

fn structured_at<'e>(event: &'e Event, pointer: &str) -> Option<&'e Value> {
    if event.event_type.has_result() {
        return event.payload.get("result")?.pointer(pointer);
    }
    let (first, rest) = split_first(pointer)?;
    event.tool_args.as_ref()?.get(&first)?.pointer(rest)
}

fn structured_mut<'e>(event: &'e mut Event, pointer: &str) -> Option<&'e mut Value> {
    if event.event_type.has_result() {
        return event.payload.get_mut("result")?.pointer_mut(pointer);
    }
    let (first, rest) = split_first(pointer)?;
    event.tool_args.as_mut()?.get_mut(&first)?.pointer_mut(rest)
}

fn rename<'p>(
    event: &mut Event,
    path: &'p str,
    specs: &[&RedactionSpec],
    namesakes: &mut HashMap<(&'p str, String), usize>,
) -> Option<()> {
    let pointer = path.strip_prefix('#')?;
    let (parent, member) = pointer.rsplit_once('/')?;
    let member = unescape(member);
    let object: &mut Map<String, Value> = if parent.is_empty() && !event.event_type.has_result() {
        event.tool_args.as_mut()?
    } else {
        structured_mut(event, parent)?.as_object_mut()?
    };
    let value = object.remove(&member)?;
    let redacted = apply(&member, specs).into_owned();
    // Members can be redacted to the same name; none may swallow another. Counting on from the
    // last one keeps thousands of them from being tried again for each.
    let mut name = redacted.clone();
    let count = namesakes.entry((parent, redacted)).or_insert(1);
    while object.contains_key(&name) {
        *count += 1;
        name = format!("{}_{count}", apply(&member, specs));
    }
    object.insert(name, value);
    Some(())
}

fn split_first(pointer: &str) -> Option<(String, &str)> {
    let rest = pointer.strip_prefix('/')?;
    let (first, _) = rest.split_once('/').unwrap_or((rest, ""));
    Some((unescape(first), &rest[first.len()..]))
}

fn unescape(member: &str) -> String {
    member.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;
    use proptest::prelude::*;
    use serde_json::json;

    fn spec(
        path: &str,
        span: impl Into<Option<(usize, usize)>>,
        replacement: &str,
    ) -> RedactionSpec {
        let span = span.into();
        RedactionSpec {
            path: path.to_owned().into(),
            replacement: replacement.to_owned().into(),
            entity_type: None,
            start_offset: span.map(|(start, _)| start),
            end_offset: span.map(|(_, end)| end),
            restorable: false,
        }
    }

    #[test]
    fn the_value_of_a_redaction_is_found_where_it_would_be_replaced() {
        let result = json!({"a": [{"mail é x": "to jane@x.org"}]});
        let event = Event {
            payload: Map::from_iter([("result".to_owned(), result)]),
            ..Event::tool_call_result("r", "t", "né jane")
        };
        for (path, span, expected) in [
            ("text", Some((3, 7)), Some("jane")),
            ("text", None, Some("né jane")),
            ("/a/0/mail é x", Some((3, 13)), Some("jane@x.org")),
            ("#/a/0/mail é x", Some((5, 8)), Some("é x")),
            ("/a/1", None, None),
            ("/a", None, None),
        ] {
            let value = redacted_value(&event, &spec(path, span, ""));
            assert_eq!(value.as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn spans_count_code_points() {
        let text = "é🔑secret漢";
        let redacted = redact_text(text, "text", &[spec("text", (2, 8), "[S]")]);
        assert_eq!(redacted, "é🔑[S]漢");
    }

    #[test]
    fn overlaps_are_joined_and_the_first_names_the_result() {
        let specs = [
            spec("text", (4, 8), "[B]"),
            spec("text", (2, 6), "[A]"),
            spec("text", (8, 9), "[C]"),
            spec("text", (5, 5), "[nothing]"),
        ];
        assert_eq!(
            merge(specs.clone()),
            [spec("text", (2, 8), "[A]"), spec("text", (8, 9), "[C]")]
        );
        assert_eq!(redact_text("0123456789", "text", &specs), "01[A][C]9");
    }

    #[test]
    fn a_span_without_offsets_takes_the_whole_string() {
        let specs = [spec("text", (1, 2), "[A]"), spec("text", None, "[ALL]")];
        assert_eq!(redact_text("abc", "text", &specs), "[ALL]");
    }

    #[test]
    fn offsets_past_the_end_mean_the_end() {
        assert_eq!(
            redact_text("abc", "text", &[spec("text", (1, 99), "*")]),
            "a*"
        );
        assert_eq!(
            redact_text("abc", "text", &[spec("text", (7, 99), "*")]),
            "abc"
        );
    }

    #[test]
    fn json_strings_are_redacted_in_place_and_json_stays_json() {
        let mut event = Event::new(EventType::ToolCallResult, "r");
        event.payload.insert(
            "result".into(),
            json!({"a/b": ["x", "key=\"SECRET\"\n"], "n": 42, "SECRET": {"in": "SECRET"}}),
        );
        redact_event(
            &mut event,
            &[
                spec("/a~1b/1", (5, 11), "[\"quoted\"]"),
                spec("/n", None, "[N]"),
                spec("/SECRET/in", (0, 6), "[V]"),
                spec("#/SECRET", (0, 6), "[K]"),
            ],
        )
        .unwrap();
        let result = &event.payload["result"];
        assert_eq!(
            result,
            &json!({"a/b": ["x", "key=\"[\"quoted\"]\"\n"], "n": "[N]", "[K]": {"in": "[V]"}})
        );
        let text = serde_json::to_string(result).unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), result);
    }

    #[test]
    fn tool_arguments_are_redacted_too() {
        let args = json!({"headers": {"auth": "Bearer SECRET"}, "k1": 1, "k2": 2});
        let mut event = Event::tool_call_start("r", "http", args.as_object().unwrap().clone());
        redact_event(
            &mut event,
            &[
                spec("/headers/auth", (7, 13), "[S]"),
                spec("#/k1", None, "k"),
                spec("#/k2", None, "k"),
            ],
        )
        .unwrap();
        assert_eq!(
            Value::Object(event.tool_args.unwrap()),
            json!({"headers": {"auth": "Bearer [S]"}, "k": 1, "k_2": 2})
        );
    }

    #[test]
    fn many_names_redacted_to_the_same_are_told_apart() {
        let args: Map<String, Value> = (0..20_000)
            .map(|n| (format!("SECRET{n}"), json!(n)))
            .collect();
        let specs: Vec<_> = args
            .keys()
            .map(|name| spec(&format!("#/{name}"), None, "[K]"))
            .collect();
        let mut event = Event::tool_call_start("r", "t", args);
        redact_event(&mut event, &specs).unwrap();
        let args = event.tool_args.unwrap();
        assert_eq!(args.len(), 20_000);
        assert!(
            args.keys()
                .all(|name| name.starts_with("[K]") && name.len() < 10)
        );
    }

    #[test]
    fn a_redaction_that_finds_nothing_to_redact_is_an_error() {
        for path in ["/nowhere", "nonsense", "#/nowhere", "#", "text", ""] {
            let mut event = Event::tool_call_start("r", "t", Map::new());
            let error = redact_event(&mut event, &[spec(path, (0, 1), "*")]).unwrap_err();
            assert_eq!(error.path, path);
        }
    }

    fn specs() -> impl Strategy<Value = Vec<RedactionSpec>> {
        prop::collection::vec((0usize..30, 0usize..12), 0..8).prop_map(|spans| {
            spans
                .into_iter()
                .map(|(start, len)| spec("text", (start, start + len), "*"))
                .collect()
        })
    }

    proptest! {
        /// Whatever the spans, what they cover is gone and what they do not cover is there.
        #[test]
        fn redaction_leaves_no_covered_character(text in "[a-zé漢🔑]{0,30}", specs in specs()) {
            let redacted = redact_text(&text, "text", &specs);
            let kept: String = text
                .chars()
                .enumerate()
                .filter(|(i, _)| !specs.iter().any(|s| start(s) <= *i && *i < end(s)))
                .map(|(_, c)| c)
                .collect();
            prop_assert_eq!(redacted.replace('*', ""), kept);
        }

        /// Merging first changes nothing, and merging twice changes nothing more.
        #[test]
        fn merged_redactions_equal_the_originals(text in "[a-zé漢🔑]{0,30}", specs in specs()) {
            let merged = merge(specs.clone());
            prop_assert_eq!(redact_text(&text, "text", &merged), redact_text(&text, "text", &specs));
            prop_assert_eq!(merge(merged.clone()), merged);
        }

        /// However often a value was found, it is in one place.
        #[test]
        fn places_are_what_is_left_after_merging(a in specs(), b in specs()) {
            let b = b.into_iter().map(|one| RedactionSpec { path: "/b".into(), ..one });
            let specs: Vec<RedactionSpec> = a.into_iter().chain(b).collect();
            prop_assert_eq!(places(&specs), merge(specs.clone()).len());
            prop_assert_eq!(places(&[specs.clone(), specs.clone()].concat()), places(&specs));
        }

        /// Disjoint spans applied one by one, last first, give the same as all at once.
        #[test]
        fn merged_redactions_equal_sequential_application(text in "[a-zé漢🔑]{0,30}", specs in specs()) {
            let merged = merge(specs);
            let mut sequential = text.clone();
            for one in merged.iter().rev() {
                if start(one) < text.chars().count() {
                    sequential = redact_text(&sequential, "text", std::slice::from_ref(one)).into_owned();
                }
            }
            prop_assert_eq!(redact_text(&text, "text", &merged), sequential);
        }
    }
}

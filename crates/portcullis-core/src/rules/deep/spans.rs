use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::super::RuleError;
use crate::decision::RedactionSpec;

/// What a service calls the members of a span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpanFields {
    /// Where it begins.
    pub start: String,
    /// One past where it ends.
    pub end: String,
    /// What kind of thing it is.
    pub kind: Option<String>,
    /// How sure the service is.
    pub score: Option<String>,
    /// What offsets count.
    pub offsets: Offsets,
}

/// What offsets into a text count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Offsets {
    /// As Python does.
    #[default]
    CodePoints,
    /// Of UTF-8, as Rust and Go do.
    Bytes,
    /// As `JavaScript`, Java and C# do.
    Utf16,
}

/// A span that a service found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    start: usize,
    end: usize,
    pub(super) kind: Option<String>,
    pub(super) score: Option<f64>,
}

/// What a kind or a label may measure. They are repeated in decisions.
const MAX_NAME_BYTES: usize = 128;

impl SpanFields {
    /// Presidio's.
    pub(super) fn presidio() -> Self {
        Self {
            start: "start".to_owned(),
            end: "end".to_owned(),
            kind: Some("entity_type".to_owned()),
            score: Some("score".to_owned()),
            offsets: Offsets::CodePoints,
        }
    }

    /// The spans of a list, of which `at` says where it is.
    pub(super) fn read(&self, list: &Value, at: &str) -> Result<Vec<Span>, RuleError> {
        let Some(items) = list.as_array() else {
            return Err(RuleError(format!("`{at}` of the answer is not a list")));
        };
        let items = items.iter().enumerate();
        items
            .map(|(index, item)| self.read_one(item, &format!("{at}/{index}")))
            .collect()
    }

    fn read_one(&self, item: &Value, at: &str) -> Result<Span, RuleError> {
        let member = |name: &str| {
            let member = item.get(name).filter(|_| item.is_object());
            member.ok_or_else(|| RuleError(format!("`{at}` of the answer has no `{name}`")))
        };
        let offset = |name: &str| {
            let offset = member(name)?.as_u64().and_then(|n| usize::try_from(n).ok());
            offset.ok_or_else(|| RuleError(format!("`{at}/{name}` is not an offset")))
        };
        let (start, end) = (offset(&self.start)?, offset(&self.end)?);
        if start >= end {
            return Err(RuleError(format!("`{at}` ends where it begins, or before")));
        }
        let kind = match &self.kind {
            Some(field) => Some(name(member(field)?, &format!("{at}/{field}"))?),
            None => None,
        };
        let score = match &self.score {
            Some(field) => Some(score(member(field)?, &format!("{at}/{field}"))?),
            None => None,
        };
        Ok(Span {
            start,
            end,
            kind,
            score,
        })
    }
}

/// A number from 0 to 1.
pub(super) fn score(value: &Value, at: &str) -> Result<f64, RuleError> {
    let score = value.as_f64().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| RuleError(format!("`{at}` of the answer is not a number from 0 to 1")))
}

/// A short text that can be shown.
pub(super) fn name(value: &Value, at: &str) -> Result<String, RuleError> {
    let fine = |text: &&str| {
        !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.contains(char::is_control)
    };
    let name = value.as_str().filter(fine);
    name.map(str::to_owned).ok_or_else(|| {
        RuleError(format!(
            "`{at}` of the answer is not a name of at most {MAX_NAME_BYTES} bytes"
        ))
    })
}

/// What takes the spans out of the text at a path.
pub(super) fn redactions(
    spans: &[Span],
    text: &str,
    path: &str,
    offsets: Offsets,
) -> Result<Vec<RedactionSpec>, RuleError> {
    let wanted = spans.iter().flat_map(|span| [span.start, span.end]);
    let points = code_points(text, offsets, wanted)?;
    let point = |offset: usize| points.get(&offset).copied();
    let redaction = |span: &Span| {
        let kind = span.kind.as_deref().unwrap_or("REDACTED");
        RedactionSpec {
            path: path.to_owned().into(),
            replacement: format!("[{kind}]").into(),
            entity_type: span.kind.clone().map(Into::into),
            start_offset: point(span.start),
            end_offset: point(span.end),
            restorable: false,
        }
    };
    Ok(spans.iter().map(redaction).collect())
}

/// The code point that each offset means, in one pass however many there are. One that is between
/// characters of nobody's counting is an error: to round it would leave a part of what was found.
fn code_points(
    text: &str,
    offsets: Offsets,
    wanted: impl Iterator<Item = usize>,
) -> Result<BTreeMap<usize, usize>, RuleError> {
    let mut points: BTreeMap<usize, usize> = wanted.map(|offset| (offset, 0)).collect();
    let width = |c: char| match offsets {
        Offsets::CodePoints => 1,
        Offsets::Bytes => c.len_utf8(),
        Offsets::Utf16 => c.len_utf16(),
    };
    let mut chars = text.chars();
    let (mut offset, mut code_point) = (0, 0);
    for (wanted, point) in &mut points {
        while offset < *wanted {
            let Some(c) = chars.next() else {
                return Err(RuleError(format!(
                    "the answer has the offset {wanted}, in a text that ends at {offset}"
                )));
            };
            offset += width(c);
            code_point += 1;
        }
        if offset > *wanted {
            return Err(RuleError(format!(
                "the answer has the offset {wanted}, which is within a character"
            )));
        }
        *point = code_point;
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::redact::redact_text;

    fn span(start: usize, end: usize) -> Span {
        Span {
            start,
            end,
            kind: Some("X".to_owned()),
            score: None,
        }
    }

    #[test]
    fn offsets_count_what_they_are_said_to() {
        let text = "aé😀 Bob!";
        for (offsets, start, end) in [
            (Offsets::CodePoints, 4, 7),
            (Offsets::Bytes, 8, 11),
            (Offsets::Utf16, 5, 8),
        ] {
            let found = redactions(&[span(start, end)], text, "text", offsets).unwrap();
            assert_eq!(redact_text(text, "text", &found), "aé😀 [X]!");
        }
        for (offsets, end, expected) in [
            (Offsets::CodePoints, 9, "ends at 8"),
            (Offsets::Bytes, 2, "within a character"),
            (Offsets::Utf16, 3, "within a character"),
            (Offsets::Utf16, usize::MAX, "ends at 9"),
        ] {
            let error = redactions(&[span(1, end)], text, "text", offsets).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_wrong_span_is_named_by_its_place() {
        let fields = SpanFields::presidio();
        let fine = json!({"start": 1, "end": 2, "entity_type": "X", "score": 1.0});
        assert!(fields.read(&json!([fine]), "").is_ok());
        for (member, value, expected) in [
            ("start", json!(2), "`/1` ends where it begins"),
            ("start", json!(-1), "`/1/start` is not an offset"),
            ("end", json!(2.5), "`/1/end` is not an offset"),
            (
                "entity_type",
                json!("a\nb"),
                "`/1/entity_type` of the answer is not a name",
            ),
            ("entity_type", json!("x".repeat(129)), "is not a name"),
            (
                "score",
                json!(1.5),
                "`/1/score` of the answer is not a number from 0 to 1",
            ),
            ("score", json!("1"), "is not a number"),
        ] {
            let mut wrong = fine.clone();
            wrong[member] = value;
            let error = fields.read(&json!([fine, wrong]), "").unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        for (list, expected) in [
            (json!({}), "`/a` of the answer is not a list"),
            (json!(["start"]), "`/a/0` of the answer has no `start`"),
        ] {
            let error = fields.read(&list, "/a").unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    proptest! {
        /// Whatever the unit, the spans of a text cut the same.
        #[test]
        fn units_agree(text in "[a-cé😀]{0,12}", cuts in prop::collection::vec((0usize..13, 1usize..4), 0..4)) {
            let chars: Vec<char> = text.chars().collect();
            let at = |index: usize, width: fn(char) -> usize| -> usize {
                chars.iter().take(index).map(|c| width(*c)).sum()
            };
            let cuts: Vec<_> = cuts.iter().map(|(from, len)| (*from, from + len))
                .filter(|(_, to)| *to <= chars.len()).collect();
            let by = |offsets, width: fn(char) -> usize| {
                let spans: Vec<_> = cuts.iter().map(|(from, to)| span(at(*from, width), at(*to, width))).collect();
                redactions(&spans, &text, "text", offsets).unwrap()
            };
            let points = by(Offsets::CodePoints, |_| 1);
            prop_assert_eq!(&points, &by(Offsets::Bytes, char::len_utf8));
            prop_assert_eq!(&points, &by(Offsets::Utf16, char::len_utf16));
        }
    }
}

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::RuleError;
use super::spans::{self, Offsets, Span, SpanFields};
use crate::decision::RedactionSpec;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{self, MapReader, Node};

/// How a service's answer is read. Pointers are JSON Pointers (RFC 6901).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// What counts.
    pub sought: Sought,
    /// Where the label is.
    pub label: Option<String>,
    /// Which labels or kinds of spans count; all of them if there are none here.
    pub labels: Vec<String>,
}

/// What in an answer counts as a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sought {
    /// A number from 0 to 1 that is at least this.
    Score {
        /// Where it is.
        at: String,
        /// From which on it counts.
        threshold: f64,
    },
    /// A true boolean.
    Flagged {
        /// Where it is.
        at: String,
    },
    /// One of the labels.
    Label,
    /// A span of the text.
    Spans {
        /// Where the list is.
        at: String,
        /// What its items have.
        fields: SpanFields,
        /// From which score on a span counts.
        threshold: f64,
    },
}

/// What an answer says is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// For people.
    pub(super) reason: String,
    pub(super) score: Option<f64>,
    /// For machines.
    pub(super) result: Map<String, Value>,
    pub(super) redactions: Vec<RedactionSpec>,
}

impl Reading {
    const THRESHOLD: f64 = 0.5;

    pub(super) fn read(node: &Node, d: &mut Diagnostics) -> Option<Self> {
        let mut map = MapReader::open(node, "`response`", d)?;
        let score = pointer(&mut map, "score", d);
        let flagged = pointer(&mut map, "flagged", d);
        let spans = map.get("spans");
        let label = pointer(&mut map, "label", d);
        let labels = map.texts("labels", d);
        let threshold = read_threshold(&mut map, "threshold", d);
        let places: Vec<Place> = ["score", "flagged", "spans"]
            .iter()
            .filter_map(|key| map.key_place(key))
            .collect();
        if let [_, second, ..] = places.as_slice() {
            d.error(*second, "only one of `score`, `flagged` and `spans` counts")
                .help("keep one of them");
        }
        let label_place = map.key_place("label");
        let labels_place = map.key_place("labels");
        let threshold_place = map.key_place("threshold");
        map.finish(d);
        let at_least = threshold.unwrap_or(Self::THRESHOLD);
        let has_kinds = spans.is_some_and(|node| node.member("type").is_some());
        let has_scores = spans.is_some_and(|node| node.member("score").is_some());
        let sought = if let Some(at) = score {
            Sought::Score {
                at,
                threshold: at_least,
            }
        } else if let Some(at) = flagged {
            Sought::Flagged { at }
        } else if let Some(spans) = spans {
            let (at, fields) = read_spans(spans, d)?;
            Sought::Spans {
                at,
                fields,
                threshold: threshold.unwrap_or_default(),
            }
        } else if label.is_some() && labels.is_some() {
            Sought::Label
        } else if places.is_empty() {
            d.error(node.place, "`response` does not say what counts")
                .help("give `score`, `flagged`, `spans`, or `label` with `labels`");
            return None;
        } else {
            return None;
        };
        if let Some(place) = threshold_place
            && !has_scores
            && !matches!(sought, Sought::Score { .. })
        {
            d.error(place, "`threshold` goes with a `score`");
        }
        let has_spans = matches!(sought, Sought::Spans { .. });
        if let Some(place) = label_place
            && has_spans
        {
            d.error(
                place,
                "`label` is that of the whole text, and `spans` have their own",
            )
            .help("leave it out, and give the `type` of `spans`");
        }
        if let Some(place) = labels_place {
            if has_spans && !has_kinds {
                d.error(place, "`labels` needs to know where a span's label is")
                    .help("give the `type` of `spans`");
            } else if label.is_none() && !has_spans {
                d.error(place, "`labels` needs to know where the label is")
                    .help("give `label`, or the `type` of `spans`");
            } else if labels.as_ref().is_some_and(Vec::is_empty) {
                d.error(place, "`labels` is empty, so nothing would count")
                    .help("leave it out, or name a label");
            }
        }
        Some(Self {
            sought,
            label,
            labels: labels.unwrap_or_default(),
        })
    }

    /// Whether the answer points into the text.
    pub(super) fn has_spans(&self) -> bool {
        matches!(self.sought, Sought::Spans { .. })
    }

    /// What the answer says of the text. Everything that is configured must be there, whether or not it
    /// makes a difference: a service that has changed is noticed at once.
    pub(super) fn judge(&self, answer: &Value, text: &str) -> Result<Option<Found>, RuleError> {
        let label = match &self.label {
            Some(at) => Some(spans::name(find(answer, at)?, at)?),
            None => None,
        };
        let counts = |label: &Option<String>| {
            let listed = |label: &String| self.labels.contains(label);
            self.labels.is_empty() || label.as_ref().is_some_and(listed)
        };
        match &self.sought {
            Sought::Score { at, threshold } => {
                let score = spans::score(find(answer, at)?, at)?;
                let reason = format!(
                    "The classifier gives {}{score:.3}; {threshold} counts",
                    shown(label.as_ref())
                );
                let found = score >= *threshold && counts(&label);
                Ok(found.then(|| Found::labelled(reason, label, Some(score))))
            }
            Sought::Flagged { at } => {
                let Some(flagged) = find(answer, at)?.as_bool() else {
                    return Err(RuleError(format!(
                        "`{at}` of the answer is not true or false"
                    )));
                };
                let reason = format!(
                    "The classifier flags it{}",
                    label
                        .as_ref()
                        .map(|l| format!(" as {l}"))
                        .unwrap_or_default()
                );
                let found = flagged && counts(&label);
                Ok(found.then(|| Found::labelled(reason, label, None)))
            }
            Sought::Label => {
                let name = label.clone().unwrap_or_default();
                let reason = format!("The classifier says {name}");
                Ok(counts(&label).then(|| Found::labelled(reason, label, None)))
            }
            Sought::Spans {
                at,
                fields,
                threshold,
            } => {
                let all = fields.read(find(answer, at)?, at)?;
                let redactions =
                    spans::redactions(&all, text, RedactionSpec::TEXT, fields.offsets)?;
                let counts = |span: &Span| {
                    span.score.is_none_or(|score| score >= *threshold) && counts(&span.kind)
                };
                let found: Vec<_> = all
                    .into_iter()
                    .zip(redactions)
                    .filter(|(span, _)| counts(span))
                    .collect();
                Ok(Found::spans(found))
            }
        }
    }
}

impl Found {
    fn labelled(reason: String, label: Option<String>, score: Option<f64>) -> Self {
        let mut result = Map::new();
        if let Some(label) = label {
            result.insert("label".to_owned(), json!(label));
        }
        if let Some(score) = score {
            result.insert("score".to_owned(), json!(score));
        }
        Self {
            reason,
            score,
            result,
            redactions: Vec::new(),
        }
    }

    /// `None` if there are none.
    pub(super) fn spans(spans: Vec<(Span, RedactionSpec)>) -> Option<Self> {
        /// Of kinds that are named.
        const SHOWN: usize = 8;
        if spans.is_empty() {
            return None;
        }
        let mut kinds: Vec<String> = Vec::new();
        let score = spans.iter().filter_map(|(span, _)| span.score);
        let score = score.reduce(f64::max);
        for (span, _) in &spans {
            if let Some(kind) = &span.kind
                && !kinds.contains(kind)
                && kinds.len() < SHOWN
            {
                kinds.push(kind.clone());
            }
        }
        let mut reason = format!("The service found {} span(s)", spans.len());
        if !kinds.is_empty() {
            reason = format!("{reason}: {}", kinds.join(", "));
        }
        let count = spans.len();
        let members = [("spans", json!(count)), ("types", json!(kinds))];
        Some(Self {
            reason,
            score,
            result: members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            redactions: spans.into_iter().map(|(_, redaction)| redaction).collect(),
        })
    }
}

fn shown(label: Option<&String>) -> String {
    label.map(|label| format!("{label} ")).unwrap_or_default()
}

fn find<'a>(answer: &'a Value, at: &str) -> Result<&'a Value, RuleError> {
    let found = answer.pointer(at);
    found.ok_or_else(|| RuleError(format!("the answer has no `{at}`")))
}

fn pointer(map: &mut MapReader<'_>, key: &'static str, d: &mut Diagnostics) -> Option<String> {
    let node = map.get(key)?;
    read_pointer(node, key, d)
}

fn read_pointer(node: &Node, key: &str, d: &mut Diagnostics) -> Option<String> {
    let text = yaml::text(node, key, d)?;
    let mut escapes = text.split('~').skip(1);
    let escaped = escapes.all(|after| after.starts_with(['0', '1']));
    if text.is_empty() || text.starts_with('/') && escaped {
        return Some(text.to_owned());
    }
    let finding = d.error(node.place, format!("`{key}` must be a JSON Pointer"));
    if escaped {
        let path = text.trim_start_matches(['$', '.']).replace('.', "/");
        finding.help(format!("write `/{path}`"));
    } else {
        finding.help("write `~0` for a `~`, and `~1` for a `/` in a name");
    }
    None
}

pub(super) fn read_threshold(
    map: &mut MapReader<'_>,
    key: &'static str,
    d: &mut Diagnostics,
) -> Option<f64> {
    let threshold = map.amount(key, d)?;
    if threshold > 1.0 {
        let place = map.get(key).map(|node| node.place).unwrap_or_default();
        d.error(
            place,
            format!("`{key}` must be from 0 to 1, not {threshold}"),
        );
        return None;
    }
    Some(threshold)
}

fn read_spans(node: &Node, d: &mut Diagnostics) -> Option<(String, SpanFields)> {
    let mut map = MapReader::open(node, "`spans`", d)?;
    let at = match map.get("at") {
        Some(node) => read_pointer(node, "at", d),
        None => Some(String::new()),
    };
    let start = map.text("start", d).unwrap_or("start").to_owned();
    let end = map.text("end", d).unwrap_or("end").to_owned();
    let kind = map.text("type", d).map(str::to_owned);
    let score = map.text("score", d).map(str::to_owned);
    let units = [
        ("code_points", Offsets::CodePoints),
        ("bytes", Offsets::Bytes),
        ("utf16", Offsets::Utf16),
    ];
    let offsets = map.one_of("offsets", &units, d).unwrap_or_default();
    map.finish(d);
    let fields = SpanFields {
        start,
        end,
        kind,
        score,
        offsets,
    };
    Some((at?, fields))
}

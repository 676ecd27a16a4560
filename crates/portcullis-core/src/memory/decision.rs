//! A decision, why it was taken, and what came of it.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fields::{FieldError, Fields, at_most, one_of};
use crate::guardrails::{MAX_CONTEXT_TEXT_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, Stakes};

/// The longest id, in characters.
pub const MAX_ID_CHARS: usize = 128;

/// The most reasons and the most tags that a decision has.
pub const MAX_ITEMS: usize = 32;

/// The most reviews that a decision has: each is read again with every other.
pub const MAX_REVIEWS: usize = 64;

/// The longest text of a reason, in bytes.
const MAX_REASON_BYTES: usize = 4 << 10;

/// The longest title, in characters.
const MAX_TITLE_CHARS: usize = 120;

/// How a decision turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As hoped.
    Success,
    /// Some of it.
    Partial,
    /// Not as hoped.
    Failure,
    /// Nobody went through with it.
    Abandoned,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Partial, Self::Failure, Self::Abandoned];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failure => "failure",
            Self::Abandoned => "abandoned",
        }
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        one_of(text, &Self::ALL, Self::as_str)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether it is known how a decision turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not yet.
    Pending,
    /// Somebody has said so.
    Reviewed,
}

impl Status {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pending, Self::Reviewed];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Reviewed => "reviewed",
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        one_of(text, &Self::ALL, Self::as_str)
    }
}

/// Why it was decided so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// What kind of reason: `analysis`, `pattern`, `intuition`, whatever the agent calls it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The reason.
    pub text: String,
    /// How much it weighs, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
}

/// What somebody says came of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// In a word.
    pub outcome: Outcome,
    /// What happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_result: Option<String>,
    /// What to do otherwise the next time, or again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lessons: Option<String>,
    /// Who says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When.
    pub date: Timestamp,
}

/// A decision that an agent took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Unique among all that are remembered.
    pub id: String,
    /// What was decided.
    pub decision: String,
    /// In which circumstances.
    #[serde(default)]
    pub context: Option<String>,
    /// The kind of decision.
    #[serde(default)]
    pub category: Option<String>,
    /// How much is at stake.
    #[serde(default)]
    pub stakes: Stakes,
    /// How sure the agent was that it would turn out well, from 0 to 1.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// Why.
    #[serde(default)]
    pub reasons: Vec<Reason>,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Who decided, as far as somebody has checked.
    #[serde(default)]
    pub agent: Option<String>,
    /// When.
    pub date: Timestamp,
    /// When somebody should look what came of it.
    #[serde(default)]
    pub review_by: Option<Timestamp>,
    /// What came of it, the last word last.
    #[serde(default)]
    pub reviews: Vec<Review>,
}

impl Decision {
    /// Reads the `params` of `cstp.recordDecision`. `id` is for a caller that has none of its own.
    pub fn from_params(
        params: &Map<String, Value>,
        id: impl FnOnce() -> String,
        now: Timestamp,
    ) -> Result<Self, FieldError> {
        let mut fields = Fields::new(params, "");
        let read = Self::read(&mut fields, id, now)?;
        fields.finish()?;
        Ok(read)
    }

    /// The members that a request and a file have under the same names.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        id: impl FnOnce() -> String,
        date: Timestamp,
    ) -> Result<Self, FieldError> {
        let decision = fields.required_text("decision")?;
        if decision.trim().is_empty() {
            return Err(FieldError::new(
                fields.path("decision"),
                "must say what was decided",
            ));
        }
        at_most(&fields.path("decision"), &decision, MAX_DESCRIPTION_BYTES)?;
        let review_by = match fields.get("reviewIn") {
            None => None,
            Some(value) => {
                let after = review_after(value, date);
                Some(after.map_err(|error| FieldError::new(fields.path("reviewIn"), error))?)
            }
        };
        Ok(Self {
            id: match fields.parsed("id", check_id)? {
                Some(id) => id,
                None => id(),
            },
            decision,
            context: limited(fields, "context", MAX_CONTEXT_TEXT_BYTES)?,
            category: fields.name("category")?,
            stakes: fields.parsed("stakes", str::parse)?.unwrap_or_default(),
            confidence: fields.probability("confidence")?,
            reasons: reasons(fields)?,
            tags: fields.parsed_list("tags", MAX_ITEMS, word)?,
            agent: None,
            date,
            review_by,
            reviews: Vec::new(),
        })
    }

    /// By this agent.
    pub fn by(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Its first line, and no more of that than fits one.
    pub fn title(&self) -> String {
        title(&self.decision)
    }

    /// The last word on what came of it.
    pub fn review(&self) -> Option<&Review> {
        self.reviews.last()
    }

    /// How it turned out.
    pub fn outcome(&self) -> Option<Outcome> {
        self.review().map(|review| review.outcome)
    }

    /// Whether that is known.
    pub fn status(&self) -> Status {
        if self.reviews.is_empty() {
            Status::Pending
        } else {
            Status::Reviewed
        }
    }

    /// What was learned from it.
    pub fn notes(&self) -> Option<&str> {
        let review = self.review()?;
        review
            .lessons
            .as_deref()
            .or(review.actual_result.as_deref())
    }

    /// What it is about, which is what its vector is made of.
    pub fn meaning(&self) -> String {
        match &self.context {
            None => self.decision.clone(),
            Some(context) => format!("{}\n{context}", self.decision),
        }
    }

    /// Everything that is written about it: the words that it is found by.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let own = [
            Some(self.decision.as_str()),
            self.context.as_deref(),
            self.category.as_deref(),
        ];
        let reasons = self.reasons.iter().map(|reason| reason.text.as_str());
        let tags = self.tags.iter().map(String::as_str);
        let reviews = self.reviews.iter().flat_map(|review| {
            [review.actual_result.as_deref(), review.lessons.as_deref()]
                .into_iter()
                .flatten()
        });
        own.into_iter()
            .flatten()
            .chain(reasons)
            .chain(tags)
            .chain(reviews)
    }
}

/// What `cstp.reviewDecision` is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewRequest {
    /// Of which decision.
    pub id: String,
    /// What came of it.
    pub review: Review,
}

impl ReviewRequest {
    /// Reads the `params` of `cstp.reviewDecision`.
    pub fn from_params(params: &Map<String, Value>, now: Timestamp) -> Result<Self, FieldError> {
        let mut fields = Fields::new(params, "");
        let id = read_id(&mut fields)?;
        let review = read_review(&mut fields, now)?;
        fields.finish()?;
        let Some(review) = review else {
            return Err(FieldError::new("outcome", "is missing"));
        };
        Ok(Self { id, review })
    }

    /// By this agent.
    pub fn by(mut self, agent: impl Into<String>) -> Self {
        self.review.agent = Some(agent.into());
        self
    }
}

/// Reads the `params` of `cstp.getDecision`.
pub fn id_from_params(params: &Map<String, Value>) -> Result<String, FieldError> {
    let mut fields = Fields::new(params, "");
    let id = read_id(&mut fields)?;
    fields.finish()?;
    Ok(id)
}

fn read_id(fields: &mut Fields<'_>) -> Result<String, FieldError> {
    fields
        .parsed("id", check_id)?
        .ok_or_else(|| FieldError::new("id", "is missing"))
}

/// A review, if there is an outcome.
pub(super) fn read_review(
    fields: &mut Fields<'_>,
    date: Timestamp,
) -> Result<Option<Review>, FieldError> {
    let outcome = fields.parsed("outcome", str::parse)?;
    let actual_result = limited(fields, "actualResult", MAX_DESCRIPTION_BYTES)?;
    let lessons = limited(fields, "lessons", MAX_DESCRIPTION_BYTES)?;
    Ok(outcome.map(|outcome| Review {
        outcome,
        actual_result,
        lessons,
        agent: None,
        date,
    }))
}

/// The first line of a text, and no more of that than fits one.
pub(super) fn title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
    }
}

fn check_id(id: &str) -> Result<String, String> {
    if id.is_empty() || id.trim() != id || id.chars().any(char::is_control) {
        return Err("must be one visible text without spaces around it".to_owned());
    }
    if id.chars().nth(MAX_ID_CHARS).is_some() {
        return Err(format!("is longer than {MAX_ID_CHARS} characters"));
    }
    Ok(id.to_owned())
}

fn word(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.len() {
        0 => Err("is empty".to_owned()),
        1..=MAX_NAME_BYTES => Ok(text.to_owned()),
        bytes => Err(format!("is {bytes} bytes long, over {MAX_NAME_BYTES}")),
    }
}

fn limited(
    fields: &mut Fields<'_>,
    key: &'static str,
    bytes: usize,
) -> Result<Option<String>, FieldError> {
    let Some(text) = fields.text(key)?.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    at_most(&fields.path(key), text, bytes)?;
    Ok(Some(text.to_owned()))
}

fn reasons(fields: &mut Fields<'_>) -> Result<Vec<Reason>, FieldError> {
    let items = fields.list("reasons")?;
    fields.not_over("reasons", items.len(), MAX_ITEMS)?;
    let read = |(n, item): (usize, &Value)| {
        let path = format!("{}[{n}]", fields.path("reasons"));
        match item {
            Value::String(text) => {
                at_most(&path, text, MAX_REASON_BYTES)?;
                Ok(Reason {
                    kind: "analysis".to_owned(),
                    text: text.clone(),
                    strength: None,
                })
            }
            Value::Object(members) => {
                let mut fields = Fields::new(members, format!("{path}."));
                let reason = Reason {
                    kind: fields
                        .name("type")?
                        .unwrap_or_else(|| "analysis".to_owned()),
                    text: fields.required_text("text")?,
                    strength: fields.probability("strength")?,
                };
                at_most(&fields.path("text"), &reason.text, MAX_REASON_BYTES)?;
                fields.finish()?;
                Ok(reason)
            }
            other => Err(FieldError::new(
                path,
                format!(
                    "expected an object with `type` and `text`, found {}",
                    crate::fields::kind(other)
                ),
            )),
        }
    };
    items.into_iter().enumerate().map(read).collect()
}

/// When to look again: a number of days, `7d`, `2 weeks` or `P7D`.
fn review_after(value: &Value, from: Timestamp) -> Result<Timestamp, String> {
    const HELP: &str = "write a number of days, or a time such as 7d, 2w or P1M";
    let span: Span = match value {
        Value::Number(days) => {
            let days = days.as_i64().filter(|days| *days >= 0);
            let days = days.and_then(|days| Span::new().try_days(days).ok());
            days.ok_or(HELP)?
        }
        Value::String(text) => text.parse().map_err(|_| HELP)?,
        _ => return Err(HELP.to_owned()),
    };
    if span.is_negative() {
        return Err("lies in the past".to_owned());
    }
    let from = from.to_zoned(TimeZone::UTC);
    let after = from.checked_add(span).map_err(|_| "lies too far ahead")?;
    Ok(after.timestamp())
}

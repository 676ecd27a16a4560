//! What to look for among decisions.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Map, Value};

use super::decision::{Decision, MAX_ITEMS, Outcome, Reason, Status};
use crate::fields::{FieldError, Fields, at_most};
use crate::guardrails::{MAX_CONTEXT_TEXT_BYTES, Stakes};

/// The longest query, in bytes. An intent and its context are one.
pub const MAX_QUERY_BYTES: usize = MAX_CONTEXT_TEXT_BYTES + (16 << 10) + 1;

/// The most decisions that one answer has.
pub const MAX_LIMIT: usize = 50;

/// How many it has if nobody says.
pub const DEFAULT_LIMIT: usize = 10;

/// Which decisions come into question. Empty lists and `None` leave all in.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filters {
    /// Of this category.
    pub category: Option<String>,
    /// At least this sure. A decision without a confidence is not.
    pub min_confidence: Option<f64>,
    /// At most this sure.
    pub max_confidence: Option<f64>,
    /// From then on.
    pub date_after: Option<Timestamp>,
    /// Before then.
    pub date_before: Option<Timestamp>,
    /// With one of these at stake.
    pub stakes: Vec<Stakes>,
    /// Reviewed or not.
    pub status: Vec<Status>,
    /// Turned out one of these ways.
    pub outcome: Vec<Outcome>,
    /// With all of these tags.
    pub tags: Vec<String>,
    /// By this agent.
    pub agent: Option<String>,
}

impl Filters {
    /// Only those of a category, if there is one.
    pub fn of_category(category: Option<&str>) -> Self {
        Self {
            category: category.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Whether all decisions come into question.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this one does.
    pub fn admit(&self, decision: &Decision) -> bool {
        let within = |confidence: f64| {
            self.min_confidence.is_none_or(|least| confidence >= least)
                && self.max_confidence.is_none_or(|most| confidence <= most)
        };
        let unbounded = self.min_confidence.is_none() && self.max_confidence.is_none();
        (self.category.is_none() || self.category == decision.category)
            && decision.confidence.map_or(unbounded, within)
            && self.date_after.is_none_or(|after| decision.date >= after)
            && self.date_before.is_none_or(|before| decision.date < before)
            && (self.stakes.is_empty() || self.stakes.contains(&decision.stakes))
            && (self.status.is_empty() || self.status.contains(&decision.status()))
            && (self.outcome.is_empty()
                || decision
                    .outcome()
                    .is_some_and(|outcome| self.outcome.contains(&outcome)))
            && self.tags.iter().all(|tag| decision.tags.contains(tag))
            && (self.agent.is_none() || self.agent == decision.agent)
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, FieldError> {
        let Some(members) = fields.object("filters")? else {
            return Ok(Self::default());
        };
        let mut fields = Fields::new(members, "filters.");
        let read = Self::read_members(&mut fields)?;
        fields.finish()?;
        Ok(read)
    }

    fn read_members(fields: &mut Fields<'_>) -> Result<Self, FieldError> {
        let read = Self {
            category: fields.name("category")?,
            min_confidence: fields.probability("minConfidence")?,
            max_confidence: fields.probability("maxConfidence")?,
            date_after: fields.parsed("dateAfter", instant)?,
            date_before: fields.parsed("dateBefore", instant)?,
            stakes: fields.parsed_list("stakes", MAX_ITEMS, str::parse)?,
            status: fields.parsed_list("status", MAX_ITEMS, str::parse)?,
            outcome: fields.parsed_list("outcome", MAX_ITEMS, str::parse)?,
            tags: fields.parsed_list("tags", MAX_ITEMS, |tag| Ok(tag.to_owned()))?,
            agent: fields.name("agent")?,
        };
        if let (Some(least), Some(most)) = (read.min_confidence, read.max_confidence)
            && least > most
        {
            return Err(FieldError::new(
                fields.path("minConfidence"),
                format!("is {least}, over `maxConfidence` {most}: nothing could be found"),
            ));
        }
        if let (Some(after), Some(before)) = (read.date_after, read.date_before)
            && after >= before
        {
            return Err(FieldError::new(
                fields.path("dateAfter"),
                format!("is {after}, not before `dateBefore` {before}: nothing could be found"),
            ));
        }
        Ok(read)
    }
}

/// What `cstp.queryDecisions` is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// What to look for: words, a meaning, an id, a title.
    pub text: String,
    /// Where.
    pub filters: Filters,
    /// How many at most.
    pub limit: usize,
    /// Whether to tell the reasons too.
    pub include_reasons: bool,
}

impl Query {
    /// Looks for this text among all.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            filters: Filters::default(),
            limit: DEFAULT_LIMIT,
            include_reasons: false,
        }
    }

    /// Reads the `params` of `cstp.queryDecisions`.
    pub fn from_params(params: &Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(params, "");
        let text = fields.required_text("query")?;
        if text.trim().is_empty() {
            return Err(FieldError::new("query", "must say what to look for"));
        }
        at_most("query", &text, MAX_QUERY_BYTES)?;
        let filters = Filters::read(&mut fields)?;
        let limit = read_limit(&mut fields)?;
        let include_reasons = match fields.get("includeReasons") {
            None => false,
            Some(Value::Bool(include)) => *include,
            Some(other) => return Err(fields.wrong("includeReasons", "true or false", other)),
        };
        fields.finish()?;
        Ok(Self {
            text,
            filters,
            limit,
            include_reasons,
        })
    }
}

/// What `cstp.listDecisions` is given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListRequest {
    /// Which.
    pub filters: Filters,
    /// How many at most.
    pub limit: usize,
    /// Only what comes after the decision of this id, which the answer before named as `next`.
    pub after: Option<String>,
}

impl ListRequest {
    /// Reads the `params` of `cstp.listDecisions`.
    pub fn from_params(params: &Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(params, "");
        let filters = Filters::read(&mut fields)?;
        let limit = read_limit(&mut fields)?;
        let after = fields.name("after")?;
        fields.finish()?;
        Ok(Self {
            filters,
            limit,
            after,
        })
    }
}

/// Reads the `params` of `cstp.getCalibration`.
pub fn calibration_from_params(params: &Map<String, Value>) -> Result<Filters, FieldError> {
    let mut fields = Fields::new(params, "");
    let filters = Filters::read(&mut fields)?;
    fields.finish()?;
    Ok(filters)
}

/// A decision as answers tell it (C13).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Which.
    pub id: String,
    /// What was decided, in a line.
    pub title: String,
    /// The kind of decision.
    pub category: Option<String>,
    /// How sure the agent was.
    pub confidence: Option<f64>,
    /// How much was at stake.
    pub stakes: Stakes,
    /// Whether it is known how it turned out.
    pub status: Status,
    /// How.
    pub outcome: Option<Outcome>,
    /// When it was taken.
    pub date: Timestamp,
    /// How far it is from what was looked for: 0 is the same, 1 has nothing to do with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
    /// What was learned from it.
    pub notes: Option<String>,
    /// Why it was decided so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<Reason>>,
}

impl Summary {
    /// Of a decision.
    pub fn of(decision: &Decision) -> Self {
        Self {
            id: decision.id.clone(),
            title: decision.title(),
            category: decision.category.clone(),
            confidence: decision.confidence,
            stakes: decision.stakes,
            status: decision.status(),
            outcome: decision.outcome(),
            date: decision.date,
            distance: None,
            notes: decision.notes().map(str::to_owned),
            reasons: None,
        }
    }

    /// At this distance. Four digits tell all that there is to tell.
    pub fn at(mut self, distance: f32) -> Self {
        self.distance = Some((f64::from(distance) * 1e4).round() / 1e4);
        self
    }
}

fn read_limit(fields: &mut Fields<'_>) -> Result<usize, FieldError> {
    let Some(value) = fields.get("limit") else {
        return Ok(DEFAULT_LIMIT);
    };
    let limit = value.as_u64().and_then(|limit| usize::try_from(limit).ok());
    limit
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| {
            let error = format!("must be a whole number from 1 to {MAX_LIMIT}");
            FieldError::new(fields.path("limit"), error)
        })
}

/// A moment, or the beginning of a day.
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let day: Result<Date, _> = text.parse();
    let start = day.and_then(|day| day.to_zoned(TimeZone::UTC));
    start.map(|start| start.timestamp()).map_err(|_| {
        "is neither a time such as 2026-02-04T21:00:00Z nor a day such as 2026-02-04".to_owned()
    })
}

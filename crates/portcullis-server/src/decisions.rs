//! CSTP's methods about decisions: what was decided, what came of it, and how to find it again.
//!
//! Each is a plain function over a [`Memory`], so that the command line gives the same answers without a
//! server. What a server does besides is at the end: threads that may wait, and evidence.

use std::time::Instant;

use jiff::Timestamp;
use portcullis_core::canonical;
use portcullis_core::guardrails::ProposedAction;
use portcullis_core::memory::{
    AnnouncedIntent, Calibration, Decision, Filters, ListRequest, Outcome, PRECEDENTS, Precedents,
    Query, ReviewRequest, Status, Summary, calibration_from_params, correlation_id_from_params,
    id_from_params,
};
use portcullis_store::memory::{Memory, MemoryError, Recorded};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::{App, instant, now};
use crate::cstp::{Caller, begin_entry, record};
use crate::jsonrpc::{FieldError, RpcError};

type Params = Map<String, Value>;

/// Who asks, who answers, and when.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The agent that asks, as far as somebody has checked.
    pub by: Option<&'a str>,
    /// The agent that answers.
    pub agent: &'a str,
    /// Now.
    pub at: Timestamp,
}

/// What `cstp.recordDecision` answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordAnswer {
    recorded: bool,
    /// Whether it was there already, just so.
    already_known: bool,
    id: String,
    title: String,
    date: Timestamp,
    review_by: Option<Timestamp>,
    agent: String,
}

/// `cstp.recordDecision`: the answer, and the decision as it is kept.
pub fn record_decision(
    memory: &dyn Memory,
    params: &Params,
    asked: Asked<'_>,
) -> Result<(RecordAnswer, Decision), RpcError> {
    let read = Decision::from_params(params, new_id, asked.at);
    let mut decision = read.map_err(RpcError::InvalidParams)?;
    decision.agent = asked.by.map(str::to_owned);
    let recorded = memory.record(vec![decision.clone()]).map_err(not_kept)?;
    let already_known = match recorded.first() {
        Some(Recorded::New) => false,
        Some(Recorded::Same) => {
            // As it is kept, with the date of the first time.
            if let Some(kept) = memory.get(&decision.id).map_err(not_kept)? {
                decision = kept;
            }
            true
        }
        Some(Recorded::Taken) => {
            return Err(RpcError::InvalidParams(FieldError {
                field: "id".to_owned(),
                error: "another decision has it: choose another, or leave it out to get a new one"
                    .to_owned(),
            }));
        }
        None => return Err(RpcError::Internal("nothing was recorded".to_owned())),
    };
    let answer = RecordAnswer {
        recorded: true,
        already_known,
        id: decision.id.clone(),
        title: decision.title(),
        date: decision.date,
        review_by: decision.review_by,
        agent: asked.agent.to_owned(),
    };
    Ok((answer, decision))
}

/// What `cstp.reviewDecision` answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewAnswer {
    reviewed: bool,
    id: String,
    title: String,
    outcome: Outcome,
    /// How many reviews there are now.
    reviews: usize,
    date: Timestamp,
    agent: String,
}

/// `cstp.reviewDecision`: the answer, and the decision as it is now.
pub fn review_decision(
    memory: &dyn Memory,
    params: &Params,
    asked: Asked<'_>,
) -> Result<(ReviewAnswer, Decision), RpcError> {
    let read = ReviewRequest::from_params(params, asked.at);
    let ReviewRequest { id, mut review } = read.map_err(RpcError::InvalidParams)?;
    review.agent = asked.by.map(str::to_owned);
    let outcome = review.outcome;
    let decision = memory.review(&id, review).map_err(not_kept)?;
    let answer = ReviewAnswer {
        reviewed: true,
        id: decision.id.clone(),
        title: decision.title(),
        outcome,
        reviews: decision.reviews.len(),
        date: asked.at,
        agent: asked.agent.to_owned(),
    };
    Ok((answer, decision))
}

/// A decision in full.
#[derive(Debug, Serialize)]
pub struct DecisionAnswer {
    title: String,
    status: Status,
    outcome: Option<Outcome>,
    #[serde(flatten)]
    decision: Decision,
}

/// `cstp.getDecision`.
pub fn get_decision(
    memory: &dyn Memory,
    params: &Params,
    _: Asked<'_>,
) -> Result<DecisionAnswer, RpcError> {
    let id = id_from_params(params).map_err(RpcError::InvalidParams)?;
    let decision = memory.get(&id).map_err(query_failed)?;
    let decision = decision.ok_or_else(|| query_failed(MemoryError::NotFound { id }))?;
    Ok(DecisionAnswer {
        title: decision.title(),
        status: decision.status(),
        outcome: decision.outcome(),
        decision,
    })
}

/// A page of decisions.
#[derive(Debug, Serialize)]
pub struct ListAnswer {
    decisions: Vec<Summary>,
    total: usize,
    next: Option<String>,
    agent: String,
}

/// `cstp.listDecisions`.
pub fn list_decisions(
    memory: &dyn Memory,
    params: &Params,
    asked: Asked<'_>,
) -> Result<ListAnswer, RpcError> {
    let request = ListRequest::from_params(params).map_err(RpcError::InvalidParams)?;
    let listing = memory.list(&request).map_err(|error| match error {
        MemoryError::NotFound { id } => RpcError::InvalidParams(FieldError {
            field: "after".to_owned(),
            error: format!(
                "there is no decision `{}`: take `next` from an answer",
                id.escape_debug()
            ),
        }),
        error => query_failed(error),
    })?;
    Ok(ListAnswer {
        decisions: listing.decisions.iter().map(Summary::of).collect(),
        total: listing.total,
        next: listing.next,
        agent: asked.agent.to_owned(),
    })
}

/// What was found (C13).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryAnswer {
    decisions: Vec<Summary>,
    total: usize,
    query: String,
    query_time_ms: f64,
    agent: String,
}

/// `cstp.queryDecisions`.
pub fn query_decisions(
    memory: &dyn Memory,
    params: &Params,
    asked: Asked<'_>,
) -> Result<QueryAnswer, RpcError> {
    let query = Query::from_params(params).map_err(RpcError::InvalidParams)?;
    let started = Instant::now();
    let found = memory.query(&query).map_err(query_failed)?;
    let micros = started.elapsed().as_micros();
    let hits = found.hits.into_iter().map(|hit| {
        let mut summary = Summary::of(&hit.decision).at(hit.distance);
        summary.reasons = query.include_reasons.then_some(hit.decision.reasons);
        summary
    });
    Ok(QueryAnswer {
        decisions: hits.collect(),
        total: found.total,
        query: query.text,
        query_time_ms: micros as f64 / 1e3,
        agent: asked.agent.to_owned(),
    })
}

/// How well agents know what they know.
#[derive(Debug, Serialize)]
pub struct CalibrationAnswer {
    #[serde(flatten)]
    calibration: Calibration,
    agent: String,
}

/// `cstp.getCalibration`.
pub fn get_calibration(
    memory: &dyn Memory,
    params: &Params,
    asked: Asked<'_>,
) -> Result<CalibrationAnswer, RpcError> {
    let filters = calibration_from_params(params).map_err(RpcError::InvalidParams)?;
    let record = memory.track_record(&filters).map_err(query_failed)?;
    Ok(CalibrationAnswer {
        calibration: Calibration::of(&record),
        agent: asked.agent.to_owned(),
    })
}

/// All that was announced under a correlation id.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentRevisions {
    correlation_id: String,
    revisions: Vec<AnnouncedIntent>,
    agent: String,
}

/// `cstp.getIntent`.
pub fn get_intent(
    memory: &dyn Memory,
    params: &Params,
    asked: Asked<'_>,
) -> Result<IntentRevisions, RpcError> {
    let correlation_id = correlation_id_from_params(params).map_err(RpcError::InvalidParams)?;
    let revisions = memory.intent(&correlation_id).map_err(query_failed)?;
    if revisions.is_empty() {
        return Err(RpcError::NotFound(format!(
            "nothing was announced as `{}`",
            correlation_id.escape_debug()
        )));
    }
    Ok(IntentRevisions {
        correlation_id,
        revisions,
        agent: asked.agent.to_owned(),
    })
}

/// What was decided in cases like this action.
pub fn precedents(
    memory: &dyn Memory,
    action: &ProposedAction,
    context: Option<&str>,
) -> Result<Precedents, RpcError> {
    precedents_of(memory, &precedent_query(action, context))
}

fn precedent_query(action: &ProposedAction, context: Option<&str>) -> Query {
    let text = match context {
        None => action.description().to_owned(),
        Some(context) => format!("{}\n{context}", action.description()),
    };
    Query {
        filters: Filters::of_category(action.category()),
        limit: PRECEDENTS,
        ..Query::new(text)
    }
}

fn precedents_of(memory: &dyn Memory, query: &Query) -> Result<Precedents, RpcError> {
    let found = memory.query(query).map_err(query_failed)?;
    let hits = found.hits.iter();
    let summaries = hits.map(|hit| Summary::of(&hit.decision).at(hit.distance));
    Ok(Precedents::among(summaries))
}

fn new_id() -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("dec-{}", &random[..16])
}

/// Something was asked, and the memory has no answer.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn query_failed(error: MemoryError) -> RpcError {
    match error {
        MemoryError::NotFound { .. } => RpcError::NotFound(error.to_string()),
        _ => {
            tracing::error!(%error, "the memory does not answer");
            RpcError::QueryFailed(told(&error))
        }
    }
}

/// Something was to be kept, and is not.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn not_kept(error: MemoryError) -> RpcError {
    match error {
        MemoryError::NotFound { .. } => RpcError::NotFound(error.to_string()),
        MemoryError::TooManyReviews { .. } => RpcError::InvalidParams(FieldError {
            field: "id".to_owned(),
            error: error.to_string(),
        }),
        _ => {
            tracing::error!(%error, "the memory does not keep it");
            RpcError::Internal(told(&error))
        }
    }
}

/// As much of it as a caller may know: where files lie is none of its business.
fn told(error: &MemoryError) -> String {
    match error {
        MemoryError::Database(_) => "the memory's database fails".to_owned(),
        other => other.to_string(),
    }
}

impl App {
    /// Answers from the memory, on a thread that may wait.
    pub(crate) async fn recall<T: Send + 'static>(
        &self,
        caller: Caller<'_>,
        params: &Params,
        answer: fn(&dyn Memory, &Params, Asked<'_>) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let params = params.clone();
        let (by, agent) = (caller.agent.clone(), self.settings.agent.name.clone());
        self.remember(move |memory| {
            let asked = Asked {
                by: Some(by.as_str()),
                agent: &agent,
                at: instant(),
            };
            answer(memory, &params, asked)
        })
        .await
    }

    /// `cstp.recordDecision`, with evidence.
    pub(crate) async fn record_decision(
        &self,
        caller: Caller<'_>,
        params: &Params,
    ) -> Result<RecordAnswer, RpcError> {
        let params = self.without_secrets(params).await?;
        let (answer, decision) = self.recall(caller, &params, record_decision).await?;
        let mut entry = begin_entry("decision_recorded", &now(), caller);
        entry.told("decision_id", decision.id.as_str());
        entry.told("decision", decision.title());
        entry.told("category", decision.category.as_deref());
        entry.made("stakes", decision.stakes.as_str());
        entry.made("confidence", decision.confidence);
        entry.made("decision_digest", digest(&decision));
        record(self, &entry).await?;
        Ok(answer)
    }

    /// `cstp.reviewDecision`, with evidence.
    pub(crate) async fn review_decision(
        &self,
        caller: Caller<'_>,
        params: &Params,
    ) -> Result<ReviewAnswer, RpcError> {
        let params = self.without_secrets(params).await?;
        let (answer, decision) = self.recall(caller, &params, review_decision).await?;
        let mut entry = begin_entry("decision_reviewed", &answer.date.to_string(), caller);
        entry.told("decision_id", decision.id.as_str());
        entry.made("outcome", answer.outcome.as_str());
        entry.made("decision_digest", digest(&decision));
        record(self, &entry).await?;
        Ok(answer)
    }

    /// What was decided in cases like this action.
    pub(crate) async fn precedents(
        &self,
        action: &ProposedAction,
        context: Option<&str>,
    ) -> Result<Precedents, RpcError> {
        let mut query = precedent_query(action, context);
        // It may go to a service that makes vectors.
        let redactor = self.redactor().await;
        let redactor = redactor.map_err(|error| RpcError::Internal(error.to_string()))?;
        query.text = redactor.redact(&query.text).into_owned();
        self.remember(move |memory| precedents_of(memory, &query))
            .await
    }

    /// Keeps an intent, and says how often it has been announced now.
    pub(crate) async fn keep_intent(&self, intent: AnnouncedIntent) -> Result<u64, RpcError> {
        self.remember(move |memory| memory.announce(intent).map_err(not_kept))
            .await
    }
}

/// What a decision is, in a word that evidence can be held against the memory by.
fn digest(decision: &Decision) -> Option<String> {
    canonical::digest(decision).ok()
}

//! What all requests share.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use portcullis_core::a2a::EntryMembers;
use portcullis_core::evidence::{Body, BodyError, Link, Redactor};
use portcullis_core::guardrails::Guardrails;
use portcullis_runtime::{Flag, Gateway};
use portcullis_store::evidence::{AppendError, EvidenceLog};
use portcullis_store::memory::{Memory, MemoryError, MemoryState};
use serde_json::{Map, Value};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::alerts::{Alerts, reason_for_others};
use crate::approvals::Desk;
use crate::auth::{AgentId, AuthError};
use crate::callbacks::Callbacks;
use crate::config::Settings;
use crate::far::DeepPath;
use crate::jsonrpc::RpcError;
use crate::limit::RateLimiter;
use crate::metrics::{EvidenceState, Metrics};

/// The state behind every door.
pub(crate) struct App {
    pub(crate) settings: Settings,
    /// Where clients reach the server.
    pub(crate) url: String,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) deep: DeepPath,
    pub(crate) guardrails: ArcSwap<Guardrails>,
    pub(crate) limiter: Arc<dyn RateLimiter>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) requests: Semaphore,
    /// True once the policy pack is in force.
    pub(crate) policy_ready: watch::Receiver<bool>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) evidence: EvidenceLog,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) callbacks: Callbacks,
    pub(crate) alerts: Arc<Alerts>,
    pub(crate) approvals: Desk,
    pub(crate) secrets: Secrets,
    pub(crate) started: Instant,
}

impl App {
    /// Whose request this is.
    pub(crate) fn authenticate(&self, header: Option<&[u8]>) -> Result<AgentId, AuthError> {
        if !self.settings.auth.enabled {
            return Ok(AgentId::anonymous());
        }
        let agent = self.settings.auth.tokens.authenticate(header);
        agent.inspect_err(|error| self.metrics.auth_failed(*error))
    }

    /// Puts an entry into the evidence log. When this returns, it is as durable as configured.
    pub(crate) async fn record(&self, entry: &Entry) -> Result<Link, RecordError> {
        let started = Instant::now();
        let redactor = self.redactor().await?;
        let body = entry.body(redactor);
        let body = body.map_err(|error| RecordError(error.to_string()))?;
        self.append(body, started).await
    }

    /// Puts what [`Entry::body`] made into the evidence log. When this returns, it is as durable as configured.
    pub(crate) async fn append(&self, body: Body, started: Instant) -> Result<Link, RecordError> {
        let appended = self.evidence.append(body).await;
        self.metrics.appended(started.elapsed());
        appended.map_err(|error| {
            // Where and why is nothing for a caller.
            tracing::error!("{error}");
            RecordError(match error {
                AppendError::Overloaded { .. } => "too many entries are waiting".to_owned(),
                AppendError::Write(_) => "the disk does not take it".to_owned(),
                AppendError::Closed => "the server is stopping".to_owned(),
            })
        })
    }

    /// Asks the memory, on a thread that may wait.
    pub(crate) async fn remember<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Memory) -> Result<T, RpcError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let memory = Arc::clone(&self.memory);
        let started = Instant::now();
        let answer = tokio::task::spawn_blocking(move || ask(&*memory)).await;
        self.metrics.asked_memory(started.elapsed());
        answer.unwrap_or_else(|error| Err(RpcError::Internal(error.to_string())))
    }

    /// Keeps that a run is quarantined, so that a restart does not end it.
    pub(crate) async fn keep_quarantine(&self, run_id: &str, flag: &Flag) -> Result<(), KeepError> {
        let flag = self.for_others(flag).await;
        let flag = flag.map_err(|error| KeepError(error.to_string()))?;
        let why = serde_json::to_string(&flag).map_err(|error| KeepError(error.to_string()))?;
        let run_id = run_id.to_owned();
        self.change_quarantine(move |memory| memory.quarantine(run_id, why))
            .await
    }

    /// Why a run was flagged, with no more of the event than everybody may know: nothing that is quoted from it,
    /// and no secret.
    pub(crate) async fn for_others(&self, flag: &Flag) -> Result<Flag, RecordError> {
        let redactor = self.redactor().await?;
        let mut flag = flag.clone();
        flag.reason = match flag.by {
            // In an operator's own words, there is nothing of the event's in quotes.
            Some(_) => redactor.redact(&flag.reason).into(),
            None => reason_for_others(&flag.reason, redactor),
        };
        flag.event_type = redactor.redact(&flag.event_type).into();
        Ok(flag)
    }

    /// Why a run is in quarantine by the file. The process forgets the oldest of very many.
    pub(crate) async fn kept_quarantine(&self, run_id: &str) -> Result<Option<Flag>, KeepError> {
        let run_id = run_id.to_owned();
        let kept = self.change_quarantine(move |memory| memory.quarantined_run(&run_id));
        let Some(why) = kept.await? else {
            return Ok(None);
        };
        let flag = serde_json::from_str(&why).map_err(|error| KeepError(error.to_string()))?;
        Ok(Some(flag))
    }

    /// Keeps that it is not any more.
    pub(crate) async fn keep_release(&self, run_id: &str) -> Result<(), KeepError> {
        let run_id = run_id.to_owned();
        self.change_quarantine(move |memory| memory.release(run_id))
            .await
    }

    async fn change_quarantine<T: Send + 'static>(
        &self,
        change: impl FnOnce(&dyn Memory) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, KeepError> {
        let memory = Arc::clone(&self.memory);
        let changed = tokio::task::spawn_blocking(move || change(&*memory)).await;
        let changed = changed.map_err(|error| KeepError(error.to_string()))?;
        changed.map_err(|error| {
            // Where and why is nothing for a caller.
            tracing::error!("{error}");
            KeepError("the memory does not take it".to_owned())
        })
    }

    /// How things stand with the memory; nothing, if it cannot say.
    pub(crate) async fn memory_state(&self) -> Option<MemoryState> {
        self.remember(|memory| Ok(memory.state().ok())).await.ok()?
    }

    /// What somebody said, without secrets.
    pub(crate) async fn without_secrets<'p>(
        &self,
        params: &'p Map<String, Value>,
    ) -> Result<Cow<'p, Map<String, Value>>, RpcError> {
        let redactor = self.redactor().await;
        let redactor = redactor.map_err(|error| RpcError::Internal(error.to_string()))?;
        Ok(redactor.without_secrets(params))
    }

    pub(crate) async fn redactor(&self) -> Result<&Arc<Redactor>, RecordError> {
        self.secrets.redactor().await
    }

    /// Waits until events can be judged. False if they never can be.
    pub(crate) async fn policy_in_force(&self) -> bool {
        let mut ready = self.policy_ready.clone();
        ready.wait_for(|ready| *ready).await.is_ok()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn evidence_state(&self) -> EvidenceState {
        let stats = self.evidence.stats();
        EvidenceState {
            entries: stats.last_seq,
            failures: stats.failed,
            queued: stats.queued as u64,
        }
    }
}

/// Takes secrets out. Built while the server starts: the first entry waits for it, nothing else does.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<OnceCell<Arc<Redactor>>>);

impl Secrets {
    pub(crate) async fn redactor(&self) -> Result<&Arc<Redactor>, RecordError> {
        let build = || async {
            tokio::task::spawn_blocking(Redactor::new)
                .await
                .map_err(|error| RecordError(error.to_string()))?
                .map(Arc::new)
                .map_err(|error| RecordError(error.to_string()))
        };
        self.0.get_or_try_init(build).await
    }
}

/// What is about to be recorded.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    made: Map<String, Value>,
    told: Map<String, Value>,
}

impl Entry {
    /// Something of ours: a time, an id, a verdict.
    pub(crate) fn made(&mut self, name: &str, value: impl Into<Value>) {
        self.made.insert(name.to_owned(), value.into());
    }

    /// Something that a caller said, to be searched for secrets.
    pub(crate) fn told(&mut self, name: &str, value: impl Into<Value>) {
        self.told.insert(name.to_owned(), value.into());
    }

    /// As the log takes it, without secrets.
    pub(crate) fn body(&self, redactor: &Redactor) -> Result<Body, BodyError> {
        Body::of(&self.made, &self.told, redactor)
    }
}

impl From<EntryMembers> for Entry {
    fn from(EntryMembers { made, told }: EntryMembers) -> Self {
        Self { made, told }
    }
}

/// Evidence could not be kept, so whatever it was about does not happen.
#[derive(Debug, thiserror::Error)]
#[error("the evidence log cannot be written: {0}")]
pub(crate) struct RecordError(pub(crate) String);

/// The quarantine could not be kept, so nobody may rely on it.
#[derive(Debug, thiserror::Error)]
#[error("the quarantine cannot be kept: {0}")]
pub(crate) struct KeepError(String);

/// Now, to the microsecond.
pub(crate) fn instant() -> Timestamp {
    let micros = Timestamp::now().as_microsecond();
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Now, as every answer and entry writes it.
pub(crate) fn now() -> String {
    instant().to_string()
}

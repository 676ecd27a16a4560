//! People's answers to paused steps (G15): asked for by [`step`], given over [`api`], told of by [`notice`].
//!
//! Invariant: an answer is used up before the step that it lets happen is answered, and what was asked is kept before
//! anybody is told of it.

pub(crate) mod api;
pub(crate) mod counts;
mod notice;
pub(crate) mod step;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Binding, Status, Taken, Which,
};
use portcullis_core::evidence::Digest;
use tokio::sync::Semaphore;
use uuid::Uuid;

use self::counts::ApprovalMetrics;
use self::notice::{Notice, Notices, What};
use crate::StartError;
use crate::app::{Secrets, instant};
use crate::config::Settings;

/// How many may wait for a decision at one time, if so many requests may be under way.
const MAX_WAITERS: usize = 256;
/// Listings that may look through all that is kept at one time: each may hold all of it.
const SCANS: usize = 2;
/// As many as may wait for the store, each on a thread, and how long another one waits for a place.
const VISITS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
/// The most that is counted of those that wait.
const MAX_COUNTED: usize = 1_000;

/// Where approvals are kept, and who is told of them.
pub(crate) struct Desk {
    store: Arc<dyn Approvals>,
    most: usize,
    waiters: Semaphore,
    scans: Arc<Semaphore>,
    /// Those who may be at the store at one time: it takes one at a time, and a thread each waits.
    visits: Arc<Semaphore>,
    notices: Notices,
    metrics: ApprovalMetrics,
    /// Which process this is: the values behind its tokens are gone with it.
    process: Digest,
}

impl Desk {
    /// Over what keeps them. `url` is where people reach this server.
    pub(crate) async fn start(
        store: Arc<dyn Approvals>,
        settings: &Settings,
        url: &str,
        secrets: Secrets,
        metrics: &ApprovalMetrics,
    ) -> Result<Self, StartError> {
        let webhook = settings.approvals.webhook.as_ref();
        let notices = Notices::start(webhook, &settings.agent.name, url, secrets, metrics);
        let waiters = MAX_WAITERS.min(settings.server.max_requests / 2).max(1);
        Ok(Self {
            store,
            most: settings.approvals.most,
            waiters: Semaphore::new(waiters),
            scans: Arc::new(Semaphore::new(SCANS)),
            visits: Arc::new(Semaphore::new(VISITS)),
            notices: notices.await.map_err(StartError::ApprovalWebhook)?,
            metrics: metrics.clone(),
            process: Digest::of(Uuid::new_v4().as_bytes()),
        })
    }

    async fn create(&self, approval: Approval) -> Result<(), ApprovalError> {
        self.apart(move |store| store.create(approval)).await?;
        self.metrics.requested.inc();
        Ok(())
    }

    async fn get(&self, id: &str) -> Result<Option<Approval>, ApprovalError> {
        let id = id.to_owned();
        self.apart(move |store| store.get(&id, instant())).await
    }

    /// Those that fit, the oldest first.
    async fn list(&self, which: Which) -> Result<Vec<Approval>, ApprovalError> {
        self.apart(move |store| store.list(&which, instant())).await
    }

    /// Those that fit and that `may_see` lets through, the oldest first.
    async fn list_some(
        &self,
        which: Which,
        may_see: impl Fn(&Approval) -> bool + Send + 'static,
    ) -> Result<Vec<Approval>, ApprovalError> {
        let scan = Arc::clone(&self.scans).try_acquire_owned();
        let scan = scan.map_err(|_| ApprovalError::Full(SCANS))?;
        let most = self.most;
        self.apart(move |store| {
            // Held until it is done, also if nobody waits for it any more.
            let _scan = scan;
            let limit = which.limit;
            let all = Which {
                limit: most,
                ..which
            };
            let mut found = store.list(&all, instant())?;
            found.retain(may_see);
            found.truncate(limit);
            Ok(found)
        })
        .await
    }

    /// The one that waits already for just this. An agent that asks again and again asks once.
    async fn waiting_for(&self, approval: &Approval) -> Result<Option<Approval>, ApprovalError> {
        let which = Which {
            status: Some(Status::Pending),
            run_id: Some(approval.bound.run_id.clone()),
            limit: MAX_COUNTED,
        };
        let waiting = self.list(which).await?;
        let mut waiting = waiting.into_iter();
        Ok(waiting.find(|known| known.bound == approval.bound))
    }

    async fn decide(&self, id: String, answer: Answer) -> Result<Approval, ApprovalError> {
        let approve = answer.approve;
        let decided = self
            .apart(move |store| store.decide(&id, &answer, instant()))
            .await?;
        self.metrics.decided(approve).inc();
        Ok(decided)
    }

    async fn take(&self, id: String, bound: Binding) -> Result<Taken, ApprovalError> {
        let taken = self
            .apart(move |store| store.take(&id, &bound, instant()))
            .await?;
        self.metrics.taken(&taken).inc();
        Ok(taken)
    }

    /// Tells whoever wants to hear of it.
    pub(crate) fn asked(&self, approval: Approval) {
        self.tell(What::Requested, approval);
    }

    fn tell(&self, what: What, approval: Approval) {
        self.notices.tell(Notice {
            what,
            approval,
            at: instant(),
        });
    }

    /// Looks how many wait, for those who watch.
    pub(crate) async fn count_waiting(&self) {
        let which = Which {
            status: Some(Status::Pending),
            run_id: None,
            limit: MAX_COUNTED,
        };
        if let Ok(waiting) = self.list(which).await {
            let waiting = i64::try_from(waiting.len()).unwrap_or(i64::MAX);
            self.metrics.waiting.set(waiting);
        }
    }

    /// Sends the notices that wait, for as long as it may take, and drops the rest.
    pub(crate) async fn close(&self, patience: Duration) {
        self.notices.close(patience).await;
    }

    /// Runs what may block where it may.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Approvals) -> Result<T, ApprovalError> + Send + 'static,
    ) -> Result<T, ApprovalError> {
        let store = Arc::clone(&self.store);
        let visit = Arc::clone(&self.visits).acquire_owned();
        let Ok(Ok(visit)) = tokio::time::timeout(PATIENCE, visit).await else {
            let why = format!("{VISITS} others have waited for longer than {PATIENCE:?}");
            return Err(ApprovalError::Backend(why));
        };
        let work = move || {
            let _visit = visit;
            work(&*store)
        };
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(ApprovalError::Backend(error.to_string())))
            .inspect_err(|error| {
                // Where and why is nothing for a caller.
                if let ApprovalError::Backend(_) | ApprovalError::Exists(_) = error {
                    tracing::error!(%error, "approvals cannot be kept or read");
                }
            })
    }
}

/// A time as answers write it.
fn shown(at: Timestamp) -> String {
    at.to_string()
}

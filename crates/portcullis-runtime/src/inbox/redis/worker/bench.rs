//! What a worker has in hand. It outlives a connection: an answer that could not be delivered is delivered over the next.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::wire::{self, Entry};
use super::post::{Address, Place, Post};
use super::{WorkerCounts, WorkerLimits};
use crate::deep::{DeepAnswer, DeepHost, DeepRequest};

/// A request in hand.
#[derive(Debug)]
pub(super) struct Held {
    /// Who wants the answer. Nobody if it has come too late.
    pub(super) to: Option<Address>,
    /// The answer, once it is there.
    pub(super) answer: Option<Vec<u8>>,
}

/// An evaluation that has ended, and whether its gateway has the answer.
struct Finished {
    place: Place,
    answer: Vec<u8>,
    delivered: bool,
}

pub(super) struct Bench {
    host: Arc<DeepHost>,
    limits: WorkerLimits,
    counts: Arc<WorkerCounts>,
    held: HashMap<Place, Held>,
    evaluations: JoinSet<Finished>,
    /// How many may run. What was taken over while a read brought more waits its turn.
    turns: Arc<Semaphore>,
    /// What the Redis's clock said, and when.
    clock: (u64, Instant),
}

impl Bench {
    pub(super) fn new(
        host: Arc<DeepHost>,
        limits: WorkerLimits,
        counts: Arc<WorkerCounts>,
    ) -> Self {
        Self {
            host,
            limits,
            counts,
            held: HashMap::new(),
            evaluations: JoinSet::new(),
            turns: Arc::new(Semaphore::new(
                limits.concurrency.min(Semaphore::MAX_PERMITS),
            )),
            clock: (0, Instant::now()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many more requests it can take.
    pub(super) fn room(&self) -> usize {
        self.limits.concurrency.saturating_sub(self.held.len())
    }

    pub(super) fn set_clock(&mut self, now_ms: u64) {
        self.clock = (now_ms, Instant::now());
    }

    /// All that is in hand.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.held.keys()
    }

    /// What is known of a request in hand.
    pub(super) fn held(&self, place: &Place) -> Option<&Held> {
        self.held.get(place)
    }

    /// The requests that have an answer, or need none.
    pub(super) fn settled(&self) -> Vec<Place> {
        let held = self.held.iter();
        held.filter(|(_, held)| held.to.is_none() || held.answer.is_some())
            .map(|(place, _)| place.clone())
            .collect()
    }

    /// It is done with, and the Redis knows.
    pub(super) fn let_go(&mut self, place: &Place) {
        self.held.remove(place);
    }

    /// Takes a request in hand. True if it needs no evaluation: it can be answered, or let go, at once.
    pub(super) fn take(
        &mut self,
        place: Place,
        entry: &Entry,
        deliveries: u64,
        post: &Post,
    ) -> bool {
        if self.held.contains_key(&place) {
            return false;
        }
        let fields = &entry.fields;
        let (Some(to), Some(correlation_id)) = (fields.text("to"), fields.text("id")) else {
            tracing::warn!(rule = %place.rule, entry = place.id, "a request is nobody's: it has no `to` or no `id`");
            self.count(|counts| &counts.failed);
            return self.settle(place, None, None);
        };
        let to = Address {
            gateway: to.to_owned(),
            correlation_id: correlation_id.to_owned(),
        };
        let ttl = wire::ttl(fields).unwrap_or_default();
        let left = ttl.saturating_sub(self.age(&place.id));
        if left.is_zero() {
            self.count(|counts| &counts.expired);
            return self.settle(place, None, None);
        }
        if deliveries >= self.limits.attempts {
            tracing::error!(rule = %place.rule, correlation_id, deliveries, "workers die of a request");
            let why = format!("not run again: {deliveries} workers that had it went away");
            return self.fail(place, to, why);
        }
        let asked = match wire::read_request(fields) {
            Ok(asked) => asked,
            Err(why) => {
                tracing::warn!(rule = %place.rule, correlation_id, "a request cannot be read: {why}");
                return self.fail(place, to, format!("the request cannot be read: {why}"));
            }
        };
        let request = asked.request(correlation_id, &place.rule, &self.host.risks());
        let held = Held {
            to: Some(to.clone()),
            answer: None,
        };
        self.held.insert(place.clone(), held);
        let evaluation = Evaluation {
            host: Arc::clone(&self.host),
            counts: Arc::clone(&self.counts),
            place,
            to,
            post: post.clone(),
            turns: Arc::clone(&self.turns),
            until: Instant::now() + left,
        };
        self.evaluations.spawn(evaluation.run(request));
        false
    }

    fn fail(&mut self, place: Place, to: Address, why: String) -> bool {
        self.count(|counts| &counts.failed);
        let answer = wire::answer_json(&DeepAnswer::Failed(why));
        self.settle(place, Some(to), Some(answer))
    }

    fn settle(&mut self, place: Place, to: Option<Address>, answer: Option<Vec<u8>>) -> bool {
        self.held.insert(place, Held { to, answer });
        true
    }

    /// Waits for evaluations to end, lets go of those whose answers are delivered, and says which are not. Waits for
    /// ever if there is none.
    pub(super) async fn finished(&mut self) -> Vec<Place> {
        let Some(first) = self.evaluations.join_next().await else {
            return std::future::pending().await;
        };
        let mut joined = vec![first];
        while let Some(next) = self.evaluations.try_join_next() {
            joined.push(next);
        }
        let mut undelivered = Vec::new();
        for finished in joined.into_iter().flatten() {
            if finished.delivered {
                self.held.remove(&finished.place);
            } else if let Some(held) = self.held.get_mut(&finished.place) {
                held.answer = Some(finished.answer);
                undelivered.push(finished.place);
            }
        }
        undelivered
    }

    /// How long ago the Redis was given this entry.
    fn age(&self, entry_id: &str) -> Duration {
        let (then_ms, then) = self.clock;
        let now_ms = then_ms.saturating_add(super::super::near::millis(then.elapsed()));
        let given_ms = entry_id.split('-').next().and_then(|ms| ms.parse().ok());
        Duration::from_millis(now_ms.saturating_sub(given_ms.unwrap_or(now_ms)))
    }

    fn count(&self, which: impl FnOnce(&WorkerCounts) -> &AtomicU64) {
        which(&self.counts).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_claimed(&self) {
        self.count(|counts| &counts.claimed);
    }
}

/// One evaluation under way. It delivers its answer itself: every task on the way would cost the gateway time.
struct Evaluation {
    host: Arc<DeepHost>,
    counts: Arc<WorkerCounts>,
    place: Place,
    to: Address,
    post: Post,
    turns: Arc<Semaphore>,
    until: Instant,
}

impl Evaluation {
    async fn run(self, request: DeepRequest) -> Finished {
        let turn = self.turns.acquire().await;
        let limit = self.until.saturating_duration_since(Instant::now());
        let judged = AssertUnwindSafe(self.host.evaluate(&request, limit)).catch_unwind();
        let judged = judged.await;
        drop(turn);
        let answer = match judged.map(|response| response.answers) {
            Ok(answers) => answers.into_iter().next().map(|(_, answer)| answer),
            Err(_) => Some(DeepAnswer::Failed("panicked".to_owned())),
        };
        let answer = wire::answer_json(&answer.unwrap_or(DeepAnswer::Unavailable));
        self.counts.evaluated.fetch_add(1, Ordering::Relaxed);
        let mut letter = self.post.letters();
        letter.add(&self.place, Some(&self.to), Some(&answer));
        Finished {
            delivered: letter.send().await.is_ok(),
            place: self.place,
            answer,
        }
    }
}

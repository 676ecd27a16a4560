//! Threads for rules that nobody can promise return.
//!
//! A fast rule from outside runs here, never on the caller's thread: when it overruns its deadline
//! the caller goes on, and the thread is left to its fate. Threads are reused, so a rule that does
//! return costs two context switches. How many can be stuck is bounded; beyond that a rule counts
//! as failed at once, which the gate turns into a STOP.
//!
//! Rejected: `spawn_blocking`, whose threads are shared with everything else in the process and hold
//! up the runtime's shutdown for as long as a rule is stuck.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::rules::{Rule, RuleError, RuleInput};
use portcullis_core::{Context, ContextSnapshot, Decision, Event};
use tokio::sync::oneshot;

/// What a fenced rule looks at, on its own.
#[derive(Debug)]
pub(crate) struct FencedInput {
    pub(crate) event: Event,
    pub(crate) context: Context,
    pub(crate) snapshot: ContextSnapshot<'static>,
}

pub(crate) type Answer = Result<Option<Decision>, RuleError>;

/// A rule to run, where its answer goes, and the way back into the pool.
struct Job {
    rule: Arc<dyn Rule>,
    input: Arc<FencedInput>,
    answer: oneshot::Sender<Answer>,
    pool: Arc<Inner>,
    worker: Sender<Job>,
}

/// A pool of threads that may get stuck. An idle thread is held by nothing but the pool, and ends
/// with it.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    max_threads: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Sender<Job>>,
    threads: usize,
}

impl Fence {
    pub(crate) fn new(max_threads: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                max_threads,
                state: Mutex::default(),
            }),
        }
    }

    /// Runs a rule. The answer comes through the channel; a closed channel means that the rule
    /// could not be run.
    pub(crate) fn run(
        &self,
        rule: Arc<dyn Rule>,
        input: Arc<FencedInput>,
    ) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        if let Some(worker) = self.worker() {
            // The thread is waiting for exactly this.
            let _ = worker.clone().send(Job {
                rule,
                input,
                answer,
                pool: Arc::clone(&self.inner),
                worker,
            });
        }
        receiver
    }

    /// A thread with nothing to do, a new one if need be and there is room.
    fn worker(&self) -> Option<Sender<Job>> {
        let mut state = self.inner.lock();
        if let Some(idle) = state.idle.pop() {
            return Some(idle);
        }
        if state.threads >= self.inner.max_threads {
            return None;
        }
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("portcullis-rule".to_owned())
            .spawn(move || work(&receiver))
            .ok()?;
        state.threads += 1;
        Some(sender)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        let said = judge(&*job.rule, &job.input);
        // Idle first: whoever has the answer may ask again at once.
        job.pool.lock().idle.push(job.worker);
        // The caller may be gone, and then nobody wants the answer.
        let _ = job.answer.send(said);
    }
}

fn judge(rule: &dyn Rule, input: &FencedInput) -> Answer {
    let input = RuleInput {
        event: &input.event,
        context: &input.context,
        snapshot: &input.snapshot,
    };
    catching(|| rule.evaluate(&input))
}

/// Turns a panic into an error.
pub(crate) fn catching<T>(run: impl FnOnce() -> Result<T, RuleError>) -> Result<T, RuleError> {
    // A rule is only read during evaluation, so nothing half-changed outlives the panic.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Err(RuleError(format!("panicked: {message}")))
    })
}

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
use std::sync::{Arc, Mutex, PoisonError};

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

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that may get stuck.
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
        self.start(Box::new(move || {
            // The caller may be gone, and then nobody wants the answer.
            let _ = answer.send(judge(&*rule, &input));
        }));
        receiver
    }

    fn start(&self, job: Job) {
        let mut job = job;
        let mut state = self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while let Some(worker) = state.idle.pop() {
            match worker.send(job) {
                Ok(()) => return,
                Err(returned) => job = returned.0,
            }
        }
        if state.threads >= self.inner.max_threads {
            return;
        }
        let (sender, receiver) = channel::<Job>();
        let inner = Arc::clone(&self.inner);
        let spawned = std::thread::Builder::new()
            .name("portcullis-rule".to_owned())
            .spawn({
                let sender = sender.clone();
                move || inner.work(&receiver, &sender)
            });
        if spawned.is_ok() {
            state.threads += 1;
            // The thread is waiting for exactly this.
            let _ = sender.send(job);
        }
    }
}

impl Inner {
    fn work(&self, jobs: &Receiver<Job>, own: &Sender<Job>) {
        while let Ok(job) = jobs.recv() {
            job();
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.idle.push(own.clone());
        }
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

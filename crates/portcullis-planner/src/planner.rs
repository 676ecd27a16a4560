//! The planner: what it is made of, and how a run begins, waits and ends.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, select};
use jiff::Timestamp;
use portcullis_core::{Context, ErrorCode, History, RuleId, StopSpec};
use portcullis_runtime::approval::{ApprovalError, Approvals};
use portcullis_runtime::{Gate, MemoryApprovals};
use serde_json::json;

use crate::chat::{ChatModel, Message, ModelError, Usage};
use crate::drive::{Drive, Halt};
use crate::events::Events;
use crate::state::{Next, State, Suspended};
use crate::tool::{Tool, Tools};
use crate::trajectory::{Budget, Trajectory};

/// Runs tasks with one model, one set of tools and one gate.
pub struct Planner {
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) tools: Tools,
    pub(crate) gate: Gate,
    pub(crate) approvals: Arc<dyn Approvals>,
    pub(crate) budgets: Budgets,
    pub(crate) streaming: bool,
    pub(crate) clock: Clock,
}

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Puts a [`Planner`] together.
pub struct PlannerBuilder {
    planner: Planner,
    problem: Option<String>,
}

/// Why there is no planner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the planner's tools: {0}")]
pub struct BuildError(String);

/// How much a run may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budgets {
    /// Turns of the model. Default: 16.
    pub iterations: u32,
    /// Tokens read and written, over all turns. What a provider does not report is estimated. Default: 1,000,000.
    pub tokens: u64,
    /// Time, from the start or from where it was resumed. Default: 10 minutes.
    pub wall_clock: Duration,
    /// Time for one tool call. Default: 1 minute.
    pub tool_call: Duration,
    /// Tool calls at the same time. Default: 4.
    pub parallel_calls: usize,
    /// Bytes of one answer of the model. Default: 1 MiB.
    pub answer_bytes: usize,
    /// Bytes of one tool's result, as JSON. What is larger is not shown to the model. Default: 256 KiB.
    pub result_bytes: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            iterations: 16,
            tokens: 1_000_000,
            wall_clock: Duration::from_mins(10),
            tool_call: Duration::from_mins(1),
            parallel_calls: 4,
            answer_bytes: 1 << 20,
            result_bytes: 256 << 10,
        }
    }
}

/// What a run is to do.
#[derive(Clone)]
pub struct Task {
    context: Context,
    agent: String,
    messages: Vec<Message>,
}

impl Task {
    /// To answer this, as run `run_id`.
    pub fn new(run_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            context: Context::new(run_id),
            agent: "agent".to_owned(),
            messages: vec![Message::user(text)],
        }
    }

    /// As whom. Approvals are bound to it. Default: `agent`.
    pub fn agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = agent.into();
        self
    }

    /// What the operator tells the model first. Only texts of the user are judged as prompts, so nothing of the user's
    /// belongs in it.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.messages.insert(0, Message::system(text));
        self
    }

    /// What was said before, between the operator's message and the task. All of it is judged again, as prompts.
    pub fn history(mut self, history: impl IntoIterator<Item = Said>) -> Self {
        let place = self.messages.len().saturating_sub(1);
        let history = history.into_iter().map(|said| match said {
            Said::User(text) => Message::user(text),
            Said::Model(text) => Message::assistant(text),
        });
        self.messages.splice(place..place, history);
        self
    }

    /// The tenant that the run belongs to.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.context.tenant_id = Some(tenant.into());
        self
    }

    /// What else the gate is to know of the run. Its run id and its list of tools are replaced.
    pub fn context(mut self, context: Context) -> Self {
        let run_id = std::mem::take(&mut self.context.run_id);
        self.context = Context { run_id, ..context };
        self
    }
}

/// What somebody said in an earlier run.
#[derive(Clone)]
pub enum Said {
    /// The user.
    User(String),
    /// The model.
    Model(String),
}

impl fmt::Debug for Task {
    /// Without what is said: nobody has judged it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("run_id", &self.context.run_id)
            .field("agent", &self.agent)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

/// A run that is over, or waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// How.
    pub outcome: Outcome,
    /// What happened.
    pub trajectory: Trajectory,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// With an answer.
    Done {
        /// What the user was shown.
        answer: String,
    },
    /// The gate ended it.
    Stopped(Stopped),
    /// It waits for approvals.
    Suspended(Box<Suspended>),
    /// Something ran out.
    OutOfBudget(Budget),
    /// The caller did not want any more.
    Cancelled,
    /// The model did not answer.
    Failed(ModelError),
}

/// What the gate ended a run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Why, for machines.
    pub error_code: ErrorCode,
    /// What the user is told.
    pub user_message: String,
    /// The rule, where it was one.
    pub rule_id: Option<RuleId>,
    /// Why, for operators.
    pub reason: String,
}

impl Stopped {
    pub(crate) fn by_planner(error_code: ErrorCode, reason: impl Into<String>) -> Self {
        Self {
            error_code,
            user_message: StopSpec::default().user_message.into_owned(),
            rule_id: None,
            reason: reason.into(),
        }
    }
}

/// Why a run does not go on. The approved call has not run, and does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// Another version wrote it.
    #[error("the suspended run has version {found}, and this planner knows {known}")]
    Version {
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// An approval cannot be used.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
}

impl PlannerBuilder {
    /// Another tool. The model sees them in the order in which they are added.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Another tool, that others have as well.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        if let Err(problem) = self.planner.tools.add(tool) {
            self.problem.get_or_insert(problem);
        }
        self
    }

    /// Who keeps approvals. Default: this planner, in memory, so that nobody else can resume its runs.
    pub fn approvals(mut self, approvals: Arc<dyn Approvals>) -> Self {
        self.planner.approvals = approvals;
        self
    }

    /// How much a run may take.
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.planner.budgets = budgets;
        self
    }

    /// Whether the model's answers are streamed. Default: yes. They are judged either way.
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.planner.streaming = streaming;
        self
    }

    /// What time it is when an approval is asked for or used. Default: the system's.
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.planner.clock = Arc::new(clock);
        self
    }

    /// Done.
    pub fn build(self) -> Result<Planner, BuildError> {
        match self.problem {
            Some(problem) => Err(BuildError(problem)),
            None => Ok(self.planner),
        }
    }
}

impl Planner {
    /// A planner for a model behind a gate: a [`Gateway`](portcullis_runtime::Gateway), or expressly
    /// [`Unguarded`](portcullis_runtime::Unguarded).
    pub fn builder(model: Arc<dyn ChatModel>, gate: impl Into<Gate>) -> PlannerBuilder {
        PlannerBuilder {
            planner: Self {
                model,
                tools: Tools::default(),
                gate: gate.into(),
                approvals: Arc::new(MemoryApprovals::default()),
                budgets: Budgets::default(),
                streaming: true,
                clock: Arc::new(Timestamp::now),
            },
            problem: None,
        }
    }

    /// Runs a task, until it is done or `cancel` is. Needs a tokio runtime with time.
    pub async fn run(
        &self,
        task: Task,
        events: Events,
        cancel: impl Future<Output = ()> + Send,
    ) -> Finished {
        let Task {
            mut context,
            agent,
            messages,
        } = task;
        let tools = json!(self.tools.names());
        context
            .tool_context
            .insert("available_tools".to_owned(), tools);
        let state = State {
            trajectory: Trajectory {
                run_id: context.run_id.clone(),
                agent,
                model: self.model.name().to_owned(),
                input: Vec::new(),
                steps: Vec::new(),
                guard: Vec::new(),
                usage: Usage::default(),
                end: None,
            },
            context,
            messages,
            judged: 0,
            retries: Vec::new(),
            history: History::default(),
            next: Next::Ask { held: None },
        };
        self.drive(Drive::new(self, state, events), cancel).await
    }

    /// Goes on with a run that waited, in this process or in another: with exactly what was approved, or without it.
    ///
    /// The answers to its approvals are used up first. If the process dies after that, the run cannot be resumed
    /// again, whether or not the call had begun. Where nobody has decided yet, it is suspended as it was.
    pub async fn resume(
        &self,
        suspended: Suspended,
        events: Events,
        cancel: impl Future<Output = ()> + Send,
    ) -> Result<Finished, ResumeError> {
        let waiting = suspended.clone();
        let state = suspended.open()?;
        let digest = state.digest();
        let mut drive = Drive::new(self, state, events);
        let mut cancel = pin!(cancel);
        // An answer is used up and the run goes on, or neither.
        if cancel.as_mut().now_or_never().is_some() {
            return Ok(drive.finish(Outcome::Cancelled.into()).await);
        }
        if drive.clear(digest).await? {
            return Ok(self.drive(drive, cancel).await);
        }
        Ok(Finished {
            trajectory: waiting.trajectory().clone(),
            outcome: Outcome::Suspended(Box::new(waiting)),
        })
    }

    async fn drive(&self, mut drive: Drive<'_>, cancel: impl Future<Output = ()>) -> Finished {
        let halt = {
            let work = tokio::time::timeout(self.budgets.wall_clock, drive.go());
            // The caller's wish first: what is ready as well must not begin any more.
            match select(pin!(cancel), pin!(work)).await {
                Either::Left(_) => Halt::from(Outcome::Cancelled),
                Either::Right((Ok(halt), _)) => halt,
                Either::Right((Err(_), _)) => Outcome::OutOfBudget(Budget::WallClock).into(),
            }
        };
        drive.finish(halt).await
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner")
            .field("model", &self.model.name())
            .field("tools", &self.tools.names())
            .field("budgets", &self.budgets)
            .finish_non_exhaustive()
    }
}

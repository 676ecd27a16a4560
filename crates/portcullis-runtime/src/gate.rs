//! What stands before every step of an agent's loop: a gateway, or expressly nothing.

use std::sync::Arc;

use jiff::Timestamp;
use portcullis_core::approval::{Approval, Binding};
use portcullis_core::canonical::exact_digest;
use portcullis_core::{
    Action, Context, Decision, Evaluation, Event, EventType, History, PauseScope, RetrySpec,
    RuleId, StopSpec, redact_event,
};
use serde_json::{Map, Value};

use crate::approvals::Clearance;
use crate::gateway::Gateway;
use crate::permit::Permit;
use crate::stream::{AnswerStream, Shown};

/// Whom an agent's loop asks before each step. Cheap to clone.
///
/// There is one way through, guarded or not:
///
/// ```
/// use portcullis_core::Context;
/// use portcullis_runtime::{Gate, Ruling, Standing, Unguarded};
/// use serde_json::{Map, json};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::from(Unguarded);
/// let mut context = Context::new("run-1");
/// let arguments = Map::from_iter([("to".to_owned(), json!("ops@example.org"))]);
/// let asked = gate.tool_call(&mut context, "mail.send", arguments, Standing::First).await;
/// let Ruling::Go(permit) = asked.ruling else { return Err("nothing forbids it".into()) };
/// let call = permit.redeem("run-1", "mail.send", asked.seen)?;
/// assert_eq!(call.arguments()["to"], "ops@example.org");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Gate(Option<Arc<Gateway>>);

/// No gateway: every step is let through, and nothing is recorded. Whoever wants that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unguarded;

impl From<Arc<Gateway>> for Gate {
    fn from(gateway: Arc<Gateway>) -> Self {
        Self(Some(gateway))
    }
}

impl From<Gateway> for Gate {
    fn from(gateway: Gateway) -> Self {
        Self(Some(Arc::new(gateway)))
    }
}

impl From<Unguarded> for Gate {
    fn from(_: Unguarded) -> Self {
        Self(None)
    }
}

/// What may happen.
#[derive(Debug)]
pub enum Ruling<T = ()> {
    /// The step may happen, on what may be seen.
    Go(T),
    /// It must be tried again, corrected.
    Retry(RetrySpec),
    /// It waits for a person.
    Pause(Box<Paused>),
    /// The run ends.
    Stop(StopSpec),
}

/// A step that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Paused {
    decision: Decision,
    /// The rule that pauses, after those whose pauses were lifted already.
    rules: Vec<RuleId>,
    policy: String,
}

impl Paused {
    /// What an evaluation paused, where the pauses of `lifted` are lifted. Nothing if it is no PAUSE.
    pub fn of(evaluation: &Evaluation, lifted: &[RuleId]) -> Option<Self> {
        let decision = &evaluation.decision;
        if decision.action != Action::Pause {
            return None;
        }
        let mut rules = lifted.to_vec();
        rules.push(decision.pause_key().clone());
        Some(Self {
            decision: decision.clone(),
            rules,
            policy: evaluation.policy.digest.clone(),
        })
    }

    /// What is held up.
    pub fn scope(&self) -> PauseScope {
        let pause = self.decision.pause.as_ref();
        pause.map_or_else(PauseScope::default, |pause| pause.scope)
    }

    /// What the person is asked.
    pub fn prompt(&self) -> &str {
        let pause = self.decision.pause.as_ref();
        pause.map_or("", |pause| &pause.prompt)
    }

    /// Whose pauses a yes lifts.
    pub fn rules(&self) -> &[RuleId] {
        &self.rules
    }

    /// What to ask a person. The event is the step as it may be seen.
    pub fn approval(self, event: &Event, agent: &str, now: Timestamp) -> Approval {
        let bound = Binding::of(event, agent, self.rules, &self.policy);
        let pause = self.decision.pause.as_deref().cloned().unwrap_or_default();
        Approval::of(&self.decision, pause, event, bound, now)
    }
}

/// How a step comes before the gate.
#[derive(Debug)]
pub enum Standing {
    /// For the first time.
    First,
    /// Again, on its way to a person who is asked about these pauses.
    Asked(Vec<RuleId>),
    /// Again, with a person's yes.
    Cleared(Clearance),
    /// It is not its turn yet: nothing follows from judging it.
    Waits,
}

impl From<Option<Clearance>> for Standing {
    fn from(clearance: Option<Clearance>) -> Self {
        clearance.map_or(Self::First, Self::Cleared)
    }
}

/// What the gate says to a step.
#[derive(Debug)]
#[must_use = "the ruling says whether the step may happen"]
pub struct Judged<T, P = ()> {
    /// What may happen.
    pub ruling: Ruling<P>,
    /// What was judged, as it may be seen from now on: redacted, whatever the ruling.
    pub seen: T,
    /// How it was judged; nothing without a gateway.
    pub evaluation: Option<Box<Evaluation>>,
}

impl<T, P> Judged<T, P> {
    fn map_seen<U>(self, seen: impl FnOnce(T) -> U) -> Judged<U, P> {
        Judged {
            ruling: self.ruling,
            seen: seen(self.seen),
            evaluation: self.evaluation,
        }
    }
}

impl Gate {
    /// The gateway, if there is one.
    pub fn gateway(&self) -> Option<&Arc<Gateway>> {
        self.0.as_ref()
    }

    /// Judges a text that is about to go to the model (`llm_before`); `None` where a call brings no new text.
    pub async fn prompt(
        &self,
        context: &mut Context,
        text: Option<String>,
        standing: Standing,
    ) -> Judged<Option<String>> {
        if self.0.is_none() {
            return unjudged(text);
        }
        let event = prompt_event(&context.run_id, text);
        let judged = self.judge(context, event, standing).await;
        judged.map_seen(|event| event.text_content)
    }

    /// Judges a tool call (`tool_call_start`). The permit is for the arguments as they may be seen.
    pub async fn tool_call(
        &self,
        context: &mut Context,
        tool: &str,
        arguments: Map<String, Value>,
        standing: Standing,
    ) -> Judged<Map<String, Value>, Permit> {
        let run_id = context.run_id.clone();
        let judged = if self.0.is_none() {
            unjudged(arguments)
        } else {
            let event = Event::tool_call_start(run_id.clone(), tool, arguments);
            let judged = self.judge(context, event, standing).await;
            judged.map_seen(|event| event.tool_args.unwrap_or_default())
        };
        let arguments = Value::Object(judged.seen);
        let ruling = match judged.ruling {
            Ruling::Go(()) => Ruling::Go(Permit::new(&run_id, tool, exact_digest(&arguments))),
            Ruling::Retry(spec) => Ruling::Retry(spec),
            Ruling::Pause(spec) => Ruling::Pause(spec),
            Ruling::Stop(spec) => Ruling::Stop(spec),
        };
        Judged {
            ruling,
            seen: match arguments {
                Value::Object(arguments) => arguments,
                _ => Map::new(),
            },
            evaluation: judged.evaluation,
        }
    }

    /// Judges what a tool has answered (`tool_call_result`): a string as text, anything else as the structured
    /// result, which is valid JSON afterwards too.
    pub async fn tool_result(
        &self,
        context: &mut Context,
        tool: &str,
        result: Value,
        standing: Standing,
    ) -> Judged<Value> {
        if self.0.is_none() {
            return unjudged(result);
        }
        let event = result_event(&context.run_id, tool, result);
        let judged = self.judge(context, event, standing).await;
        judged.map_seen(|mut event| match event.text_content {
            Some(text) => Value::String(text),
            None => event.payload.remove("result").unwrap_or_default(),
        })
    }

    /// Judges a whole answer of the model at once (`llm_stream_chunk`), for those that do not come in pieces.
    pub async fn whole_answer(
        &self,
        context: &mut Context,
        text: String,
        standing: Standing,
    ) -> Judged<String> {
        if self.0.is_none() {
            return unjudged(text);
        }
        let event = Event::llm_stream_chunk(context.run_id.clone(), text);
        let judged = self.judge(context, event, standing).await;
        judged.map_seen(|event| event.text_content.unwrap_or_default())
    }

    /// A text of the model's as it may be seen, without anything following from it; nothing if it may not be.
    pub async fn redacted_text(&self, context: &mut Context, text: String) -> Option<String> {
        let event = Event::llm_stream_chunk(context.run_id.clone(), text);
        let judged = self.judge(context, event, Standing::Waits).await;
        let seen = judged.seen.text_content;
        seen.filter(|_| matches!(judged.ruling, Ruling::Go(())))
    }

    /// The arguments of a call that has to wait, as they may be seen. The call is judged when it is its turn.
    pub async fn redacted_call(
        &self,
        context: &mut Context,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Map<String, Value> {
        let event = Event::tool_call_start(context.run_id.clone(), tool, arguments);
        let judged = self.judge(context, event, Standing::Waits).await;
        judged.seen.tool_args.unwrap_or_default()
    }

    /// What sequence rules know of a run.
    pub fn history(&self, run_id: &str) -> History {
        let gateway = self.0.as_ref();
        gateway.map_or_else(History::default, |gateway| gateway.history(run_id))
    }

    /// Takes over what another process knew of a run.
    pub fn resume_history(&self, run_id: &str, history: &History) {
        if let Some(gateway) = &self.0 {
            gateway.resume_history(run_id, history);
        }
    }

    /// Judges an answer of the model while it streams (`llm_stream_chunk`).
    pub fn answer(&self, context: &Context) -> GatedAnswer {
        let stream = |gateway| Box::new(AnswerStream::new(gateway, context.clone()));
        GatedAnswer(self.0.clone().map(stream))
    }

    /// The digest of the policy in force; empty without a gateway.
    pub fn policy(&self) -> String {
        let policy = self.0.as_ref().map(|gateway| gateway.policy());
        policy.map_or_else(String::new, |policy| policy.identity().digest.clone())
    }

    async fn judge(
        &self,
        context: &mut Context,
        mut event: Event,
        standing: Standing,
    ) -> Judged<Event> {
        let Some(gateway) = &self.0 else {
            return unjudged(event);
        };
        let evaluation = match &standing {
            Standing::First => gateway.evaluate(context, &event).await,
            Standing::Asked(pauses) => gateway.evaluate_again(context, &event, pauses).await,
            Standing::Cleared(yes) => gateway.evaluate_again(context, &event, yes.rules()).await,
            Standing::Waits => gateway.evaluate_quietly(context, &event).await,
        };
        let redacted = if evaluation.enforced {
            redact_event(&mut event, &evaluation.decision.redactions)
        } else {
            Ok(())
        };
        // A yes is to the step as it may be seen: what is about to happen must be that.
        let lifted = match standing {
            Standing::Cleared(yes) if yes.is_for(&event, &evaluation) => yes.rules().to_vec(),
            _ => Vec::new(),
        };
        let evaluation = evaluation.lift(&lifted);
        let ruling = match redacted {
            Ok(()) => ruling(&evaluation, &lifted),
            Err(error) => {
                // What cannot be redacted must not be seen, in no part.
                event.text_content = event.text_content.map(|_| String::new());
                event.tool_args = event.tool_args.map(|_| Map::new());
                event.payload.clear();
                Ruling::Stop(StopSpec {
                    internal_reason: error.to_string(),
                    ..StopSpec::default()
                })
            }
        };
        Judged {
            ruling,
            seen: event,
            evaluation: Some(Box::new(evaluation)),
        }
    }
}

/// What an evaluation means for the step, where the pauses of these have been lifted.
fn ruling(evaluation: &Evaluation, lifted: &[RuleId]) -> Ruling {
    if !evaluation.enforced {
        return Ruling::Go(());
    }
    if let Some(paused) = Paused::of(evaluation, lifted) {
        return Ruling::Pause(Box::new(paused));
    }
    let decision = &evaluation.decision;
    match decision.action {
        Action::Allow | Action::Redact => Ruling::Go(()),
        Action::Retry => Ruling::Retry(decision.retry.as_deref().cloned().unwrap_or_default()),
        Action::Pause | Action::Stop => {
            Ruling::Stop(decision.stop.as_deref().cloned().unwrap_or_default())
        }
    }
}

/// One answer of the model behind a [`Gate`].
#[derive(Debug)]
pub struct GatedAnswer(Option<Box<AnswerStream>>);

impl GatedAnswer {
    /// Takes in a chunk and gives out what may be shown. After a halt that is nothing.
    pub async fn push(&mut self, chunk: String) -> Shown {
        match &mut self.0 {
            Some(stream) => stream.push(&chunk).await,
            None => Shown {
                text: chunk,
                ..Shown::default()
            },
        }
    }

    /// Ends the answer and gives out what was held back.
    pub async fn finish(&mut self) -> Shown {
        match &mut self.0 {
            Some(stream) => stream.finish().await,
            None => Shown::default(),
        }
    }
}

fn unjudged<T>(seen: T) -> Judged<T> {
    Judged {
        ruling: Ruling::Go(()),
        seen,
        evaluation: None,
    }
}

/// The event of a question to the model, with the text that it brings.
pub fn prompt_event(run_id: &str, text: Option<String>) -> Event {
    Event {
        text_content: text,
        ..Event::new(EventType::LlmBefore, run_id)
    }
}

/// The event of a tool's answer: a string is text, anything else is the structured result.
pub fn result_event(run_id: &str, tool: &str, result: Value) -> Event {
    match result {
        Value::String(text) => Event::tool_call_result(run_id, tool, text),
        result => Event {
            tool_name: Some(tool.to_owned()),
            payload: Map::from_iter([("result".to_owned(), result)]),
            ..Event::new(EventType::ToolCallResult, run_id)
        },
    }
}

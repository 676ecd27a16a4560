//! One turn of the model, shown as far as it may be.

use futures_util::StreamExt;
use portcullis_core::{Action, Evaluation, Event, EventType, StopSpec};
use portcullis_runtime::{GatedAnswer, Ruling, Shown};

use super::pause::Lifted;
use super::{Drive, Halt, Settled, suspend};
use crate::chat::{
    ChatRequest, Delta, FinishReason, Message, ModelError, ToolCall, Turn, TurnBuilder, Usage,
};
use crate::events::RunEvent;
use crate::planner::Outcome;
use crate::state::{Call, HeldAnswer, Next};
use crate::trajectory::{CallRecord, Step};

/// A turn as it comes in.
struct Heard {
    answer: GatedAnswer,
    builder: TurnBuilder,
    /// What was shown, redacted.
    shown: String,
    /// What ended it early.
    halt: Option<Box<Evaluation>>,
}

impl Heard {
    /// Whether it is worth listening on: after a PAUSE all of it is wanted, because a person may let it go.
    fn is_void(&self) -> bool {
        let halt = self.halt.as_ref();
        halt.is_some_and(|halt| halt.decision.action != Action::Pause)
    }
}

impl From<ModelError> for Halt {
    fn from(error: ModelError) -> Self {
        Self::Over(Outcome::Failed(error))
    }
}

impl Drive<'_> {
    /// Asks the model and shows what it says.
    pub(super) async fn listen(&mut self) -> Result<Next, Halt> {
        self.state.trajectory.steps.push(Step::default());
        let number = self.state.trajectory.steps.len() as u32;
        self.events.send(|| RunEvent::Step(number)).await;
        let mut heard = Heard {
            answer: self.planner.gate.answer(&self.state.context),
            builder: TurnBuilder::new(self.planner.budgets.answer_bytes),
            shown: String::new(),
            halt: None,
        };
        let listened = self.hear(&mut heard).await;
        if let Some(step) = self.state.trajectory.steps.last_mut() {
            step.text.clone_from(&heard.shown);
        }
        let turn = match listened {
            Err(error) => {
                self.spend(None, &heard.shown);
                return Err(error.into());
            }
            Ok(None) => {
                self.spend(None, &heard.shown);
                None
            }
            Ok(Some(turn)) => {
                self.spend(turn.usage, &turn.text);
                Some(turn)
            }
        };
        match (heard.halt, turn) {
            (Some(evaluation), turn) => self.halted(&evaluation, heard.shown, turn).await,
            (None, Some(turn)) => self.accept(heard.shown, turn.calls, turn.finish),
            (None, None) => Err(ModelError::BrokeOff.into()),
        }
    }

    /// The turn, or nothing if it is void.
    async fn hear(&mut self, heard: &mut Heard) -> Result<Option<Turn>, ModelError> {
        let planner = self.planner;
        let request = ChatRequest {
            messages: &self.state.messages,
            tools: &planner.tools.definitions,
        };
        if !planner.streaming {
            let turn = planner.model.complete(request).await?;
            if turn.text.len() > planner.budgets.answer_bytes {
                let limit = planner.budgets.answer_bytes;
                return Err(ModelError::TooLarge { limit });
            }
            self.show(heard, Some(turn.text.clone())).await;
            self.show(heard, None).await;
            return Ok((!heard.is_void()).then_some(turn));
        }
        let mut deltas = planner.model.stream(request).await?;
        while let Some(delta) = deltas.next().await {
            let delta = delta?;
            heard.builder.push(&delta)?;
            if let Delta::Text(text) = delta {
                self.show(heard, Some(text)).await;
                if heard.is_void() {
                    return Ok(None);
                }
            }
        }
        self.show(heard, None).await;
        if heard.is_void() {
            return Ok(None);
        }
        let limit = planner.budgets.answer_bytes;
        let builder = std::mem::replace(&mut heard.builder, TurnBuilder::new(limit));
        builder.finish().map(Some)
    }

    /// Shows what the gate lets go of the next piece, or at last of what it has held back.
    async fn show(&mut self, heard: &mut Heard, text: Option<String>) {
        if heard.halt.is_some() {
            return;
        }
        let Shown {
            text,
            mut evaluations,
            halted,
        } = match text {
            Some(text) => heard.answer.push(text).await,
            None => heard.answer.finish().await,
        };
        if !text.is_empty() {
            heard.shown.push_str(&text);
            self.events.send(|| RunEvent::Text(text)).await;
        }
        for evaluation in &evaluations {
            self.note(EventType::LlmStreamChunk, None, Some(evaluation))
                .await;
        }
        if halted {
            heard.halt = evaluations.pop().map(Box::new);
        }
    }

    /// The gate forbids the rest of an answer.
    async fn halted(
        &mut self,
        evaluation: &Evaluation,
        shown: String,
        turn: Option<Turn>,
    ) -> Result<Next, Halt> {
        let decision = &evaluation.decision;
        let ruling: Ruling = match decision.action {
            Action::Retry => Ruling::Retry(decision.retry.as_deref().cloned().unwrap_or_default()),
            Action::Pause => Ruling::Pause(decision.pause.as_deref().cloned().unwrap_or_default()),
            _ => Ruling::Stop(decision.stop.as_deref().cloned().unwrap_or_default()),
        };
        match (self.settle_answer(ruling, evaluation)?, turn) {
            (Settled::Wait(spec), Some(turn)) => {
                // The rest has not been judged: redactions first, and whoever stops it stops it now.
                let gate = &self.planner.gate;
                let context = &mut self.state.context;
                let judged = gate.whole_answer(context, turn.text, None).await;
                if let Ruling::Stop(spec) = judged.ruling {
                    let evaluation = judged.evaluation.as_deref();
                    return Err(super::stopped(spec, evaluation).into());
                }
                let calls = self.redact_calls(turn.calls).await?;
                let event = Event::llm_stream_chunk(&self.state.context.run_id, &judged.seen);
                let held = self.hold(&event, spec, Some(evaluation)).await?;
                Err(suspend(Next::Answer(HeldAnswer {
                    text: judged.seen,
                    shown,
                    calls,
                    finish: turn.finish,
                    held,
                })))
            }
            (Settled::Again(message), _) => Ok(self.discard(message).await),
            _ => Err(super::stopped(StopSpec::default(), Some(evaluation)).into()),
        }
    }

    /// Calls of an answer that waits: they are kept, so they are redacted now, and judged when it is their turn.
    async fn redact_calls(&mut self, calls: Vec<ToolCall>) -> Result<Vec<ToolCall>, Halt> {
        let mut redacted = Vec::with_capacity(calls.len());
        for call in calls.into_iter().map(Call::new) {
            let Call {
                id,
                tool,
                arguments,
                unreadable,
                ..
            } = call;
            let gate = &self.planner.gate;
            let context = &mut self.state.context;
            let judged = gate.tool_call(context, &tool, arguments, None).await;
            if let Ruling::Stop(spec) = judged.ruling {
                return Err(super::stopped(spec, judged.evaluation.as_deref()).into());
            }
            redacted.push(ToolCall {
                id,
                name: tool,
                // What cannot be read cannot be redacted by its parts; the model is asked for it again.
                arguments: match unreadable {
                    Some(_) => "(unreadable)".to_owned(),
                    None => serde_json::Value::Object(judged.seen).to_string(),
                },
            });
        }
        Ok(redacted)
    }

    fn settle_answer(
        &mut self,
        ruling: Ruling,
        evaluation: &Evaluation,
    ) -> Result<Settled<()>, Halt> {
        self.settle(&EventType::LlmStreamChunk, None, ruling, Some(evaluation))
    }

    /// The model is asked again. What it said is not repeated to it: it may hold what must not be repeated.
    async fn discard(&mut self, message: String) -> Next {
        self.events.send(|| RunEvent::Discarded).await;
        if let Some(step) = self.state.trajectory.steps.last_mut() {
            step.text.clear();
        }
        self.state.messages.push(Message::system(message));
        Next::Ask { held: None }
    }

    /// An answer that waited for a person.
    pub(super) async fn held_answer(&mut self, answer: HeldAnswer) -> Result<Next, Halt> {
        let clearance = match self.lift(&answer.held) {
            Lifted::Yes(clearance) => clearance,
            Lifted::No(stopped) => return Err(stopped.into()),
            Lifted::NotYet => return Err(suspend(Next::Answer(answer))),
        };
        let gate = &self.planner.gate;
        let context = &mut self.state.context;
        let judged = gate
            .whole_answer(context, answer.text, Some(clearance))
            .await;
        let evaluation = judged.evaluation.as_deref();
        self.note(EventType::LlmStreamChunk, None, evaluation).await;
        let stage = EventType::LlmStreamChunk;
        match self.settle(&stage, None, judged.ruling, evaluation)? {
            Settled::Go(()) => {}
            Settled::Again(message) => return Ok(self.discard(message).await),
            Settled::Wait(spec) => {
                let event = Event::llm_stream_chunk(&self.state.context.run_id, &judged.seen);
                let held = self.hold(&event, spec, evaluation).await?;
                return Err(suspend(Next::Answer(HeldAnswer {
                    text: judged.seen,
                    held,
                    ..answer
                })));
            }
        }
        let rest = judged.seen.strip_prefix(&answer.shown);
        if rest.is_none() {
            self.events.send(|| RunEvent::Discarded).await;
        }
        let rest = rest.unwrap_or(&judged.seen).to_owned();
        if !rest.is_empty() {
            self.events.send(|| RunEvent::Text(rest)).await;
        }
        self.accept(judged.seen, answer.calls, answer.finish)
    }

    /// The turn stands: it is the answer, or there is something to do first.
    fn accept(
        &mut self,
        text: String,
        calls: Vec<ToolCall>,
        finish: FinishReason,
    ) -> Result<Next, Halt> {
        let stage = format!("{} ", EventType::LlmStreamChunk);
        self.state.retries.retain(|key, _| !key.starts_with(&stage));
        let calls: Vec<Call> = calls.into_iter().map(Call::new).collect();
        if let Some(step) = self.state.trajectory.steps.last_mut() {
            step.text.clone_from(&text);
            step.finish = Some(finish);
            let records = calls.iter();
            let records = records.map(|call| CallRecord::new(&call.id, &call.tool));
            step.calls = records.collect();
        }
        if calls.is_empty() {
            self.state.messages.push(Message::assistant(text.clone()));
            return Err(Outcome::Done { answer: text }.into());
        }
        Ok(Next::Calls { calls })
    }

    /// What the turn cost; where the provider does not say, a token for every four bytes.
    fn spend(&mut self, usage: Option<Usage>, text: &str) {
        let usage = usage.unwrap_or_else(|| {
            let asked: usize = self.state.messages.iter().map(Message::bytes).sum();
            Usage {
                prompt_tokens: asked as u64 / 4,
                completion_tokens: text.len() as u64 / 4,
            }
        });
        self.state.trajectory.usage.add(usage);
    }
}

//! One turn of the model, shown as far as it may be.

use futures_util::StreamExt;
use portcullis_core::{Action, ErrorCode, Evaluation, Event, EventType, StopSpec};
use portcullis_runtime::{GatedAnswer, Paused, Ruling, Standing};

use super::pause::Lifted;
use super::{Drive, Halt, Settled, suspend};
use crate::chat::{
    ChatRequest, Delta, FinishReason, Message, ModelError, ToolCall, Turn, TurnBuilder, Usage,
};
use crate::events::RunEvent;
use crate::planner::{Outcome, Stopped};
use crate::state::{Call, HeldAnswer, Next};
use crate::tool;
use crate::trajectory::{CallRecord, Step};

/// A turn as it comes in.
struct Heard {
    answer: GatedAnswer,
    builder: TurnBuilder,
    /// What was shown, redacted.
    shown: String,
    /// Whether the gate ended it early.
    halted: bool,
    /// Why: the gravest thing that was said then.
    halt: Option<Box<Evaluation>>,
}

impl Heard {
    /// Whether it is not worth listening on: after a PAUSE all of it is wanted, because a person may let it go.
    fn is_void(&self) -> bool {
        let halt = self.halt.as_ref();
        let paused = halt.is_some_and(|halt| halt.decision.action == Action::Pause);
        self.halted && !paused
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
            halted: false,
            halt: None,
        };
        let listened = self.hear(&mut heard).await;
        let turn = match listened {
            Err(error) => {
                self.spend(None, heard.builder.bytes());
                return Err(error.into());
            }
            Ok(None) => {
                self.spend(None, heard.builder.bytes());
                None
            }
            Ok(Some(turn)) => {
                let calls = turn.calls.iter().map(|call| call.arguments.len());
                self.spend(turn.usage, turn.text.len() + calls.sum::<usize>());
                Some(turn)
            }
        };
        match (heard.halt, turn) {
            (Some(evaluation), turn) => self.halted(&evaluation, heard.shown, turn).await,
            (None, _) if heard.halted => {
                let why = "the gate ended the answer and did not say why";
                Err(Stopped::by_planner(ErrorCode::SyncError, why).into())
            }
            (None, Some(turn)) => {
                let calls = self.calls_of(turn.calls, &turn.finish).await;
                self.accept(heard.shown, calls, turn.finish)
            }
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
            turn.check(planner.budgets.answer_bytes)?;
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
        if heard.halted {
            return;
        }
        let mut shown = match text {
            Some(text) => heard.answer.push(text).await,
            None => heard.answer.finish().await,
        };
        let text = std::mem::take(&mut shown.text);
        if !text.is_empty() {
            heard.shown.push_str(&text);
            if let Some(step) = self.state.trajectory.steps.last_mut() {
                step.text.push_str(&text);
            }
            self.events.send(|| RunEvent::Text(text)).await;
        }
        for evaluation in &shown.evaluations {
            self.note(EventType::LlmStreamChunk, None, Some(evaluation))
                .await;
        }
        heard.halted = shown.halted;
        heard.halt = shown.halt().cloned().map(Box::new);
    }

    /// The gate forbids the rest of an answer.
    async fn halted(
        &mut self,
        evaluation: &Evaluation,
        shown: String,
        turn: Option<Turn>,
    ) -> Result<Next, Halt> {
        let decision = &evaluation.decision;
        let turn = match (decision.action, turn) {
            (Action::Pause, Some(turn)) => turn,
            (Action::Retry, _) => {
                let spec = decision.retry.as_deref().cloned().unwrap_or_default();
                return self.settle_rest(Ruling::Retry(spec), evaluation).await;
            }
            _ => {
                let spec = decision.stop.as_deref().cloned().unwrap_or_default();
                return Err(super::stopped(spec, Some(evaluation)).into());
            }
        };
        // The rest has not been judged, nor has what was redacted piece by piece: now all of it is.
        let gate = &self.planner.gate;
        let context = &mut self.state.context;
        let asked = Standing::Asked(vec![decision.pause_key().clone()]);
        let judged = gate.whole_answer(context, turn.text, asked).await;
        let whole = judged.evaluation.as_deref().unwrap_or(evaluation);
        if whole.decision.action != Action::Pause {
            self.note(EventType::LlmStreamChunk, None, Some(whole))
                .await;
        }
        let paused = match judged.ruling {
            Ruling::Pause(paused) => *paused,
            // A piece was paused, if not the whole: a person is asked all the same.
            Ruling::Go(()) => Paused::of(evaluation, &[])
                .ok_or_else(|| super::stopped(StopSpec::default(), Some(evaluation)))?,
            ruling => return self.settle_rest(ruling, whole).await,
        };
        let mut calls = self.calls_of(turn.calls, &turn.finish).await;
        self.redact_calls(&mut calls).await;
        let event = Event::llm_stream_chunk(&self.state.context.run_id, &judged.seen);
        let held = self.hold(&event, paused);
        Err(suspend(Next::Answer(HeldAnswer {
            text: judged.seen,
            shown,
            calls,
            finish: turn.finish,
            held,
        })))
    }

    /// What follows from a ruling after which nothing of the answer is kept.
    async fn settle_rest(&mut self, ruling: Ruling, evaluation: &Evaluation) -> Result<Next, Halt> {
        let stage = EventType::LlmStreamChunk;
        match self.settle(&stage, None, ruling, Some(evaluation))? {
            Settled::Again(message) => Ok(self.discard(message).await),
            _ => Err(super::stopped(StopSpec::default(), Some(evaluation)).into()),
        }
    }

    /// The calls of this step, under names that are ours. What the model calls a tool that there is not is for the gate, if
    /// it is a name.
    async fn calls_of(&mut self, calls: Vec<ToolCall>, finish: &FinishReason) -> Vec<Call> {
        let step = self.state.trajectory.steps.len();
        let mut named = Vec::with_capacity(calls.len());
        for (mut call, place) in calls.into_iter().zip(1..) {
            let gate = &self.planner.gate;
            let unknown = self.planner.tools.get(&call.name).is_none();
            if unknown && gate.gateway().is_some() {
                let context = &mut self.state.context;
                let seen = gate.redacted_text(context, call.name.clone()).await;
                if !tool::is_name(&call.name) || seen.as_ref() != Some(&call.name) {
                    tool::UNKNOWN_TOOL.clone_into(&mut call.name);
                }
            }
            let id = format!("call_{step}_{place}");
            named.push(Call::new(
                id,
                call,
                &self.planner.tools,
                finish.is_cut_off(),
            ));
        }
        named
    }

    /// Calls of an answer that waits: they are kept, so they are redacted now, and judged when it is their turn.
    async fn redact_calls(&mut self, calls: &mut [Call]) {
        for call in calls {
            if let Some(unreadable) = &mut call.unreadable {
                // What cannot be read cannot be redacted by its parts; the model is asked for it again.
                "(unreadable)".clone_into(&mut unreadable.text);
                continue;
            }
            let gate = &self.planner.gate;
            let context = &mut self.state.context;
            let arguments = std::mem::take(&mut call.arguments);
            let tool = call.judged_tool();
            call.arguments = gate.redacted_call(context, tool, arguments).await;
        }
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
        };
        let gate = &self.planner.gate;
        let context = &mut self.state.context;
        let judged = gate
            .whole_answer(context, answer.text, Standing::Cleared(clearance))
            .await;
        let evaluation = judged.evaluation.as_deref();
        self.note(EventType::LlmStreamChunk, None, evaluation).await;
        let stage = EventType::LlmStreamChunk;
        match self.settle(&stage, None, judged.ruling, evaluation)? {
            Settled::Go(()) => {}
            Settled::Again(message) => return Ok(self.discard(message).await),
            Settled::Wait(paused) => {
                let event = Event::llm_stream_chunk(&self.state.context.run_id, &judged.seen);
                let held = self.hold(&event, *paused);
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
        calls: Vec<Call>,
        finish: FinishReason,
    ) -> Result<Next, Halt> {
        self.passed.push((EventType::LlmStreamChunk, None));
        if let Some(step) = self.state.trajectory.steps.last_mut() {
            step.text.clone_from(&text);
            step.finish = Some(finish);
            let records = calls.iter();
            let records = records.map(|call| CallRecord::new(&call.id, &call.tool));
            step.calls = records.collect();
        }
        if calls.is_empty() {
            self.state.messages.push(Message::assistant(text.clone()));
            self.state.judged = self.state.messages.len();
            return Err(Outcome::Done { answer: text }.into());
        }
        Ok(Next::Calls { calls })
    }

    /// What the turn cost; where the provider does not say, a token for every four bytes.
    fn spend(&mut self, usage: Option<Usage>, written: usize) {
        let usage = usage.unwrap_or_else(|| {
            let asked: usize = self.state.messages.iter().map(Message::bytes).sum();
            Usage {
                prompt_tokens: asked as u64 / 4,
                completion_tokens: written as u64 / 4,
            }
        });
        self.state.trajectory.usage.add(usage);
    }
}

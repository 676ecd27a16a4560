//! The tool calls of one step: judged in order, run side by side, answered in order.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use portcullis_core::{ErrorCode, EventType, PauseScope};
use portcullis_runtime::{Clearance, PermittedCall, result_event};
use serde_json::{Value, json};

use super::pause::Lifted;
use super::{Drive, Halt, Settled, suspend};
use crate::chat::Message;
use crate::events::RunEvent;
use crate::planner::Stopped;
use crate::state::{Call, Held, Next, Phase, Unreadable, error_result};
use crate::tool::{Tool, ToolError};
use crate::trajectory::CallRecord;

/// A call that may run now.
struct Ready {
    place: usize,
    call: PermittedCall,
    /// The approval by which a person has let it go.
    approval: Option<String>,
}

impl Drive<'_> {
    pub(super) async fn calls(&mut self, mut calls: Vec<Call>) -> Result<Next, Halt> {
        let mut ready = Vec::new();
        for place in 0..calls.len() {
            if let Some(permitted) = self.judge_call(&mut calls, place).await? {
                ready.push(permitted);
            }
        }
        // A pause of the step or of the run holds up the others too; what a person let go was waited for already.
        let step_held = calls.iter().any(|call| match &call.phase {
            Phase::Held(held) => held.scope != PauseScope::ToolCall,
            _ => false,
        });
        // And a no to the step may have come after a call was let go.
        ready.retain(|ready| {
            let phase = calls.get(ready.place).map(|call| &call.phase);
            phase == Some(&Phase::Asked) && (ready.approval.is_some() || !step_held)
        });
        let results = self.run(&calls, ready).await;
        for (place, result) in results {
            self.judge_result(&mut calls, place, result, None).await?;
        }
        let held = |call: &Call| matches!(call.phase, Phase::Held(_) | Phase::ResultHeld { .. });
        if calls.iter().any(held) {
            return Err(suspend(Next::Calls { calls }));
        }
        self.tell_model(calls);
        Ok(Next::Ask { held: None })
    }

    /// Whether a call may run. Whatever else is said to it is in its phase afterwards.
    async fn judge_call(
        &mut self,
        calls: &mut [Call],
        place: usize,
    ) -> Result<Option<Ready>, Halt> {
        let Some(call) = calls.get_mut(place) else {
            return Ok(None);
        };
        let mut approval = None;
        let clearance = match call.phase.clone() {
            Phase::Answered { result } => {
                self.record(place, |record| record.result = Some(result));
                return Ok(None);
            }
            Phase::Asked => {
                if let Some(unreadable) = &call.unreadable {
                    // Judged as what it is to the model: something that comes back.
                    let result = json!({"error": unreadable.why, "arguments": unreadable.text});
                    self.judge_result(calls, place, result, None).await?;
                    return Ok(None);
                }
                None
            }
            // What this very pass asks a person for is not to be answered by it.
            Phase::Held(held) | Phase::ResultHeld { held, .. } if self.is_asking(&held) => {
                return Ok(None);
            }
            Phase::Held(held) => match self.lift(&held) {
                Lifted::No(stopped) => {
                    self.refuse(calls, place, &held, stopped).await?;
                    return Ok(None);
                }
                Lifted::Yes(clearance) => {
                    approval = Some(held.approval);
                    Some(clearance)
                }
            },
            Phase::ResultHeld { held, result } => {
                self.lift_result(calls, place, held, result).await?;
                return Ok(None);
            }
        };
        let gate = &self.planner.gate;
        let arguments = std::mem::take(&mut call.arguments);
        let context = &mut self.state.context;
        let judged = gate
            .tool_call(context, call.judged_tool(), arguments, clearance.into())
            .await;
        call.arguments = judged.seen;
        let evaluation = judged.evaluation.as_deref();
        let stage = EventType::ToolCallStart;
        self.note(stage.clone(), Some(&call.tool), evaluation).await;
        let seen = Value::Object(call.arguments.clone());
        self.record(place, |record| record.arguments = seen);
        match self.settle(&stage, Some(&call.tool), judged.ruling, evaluation)? {
            Settled::Go(permit) => {
                let run_id = &self.state.context.run_id;
                let permitted = permit
                    .redeem(run_id, call.judged_tool(), call.arguments.clone())
                    .map_err(|error| {
                        Stopped::by_planner(ErrorCode::SyncError, error.to_string())
                    })?;
                call.phase = Phase::Asked;
                Ok(Some(Ready {
                    place,
                    call: permitted,
                    approval,
                }))
            }
            Settled::Again(message) => {
                self.answer(call, place, error_result(&message)).await;
                Ok(None)
            }
            Settled::Wait(paused) => {
                let event = call.start_event(&self.state.context.run_id);
                call.phase = Phase::Held(self.hold(&event, *paused));
                Ok(None)
            }
        }
    }

    /// A person said no: to this call, to the step, or to the run.
    async fn refuse(
        &mut self,
        calls: &mut [Call],
        place: usize,
        held: &Held,
        stopped: Stopped,
    ) -> Result<(), Halt> {
        if held.scope == PauseScope::Run {
            return Err(stopped.into());
        }
        let whole_step = held.scope == PauseScope::Step;
        let why = error_result(&format!("not allowed: {}", stopped.reason));
        for other in 0..calls.len() {
            let phase = calls.get(other).map(|call| &call.phase);
            let answered = matches!(phase, Some(Phase::Answered { .. }));
            if !answered && (whole_step || other == place) {
                // A person may write anything in a note.
                self.judge_result(calls, other, why.clone(), None).await?;
            }
        }
        Ok(())
    }

    /// Runs what may run, so many at a time. The results are in the order of the calls.
    async fn run(&mut self, calls: &[Call], ready: Vec<Ready>) -> Vec<(usize, Value)> {
        let planner = self.planner;
        let mut running = Vec::with_capacity(ready.len());
        for Ready {
            place,
            call,
            approval,
        } in ready
        {
            let (Some(tool), Some(asked)) = (planner.tools.get(call.tool()), calls.get(place))
            else {
                let names = planner.tools.names().join(", ");
                let why = format!("there is no such tool; there are: {names}");
                running.push(async move { (place, error_result(&why)) }.boxed());
                continue;
            };
            // From here on it may have effects, whatever becomes of the run.
            self.record(place, |record| {
                record.ran = true;
                record.approval = approval;
            });
            let (tool, events) = (Arc::clone(tool), self.events.clone());
            let limit = (planner.budgets.tool_call, planner.budgets.result_bytes);
            let (id, name) = (asked.id.clone(), asked.tool.clone());
            let one = async move {
                let arguments = call.arguments().clone();
                events
                    .send(|| RunEvent::ToolStarted {
                        id,
                        tool: name,
                        arguments,
                    })
                    .await;
                (place, run_one(&*tool, call, limit).await)
            };
            running.push(one.boxed());
        }
        let at_once = planner.budgets.parallel_calls.max(1);
        stream::iter(running).buffered(at_once).collect().await
    }

    async fn judge_result(
        &mut self,
        calls: &mut [Call],
        place: usize,
        result: Value,
        clearance: Option<Clearance>,
    ) -> Result<(), Halt> {
        let Some(call) = calls.get_mut(place) else {
            return Ok(());
        };
        let gate = &self.planner.gate;
        let context = &mut self.state.context;
        let judged = gate
            .tool_result(context, &call.tool, result, clearance.into())
            .await;
        let evaluation = judged.evaluation.as_deref();
        let seen = judged.seen;
        if let Some(unreadable) = &mut call.unreadable {
            self.read_unreadable(unreadable, place, &seen);
        }
        let stage = EventType::ToolCallResult;
        self.note(stage.clone(), Some(&call.tool), evaluation).await;
        match self.settle(&stage, Some(&call.tool), judged.ruling, evaluation)? {
            Settled::Go(()) if call.unreadable.is_some() => {
                let why = seen["error"].as_str().unwrap_or("(unreadable)");
                self.answer(call, place, error_result(why)).await;
            }
            Settled::Go(()) => self.answer(call, place, seen).await,
            Settled::Again(message) => self.answer(call, place, error_result(&message)).await,
            Settled::Wait(paused) => {
                let run_id = &self.state.context.run_id;
                let event = result_event(run_id, &call.tool, seen.clone());
                let held = self.hold(&event, *paused);
                call.phase = Phase::ResultHeld { held, result: seen };
            }
        }
        Ok(())
    }

    /// What is left of arguments that are none, once they are judged: the text as it may be seen. Nothing of it, where what
    /// was judged in its place is a person's no.
    fn read_unreadable(&mut self, unreadable: &mut Unreadable, place: usize, seen: &Value) {
        let text = seen["arguments"].as_str().unwrap_or("(withheld)");
        text.clone_into(&mut unreadable.text);
        let text = Value::from(text);
        self.record(place, |record| record.arguments = text);
    }

    /// A result that waited for a person.
    async fn lift_result(
        &mut self,
        calls: &mut [Call],
        place: usize,
        held: Held,
        result: Value,
    ) -> Result<(), Halt> {
        match self.lift(&held) {
            Lifted::Yes(clearance) => {
                self.judge_result(calls, place, result, Some(clearance))
                    .await
            }
            Lifted::No(stopped) if held.scope == PauseScope::Run => Err(stopped.into()),
            Lifted::No(stopped) => {
                let why = error_result(&format!("the result is withheld: {}", stopped.reason));
                self.judge_result(calls, place, why, None).await
            }
        }
    }

    async fn answer(&mut self, call: &mut Call, place: usize, result: Value) {
        self.record(place, |record| record.result = Some(result.clone()));
        self.events
            .send(|| RunEvent::ToolFinished {
                id: call.id.clone(),
                tool: call.tool.clone(),
                result: result.clone(),
            })
            .await;
        call.phase = Phase::Answered { result };
    }

    /// The step's messages: what the model called, as it may be seen, and what came of it.
    fn tell_model(&mut self, calls: Vec<Call>) {
        let step = self.state.trajectory.steps.last();
        let messages = &mut self.state.messages;
        messages.push(Message::Assistant {
            content: step.map(|step| step.text.clone()).unwrap_or_default(),
            tool_calls: calls.iter().map(Call::as_said).collect(),
        });
        for call in calls {
            let content = match call.phase {
                Phase::Answered {
                    result: Value::String(text),
                } => text,
                Phase::Answered { result } => result.to_string(),
                _ => error_result("it did not run").to_string(),
            };
            messages.push(Message::Tool {
                tool_call_id: call.id,
                content,
            });
        }
        self.state.judged = messages.len();
    }

    fn record(&mut self, place: usize, change: impl FnOnce(&mut CallRecord)) {
        let step = self.state.trajectory.steps.last_mut();
        if let Some(record) = step.and_then(|step| step.calls.get_mut(place)) {
            change(record);
        }
    }
}

/// What a tool gives, or why not: it may fail, panic, take too long or say too much.
async fn run_one(
    tool: &dyn Tool,
    call: PermittedCall,
    (patience, most): (Duration, usize),
) -> Value {
    // Nothing of the tool is looked at after a panic.
    let running = AssertUnwindSafe(async { tool.call(call).await }).catch_unwind();
    let result = match tokio::time::timeout(patience, running).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(ToolError::new("the tool failed")),
        Err(_) => Err(ToolError::new(format!(
            "the tool did not answer within {} s",
            patience.as_secs()
        ))),
    };
    let result = result.unwrap_or_else(|error| error_result(&error.message));
    let bytes = result.to_string().len();
    if bytes > most {
        let why = format!("the result has {bytes} bytes, more than {most}: ask for less");
        return error_result(&why);
    }
    result
}

//! The loop: one run, step by step.

mod answer;
mod calls;
mod pause;

use std::collections::HashMap;

use portcullis_core::{ErrorCode, Evaluation, EventType, RetrySpec, RuleId, StopSpec};
use portcullis_runtime::approval::Approval;
use portcullis_runtime::{Cleared, Paused, Ruling, prompt_event};

use crate::chat::Message;
use crate::events::{Events, RunEvent};
use crate::planner::{Finished, Outcome, Planner, Stopped};
use crate::state::{Held, Next, Retries, State, Suspended};
use crate::trajectory::{Budget, End, Guarded};

use pause::Lifted;

/// How much the gate is told of what the model said last.
const LAST_ASSISTANT_CHARS: usize = 500;

/// One run on its way.
pub(crate) struct Drive<'p> {
    planner: &'p Planner,
    state: State,
    events: Events,
    /// What came of the approvals that the run waited for, by their ids.
    cleared: HashMap<String, Cleared>,
    /// What people are asked when the run is suspended.
    asking: Vec<Approval>,
    /// What the model has got right since it was asked last: at which stage, with which tool.
    passed: Vec<(EventType, Option<String>)>,
}

/// Why the loop ends.
pub(crate) enum Halt {
    /// The run is over.
    Over(Outcome),
    /// It waits, and this comes next.
    Suspend(Box<Next>),
}

impl From<Outcome> for Halt {
    fn from(outcome: Outcome) -> Self {
        Self::Over(outcome)
    }
}

impl From<Stopped> for Halt {
    fn from(stopped: Stopped) -> Self {
        Self::Over(Outcome::Stopped(stopped))
    }
}

impl<'p> Drive<'p> {
    pub(crate) fn new(planner: &'p Planner, mut state: State, events: Events) -> Self {
        state.trajectory.end = None;
        let run_id = &state.context.run_id;
        planner.gate.resume_history(run_id, &state.history);
        Self {
            planner,
            state,
            events,
            cleared: HashMap::new(),
            asking: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// Runs until there is nothing to do.
    pub(crate) async fn go(&mut self) -> Halt {
        loop {
            let next = std::mem::replace(&mut self.state.next, Next::Ask { held: None });
            let done = match next {
                Next::Ask { held } => self.ask(held).await,
                Next::Answer(answer) => self.held_answer(answer).await,
                Next::Calls { calls } => self.calls(calls).await,
            };
            match done {
                Ok(next) => self.state.next = next,
                Err(halt) => return halt,
            }
        }
    }

    /// What is left of the run.
    pub(crate) async fn finish(mut self, halt: Halt) -> Finished {
        let outcome = match halt {
            Halt::Over(outcome) => outcome,
            Halt::Suspend(next) => {
                self.state.next = *next;
                self.state.trajectory.end = Some(self.waiting());
                self.state.history = self.planner.gate.history(&self.state.context.run_id);
                match self.ask_people().await {
                    Ok(()) => return self.suspended(),
                    Err(stopped) => Outcome::Stopped(stopped),
                }
            }
        };
        self.state.trajectory.end = Some(match &outcome {
            Outcome::Done { .. } => End::Done,
            Outcome::Stopped(stopped) => End::Stopped {
                error_code: stopped.error_code,
                user_message: stopped.user_message.clone(),
            },
            Outcome::OutOfBudget(budget) => End::OutOfBudget { budget: *budget },
            Outcome::Failed(error) => End::Failed {
                error: error.kind(),
            },
            Outcome::Cancelled | Outcome::Suspended(_) => End::Cancelled,
        });
        Finished {
            outcome,
            trajectory: self.state.trajectory,
        }
    }

    /// That it waits, and for what.
    fn waiting(&self) -> End {
        let held = self.state.holds();
        let approvals = held.into_iter().map(|(held, _)| held.approval.clone());
        End::Suspended {
            approvals: approvals.collect(),
        }
    }

    /// Suspended, as it stands.
    fn suspended(self) -> Finished {
        let trajectory = self.state.trajectory.clone();
        Finished {
            outcome: Outcome::Suspended(Box::new(Suspended::new(self.state))),
            trajectory,
        }
    }

    async fn ask(&mut self, held: Option<Held>) -> Result<Next, Halt> {
        self.forget_retries();
        let budgets = &self.planner.budgets;
        let spent = &self.state.trajectory;
        if spent.steps.len() >= budgets.iterations as usize {
            return Err(Outcome::OutOfBudget(Budget::Iterations).into());
        }
        if spent.usage.total() >= budgets.tokens {
            return Err(Outcome::OutOfBudget(Budget::Tokens).into());
        }
        self.judge_prompt(held).await?;
        self.listen().await
    }

    /// Every text of the user that the model has not seen. A call that brings none is an event all the same.
    async fn judge_prompt(&mut self, held: Option<Held>) -> Result<(), Halt> {
        let mut clearance = match held {
            None => None,
            Some(held) => match self.lift(&held) {
                Lifted::Yes(clearance) => Some(clearance),
                Lifted::No(stopped) => return Err(stopped.into()),
            },
        };
        let gate = &self.planner.gate;
        loop {
            let text = self.state.unjudged();
            let place = text.map(|(place, _)| place);
            let text = text.map(|(_, text)| text.to_owned());
            self.say_what_was_said(place);
            let context = &mut self.state.context;
            let judged = gate.prompt(context, text, clearance.take().into()).await;
            if let (Some(place), Some(seen)) = (place, &judged.seen)
                && let Some(message) = self.state.messages.get_mut(place)
            {
                message.content_mut().clone_from(seen);
            }
            let evaluation = judged.evaluation.as_deref();
            self.record_input(place);
            self.note(EventType::LlmBefore, None, evaluation).await;
            match self.settle(&EventType::LlmBefore, None, judged.ruling, evaluation)? {
                Settled::Go(()) => {}
                Settled::Again(message) => self.state.messages.push(Message::system(message)),
                Settled::Wait(paused) => {
                    let event = prompt_event(&self.state.context.run_id, judged.seen);
                    let held = Some(self.hold(&event, *paused));
                    return Err(suspend(Next::Ask { held }));
                }
            }
            self.state.judged = place.map_or(self.state.messages.len(), |place| place + 1);
            if self.state.unjudged().is_none() {
                self.state.judged = self.state.messages.len();
                self.record_input(None);
                return Ok(());
            }
        }
    }

    /// Tells the gate what the model said last before a text, as `last_assistant` of the context: "yes, go on" means nothing
    /// without it.
    fn say_what_was_said(&mut self, place: Option<usize>) {
        let before = place.unwrap_or(self.state.messages.len());
        let before = self.state.messages.iter().take(before).rev();
        let said = before.into_iter().find_map(|message| match message {
            Message::Assistant { content, .. } if !content.is_empty() => Some(content),
            _ => None,
        });
        let extra = &mut self.state.context.extra;
        match said {
            Some(said) => {
                let beginning: String = said.chars().take(LAST_ASSISTANT_CHARS).collect();
                extra.insert("last_assistant".to_owned(), beginning.into());
            }
            None => drop(extra.remove("last_assistant")),
        }
    }

    /// Records what the run began with: what is judged, up to here.
    fn record_input(&mut self, place: Option<usize>) {
        let State {
            trajectory,
            messages,
            ..
        } = &mut self.state;
        if trajectory.steps.is_empty() {
            let judged = place.map_or(messages.len(), |place| place + 1);
            trajectory.input = messages.iter().take(judged).cloned().collect();
        }
    }

    /// Records what the gate says, unless it is yes.
    async fn note(
        &mut self,
        stage: EventType,
        tool: Option<&str>,
        evaluation: Option<&Evaluation>,
    ) {
        let said = evaluation
            .filter(|evaluation| evaluation.decision.action != portcullis_core::Action::Allow);
        let Some(evaluation) = said else {
            return;
        };
        let next = u32::from(stage == EventType::LlmBefore);
        let step = self.state.trajectory.steps.len() as u32 + next;
        let guarded = Guarded::new(step, stage, tool, evaluation);
        self.events
            .send(|| RunEvent::Guarded(guarded.clone()))
            .await;
        self.state.trajectory.guard.push(guarded);
    }

    /// What a ruling means for the run: it ends here on STOP, and on a RETRY too many.
    fn settle<P>(
        &mut self,
        stage: &EventType,
        tool: Option<&str>,
        ruling: Ruling<P>,
        evaluation: Option<&Evaluation>,
    ) -> Result<Settled<P>, Halt> {
        match ruling {
            Ruling::Go(permit) => {
                self.passed.push((stage.clone(), tool.map(str::to_owned)));
                Ok(Settled::Go(permit))
            }
            Ruling::Pause(paused) => Ok(Settled::Wait(paused)),
            Ruling::Stop(spec) => Err(stopped(spec, evaluation).into()),
            Ruling::Retry(spec) => {
                let rule = evaluation.map(|evaluation| evaluation.decision.rule_id.clone());
                let message = self.retry(stage, tool, rule.unwrap_or(RuleId::DEFAULT), spec)?;
                Ok(Settled::Again(message))
            }
        }
    }

    /// What the model got right, and nowhere wrong in the same step, it may get wrong anew.
    fn forget_retries(&mut self) {
        let step = self.state.trajectory.steps.len();
        for (stage, tool) in self.passed.drain(..) {
            self.state
                .retries
                .retain(|known| known.step == step || known.stage != stage || known.tool != tool);
        }
    }

    /// The message to try again with, if the rule may ask once more.
    fn retry(
        &mut self,
        stage: &EventType,
        tool: Option<&str>,
        rule: RuleId,
        spec: RetrySpec,
    ) -> Result<String, Halt> {
        let step = self.state.trajectory.steps.len();
        let retries = &mut self.state.retries;
        let place = retries.iter().position(|known| {
            known.stage == *stage && known.tool.as_deref() == tool && known.rule == rule
        });
        let tries = match place.and_then(|place| retries.get_mut(place)) {
            Some(known) if known.step == step => known.tries,
            Some(known) => {
                known.step = step;
                known.tries += 1;
                known.tries
            }
            None => {
                retries.push(Retries {
                    stage: stage.clone(),
                    tool: tool.map(str::to_owned),
                    rule: rule.clone(),
                    tries: 1,
                    step,
                });
                1
            }
        };
        if tries > spec.max_attempts {
            let reason = format!(
                "rule '{rule}' asked for another try {} times, which is as often as it may",
                spec.max_attempts
            );
            let mut stopped = Stopped::by_planner(ErrorCode::RetriesExhausted, reason);
            stopped.rule_id = Some(rule);
            return Err(stopped.into());
        }
        if spec.corrective_message.is_empty() {
            return Ok("That is not allowed as it is. Try again, differently.".to_owned());
        }
        Ok(spec.corrective_message)
    }
}

/// What the run does after a ruling.
enum Settled<P> {
    /// Goes on.
    Go(P),
    /// Asks the model again, with this.
    Again(String),
    /// Waits for a person.
    Wait(Box<Paused>),
}

fn suspend(next: Next) -> Halt {
    Halt::Suspend(Box::new(next))
}

fn stopped(spec: StopSpec, evaluation: Option<&Evaluation>) -> Stopped {
    let decision = evaluation.map(|evaluation| &evaluation.decision);
    let reason = decision.map(|decision| decision.reason.to_string());
    Stopped {
        error_code: spec.error_code,
        user_message: spec.user_message.into_owned(),
        rule_id: decision.map(|decision| decision.rule_id.clone()),
        reason: match spec.internal_reason {
            internal if internal.is_empty() => reason.unwrap_or_default(),
            internal => internal,
        },
    }
}

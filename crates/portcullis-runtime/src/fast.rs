//! How fast rules fare, and what becomes of it: a rule that fails or overruns its time stops the run, unless the policy
//! fails open.

use std::time::{Duration, Instant};

use portcullis_core::rules::{RuleError, Subject};
use portcullis_core::{
    Action, CompiledRule, Decision, ErrorCode, Event, GatewaySettings, RuleOutcome, Severity,
    StopSpec,
};

use crate::fence;
use crate::gateway::Gathered;

/// How a fast rule fared.
pub(crate) enum FastOutcome {
    Said(Option<Decision>),
    /// What it said of what it saw, and why that was not all.
    InPart(Option<Decision>, RuleError),
    Failed(RuleError),
    TimedOut,
}

impl FastOutcome {
    pub(crate) fn stops(&self) -> bool {
        matches!(self, Self::Said(Some(decision)) if decision.action == Action::Stop)
    }

    pub(crate) fn of(answer: Result<Option<Decision>, RuleError>) -> Self {
        match answer {
            Ok(decision) => Self::Said(decision),
            Err(error) => Self::Failed(error),
        }
    }

    /// The outcome of a rule that has not seen all. A STOP is certain whatever the rest is.
    pub(crate) fn having_missed(self, missed: RuleError) -> Self {
        match self {
            Self::Said(said) if said.as_ref().is_none_or(|one| one.action != Action::Stop) => {
                Self::InPart(said, missed)
            }
            outcome => outcome,
        }
    }
}

/// An inline rule that overran may only have lost the processor meanwhile. It is a pure function, so
/// it is asked once more; one that is really too slow is too slow again.
#[cold]
pub(crate) fn second_try(
    rule: &CompiledRule,
    subject: &Subject<'_>,
    timeout: Duration,
) -> FastOutcome {
    let again = Instant::now();
    let answer = fence::catching(|| rule.evaluate(subject));
    if again.elapsed() > timeout {
        FastOutcome::TimedOut
    } else {
        FastOutcome::of(answer)
    }
}

pub(crate) async fn wait_for(
    answer: tokio::sync::oneshot::Receiver<fence::Answer>,
    timeout: Duration,
) -> FastOutcome {
    match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(answer)) => FastOutcome::of(answer),
        Ok(Err(_)) => FastOutcome::Failed(RuleError(
            "no thread is free to run it: earlier calls have not returned".to_owned(),
        )),
        Err(_) => FastOutcome::TimedOut,
    }
}

impl Gathered {
    fn judged(&mut self, rule: &CompiledRule, event: &Event) {
        let coverage = &mut self.answer.coverage;
        coverage.judged = coverage.judged.and(rule.reads(event));
    }

    /// A rule has found nothing.
    #[inline]
    pub(crate) fn clear(&mut self, rule: &CompiledRule, event: &Event, took: Duration) {
        self.judged(rule, event);
        self.cover(rule.id(), RuleOutcome::Clear, took);
    }

    pub(crate) fn take(
        &mut self,
        place: usize,
        rule: &CompiledRule,
        event: &Event,
        outcome: FastOutcome,
        took: Duration,
        settings: &GatewaySettings,
    ) {
        let id = rule.id();
        let (outcome, failure) = match outcome {
            FastOutcome::Said(None) => return self.clear(rule, event, took),
            FastOutcome::Said(Some(decision)) => {
                self.judged(rule, event);
                self.decide(
                    place,
                    Decision {
                        rule_id: id.clone(),
                        ..decision
                    },
                );
                (RuleOutcome::Decided, None)
            }
            FastOutcome::InPart(decision, error) => {
                // It stays even where the rule's failing is let pass: a redaction is one as far as it goes.
                if let Some(decision) = decision {
                    let rule_id = id.clone();
                    self.decide(
                        place,
                        Decision {
                            rule_id,
                            ..decision
                        },
                    );
                }
                (
                    RuleOutcome::Failed,
                    Some((ErrorCode::SyncError, format!("Rule failed: {error}"))),
                )
            }
            FastOutcome::Failed(error) => (
                RuleOutcome::Failed,
                Some((ErrorCode::SyncError, format!("Rule failed: {error}"))),
            ),
            FastOutcome::TimedOut => (
                RuleOutcome::TimedOut,
                Some((ErrorCode::SyncTimeout, "Rule overran its time".to_owned())),
            ),
        };
        self.cover(id, outcome, took);
        if let Some((code, reason)) = failure
            && !settings.sync_fail_open
        {
            let decision = Decision::stop(id.clone(), reason, StopSpec::code(code));
            self.decide(place, decision.with_severity(Severity::Critical));
        }
    }
}

//! A streamed answer behind the gateway.

use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, Stream, StreamExt};
use portcullis_core::{
    Action, Context, Decision, Evaluation, Event, EventType, Policy, RedactionSpec, Released,
    RuleId, RuleOutcome, StreamGuard, redact_text,
};

use crate::gateway::{Gateway, Gathered};
use crate::vault::MAX_TOKEN_BYTES;

/// Judges one streamed answer of a run, chunk by chunk.
///
/// Rules that search for patterns judge the answer as a whole, whatever its chunks
/// ([`StreamGuard`]). Other rules on `llm_stream_chunk`, and deep rules, judge each piece as it is let
/// go. The policy is the one in force when the answer began.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_core::{Context, pack};
/// use portcullis_runtime::{AnswerStream, Gateway};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gateway = Arc::new(Gateway::builder(pack::load_default()?.policy).build());
/// let mut answer = AnswerStream::new(gateway, Context::new("run-1"));
/// let mut shown = String::new();
/// for chunk in ["Use sk-ant-api", "03-abcdefghijklmnop", " for this."] {
///     shown.push_str(&answer.push(chunk).await.text);
/// }
/// shown.push_str(&answer.finish().await.text);
/// assert_eq!(shown, "Use [ANTHROPIC_KEY] for this.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AnswerStream {
    gateway: Arc<Gateway>,
    policy: Arc<Policy>,
    guard: StreamGuard,
    context: Context,
    /// Whether anything but patterns judges chunks.
    judged_otherwise: bool,
    /// With restoring on: the beginning of what may be a token.
    restoring: Option<String>,
    halted: bool,
}

/// What may be shown, and what was decided on the way.
#[derive(Debug, Default)]
#[must_use = "an answer may have ended"]
pub struct Shown {
    /// The text, redacted.
    pub text: String,
    /// What was decided, in the order of the text.
    pub evaluations: Vec<Evaluation>,
    /// Whether the answer ends here, because the last evaluation forbids the rest.
    pub halted: bool,
}

impl Shown {
    /// What ended the answer, if anything did: the gravest of what was decided.
    pub fn halt(&self) -> Option<&Evaluation> {
        let enforced = self.evaluations.iter().filter(|said| said.enforced);
        let gravest = enforced.max_by_key(|said| said.decision.action);
        gravest.filter(|_| self.halted)
    }
}

/// What the guard has let go.
struct Piece {
    text: String,
    decisions: Vec<Decision>,
    /// Rules that had something to say, but another's decision prevailed.
    outvoted: Vec<RuleId>,
    halted: bool,
}

impl From<Released<'_>> for Piece {
    fn from(released: Released<'_>) -> Self {
        let decisions = released.decisions;
        let mut outvoted = released.rules;
        outvoted.retain(|rule| decisions.iter().all(|decision| decision.rule_id != *rule));
        Self {
            text: released.text.to_owned(),
            decisions,
            outvoted,
            halted: released.halted,
        }
    }
}

impl AnswerStream {
    /// For one answer of this run.
    pub fn new(gateway: Arc<Gateway>, context: Context) -> Self {
        let policy = gateway.policy();
        let (keeper, run_id) = (Arc::clone(&gateway), context.run_id.clone());
        let guard = StreamGuard::new(Arc::clone(&policy), context.clone())
            .decision_policy(Arc::clone(gateway.decision_policy()))
            .tokens(Box::new(move |entity, value| {
                keeper.vault().token(&run_id, entity, value)
            }));
        let streamed = EventType::LlmStreamChunk;
        let judged_otherwise = gateway.inbox.is_some() && policy.gateway().async_enabled
            || policy.deep_rules().iter().any(|rule| rule.enabled)
            || policy
                .rules()
                .iter()
                .any(|rule| !rule.scans() && rule.events().contains(&streamed));
        Self {
            gateway,
            policy,
            guard,
            context,
            judged_otherwise,
            restoring: None,
            halted: false,
        }
    }

    /// Puts vaulted values back into what is shown. For an answer that goes to the user whose values
    /// they are, and no further.
    pub fn restoring(mut self) -> Self {
        self.restoring = Some(String::new());
        self
    }

    /// Takes in a chunk and gives out what may be shown. After a halt that is nothing.
    pub async fn push(&mut self, chunk: &str) -> Shown {
        if self.halted {
            return self.nothing();
        }
        let started = Instant::now();
        let piece = Piece::from(self.guard.push(chunk));
        self.show(piece, started, false).await
    }

    /// Ends the answer and gives out what was held back.
    pub async fn finish(&mut self) -> Shown {
        if self.halted {
            return self.nothing();
        }
        let started = Instant::now();
        let piece = Piece::from(self.guard.finish());
        self.show(piece, started, true).await
    }

    fn nothing(&self) -> Shown {
        Shown {
            halted: self.halted,
            ..Shown::default()
        }
    }

    async fn show(&mut self, piece: Piece, started: Instant, at_end: bool) -> Shown {
        let Piece {
            text,
            decisions,
            mut outvoted,
            halted,
        } = piece;
        let mut shown = Shown {
            text,
            ..Shown::default()
        };
        let otherwise = if shown.text.is_empty() {
            None
        } else {
            self.judge_otherwise(&mut shown.text).await
        };
        for decision in decisions {
            // Alerts and records name the stage, not the text: it may hold what was just redacted.
            let event = Event::new(EventType::LlmStreamChunk, self.context.run_id.clone());
            let mut gathered = Gathered::new(&self.policy);
            gathered.cover(&decision.rule_id, RuleOutcome::Decided, started.elapsed());
            for rule in outvoted.drain(..) {
                gathered.cover(&rule, RuleOutcome::Decided, started.elapsed());
            }
            gathered.answer.decision = decision;
            let (policy, context) = (&self.policy, &mut self.context);
            self.gateway
                .conclude(policy, context, &event, &mut gathered, started);
            shown.evaluations.push(gathered.answer);
        }
        if let Some(evaluation) = otherwise {
            // What ended the answer comes last.
            let place = if self.halted {
                shown.evaluations.len()
            } else {
                0
            };
            shown.evaluations.insert(place, evaluation);
        }
        self.halted |= halted;
        shown.halted = self.halted;
        if let Some(held) = &mut self.restoring {
            let text = restorable(held, &shown.text, at_end || shown.halted);
            shown.text = self
                .gateway
                .restore(&self.context.run_id, &text)
                .into_owned();
        }
        shown
    }

    /// Everything but patterns. Says what was decided, unless that is nothing.
    async fn judge_otherwise(&mut self, text: &mut String) -> Option<Evaluation> {
        if !self.judged_otherwise && !self.gateway.is_quarantined(&self.context.run_id) {
            return None;
        }
        let event = Event::llm_stream_chunk(self.context.run_id.clone(), std::mem::take(text));
        let evaluation = self
            .gateway
            .evaluate_chunk(&self.policy, &mut self.context, &event)
            .await;
        let decision = &evaluation.decision;
        let piece = event.text_content.unwrap_or_default();
        if !evaluation.enforced || decision.action == Action::Allow {
            *text = piece;
        } else if decision.action == Action::Redact {
            *text = redact_text(&piece, RedactionSpec::TEXT, &decision.redactions).into_owned();
        } else {
            self.halted = true;
        }
        (decision.action != Action::Allow).then_some(evaluation)
    }
}

/// What of the text cannot be part of a token that is still to come in full.
fn restorable(held: &mut String, text: &str, at_end: bool) -> String {
    let mut text = std::mem::take(held) + text;
    if let Some(open) = text.rfind('[')
        && !at_end
        && !text[open..].contains(']')
        && text.len() - open < MAX_TOKEN_BYTES
    {
        *held = text.split_off(open);
    }
    text
}

/// A stream of chunks, guarded: what may be shown, piece by piece, and at last the decision that ended
/// it, if one did.
pub fn guard_stream<S>(
    gateway: Arc<Gateway>,
    context: Context,
    chunks: S,
) -> impl Stream<Item = Result<String, Box<Evaluation>>>
where
    S: Stream<Item = String> + Unpin,
{
    let answer = AnswerStream::new(gateway, context);
    let steps = stream::unfold(Some((answer, chunks)), |state| async {
        let (mut answer, mut chunks) = state?;
        let chunk = chunks.next().await;
        let shown = match &chunk {
            Some(chunk) => answer.push(chunk).await,
            None => answer.finish().await,
        };
        let over = shown.halted || chunk.is_none();
        Some((shown, (!over).then_some((answer, chunks))))
    });
    steps.flat_map(|mut shown| {
        let text = (!shown.text.is_empty()).then_some(Ok(shown.text));
        let halt = shown.evaluations.pop().filter(|_| shown.halted);
        stream::iter(text.into_iter().chain(halt.map(|end| Err(Box::new(end)))))
    })
}

//! The model's answer, judged while it streams.
//!
//! A secret that is cut in two by a chunk boundary is still a secret. [`StreamGuard`] holds back what
//! may still become part of a match and passes on the rest, so that for every way of cutting a text
//! into chunks the output is the same as for the whole text at once, and no byte of a match leaves
//! before the match is decided.
//!
//! Only patterns are judged here: rules that look at anything else judge a chunk as it comes, which is
//! the runtime's part.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::decision::{Action, Decision, RedactionSpec, Severity, StopSpec};
use crate::error_code::ErrorCode;
use crate::event::{Context, Event, EventType};
use crate::ids::RuleId;
use crate::policy::{Mode, Policy};
use crate::redact::redact_text;
use crate::resolve::{DecisionPolicy, DefaultDecisionPolicy};
use crate::rules::{EventScan, RuleInput};
use crate::scan::Memory;
use crate::snapshot::{ContextSnapshot, Signals};

/// Most that is ever held back. A pattern without an upper bound could hold the stream for ever; the
/// stream is stopped instead.
pub const MAX_HOLD_BYTES: usize = 64 << 10;

/// Long chunks are taken in steps of so many bytes, counted from the start of the stream. That too
/// much is held is noticed at the end of a step only, so it does not depend on the chunks.
const STEP: u64 = 4 << 10;

/// While much is held, it is looked at again only after it has grown by this part of it. Looking at it
/// for every chunk would take time that grows with its square.
const GROWTH: usize = 16;

/// Judges one streamed answer by a policy.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_core::{Context, StreamGuard, pack};
///
/// let policy = Arc::new(pack::load_default()?.policy);
/// let mut guard = StreamGuard::new(policy, Context::new("run-1"));
/// let mut out = String::new();
/// for chunk in ["The key is AKIA", "IOSFODNN7EXAM", "PLE. Keep it safe."] {
///     out.push_str(guard.push(chunk).text);
/// }
/// out.push_str(guard.finish().text);
/// assert_eq!(out, "The key is [AWS_KEY]. Keep it safe.");
/// # Ok::<(), portcullis_core::pack::diagnostic::Report>(())
/// ```
pub struct StreamGuard {
    policy: Arc<Policy>,
    decision_policy: Arc<dyn DecisionPolicy>,
    context: Context,
    memory: Memory,
    /// Its text is the last of what has been passed on, for word boundaries, and then what is held.
    event: Event,
    /// Where that begins in the text.
    held_from: usize,
    /// Code points before it, from the start of the stream.
    code_points: usize,
    /// Bytes taken in so far.
    taken: u64,
    next_step: u64,
    /// Bytes of these that have not been looked at.
    unsettled: usize,
    out: String,
    halted: bool,
}

/// What may be passed on, and what was decided on the way.
#[derive(Debug, PartialEq)]
pub struct Released<'g> {
    /// The text, redacted.
    pub text: &'g str,
    /// What rules said of it, in the order of the text. Offsets count from the start of the stream.
    pub decisions: Vec<Decision>,
    /// Whether the stream ends here: a decision forbids the rest, or has forbidden it before.
    pub halted: bool,
}

impl StreamGuard {
    /// A guard for one answer of this run.
    pub fn new(policy: Arc<Policy>, context: Context) -> Self {
        let memory = policy.prefixes().memory();
        let event = Event::llm_stream_chunk(context.run_id.clone(), String::new());
        Self {
            policy,
            decision_policy: Arc::new(DefaultDecisionPolicy::default()),
            context,
            memory,
            event,
            held_from: 0,
            code_points: 0,
            taken: 0,
            next_step: STEP,
            unsettled: 0,
            out: String::new(),
            halted: false,
        }
    }

    /// Replaces how decisions on one piece are resolved. Default: [`DefaultDecisionPolicy`].
    pub fn decision_policy(mut self, policy: Arc<dyn DecisionPolicy>) -> Self {
        self.decision_policy = policy;
        self
    }

    /// Takes in a chunk and gives out what is decided. After a halt nothing comes out any more.
    pub fn push(&mut self, chunk: &str) -> Released<'_> {
        self.out.clear();
        let mut decisions = Vec::new();
        let mut rest = chunk;
        while !rest.is_empty() && !self.halted {
            let room = usize::try_from(self.next_step - self.taken).unwrap_or(usize::MAX);
            let (step, later) = rest.split_at(rest.ceil_char_boundary(room));
            self.text_mut().push_str(step);
            self.taken += step.len() as u64;
            rest = later;
            self.unsettled += step.len();
            let end_of_step = self.taken >= self.next_step;
            if end_of_step || self.unsettled >= self.held() / GROWTH {
                self.settle(false, &mut decisions);
                self.unsettled = 0;
            }
            if end_of_step {
                self.next_step += STEP;
                if !self.halted && self.held() > MAX_HOLD_BYTES {
                    decisions.push(held_too_much());
                    self.halt();
                }
            }
        }
        Released {
            text: &self.out,
            decisions,
            halted: self.halted,
        }
    }

    /// Ends the stream and gives out what was held back. The guard is then ready for another answer.
    pub fn finish(&mut self) -> Released<'_> {
        self.out.clear();
        let mut decisions = Vec::new();
        if !self.halted {
            self.settle(true, &mut decisions);
        }
        let halted = std::mem::take(&mut self.halted);
        self.text_mut().clear();
        (self.held_from, self.code_points) = (0, 0);
        (self.taken, self.next_step, self.unsettled) = (0, STEP, 0);
        Released {
            text: &self.out,
            decisions,
            halted,
        }
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.event.text().len() - self.held_from
    }

    fn text_mut(&mut self) -> &mut String {
        self.event.text_content.get_or_insert_default()
    }

    /// Passes on everything that is decided.
    fn settle(&mut self, at_end: bool, decisions: &mut Vec<Decision>) {
        let text = self.event.text();
        let mut safe = if at_end {
            text.len()
        } else {
            let prefixes = self.policy.prefixes();
            prefixes.earliest(text, self.held_from, &mut self.memory)
        };
        let scanner = self.policy.scanner();
        let mut scan = EventScan {
            text: scanner.scan(&text[self.held_from..], &EventType::LlmStreamChunk),
            window: self.held_from..text.len(),
            leaves: Vec::new(),
        };
        for cluster in self.clusters(&scan) {
            if safe < cluster.end {
                safe = safe.min(cluster.start);
                break;
            }
            scan.window = self.held_from..cluster.end;
            let Some(decision) = self.judge(&scan) else {
                self.pass(cluster.end);
                continue;
            };
            let enforced = self.policy.gateway().mode == Mode::Enforce;
            let may_pass = decision.action <= Action::Redact;
            let decision = self.counted_from_the_start(decision);
            if !enforced {
                self.pass(cluster.end);
            } else if may_pass {
                self.pass_redacted(cluster.end, &decision.redactions);
            } else {
                self.pass(cluster.start);
                decisions.push(decision);
                self.halt();
                return;
            }
            decisions.push(decision);
        }
        self.pass(safe);
        self.forget();
    }

    /// Where patterns match, overlapping matches joined. A cut between two of them changes neither.
    fn clusters(&self, scan: &EventScan<'_>) -> Vec<Range<usize>> {
        let mut matches = Vec::new();
        if scan.text.is_empty() {
            return matches;
        }
        for id in self.policy.stream_patterns() {
            if scan.text.contains(*id) {
                let window = scan.window.clone();
                let scanner = self.policy.scanner();
                scanner.each_match(*id, self.event.text(), window, |found| {
                    matches.push(found.whole);
                });
            }
        }
        matches.sort_by_key(|found| found.start);
        let mut clusters: Vec<Range<usize>> = Vec::with_capacity(matches.len());
        for found in matches {
            match clusters.last_mut() {
                Some(last) if found.start < last.end => last.end = last.end.max(found.end),
                _ => clusters.push(found),
            }
        }
        clusters
    }

    /// What the rules say of this part of the text; `None` if nothing.
    fn judge(&self, scan: &EventScan<'_>) -> Option<Decision> {
        let (event, context) = (&self.event, &self.context);
        let risks = self.policy.tool_risks();
        let snapshot = ContextSnapshot::build(event, context, risks, Signals::default());
        let input = RuleInput {
            event,
            context,
            snapshot: &snapshot,
        };
        let subject = self.policy.subject(input, scan);
        let mut decisions = Vec::new();
        for rule in self.policy.stream_rules() {
            match rule.evaluate(&subject) {
                Ok(decision) => decisions.extend(decision),
                Err(_) if self.policy.gateway().sync_fail_open => {}
                Err(error) => decisions.push(Decision::stop(
                    rule.id().clone(),
                    format!("Rule failed: {error}"),
                    StopSpec::code(ErrorCode::SyncError),
                )),
            }
        }
        if decisions.is_empty() {
            return None;
        }
        Some(self.decision_policy.resolve(decisions, &input))
    }

    /// The decision with offsets that count from the start of the stream, not of what is in memory.
    fn counted_from_the_start(&self, mut decision: Decision) -> Decision {
        let in_memory = self.event.text()[..self.held_from].chars().count();
        for spec in &mut decision.redactions {
            for offset in [&mut spec.start_offset, &mut spec.end_offset] {
                *offset = offset.map(|at| at - in_memory + self.code_points);
            }
        }
        decision
    }

    /// Passes on what is held, up to here.
    fn pass(&mut self, to: usize) {
        let text = &self.event.text()[self.held_from..to];
        self.code_points += text.chars().count();
        self.out.push_str(text);
        self.held_from = to;
    }

    fn pass_redacted(&mut self, to: usize, redactions: &[RedactionSpec]) {
        let text = &self.event.text()[self.held_from..to];
        let here: Vec<RedactionSpec> = redactions
            .iter()
            .cloned()
            .map(|mut spec| {
                for offset in [&mut spec.start_offset, &mut spec.end_offset] {
                    *offset = offset.map(|at| at - self.code_points);
                }
                spec
            })
            .collect();
        self.out
            .push_str(&redact_text(text, RedactionSpec::TEXT, &here));
        self.code_points += text.chars().count();
        self.held_from = to;
    }

    /// Drops what has been passed on, but for what a word boundary depends on.
    fn forget(&mut self) {
        let before = &self.event.text()[..self.held_from];
        let lead = before.chars().next_back().map_or(0, char::len_utf8);
        let passed = self.held_from - lead;
        self.text_mut().drain(..passed);
        self.held_from = lead;
    }

    fn halt(&mut self) {
        self.halted = true;
        self.text_mut().clear();
        self.held_from = 0;
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.policy.prefixes().give_back(&mut self.memory);
    }
}

impl std::fmt::Debug for StreamGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamGuard")
            .field("held", &self.held())
            .field("halted", &self.halted)
            .finish_non_exhaustive()
    }
}

fn held_too_much() -> Decision {
    let reason = format!(
        "more than {MAX_HOLD_BYTES} bytes of the answer may be one match, and no end is in sight"
    );
    Decision::stop(
        RuleId::LIMITS,
        Cow::Owned(reason),
        StopSpec::code(ErrorCode::StreamUndecided),
    )
    .with_severity(Severity::High)
    .with_remediation("give the pattern an upper bound, such as `{20,200}` for `{20,}`")
}

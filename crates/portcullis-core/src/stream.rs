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
use crate::rules::{Answer, EventScan, Leaf, RuleInput, Searched};
use crate::snapshot::{ContextSnapshot, Signals};
use crate::views::{self, View};

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
    tokens: Option<Tokens>,
    context: Context,
    /// Its text is the last of what has been passed on, for word boundaries, and then what is held.
    event: Event,
    /// Where that begins in the text.
    held_from: usize,
    /// The last character that was passed on and that anybody sees.
    last_visible: Option<char>,
    /// Code points before it, from the start of the stream.
    code_points: usize,
    /// Bytes taken in so far.
    taken: u64,
    next_step: u64,
    /// Bytes of these that have not been looked at.
    unsettled: usize,
    out: String,
    /// Those that had something to say since the last release.
    rules: Vec<RuleId>,
    halted: bool,
}

/// Gives the token that stands for a value: called with what kind of value it is, and the value. With
/// `None`, the value is redacted for good.
pub type Tokens = Box<dyn FnMut(&str, &str) -> Option<String> + Send>;

/// What may be passed on, and what was decided on the way.
#[derive(Debug, PartialEq)]
pub struct Released<'g> {
    /// The text, redacted.
    pub text: &'g str,
    /// What rules said of it, in the order of the text. Offsets count from the start of the stream.
    pub decisions: Vec<Decision>,
    /// Every rule that had something to say, whether or not its decision prevailed.
    pub rules: Vec<RuleId>,
    /// Whether the stream ends here: a decision forbids the rest, or has forbidden it before.
    pub halted: bool,
}

impl StreamGuard {
    /// A guard for one answer of this run.
    pub fn new(policy: Arc<Policy>, context: Context) -> Self {
        let event = Event::llm_stream_chunk(context.run_id.clone(), String::new());
        Self {
            policy,
            decision_policy: Arc::new(DefaultDecisionPolicy::default()),
            tokens: None,
            context,
            event,
            held_from: 0,
            last_visible: None,
            code_points: 0,
            taken: 0,
            next_step: STEP,
            unsettled: 0,
            out: String::new(),
            rules: Vec::new(),
            halted: false,
        }
    }

    /// Replaces how decisions on one piece are resolved. Default: [`DefaultDecisionPolicy`].
    pub fn decision_policy(mut self, policy: Arc<dyn DecisionPolicy>) -> Self {
        self.decision_policy = policy;
        self
    }

    /// Who remembers values that can be restored. Default: nobody, so they are redacted for good.
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
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
            rules: std::mem::take(&mut self.rules),
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
        self.last_visible = None;
        (self.taken, self.next_step, self.unsettled) = (0, STEP, 0);
        Released {
            text: &self.out,
            decisions,
            rules: std::mem::take(&mut self.rules),
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
        let folded = self.folded();
        let mut safe = text.len();
        if !at_end {
            let prefixes = self.policy.prefixes();
            safe = prefixes.earliest(text, self.held_from);
            if let Some((view, from)) = &folded {
                let earliest = prefixes.earliest(view.text(), *from);
                if earliest < view.text().len() {
                    safe = safe.min(view.original(earliest..earliest + 1).start);
                }
            }
        }
        // The leaf borrows the text, which is changed once everything is judged.
        let owned;
        let scanner = self.policy.scanner();
        let mut scan = EventScan {
            text: scanner.scan(text, &EventType::LlmStreamChunk),
            window: self.held_from..text.len(),
            leaves: Vec::new(),
            complete: true,
            names_hosts: Answer::default(),
        };
        if let Some((view, from)) = folded {
            owned = text.to_owned();
            scan.leaves.push(Leaf {
                path: RedactionSpec::TEXT.into(),
                text: Cow::Borrowed(&owned),
                candidates: scanner.scan(view.text(), &EventType::LlmStreamChunk),
                searched: Searched::View(view),
                from,
            });
        }
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
            let mut decision = self.counted_from_the_start(decision);
            if !enforced {
                self.pass(cluster.end);
            } else if may_pass {
                self.pass_redacted(cluster.end, &mut decision.redactions);
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
        if scan.text.is_empty() && scan.leaves.is_empty() {
            return matches;
        }
        let scanner = self.policy.scanner();
        for id in self.policy.stream_patterns() {
            if scan.text.contains(*id) {
                let window = scan.window.clone();
                scanner.each_match(*id, self.event.text(), &scan.text, window, |found| {
                    matches.push(found.whole);
                });
            }
            for leaf in &scan.leaves {
                if let (Searched::View(view), true) =
                    (&leaf.searched, leaf.candidates.contains(*id))
                {
                    let window = leaf.from..view.text().len();
                    scanner.each_match(*id, view.text(), &leaf.candidates, window, |found| {
                        matches.push(view.original(found.whole));
                    });
                }
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
    fn judge(&mut self, scan: &EventScan<'_>) -> Option<Decision> {
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
        for decision in &decisions {
            if !self.rules.contains(&decision.rule_id) {
                self.rules.push(decision.rule_id.clone());
            }
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

    fn pass_redacted(&mut self, to: usize, redactions: &mut [RedactionSpec]) {
        let text = &self.event.text()[self.held_from..to];
        let mut here = Vec::with_capacity(redactions.len());
        for spec in redactions {
            let mut spec_here = spec.clone();
            for offset in [&mut spec_here.start_offset, &mut spec_here.end_offset] {
                *offset = offset.map(|at| at - self.code_points);
            }
            if let (true, Some(tokens)) = (spec.restorable, &mut self.tokens) {
                let value = span_of(text, &spec_here);
                let token = tokens(spec.entity_type.as_deref().unwrap_or("VALUE"), value);
                if let Some(token) = token {
                    spec.replacement = token.clone().into();
                    spec_here.replacement = token.into();
                }
            }
            here.push(spec_here);
        }
        self.out
            .push_str(&redact_text(text, RedactionSpec::TEXT, &here));
        self.code_points += text.chars().count();
        self.held_from = to;
    }

    /// What is held as it reads folded, if that is different, and where it begins there.
    fn folded(&self) -> Option<(View, usize)> {
        let text = self.event.text();
        if !self.policy.folds_stream() || text.is_ascii() && !text.contains(is_odd_control) {
            return None;
        }
        let view = views::fold(text)?;
        let lead = &text[..self.held_from];
        let from = views::fold(lead).map_or(lead.len(), |view| view.text().len());
        Some((view, from))
    }

    /// Drops what has been passed on, but for what a word boundary depends on: the last character, and
    /// if nobody sees that one, the last that somebody does.
    fn forget(&mut self) {
        let passed = &self.event.text()[..self.held_from];
        let mut lead = String::new();
        if let Some(last) = passed.chars().next_back() {
            if self.policy.folds_stream() {
                let visible = passed.chars().rev().find(|c| !is_invisible(*c));
                self.last_visible = visible.or(self.last_visible);
                lead.extend(self.last_visible.filter(|_| is_invisible(last)));
            }
            lead.push(last);
        }
        let (passed, lead_len) = (self.held_from, lead.len());
        self.text_mut().replace_range(..passed, &lead);
        self.held_from = lead_len;
    }

    fn halt(&mut self) {
        self.halted = true;
        self.text_mut().clear();
        self.held_from = 0;
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

/// Whether a character folds to nothing.
fn is_invisible(c: char) -> bool {
    let mut bytes = [0; 4];
    let folds = !c.is_ascii() || is_odd_control(c);
    folds && views::fold(c.encode_utf8(&mut bytes)).is_some_and(|view| view.text().is_empty())
}

/// An ASCII control character that is not white space.
fn is_odd_control(c: char) -> bool {
    c.is_ascii_control() && !c.is_ascii_whitespace()
}

/// The part of the text that a redaction replaces.
fn span_of<'t>(text: &'t str, spec: &RedactionSpec) -> &'t str {
    let byte_of = |code_point: Option<usize>, default: usize| {
        let place = code_point.and_then(|at| text.char_indices().nth(at));
        place.map_or(default, |(byte, _)| byte)
    };
    &text[byte_of(spec.start_offset, 0)..byte_of(spec.end_offset, text.len())]
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

//! A fast rule, compiled, with what a policy says of it.

use std::sync::Arc;

use super::{Body, Rule, RuleError, Subject};
use crate::decision::Decision;
use crate::evaluation::Parts;
use crate::event::Event;
use crate::ids::RuleId;
use crate::scan::EventSet;

/// A fast rule of a policy.
pub struct CompiledRule {
    pub(crate) id: RuleId,
    pub(crate) kind: &'static str,
    pub(crate) version: String,
    pub(crate) events: EventSet,
    pub(crate) reads: Parts,
    /// Whether it uses the scan.
    pub(crate) scans: bool,
    /// Whether it looks through disguises.
    pub(crate) evasive: bool,
    pub(crate) body: Body,
}

impl CompiledRule {
    /// Its name in the policy.
    pub fn id(&self) -> &RuleId {
        &self.id
    }

    /// The built-in it is an instance of, or `custom`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it judges.
    pub fn events(&self) -> &EventSet {
        &self.events
    }

    /// The parts of this event that it looks at. The scan takes in one structured part only.
    pub fn reads(&self, event: &Event) -> Parts {
        let structured = if event.event_type.has_result() {
            Parts::RESULT
        } else {
            Parts::TOOL_ARGS
        };
        if self.scans {
            self.reads.among(Parts::TEXT.and(structured))
        } else {
            self.reads
        }
    }

    /// Whether it searches texts for patterns. [`StreamGuard`](crate::StreamGuard) judges a streamed
    /// answer by these, whatever its chunks.
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// What it has not seen of the event, whatever it says of the rest: a text may be disguised in so many ways at once that
    /// there is no room for all its readings. Nobody knows what is in those, so that it counts as a rule that could not judge.
    pub fn missed(&self, subject: &Subject<'_>) -> Option<RuleError> {
        let missed = self.evasive && !subject.scan.complete;
        missed.then(|| {
            RuleError(
                "only a part of the text was judged: it is disguised in more ways at once than are looked through"
                    .to_owned(),
            )
        })
    }

    /// Whether it is certain to say nothing, because the event has nothing in it that it judges.
    pub fn is_idle(&self, subject: &Subject<'_>) -> bool {
        if self.evasive && !subject.scan.complete {
            return false;
        }
        match &self.body {
            Body::Inline(rule) => rule.is_idle(subject),
            Body::Fenced(_) => false,
        }
    }

    pub(crate) fn warm(&self) {
        if let Body::Inline(rule) = &self.body {
            rule.warm();
        }
    }

    /// Whether it must be kept behind a deadline; if so, the rule to run there.
    pub fn fenced(&self) -> Option<&Arc<dyn Rule>> {
        match &self.body {
            Body::Fenced(rule) => Some(rule),
            Body::Inline(_) => None,
        }
    }

    /// Judges here and now.
    pub fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        match &self.body {
            Body::Inline(rule) => rule.evaluate(subject),
            Body::Fenced(rule) => rule.evaluate(&subject.input),
        }
    }
}

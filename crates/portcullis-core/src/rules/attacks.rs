//! Patterns of attacks, and what their matches add up to.

use std::sync::OnceLock;

use serde::Serialize;

use super::{Lookup, RuleCompiler, Sight, Subject};
use crate::detectors::reported::Excuses;
use crate::detectors::signs::{self, Sign};
use crate::detectors::{Entry, EntryPattern, Kind, Meaning, Unspaced};
use crate::event::EventType;
use crate::intent::JailbreakIntent;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::read_families;
use crate::scan::{EventSet, PatternId};

/// One attack to look for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttackPattern {
    /// How to find it; case is ignored.
    #[serde(flatten)]
    pub pattern: EntryPattern,
    /// What a match is trying to do.
    pub intent: JailbreakIntent,
    /// 1 decides alone; less adds up with what stands near it.
    pub weight: f64,
    /// Where it was configured.
    #[serde(skip)]
    pub place: Place,
}

/// The patterns of these families, in order.
pub(super) fn of_families(families: &[(String, Place)], d: &mut Diagnostics) -> Vec<AttackPattern> {
    let entries = read_families(Kind::Injection, families, d);
    let attack = |(entry, place): (Entry, Place)| match entry.meaning {
        Meaning::Attack { intent, weight } => Some(AttackPattern {
            pattern: entry.pattern,
            intent,
            weight,
            place,
        }),
        _ => None,
    };
    entries.into_iter().filter_map(attack).collect()
}

/// A match that is an attack, or part of one.
pub(super) struct Attack {
    pub(super) sign: Sign,
    /// What the whole attack is trying to do.
    pub(super) intent: JailbreakIntent,
}

/// Patterns of attacks, compiled.
pub(super) struct Attacks {
    sight: Sight,
    lookup: Lookup,
    compiled: Vec<CompiledAttack>,
    patterns: Vec<AttackPattern>,
    /// Made when a text first has its letters set apart.
    unspaced: OnceLock<Unspaced>,
}

impl Attacks {
    /// With all events that they judge. `default` are those of an intent, unless the pack says
    /// otherwise.
    pub(super) fn compile(
        patterns: &[AttackPattern],
        sight: Sight,
        default: impl Fn(JailbreakIntent) -> EventSet,
        compiler: &mut RuleCompiler<'_>,
    ) -> (Self, EventSet) {
        let mut events = compiler.events.clone().unwrap_or_default();
        let mut compiled = Vec::new();
        for pattern in patterns {
            let judged_on = compiler.events_or(|| default(pattern.intent));
            events.extend(&judged_on);
            let spec = pattern.pattern.spec(Kind::Injection);
            if let Some(id) = compiler.pattern(&spec, &judged_on, pattern.place) {
                compiled.push(CompiledAttack {
                    id,
                    intent: pattern.intent,
                    weight: pattern.weight,
                    unless_reported: pattern.pattern.unless_reported,
                    events: judged_on,
                });
            }
        }
        compiler.sees_through(sight != Sight::Plain, &events);
        let attacks = Self {
            sight,
            lookup: Lookup::new(compiled.iter().map(|attack| attack.id)),
            compiled,
            patterns: patterns.to_vec(),
            unspaced: OnceLock::new(),
        };
        (attacks, events)
    }

    /// The attacks in an event, by position.
    pub(super) fn find(&self, subject: &Subject<'_>) -> Vec<Attack> {
        if subject.is_plain() {
            return Vec::new();
        }
        let event_type = &subject.input.event.event_type;
        let mut signs = Vec::new();
        for index in subject.candidates(&self.lookup) {
            let pattern = &self.compiled[index];
            // The scan keeps a pattern that two rules share if either wants this event.
            if pattern.judges(event_type) {
                subject.each(pattern.id, self.sight, |place, range| {
                    signs.push(Sign {
                        place,
                        range,
                        index,
                        intent: pattern.intent,
                        weight: pattern.weight,
                    });
                });
            }
        }
        if self.sight == Sight::All {
            self.look_unspaced(subject, &mut signs);
        }
        // What leads up to a match in a stream may have been let go, so there nothing is excused.
        if *event_type != EventType::LlmStreamChunk {
            let mut excuses = Excuses::default();
            signs.retain(
                |Sign {
                     place,
                     range,
                     index,
                     ..
                 }| {
                    let pattern = &self.compiled[*index];
                    !(pattern.unless_reported && excuses.cover(subject.text(*place), range))
                },
            );
        }
        let intents = signs::add_up(&mut signs);
        let attack = |(sign, intent): (Sign, Option<JailbreakIntent>)| {
            intent.map(|intent| Attack { sign, intent })
        };
        signs.into_iter().zip(intents).filter_map(attack).collect()
    }

    /// Made when it is first needed, which takes longer than a rule has.
    pub(super) fn unspaced(&self) -> &Unspaced {
        self.unspaced.get_or_init(|| {
            let patterns = self.patterns.iter().map(|attack| &attack.pattern);
            Unspaced::new(patterns.enumerate())
        })
    }

    /// Texts whose letters were set apart.
    fn look_unspaced(&self, subject: &Subject<'_>, signs: &mut Vec<Sign>) {
        let event_type = &subject.input.event.event_type;
        for (place, view) in subject.unspaced() {
            self.unspaced().each(view, event_type, |index, range| {
                let pattern = &self.compiled[index];
                if pattern.judges(event_type) {
                    signs.push(Sign {
                        place,
                        range: view.original(range),
                        index,
                        intent: pattern.intent,
                        weight: pattern.weight,
                    });
                }
            });
        }
    }
}

struct CompiledAttack {
    id: PatternId,
    intent: JailbreakIntent,
    weight: f64,
    unless_reported: bool,
    events: EventSet,
}

impl CompiledAttack {
    /// Signs add up over a distance, and a streamed answer is let go before that; so only patterns
    /// that decide alone judge it.
    fn judges(&self, event_type: &EventType) -> bool {
        let alone = self.weight >= 1.0 || *event_type != EventType::LlmStreamChunk;
        alone && self.events.contains(event_type)
    }
}

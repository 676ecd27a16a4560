//! What is remembered of runs: strikes, flags, quarantine.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use portcullis_core::{Context, Decision, DecisionId, Effect, Event, RuleId};
use serde::{Deserialize, Serialize};

use super::relock;

/// Why a run was marked for review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flag {
    /// The decision.
    pub decision_id: DecisionId,
    /// The rule.
    pub rule_id: RuleId,
    /// Its reason.
    pub reason: String,
    /// The stage; empty if it was done by hand.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub event_type: String,
    /// Who did it, if it was done by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Flag {
    /// When, in milliseconds since 1970: decision ids begin with it.
    pub fn at_ms(&self) -> u64 {
        (self.decision_id.0 >> 80) as u64
    }
}

/// A run in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// The run.
    pub run_id: String,
    /// Why.
    #[serde(flatten)]
    pub flag: Flag,
}

/// What the gateway remembers of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RunRecord {
    /// Marks for review, oldest first; the last ones only.
    pub flags: Vec<Flag>,
    /// Strikes by category.
    pub strikes: BTreeMap<String, u64>,
    /// Why the run is quarantined, if it is.
    pub quarantine: Option<Flag>,
}

/// The runs that something has happened to. Runs without effects are not here and cost nothing.
#[derive(Debug)]
pub(crate) struct Runs {
    capacity: usize,
    /// Lets the usual case, no effects ever, skip the lock.
    any: AtomicBool,
    state: Mutex<RunsState>,
}

#[derive(Debug, Default)]
struct RunsState {
    records: HashMap<Arc<str>, RunRecord>,
    /// Oldest first.
    order: VecDeque<Arc<str>>,
    /// Quarantined runs that would have been forgotten, oldest first.
    kept: VecDeque<Arc<str>>,
    /// All quarantined runs, by name, so that they can be listed page by page.
    quarantined: BTreeSet<Arc<str>>,
}

impl Runs {
    /// Flags kept for one run.
    const FLAGS: usize = 64;

    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            any: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, run_id: &str) -> Option<RunRecord> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        relock(&self.state).records.get(run_id).cloned()
    }

    pub(crate) fn is_quarantined(&self, run_id: &str) -> bool {
        self.any.load(Ordering::Acquire)
            && relock(&self.state)
                .records
                .get(run_id)
                .is_some_and(|record| record.quarantine.is_some())
    }

    /// Brings what is remembered into the context; says whether the run is quarantined, and why.
    pub(crate) fn recall(&self, context: &mut Context) -> Option<Flag> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let state = relock(&self.state);
        let record = state.records.get(&*context.run_id)?;
        for (category, strikes) in &record.strikes {
            match context.strike_counts.get_mut(category) {
                Some(known) => *known = (*known).max(*strikes),
                None => {
                    context.strike_counts.insert(category.clone(), *strikes);
                }
            }
        }
        record.quarantine.clone()
    }

    /// Carries out the effects that concern the run.
    pub(crate) fn apply(&self, decision: &Decision, context: &mut Context, event: &Event) {
        if decision
            .effects
            .iter()
            .all(|effect| *effect == Effect::EmitAlert)
        {
            return;
        }
        let flag = || Flag {
            decision_id: decision.decision_id,
            rule_id: decision.rule_id.clone(),
            reason: decision.reason.to_string(),
            event_type: event.event_type.to_string(),
            by: None,
        };
        let mut state = relock(&self.state);
        if decision.effects.contains(&Effect::QuarantineSession) {
            state.quarantined.insert(context.run_id.as_str().into());
        }
        let record = state.record(&context.run_id, self.capacity);
        for effect in &decision.effects {
            match effect {
                Effect::IncrementStrike => {
                    let category = decision.rule_id.strike_category();
                    let strikes = context
                        .strike_counts
                        .entry(category.to_owned())
                        .or_default();
                    // Other events of the run may have been judged since this one was begun.
                    let remembered = record.strikes.entry(category.to_owned()).or_default();
                    *strikes = (*strikes).max(*remembered).saturating_add(1);
                    *remembered = *strikes;
                }
                Effect::FlagTrajectory => {
                    if record.flags.len() == Self::FLAGS {
                        record.flags.remove(0);
                    }
                    record.flags.push(flag());
                }
                Effect::QuarantineSession => {
                    record.quarantine.get_or_insert_with(flag);
                }
                Effect::EmitAlert => {}
            }
        }
        self.any.store(true, Ordering::Release);
    }

    /// Quarantines a run by hand; gives why it is quarantined, which may be an earlier reason.
    pub(crate) fn quarantine(&self, run_id: &str, flag: Flag) -> Flag {
        let mut state = relock(&self.state);
        state.quarantined.insert(run_id.into());
        let record = state.record(run_id, self.capacity);
        let flag = record.quarantine.get_or_insert(flag).clone();
        self.any.store(true, Ordering::Release);
        flag
    }

    /// Ends a quarantine, and forgets the strikes: a rule that counts them would quarantine the run
    /// again at its next step. Gives why it was quarantined.
    pub(crate) fn release(&self, run_id: &str) -> Option<Flag> {
        let mut state = relock(&self.state);
        let record = state.records.get_mut(run_id)?;
        let flag = record.quarantine.take()?;
        record.strikes.clear();
        state.quarantined.remove(run_id);
        // Only its quarantine kept it from being forgotten.
        if let Some(at) = state.kept.iter().position(|kept| **kept == *run_id) {
            state.kept.remove(at);
            state.records.remove(run_id);
        }
        Some(flag)
    }

    /// Quarantined runs by name, those behind `after`, at most so many.
    pub(crate) fn quarantined(&self, after: Option<&str>, limit: usize) -> Vec<Quarantined> {
        let state = relock(&self.state);
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = state.quarantined.range::<str, _>((after, Bound::Unbounded));
        behind
            .filter_map(|run_id| {
                let flag = state.records.get(run_id)?.quarantine.clone()?;
                Some(Quarantined {
                    run_id: run_id.to_string(),
                    flag,
                })
            })
            .take(limit)
            .collect()
    }
}

impl RunsState {
    fn record(&mut self, run_id: &str, capacity: usize) -> &mut RunRecord {
        if !self.records.contains_key(run_id) {
            self.make_room(capacity);
            let run_id: Arc<str> = run_id.into();
            self.order.push_back(Arc::clone(&run_id));
            self.records.insert(run_id, RunRecord::default());
        }
        // Just inserted if it was not there.
        self.records.entry(run_id.into()).or_default()
    }

    /// Forgets the oldest record. A quarantine is kept for longer, or a flood of other runs would
    /// lift it: it only goes when the quarantined runs alone fill the room many times over.
    fn make_room(&mut self, capacity: usize) {
        const QUARANTINED: usize = 10;
        if self.order.len() >= capacity
            && let Some(oldest) = self.order.pop_front()
        {
            match self.records.get(&oldest) {
                Some(record) if record.quarantine.is_some() => self.kept.push_back(oldest),
                _ => {
                    self.records.remove(&oldest);
                }
            }
        }
        if self.kept.len() >= capacity.saturating_mul(QUARANTINED)
            && let Some(oldest) = self.kept.pop_front()
        {
            self.records.remove(&oldest);
            self.quarantined.remove(&oldest);
        }
    }
}

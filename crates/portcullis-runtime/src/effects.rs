//! Where effects go: strikes, flags, quarantine and alerts (RFC-001 appendix D).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::{
    Context, Decision, DecisionId, Effect, Evaluation, Event, PolicyIdentity, RuleId,
};
use serde::Serialize;

/// Somebody should look at this.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alert {
    /// The run.
    pub run_id: String,
    /// Whose.
    pub tenant_id: Option<String>,
    /// The stage.
    pub event_type: String,
    /// The tool.
    pub tool_name: Option<String>,
    /// What was decided.
    pub decision: Decision,
    /// Whether it binds.
    pub enforced: bool,
    /// By which policy.
    pub policy: Arc<PolicyIdentity>,
}

/// Where alerts go. Called on the evaluation's own path: hand over, do not send.
pub trait AlertSink: Send + Sync + 'static {
    /// Takes an alert.
    fn alert(&self, alert: Alert);
}

/// Keeps the last alerts in memory.
#[derive(Debug)]
pub struct RecentAlerts {
    capacity: usize,
    alerts: Mutex<VecDeque<Alert>>,
}

impl RecentAlerts {
    /// Keeps at most so many.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            alerts: Mutex::default(),
        }
    }

    /// What there is, oldest first.
    pub fn list(&self) -> Vec<Alert> {
        relock(&self.alerts).iter().cloned().collect()
    }
}

impl AlertSink for RecentAlerts {
    fn alert(&self, alert: Alert) {
        let mut alerts = relock(&self.alerts);
        alerts.push_back(alert);
        if alerts.len() > self.capacity {
            alerts.pop_front();
        }
    }
}

/// Writes each alert as one line of JSON.
#[derive(Debug)]
pub struct JsonLineAlerts<W>(Mutex<W>);

impl<W: Write + Send + 'static> JsonLineAlerts<W> {
    /// Writes here.
    pub fn new(writer: W) -> Self {
        Self(Mutex::new(writer))
    }
}

impl<W: Write + Send + 'static> AlertSink for JsonLineAlerts<W> {
    fn alert(&self, alert: Alert) {
        if let Ok(mut line) = serde_json::to_vec(&alert) {
            line.push(b'\n');
            let mut writer = relock(&self.0);
            // An alert that cannot be written must not undo the decision that it is about.
            let _ = writer.write_all(&line).and_then(|()| writer.flush());
        }
    }
}

/// Why a run was marked for review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// The decision.
    pub decision_id: DecisionId,
    /// The rule.
    pub rule_id: RuleId,
    /// Its reason.
    pub reason: String,
    /// The stage.
    pub event_type: String,
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
    quarantined: VecDeque<Arc<str>>,
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
        };
        let mut state = relock(&self.state);
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
}

impl RunsState {
    /// Forgets the oldest record. A quarantine is kept for longer, or a flood of other runs would
    /// lift it: it only goes when the quarantined runs alone fill the room many times over.
    fn make_room(&mut self, capacity: usize) {
        const QUARANTINED: usize = 10;
        if self.order.len() >= capacity
            && let Some(oldest) = self.order.pop_front()
        {
            match self.records.get(&oldest) {
                Some(record) if record.quarantine.is_some() => self.quarantined.push_back(oldest),
                _ => {
                    self.records.remove(&oldest);
                }
            }
        }
        if self.quarantined.len() >= capacity.saturating_mul(QUARANTINED)
            && let Some(oldest) = self.quarantined.pop_front()
        {
            self.records.remove(&oldest);
        }
    }
}

pub(crate) fn alert(context: &Context, event: &Event, evaluation: &Evaluation) -> Alert {
    Alert {
        run_id: context.run_id.clone(),
        tenant_id: context.tenant_id.clone(),
        event_type: event.event_type.to_string(),
        tool_name: event.tool_name.clone(),
        decision: evaluation.decision.clone(),
        enforced: evaluation.enforced,
        policy: Arc::clone(&evaluation.policy),
    }
}

/// A panic while the lock was held left only whole entries behind.
pub(crate) fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

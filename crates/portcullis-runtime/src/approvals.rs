//! Approvals in memory, and what an approval that was used up lets happen.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Binding, Decided, Status, Taken, Which,
};
use portcullis_core::{Evaluation, Event, RuleId};

/// Keeps approvals for as long as the process lives.
#[derive(Debug)]
pub struct MemoryApprovals {
    kept: Mutex<BTreeMap<String, Approval>>,
    most: usize,
}

impl Default for MemoryApprovals {
    fn default() -> Self {
        Self::new(10_000)
    }
}

impl MemoryApprovals {
    /// Room for so many. When it is full, the oldest that is settled is forgotten; if none is, there is no more room.
    pub fn new(most: usize) -> Self {
        Self {
            kept: Mutex::default(),
            most: most.max(1),
        }
    }

    /// A panic elsewhere leaves no approval half changed: each is replaced whole.
    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Approval>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        id: &str,
        change: impl FnOnce(Approval) -> Result<(Approval, T), ApprovalError>,
    ) -> Result<T, ApprovalError> {
        let mut kept = self.kept();
        let known = kept
            .get_mut(id)
            .ok_or_else(|| ApprovalError::NotFound(id.to_owned()))?;
        let (changed, result) = change(known.clone())?;
        *known = changed;
        Ok(result)
    }
}

impl Approvals for MemoryApprovals {
    fn create(&self, approval: Approval) -> Result<(), ApprovalError> {
        let mut kept = self.kept();
        if kept.contains_key(&approval.id) {
            return Err(ApprovalError::Exists(approval.id));
        }
        if kept.len() >= self.most {
            let oldest = kept
                .values()
                .filter(|known| is_settled(known, approval.created))
                .min_by_key(|known| known.created)
                .map(|known| known.id.clone());
            let oldest = oldest.ok_or(ApprovalError::Full(kept.len()))?;
            kept.remove(&oldest);
        }
        kept.insert(approval.id.clone(), approval);
        Ok(())
    }

    fn get(&self, id: &str, now: Timestamp) -> Result<Option<Approval>, ApprovalError> {
        let known = self.kept().get(id).cloned();
        Ok(known.map(|approval| approval.at(now)))
    }

    fn list(&self, which: &Which, now: Timestamp) -> Result<Vec<Approval>, ApprovalError> {
        let kept = self.kept();
        let mut found: Vec<Approval> = kept
            .values()
            .map(|approval| approval.clone().at(now))
            .filter(|approval| which.fits(approval))
            .collect();
        // They come in the order of their ids, which this keeps among those of one moment.
        found.sort_by_key(|approval| approval.created);
        found.truncate(which.limit);
        Ok(found)
    }

    fn decide(&self, id: &str, answer: &Answer, now: Timestamp) -> Result<Approval, ApprovalError> {
        self.change(id, |approval| {
            let decided = approval.decide(answer, now)?;
            Ok((decided.clone(), decided))
        })
    }

    fn take(&self, id: &str, bound: &Binding, now: Timestamp) -> Result<Taken, ApprovalError> {
        self.change(id, |approval| approval.take(bound, now))
    }
}

fn is_settled(approval: &Approval, now: Timestamp) -> bool {
    let approval = approval.clone().at(now);
    approval.taken.is_some() || matches!(approval.status, Status::Expired | Status::Denied)
}

/// A yes that was used up: it lifts the pause of the step that it was given for, once.
///
/// Only [`clear`] makes one.
#[derive(Debug)]
pub struct Clearance {
    bound: Binding,
}

impl Clearance {
    /// Whether it was given for this step, as it may be seen, under the policy that judged it.
    pub fn is_for(&self, event: &Event, evaluation: &Evaluation) -> bool {
        let Binding { agent, rules, .. } = &self.bound;
        let step = Binding::of(event, agent, rules.clone(), &evaluation.policy.digest);
        let step = Binding {
            run_state: self.bound.run_state,
            ..step
        };
        self.bound == step
    }

    /// Whose pauses it lifts.
    pub fn rules(&self) -> &[RuleId] {
        &self.bound.rules
    }
}

/// What came of asking.
#[derive(Debug)]
pub enum Cleared {
    /// The step may happen.
    Yes(Clearance),
    /// Somebody said no.
    Denied(Decided),
    /// Nobody decided in time.
    Expired,
}

/// Uses an answer up, for the step that it is bound to. After this nobody gets it again, whether or not the step then
/// happens: at most once.
pub fn clear(
    approvals: &dyn Approvals,
    id: &str,
    bound: Binding,
    now: Timestamp,
) -> Result<Cleared, ApprovalError> {
    Ok(match approvals.take(id, &bound, now)? {
        Taken::Approved(_) => Cleared::Yes(Clearance { bound }),
        Taken::Denied(decided) => Cleared::Denied(decided),
        Taken::Expired => Cleared::Expired,
    })
}

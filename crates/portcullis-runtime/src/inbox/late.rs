//! Responses that came too late for their own event.

use std::collections::{HashMap, VecDeque};

use portcullis_core::Action;
use tokio::time::Instant;

use super::InboxLimits;
use crate::deep::{DeepAnswer, DeepResponse};

/// Late responses, bounded in every direction. Where there are too many, those that hold up nobody go first: a run that
/// floods its inbox with harmless events must not wash a STOP away, its own or another's.
#[derive(Debug, Default)]
pub(super) struct Late {
    responses: HashMap<String, DeepResponse>,
    /// Correlation ids of each run, oldest first.
    by_run: HashMap<String, VecDeque<String>>,
    light: Order,
    heavy: Order,
}

/// Correlation ids, oldest first. An entry can outlive its response.
type Order = VecDeque<(Instant, String)>;

impl Late {
    pub(super) fn push(&mut self, response: DeepResponse, now: Instant, limits: InboxLimits) {
        self.expire(now, limits, 1);
        let id = response.correlation_id.clone();
        let run = self.by_run.entry(response.run_id.clone()).or_default();
        run.push_back(id.clone());
        let order = if is_heavy(&response) {
            &mut self.heavy
        } else {
            &mut self.light
        };
        order.push_back((now, id.clone()));
        self.responses.insert(id, response);
        if let Some(surplus) = self.surplus(limits) {
            self.take(&surplus);
        }
    }

    /// Of the run that got the last response: the one to drop, if it has too many.
    fn surplus(&self, limits: InboxLimits) -> Option<String> {
        let newest = [self.light.back(), self.heavy.back()];
        let newest = newest.into_iter().flatten().max_by_key(|(at, _)| *at)?;
        let run = &self.by_run[&self.responses.get(&newest.1)?.run_id];
        if run.len() <= limits.late_per_run {
            return None;
        }
        let light = run
            .iter()
            .find(|id| self.responses.get(*id).is_some_and(|one| !is_heavy(one)));
        light.or(run.front()).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.responses.len()
    }

    /// Drops what is too old, or too much with `more` to come, and entries whose response has been
    /// taken.
    fn expire(&mut self, now: Instant, limits: InboxLimits, more: usize) {
        for order in [Self::light, Self::heavy] {
            while let Some((at, id)) = order(self).front() {
                let (at, id) = (*at, id.clone());
                let gone = !self.responses.contains_key(&id);
                let full = self.responses.len() + more > limits.late_total;
                if !gone && !full && now.duration_since(at) <= limits.late_age {
                    break;
                }
                order(self).pop_front();
                self.take(&id);
            }
            // Taken out of turn, entries can pile up behind one that is still wanted.
            if order(self).len() / 2 > limits.late_total {
                let mut entries = std::mem::take(order(self));
                entries.retain(|(_, id)| self.responses.contains_key(id));
                *order(self) = entries;
            }
        }
    }

    fn light(&mut self) -> &mut Order {
        &mut self.light
    }

    fn heavy(&mut self) -> &mut Order {
        &mut self.heavy
    }

    pub(super) fn take(&mut self, correlation_id: &str) -> Option<DeepResponse> {
        let response = self.responses.remove(correlation_id)?;
        if let Some(run) = self.by_run.get_mut(&response.run_id) {
            run.retain(|id| id != correlation_id);
            if run.is_empty() {
                self.by_run.remove(&response.run_id);
            }
        }
        Some(response)
    }

    pub(super) fn drain(
        &mut self,
        run_id: &str,
        now: Instant,
        limits: InboxLimits,
    ) -> Vec<DeepResponse> {
        self.expire(now, limits, 0);
        let ids = self.by_run.remove(run_id).unwrap_or_default();
        ids.iter()
            .filter_map(|id| self.responses.remove(id))
            .collect()
    }
}

/// Whether it holds up the run's next event.
fn is_heavy(response: &DeepResponse) -> bool {
    response.answers.iter().any(
        |(_, answer)| matches!(answer, DeepAnswer::Decided(said) if said.action >= Action::Pause),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portcullis_core::{Decision, ErrorCode, RuleId, StopSpec};

    use super::*;

    fn response(run: usize, id: &str, stops: bool) -> DeepResponse {
        let rule = RuleId::from_static("classifier");
        let answer = if stops {
            let stop = StopSpec::code(ErrorCode::GuardrailStop);
            DeepAnswer::Decided(Box::new(Decision::stop(rule.clone(), "bad", stop)))
        } else {
            DeepAnswer::Clear
        };
        DeepResponse {
            correlation_id: id.to_owned(),
            run_id: format!("run-{run}"),
            answers: vec![(rule, answer)],
        }
    }

    /// However many harmless answers come after it.
    #[test]
    fn a_stop_is_not_washed_away() {
        let limits = InboxLimits {
            late_per_run: 4,
            late_total: 20,
            late_age: Duration::from_mins(1),
            ..InboxLimits::default()
        };
        for runs in [1, 5, 50] {
            let (mut late, now) = (Late::default(), Instant::now());
            late.push(response(0, "stop", true), now, limits);
            for n in 0..1000 {
                late.push(response(n % runs, &n.to_string(), false), now, limits);
                assert!(late.len() <= limits.late_total);
                let kept = late.light.len() + late.heavy.len();
                assert!(kept <= 3 * limits.late_total, "{kept}");
            }
            let drained = late.drain("run-0", now, limits);
            assert!(drained.len() <= limits.late_per_run);
            assert!(drained.iter().any(|one| one.correlation_id == "stop"));
        }
    }

    /// Among stops the oldest goes, as before.
    #[test]
    fn stops_are_bounded_too() {
        let limits = InboxLimits {
            late_per_run: 4,
            late_total: 20,
            ..InboxLimits::default()
        };
        let (mut late, now) = (Late::default(), Instant::now());
        for n in 0..1000 {
            late.push(response(n % 10, &n.to_string(), true), now, limits);
        }
        assert_eq!(late.len(), limits.late_total);
        let drained = late.drain("run-9", now, limits);
        assert!(drained.iter().any(|one| one.correlation_id == "999"));
    }
}

//! Responses that came too late for their own event.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::InboxLimits;
use crate::deep::DeepResponse;

/// Late responses, bounded in every direction.
#[derive(Debug, Default)]
pub(super) struct Late {
    responses: HashMap<String, DeepResponse>,
    /// Correlation ids of each run, oldest first.
    by_run: HashMap<String, VecDeque<String>>,
    /// All correlation ids, oldest first. An entry can outlive its response.
    order: VecDeque<(Instant, String)>,
}

impl Late {
    pub(super) fn push(&mut self, response: DeepResponse, now: Instant, limits: InboxLimits) {
        self.expire(now, limits, 1);
        let id = response.correlation_id.clone();
        let run = self.by_run.entry(response.run_id.clone()).or_default();
        run.push_back(id.clone());
        let surplus = if run.len() > limits.late_per_run {
            run.front().cloned()
        } else {
            None
        };
        self.order.push_back((now, id.clone()));
        self.responses.insert(id, response);
        if let Some(oldest) = surplus {
            self.take(&oldest);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.responses.len()
    }

    /// Drops what is too old, or too much with `more` to come, and entries whose response has been
    /// taken.
    fn expire(&mut self, now: Instant, limits: InboxLimits, more: usize) {
        while let Some((at, id)) = self.order.front() {
            let gone = !self.responses.contains_key(id);
            let full = self.responses.len() + more > limits.late_total;
            if !gone && !full && now.duration_since(*at) <= limits.late_age {
                break;
            }
            let id = id.clone();
            self.order.pop_front();
            self.take(&id);
        }
        // Taken out of turn, entries can pile up behind one that is still wanted.
        if self.order.len() / 2 > limits.late_total {
            let responses = &self.responses;
            self.order.retain(|(_, id)| responses.contains_key(id));
        }
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

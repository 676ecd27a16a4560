//! What is counted of approvals.

use portcullis_core::approval::Taken;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::delivery::Counts;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// What came of an approval that a step was sent with.
pub(super) const APPROVED: &str = "approved";
pub(super) const DENIED: &str = "denied";
pub(super) const EXPIRED: &str = "expired";
pub(super) const VOID: &str = "void";
pub(super) const USED: &str = "used";
pub(super) const UNKNOWN: &str = "unknown";

/// Approvals that were asked for, and what became of them.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalMetrics {
    pub(super) requested: Counter,
    pub(super) waiting: Gauge,
    decided: Family<AnswerLabel, Counter>,
    redeemed: Family<OutcomeLabel, Counter>,
    notices: Family<OutcomeLabel, Counter>,
    notices_waiting: Gauge,
}

impl ApprovalMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requested: Counter::default(),
            waiting: Gauge::default(),
            decided: Family::default(),
            redeemed: Family::default(),
            notices: Family::default(),
            notices_waiting: Gauge::default(),
        };
        registry.register(
            "approvals_requested",
            "Paused steps that a person was asked about",
            metrics.requested.clone(),
        );
        registry.register(
            "approvals_waiting",
            "Approvals that nobody has decided on, up to 1000",
            metrics.waiting.clone(),
        );
        registry.register(
            "approvals_decided",
            "Answers of people to paused steps",
            metrics.decided.clone(),
        );
        registry.register(
            "approvals_redeemed",
            "Steps that were sent again with an approval, by what came of it",
            metrics.redeemed.clone(),
        );
        registry.register(
            "approval_notices",
            "Notices of approvals by what came of them",
            metrics.notices.clone(),
        );
        registry.register(
            "approval_notices_waiting",
            "Notices of approvals waiting to be delivered",
            metrics.notices_waiting.clone(),
        );
        // What first appears with its first count looks as if it had never grown.
        for approve in [true, false] {
            let _ = metrics.decided(approve);
        }
        for outcome in [APPROVED, DENIED, EXPIRED, VOID, USED, UNKNOWN] {
            let _ = metrics.redeemed(outcome);
        }
        let _ = metrics.notices();
        metrics
    }

    pub(super) fn decided(&self, approve: bool) -> Counter {
        let answer = if approve { "approve" } else { "deny" };
        self.decided.get_or_create_owned(&AnswerLabel { answer })
    }

    pub(super) fn taken(&self, taken: &Taken) -> Counter {
        self.redeemed(match taken {
            Taken::Approved(_) => APPROVED,
            Taken::Denied(_) => DENIED,
            Taken::Expired => EXPIRED,
        })
    }

    pub(super) fn redeemed(&self, outcome: &'static str) -> Counter {
        self.redeemed.get_or_create_owned(&OutcomeLabel { outcome })
    }

    /// What is counted of notices.
    pub(super) fn notices(&self) -> Counts {
        let count = |outcome| self.notices.get_or_create_owned(&OutcomeLabel { outcome });
        Counts {
            waiting: self.notices_waiting.clone(),
            delivered: count("delivered"),
            failed: count("failed"),
            dropped: count("dropped"),
        }
    }
}

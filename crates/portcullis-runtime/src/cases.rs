//! Runs the cases that are kept beside a pack.

use portcullis_core::Evaluation;
use portcullis_core::pack::cases::{Case, Mismatch};

use crate::gateway::Gateway;

/// What came of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseResult {
    /// What was not as expected; empty if all was.
    pub mismatches: Vec<Mismatch>,
    /// What the gateway answered.
    pub evaluation: Evaluation,
}

impl CaseResult {
    /// Whether all was as expected.
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty()
    }
}

/// Judges the case's earlier events, then its event, as one run. Give each case a gateway of its
/// own, so that one case's strikes are not another's.
pub async fn run_case(gateway: &Gateway, case: &Case) -> CaseResult {
    let mut context = case.context.clone();
    for event in &case.before {
        gateway.evaluate(&mut context, event).await;
    }
    let evaluation = gateway.evaluate(&mut context, &case.event).await;
    CaseResult {
        mismatches: case.expect.compare(&case.event, &evaluation),
        evaluation,
    }
}

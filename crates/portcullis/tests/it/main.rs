//! The binary as people use it.

#[cfg(test)]
#[expect(dead_code, reason = "the planner's tests use the rest")]
#[path = "../../../../examples/support/endpoint.rs"]
mod endpoint;

#[cfg(test)]
mod a2a;
#[cfg(test)]
mod a2a_sdk;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod approvals_model;
#[cfg(test)]
mod approved_once;
#[cfg(test)]
mod bootstrap;
#[cfg(test)]
mod classifier;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod decision;
#[cfg(test)]
mod deep;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod eval;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod quarantine;
#[cfg(test)]
mod rule;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod served;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod stderr;
#[cfg(test)]
mod tools;

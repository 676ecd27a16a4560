//! What the evidence log, the memory and the approvals promise, tested from outside: one binary, a module per promise.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod approvals_crash;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod files;
#[cfg(test)]
mod log;
#[cfg(test)]
mod memories;
#[cfg(test)]
mod memory_crash;
#[cfg(test)]
mod memory_model;
#[cfg(test)]
mod sqlite;
#[cfg(test)]
mod tamper;

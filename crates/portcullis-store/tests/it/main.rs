//! What the evidence log and the memory promise, tested from outside: one binary, a module per promise.

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

//! What the evidence log promises, tested from outside: one binary, a module per promise.

#[cfg(test)]
mod crash;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod files;
#[cfg(test)]
mod log;
#[cfg(test)]
mod tamper;

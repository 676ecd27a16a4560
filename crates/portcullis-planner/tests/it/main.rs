//! The planner against a scripted server.

#[cfg(test)]
#[path = "../../../../examples/support/endpoint.rs"]
mod endpoint;

#[cfg(test)]
mod budgets;
#[cfg(test)]
mod client;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod pause;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod stages;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod unguarded;

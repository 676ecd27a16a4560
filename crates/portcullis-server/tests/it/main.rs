//! The server over real HTTP.

#[cfg(test)]
mod a2a;
#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod callbacks;
#[cfg(test)]
mod classifiers;
#[cfg(test)]
mod config;
#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod external;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod observability;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod receiver;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod rpc;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod services;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod syslog;
#[cfg(test)]
mod transport;
#[cfg(test)]
mod wire;

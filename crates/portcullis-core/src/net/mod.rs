//! Hosts in text: where they stand, in which notation, and what they reach.
//!
//! A host is read the way clients read it: WHATWG's rules for numbers, percent-encoding and look-alike
//! digits, with a second reading wherever clients are known to disagree. Nothing is resolved.
//!
//! Rejected: the `url` crate. It reads one URL, strictly, and brings the tables of IDNA with it; what is
//! judged here is text that may hold a URL, a shell command or a bare address, and names are compared,
//! never shown or resolved, so that a few ranges of look-alikes are enough.

mod address;
mod command;
mod find;
mod host;
mod insert;
mod list;

pub use address::{Reach, reach};
pub(crate) use command::is_network_command;
pub use find::{Found, Position, hosts};
pub(crate) use find::{hosts_if, may_hold_host};
pub use host::Host;
pub use list::{HostList, HostListError};

#[cfg(test)]
mod tests;

//! The binary as people use it.

#[cfg(test)]
mod docs;
#[cfg(test)]
mod eval;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod rule;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod tools;

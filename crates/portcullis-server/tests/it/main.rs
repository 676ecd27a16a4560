//! The server over real HTTP.

#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod harness;

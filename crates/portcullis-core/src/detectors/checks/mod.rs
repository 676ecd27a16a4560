//! What a value must satisfy beyond its pattern: check digits, checksums, entropy.
//!
//! A pattern says what a secret or an id looks like; most texts that look like one are not. A check
//! is a function of the matched value alone, so it holds or not however the text is cut.

mod europe;
mod frames;
mod human;
mod personal;
mod secrets;
mod shell;
mod soup;
mod tokens;
mod wallets;
mod words;
mod world;

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::{self, Node, Yaml};

/// A check's name in data files, and what it asks of a value.
type NamedCheck = (&'static str, fn(&str) -> bool);

/// One condition on a value.
#[derive(Clone)]
pub enum Check {
    /// At least so many bits a character, by Shannon's measure.
    Entropy(f64),
    /// A function of [`names`].
    Named(&'static str, fn(&str) -> bool),
    /// Not one of these: values that documentation uses as examples.
    NoneOf(Arc<[String]>),
}

impl Check {
    /// The check of this name.
    pub fn named(name: &str) -> Option<Self> {
        all()
            .find(|(known, _)| *known == name)
            .map(|(known, holds)| Self::Named(known, holds))
    }

    /// Whether the value passes.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Self::Entropy(bits) => secrets::shannon(value) >= *bits,
            Self::Named(_, holds) => holds(value),
            Self::NoneOf(known) => !known.iter().any(|known| known == value),
        }
    }
}

/// The names of all checks but entropy, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

fn all() -> impl Iterator<Item = NamedCheck> {
    secrets::CHECKS
        .iter()
        .chain(shell::CHECKS)
        .chain(tokens::CHECKS)
        .chain(frames::CHECKS)
        .chain(human::CHECKS)
        .chain(soup::CHECKS)
        .chain(personal::CHECKS)
        .chain(europe::CHECKS)
        .chain(world::CHECKS)
        .chain(wallets::CHECKS)
        .chain(words::CHECKS)
        .copied()
}

/// `name`, or `{entropy: 3.5}`.
pub(super) fn read(node: &Node, d: &mut Diagnostics) -> Option<Check> {
    if let Some(bits) = node.member("entropy") {
        return match bits.yaml {
            Yaml::Float(bits) => Some(Check::Entropy(bits)),
            Yaml::Int(bits) => Some(Check::Entropy(bits as f64)),
            _ => {
                d.error(bits.place, "`entropy` must be a number of bits a character");
                None
            }
        };
    }
    let name = yaml::text(node, "checks", d)?;
    let check = Check::named(name);
    if check.is_none() {
        d.error(node.place, format!("unknown check `{name}`"))
            .suggest(name, names().chain(["entropy"]));
    }
    check
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entropy(bits) => write!(f, "entropy ≥ {bits}"),
            Self::Named(name, _) => f.write_str(name),
            Self::NoneOf(known) => write!(f, "none of {} examples", known.len()),
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Check {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Entropy(a), Self::Entropy(b)) => a == b,
            (Self::Named(a, _), Self::Named(b, _)) => a == b,
            (Self::NoneOf(a), Self::NoneOf(b)) => a == b,
            _ => false,
        }
    }
}

/// As data files have it, for the policy's digest.
impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::NoneOf(known) => known.serialize(serializer),
            other => serializer.collect_str(other),
        }
    }
}

/// Tests a check by what must hold and what must not.
#[cfg(test)]
fn table(check: fn(&str) -> bool, holds: &[&str], fails: &[&str]) {
    for value in holds {
        assert!(check(value), "must hold: {value}");
    }
    for value in fails {
        assert!(!check(value), "must not hold: {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_found() {
        let mut seen = HashSet::new();
        for name in names() {
            assert!(seen.insert(name), "{name} is there twice");
            assert_eq!(Check::named(name).map(|c| c.to_string()), Some(name.into()));
        }
    }
}

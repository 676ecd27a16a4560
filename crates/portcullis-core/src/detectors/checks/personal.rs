//! Checks on personal data.

pub(super) const CHECKS: &[(&str, fn(&str) -> bool)] = &[];

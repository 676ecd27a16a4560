//! Checks on personal data.

use super::NamedCheck;

pub(super) const CHECKS: &[NamedCheck] = &[];

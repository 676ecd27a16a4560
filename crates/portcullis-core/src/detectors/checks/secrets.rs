//! Checks on secrets.

use super::NamedCheck;

pub(super) const CHECKS: &[NamedCheck] = &[];

/// Bits a character.
pub(super) fn shannon(value: &str) -> f64 {
    let mut counts = [0u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let len = value.len() as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let share = f64::from(*count) / len;
            -share * share.log2()
        })
        .sum()
}

//! Decision ids: unique, ordered in time, and cheap enough for every event.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use portcullis_core::DecisionId;

/// Makes ids in the layout of UUID version 7: milliseconds first, then bits that never repeat in
/// this process and, seeded by the operating system, hardly ever anywhere else. An id is a name,
/// not a secret.
#[derive(Debug)]
pub(crate) struct Ids {
    started: Instant,
    started_ms: u64,
    seed: u64,
    next: AtomicU64,
}

impl Ids {
    pub(crate) fn new() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: Instant::now(),
            started_ms: since_epoch.as_millis() as u64,
            seed: RandomState::new().hash_one(since_epoch),
            next: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self, now: Instant) -> DecisionId {
        let ms = self.started_ms + now.duration_since(self.started).as_millis() as u64;
        let unique = mix(self.next.fetch_add(1, Ordering::Relaxed) ^ self.seed);
        let random_a = (unique >> 62) | (self.seed & 0x3ff) << 2;
        let random_b = unique & ((1 << 62) - 1);
        DecisionId(
            u128::from(ms & ((1 << 48) - 1)) << 80
                | 0x7 << 76
                | u128::from(random_a) << 64
                | 0b10 << 62
                | u128::from(random_b),
        )
    }
}

/// `SplitMix64`'s finaliser: one-to-one, so different counters give different bits.
fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_version_7_and_of_32_digits() {
        let ids = Ids::new();
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            let text = ids.next(Instant::now()).to_string();
            assert_eq!(text.len(), 32);
            assert_eq!(&text[12..13], "7", "{text}");
            assert!(matches!(&text[16..17], "8" | "9" | "a" | "b"), "{text}");
            assert!(seen.insert(text));
        }
    }
}

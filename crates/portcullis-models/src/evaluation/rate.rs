//! A share of a set, and how sure one can be of it.

use serde::{Deserialize, Serialize};

/// So many of so many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Those that count.
    pub hits: usize,
    /// All.
    pub of: usize,
}

impl Rate {
    /// One more.
    pub fn add(&mut self, hit: bool) {
        self.hits += usize::from(hit);
        self.of += 1;
    }

    /// From 0 to 1; 0 of none.
    pub fn share(self) -> f64 {
        if self.of == 0 {
            return 0.0;
        }
        self.hits as f64 / self.of as f64
    }

    /// Wilson's interval, 95 %: it stays inside 0 and 1 and holds for rare events too.
    pub fn interval(self) -> (f64, f64) {
        const Z: f64 = 1.96;
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (share, n) = (self.share(), self.of as f64);
        let scale = 1.0 + Z * Z / n;
        let middle = (share + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }

    /// `12.3 % (10.1–14.8)`
    pub fn percent(self) -> String {
        let (low, high) = self.interval();
        format!(
            "{:.1} % ({:.1}–{:.1})",
            100.0 * self.share(),
            100.0 * low,
            100.0 * high
        )
    }
}

impl FromIterator<bool> for Rate {
    fn from_iter<I: IntoIterator<Item = bool>>(hits: I) -> Self {
        let mut rate = Self::default();
        hits.into_iter().for_each(|hit| rate.add(hit));
        rate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn intervals_are_wilsons() {
        for (hits, of, expected) in [
            (0, 100, "0.0 % (0.0–3.7)"),
            (50, 100, "50.0 % (40.4–59.6)"),
            (100, 100, "100.0 % (96.3–100.0)"),
            (0, 0, "0.0 % (0.0–100.0)"),
        ] {
            assert_eq!(Rate { hits, of }.percent(), expected);
        }
    }

    proptest! {
        /// The interval is inside 0 and 1, holds the share, and is narrower for more of the same.
        #[test]
        fn an_interval_holds_its_share(of in 1_usize..5_000, part in any::<prop::sample::Index>()) {
            let hits = part.index(of + 1);
            let rate = Rate { hits, of };
            let (low, high) = rate.interval();
            prop_assert!(0.0 <= low && high <= 1.0);
            prop_assert!(low <= rate.share() + 1e-12 && rate.share() <= high + 1e-12);
            let (lower, higher) = Rate { hits: 4 * hits, of: 4 * of }.interval();
            prop_assert!(higher - lower <= high - low + 1e-12);
        }
    }
}

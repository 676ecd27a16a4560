//! A share of a set, and how sure one can be of it.

/// So many of so many.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) hits: usize,
    pub(super) of: usize,
}

impl Rate {
    pub(super) fn add(&mut self, hit: bool) {
        self.hits += usize::from(hit);
        self.of += 1;
    }

    pub(super) fn share(self) -> f64 {
        if self.of == 0 {
            return 0.0;
        }
        self.hits as f64 / self.of as f64
    }

    /// Wilson's interval, 95 %: it stays inside 0 and 1 and holds for rare events too.
    pub(super) fn interval(self) -> (f64, f64) {
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
    pub(super) fn percent(self) -> String {
        let (low, high) = self.interval();
        format!(
            "{:.1} % ({:.1}–{:.1})",
            100.0 * self.share(),
            100.0 * low,
            100.0 * high
        )
    }
}

#[cfg(test)]
mod tests {
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
}

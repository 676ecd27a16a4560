//! Scores against what is true: ROC, reliability, and what one threshold does.

use serde::Serialize;

use super::rate::Rate;

/// What a judge says of a text, and what is true of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// From 0 to 1.
    pub score: f32,
    /// Whether it should be found.
    pub positive: bool,
}

/// What one threshold does. A score counts from the threshold on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// Found, rightly.
    pub true_positives: usize,
    /// Found, wrongly.
    pub false_positives: usize,
    /// Let pass, rightly.
    pub true_negatives: usize,
    /// Let pass, wrongly.
    pub false_negatives: usize,
}

impl Confusion {
    /// Counts what this threshold does.
    pub fn at(scored: &[Scored], threshold: f32) -> Self {
        let mut all = Self::default();
        for one in scored {
            let count = match (one.score >= threshold, one.positive) {
                (true, true) => &mut all.true_positives,
                (true, false) => &mut all.false_positives,
                (false, false) => &mut all.true_negatives,
                (false, true) => &mut all.false_negatives,
            };
            *count += 1;
        }
        all
    }

    /// The share of the positives that is found.
    pub fn recall(self) -> Rate {
        Rate {
            hits: self.true_positives,
            of: self.true_positives + self.false_negatives,
        }
    }

    /// The share of the negatives that is found all the same.
    pub fn false_positive_rate(self) -> Rate {
        Rate {
            hits: self.false_positives,
            of: self.false_positives + self.true_negatives,
        }
    }

    /// The share of what is found that is rightly so.
    pub fn precision(self) -> Rate {
        Rate {
            hits: self.true_positives,
            of: self.true_positives + self.false_positives,
        }
    }

    /// The mean of the share of positives found and that of negatives let pass: 0.5 for a judge that knows nothing,
    /// however many there are of each.
    pub fn balanced_accuracy(self) -> f64 {
        f64::midpoint(
            self.recall().share(),
            1.0 - self.false_positive_rate().share(),
        )
    }
}

/// A threshold and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Operating {
    /// Scores from it on count.
    pub threshold: f32,
    /// The share of the positives that is found.
    pub recall: Rate,
    /// The share of the negatives that is found all the same.
    pub false_positives: Rate,
}

/// Receiver operating characteristic: every threshold that makes a difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Roc {
    points: Vec<Operating>,
}

impl Roc {
    /// From nothing found to everything found. None without both positives and negatives.
    pub fn new(scored: &[Scored]) -> Option<Self> {
        let positives = scored.iter().filter(|one| one.positive).count();
        let negatives = scored.len() - positives;
        if positives == 0 || negatives == 0 {
            return None;
        }
        let mut sorted = scored.to_vec();
        sorted.sort_unstable_by(|a, b| b.score.total_cmp(&a.score));
        let (mut recall, mut false_positives) = (
            Rate {
                hits: 0,
                of: positives,
            },
            Rate {
                hits: 0,
                of: negatives,
            },
        );
        let mut points = vec![Operating {
            threshold: f32::INFINITY,
            recall,
            false_positives,
        }];
        // Equal scores are found together or not at all.
        for equal in sorted.chunk_by(|a, b| a.score == b.score) {
            let hits = equal.iter().filter(|one| one.positive).count();
            recall.hits += hits;
            false_positives.hits += equal.len() - hits;
            points.push(Operating {
                threshold: equal[0].score,
                recall,
                false_positives,
            });
        }
        Some(Self { points })
    }

    /// Thresholds falling, recall and false positives rising.
    pub fn points(&self) -> &[Operating] {
        &self.points
    }

    /// How likely a positive scores higher than a negative; a tie counts half.
    pub fn auc(&self) -> f64 {
        let area = |pair: &[Operating]| {
            let width = pair[1].false_positives.share() - pair[0].false_positives.share();
            width * f64::midpoint(pair[0].recall.share(), pair[1].recall.share())
        };
        self.points.windows(2).map(area).sum()
    }

    /// The most that is found while no more than this share of the negatives is.
    pub fn at_false_positive_rate(&self, most: f64) -> Operating {
        let fits = |point: &&Operating| point.false_positives.share() <= most;
        // The first point has no false positives, and so fits.
        *self
            .points
            .iter()
            .rev()
            .find(fits)
            .unwrap_or(&self.points[0])
    }

    /// The threshold with the best balanced accuracy, midway to the next score below, so that what scores alike falls on
    /// the same side. Of several the one nearest to a half; a half where none is better than chance.
    pub fn balanced_threshold(&self) -> f32 {
        let accuracy = |point: &Operating| point.recall.share() - point.false_positives.share();
        let between = self.points.windows(2).skip(1).map(|pair| {
            let threshold = f32::midpoint(pair[0].threshold, pair[1].threshold);
            (accuracy(&pair[0]), threshold)
        });
        let nearer = |a: f32, b: f32| (a - 0.5).abs() < (b - 0.5).abs();
        let best = between.fold(None, |best: Option<(f64, f32)>, (accuracy, threshold)| {
            let better = best.is_none_or(|(most, at)| {
                accuracy > most || (accuracy == most && nearer(threshold, at))
            });
            if better {
                Some((accuracy, threshold))
            } else {
                best
            }
        });
        let best = best.filter(|(accuracy, _)| *accuracy > 0.0);
        best.map_or(0.5, |(_, threshold)| threshold)
    }
}

/// The lowest threshold that finds no more than this share of these scores: just above the highest one that must not
/// count. Negative infinity never comes out; without scores it is 0.
pub fn threshold_at(negatives: &[f32], most: f64) -> f32 {
    let mut sorted = negatives.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    // One part in a million is for what 0.29 * 100 leaves behind.
    let limit = most * sorted.len() as f64 + 1e-6;
    let allowed = (1..=sorted.len()).take_while(|count| *count as f64 <= limit);
    let allowed = allowed.count();
    sorted.get(allowed).map_or(0.0, |score| score.next_up())
}

/// Whether scores are probabilities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reliability {
    /// Of equal width, from 0 to 1.
    pub bins: Vec<Bin>,
    /// Expected calibration error: how far the mean score of a bin is from its share of positives, by the weight of the
    /// bins.
    pub error: f64,
}

/// Which of so many bins of equal width, from 0 to 1, a score is in.
pub(super) fn bin(score: f32, bins: usize) -> usize {
    let place = f64::from(score) * bins as f64;
    (1..bins).take_while(|edge| place >= *edge as f64).count()
}

/// Scores of a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Bin {
    /// Where it begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// The mean of the scores in it.
    pub mean_score: f64,
    /// Those of them that are positive.
    pub positives: Rate,
}

impl Reliability {
    /// How many bins there are.
    pub const BINS: usize = 10;

    /// Sorts the scores into bins.
    pub fn new(scored: &[Scored]) -> Self {
        let width = 1.0 / Self::BINS as f64;
        let mut bins: Vec<Bin> = (0..Self::BINS)
            .map(|index| Bin {
                low: index as f64 * width,
                high: (index + 1) as f64 * width,
                ..Bin::default()
            })
            .collect();
        for one in scored {
            let bin = &mut bins[bin(one.score, Self::BINS)];
            bin.mean_score += f64::from(one.score.clamp(0.0, 1.0));
            bin.positives.add(one.positive);
        }
        let mut error = 0.0;
        for bin in bins.iter_mut().filter(|bin| bin.positives.of > 0) {
            bin.mean_score /= bin.positives.of as f64;
            let weight = bin.positives.of as f64 / scored.len() as f64;
            error += weight * (bin.mean_score - bin.positives.share()).abs();
        }
        Self { bins, error }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scored(positives: &[f32], negatives: &[f32]) -> Vec<Scored> {
        let make = |positive| move |&score: &f32| Scored { score, positive };
        let positives = positives.iter().map(make(true));
        positives.chain(negatives.iter().map(make(false))).collect()
    }

    #[test]
    fn curves_of_known_shape() {
        for (positives, negatives, auc, balanced) in [
            (&[0.9, 0.8][..], &[0.1, 0.2][..], 1.0, 0.5),
            (&[0.1, 0.2], &[0.9, 0.8], 0.0, 0.5),
            (&[0.5, 0.5], &[0.5], 0.5, 0.5),
            (&[0.9, 0.4], &[0.6, 0.2], 0.75, 0.3),
        ] {
            let roc = Roc::new(&scored(positives, negatives)).unwrap();
            assert!((roc.auc() - auc).abs() < 1e-9, "{positives:?}");
            let threshold = roc.balanced_threshold();
            assert!(
                (threshold - balanced).abs() < 1e-6,
                "{positives:?}: {threshold}"
            );
        }
        assert_eq!(Roc::new(&scored(&[0.5], &[])), None);
        assert_eq!(Roc::new(&scored(&[], &[0.5])), None);
    }

    #[test]
    fn a_threshold_lets_so_many_negatives_through_and_no_more() {
        let negatives: Vec<f32> = (0..100_u8).map(|n| f32::from(n) / 100.0).collect();
        for (most, found) in [(0.0, 0), (0.005, 0), (0.01, 1), (0.29, 29), (1.0, 100)] {
            let threshold = threshold_at(&negatives, most);
            let wrong = negatives.iter().filter(|score| **score >= threshold);
            assert_eq!(wrong.count(), found, "{most}");
        }
        // Ties are not split.
        assert!(threshold_at(&[0.5; 10], 0.3) > 0.5);
        assert_eq!(threshold_at(&[], 0.1), 0.0);
    }

    #[test]
    fn reliability_of_a_few_scores() {
        let curve = Reliability::new(&scored(&[0.95, 1.0, 0.2], &[0.25, 0.0]));
        let counts: Vec<usize> = curve.bins.iter().map(|bin| bin.positives.of).collect();
        assert_eq!(counts, [1, 0, 2, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(curve.bins[2].positives.hits, 1);
        // 0 · 1/5 + |0.225 − 0.5| · 2/5 + |0.975 − 1| · 2/5
        assert!((curve.error - 0.12).abs() < 1e-6, "{}", curve.error);
        assert_eq!(Reliability::new(&[]).error, 0.0);
    }

    fn any_scored() -> impl Strategy<Value = Vec<Scored>> {
        // Few different scores, so that many are equal.
        let one = (0_u8..=20, any::<bool>()).prop_map(|(score, positive)| Scored {
            score: f32::from(score) / 20.0,
            positive,
        });
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        #[test]
        fn curves_rise_within_bounds(scored in any_scored(), most in 0.0..=1.0_f64) {
            let Some(roc) = Roc::new(&scored) else {
                return Ok(());
            };
            prop_assert!((0.0..=1.0).contains(&roc.auc()));
            for pair in roc.points().windows(2) {
                prop_assert!(pair[0].threshold > pair[1].threshold);
                prop_assert!(pair[0].recall.hits <= pair[1].recall.hits);
                prop_assert!(pair[0].false_positives.hits <= pair[1].false_positives.hits);
            }
            let last = roc.points().last().unwrap();
            prop_assert_eq!((last.recall.share(), last.false_positives.share()), (1.0, 1.0));
            let at = roc.at_false_positive_rate(most);
            prop_assert!(at.false_positives.share() <= most);
            let more = roc.at_false_positive_rate((most + 0.1).min(1.0));
            prop_assert!(at.recall.hits <= more.recall.hits);
            let confusion = Confusion::at(&scored, at.threshold);
            prop_assert_eq!(confusion.recall(), at.recall);
            prop_assert_eq!(confusion.false_positive_rate(), at.false_positives);
        }

        #[test]
        fn the_order_of_texts_does_not_matter(scored in any_scored(), seed in any::<u64>()) {
            let mut other = scored.clone();
            other.sort_by_key(|one| u64::from(one.score.to_bits()).wrapping_mul(seed));
            prop_assert_eq!(Roc::new(&scored), Roc::new(&other));
            let (a, b) = (Reliability::new(&scored), Reliability::new(&other));
            prop_assert!((a.error - b.error).abs() < 1e-9);
        }

        #[test]
        fn turning_all_scores_around_turns_the_curve_around(scored in any_scored()) {
            let turned: Vec<Scored> = scored.iter().map(|one| Scored { score: -one.score, ..*one }).collect();
            if let (Some(roc), Some(turned)) = (Roc::new(&scored), Roc::new(&turned)) {
                prop_assert!((roc.auc() + turned.auc() - 1.0).abs() < 1e-9);
            }
        }

        #[test]
        fn no_threshold_has_a_better_balance(scored in any_scored(), other in 0.0..1.0_f32) {
            if let Some(roc) = Roc::new(&scored) {
                let best = Confusion::at(&scored, roc.balanced_threshold()).balanced_accuracy();
                let other = Confusion::at(&scored, other).balanced_accuracy();
                prop_assert!(best >= other - 1e-9 || other <= 0.5);
            }
        }

        #[test]
        fn a_calibration_error_is_a_share(scored in any_scored()) {
            let curve = Reliability::new(&scored);
            prop_assert!((0.0..=1.0).contains(&curve.error));
            let all: usize = curve.bins.iter().map(|bin| bin.positives.of).sum();
            prop_assert_eq!(all, scored.len());
        }

        #[test]
        fn pooled_thresholds_keep_their_rate(scored in any_scored(), most in 0.0..=1.0_f64) {
            let negatives: Vec<f32> = scored.iter().map(|one| one.score).collect();
            let threshold = threshold_at(&negatives, most);
            let wrong = negatives.iter().filter(|score| **score >= threshold).count();
            prop_assert!(wrong as f64 <= most * negatives.len() as f64 + 1e-5);
        }
    }
}

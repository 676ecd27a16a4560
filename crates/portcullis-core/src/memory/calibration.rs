//! How well agents know what they know.

use serde::Serialize;

use super::decision::Outcome;

/// With fewer there is nothing to learn.
const ENOUGH: usize = 10;

/// With fewer a bucket has nothing to say of its own.
const ENOUGH_IN_BUCKET: usize = 5;

/// A gap that nobody need mind.
const TOLERATED_GAP: f64 = 0.05;

/// A gap in a bucket that is worth a word.
const NOTABLE_GAP: f64 = 0.1;

const BUCKETS: usize = 10;

/// What agents believed, held against what happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calibration {
    /// How many decisions count: those with a confidence and a review. What was abandoned shows nothing.
    pub decisions: usize,
    /// The mean of the squared distance between confidence and outcome: 0 is perfect, 0.25 is what
    /// always saying 0.5 gets, 1 is being surely wrong every time.
    pub brier_score: Option<f64>,
    /// What always saying `successRate` would get. Who scores worse has confidence that says nothing.
    pub brier_baseline: Option<f64>,
    /// How sure agents were, on average.
    pub mean_confidence: Option<f64>,
    /// How much turned out well; a partial success is half of one.
    pub success_rate: Option<f64>,
    /// `meanConfidence` − `successRate`.
    pub gap: Option<f64>,
    /// Which way they err.
    pub tendency: Tendency,
    /// By how sure they were, a tenth each; only those that have decisions.
    pub buckets: Vec<Bucket>,
    /// What to do about it.
    pub recommendations: Vec<String>,
}

/// Which way agents err.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tendency {
    /// There are too few reviews to tell, or chance would explain the gap.
    Unknown,
    /// Neither way.
    WellCalibrated,
    /// Surer than they should be.
    Overconfident,
    /// Less sure than they could be.
    Underconfident,
}

impl Tendency {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::WellCalibrated => "well-calibrated",
            Self::Overconfident => "overconfident",
            Self::Underconfident => "underconfident",
        }
    }
}

/// Decisions of like confidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// From this confidence on,
    pub from: f64,
    /// to below this one; the last has 1 in it too.
    pub to: f64,
    /// How many.
    pub decisions: usize,
    /// How sure agents were.
    pub mean_confidence: f64,
    /// How much of it turned out well.
    pub success_rate: f64,
    /// `meanConfidence` − `successRate`.
    pub gap: f64,
}

impl Calibration {
    /// Of how sure agents were and how it turned out.
    pub fn of(track_record: &[(f64, Outcome)]) -> Self {
        let counted: Vec<(f64, f64)> = track_record
            .iter()
            .filter_map(|(confidence, outcome)| Some((*confidence, worth(*outcome)?)))
            .collect();
        let whole = Means::of(&counted);
        let buckets = buckets(&counted);
        let tendency = whole.as_ref().map_or(Tendency::Unknown, Means::tendency);
        Self {
            decisions: counted.len(),
            brier_score: whole.as_ref().map(|means| rounded(means.brier)),
            brier_baseline: whole.as_ref().map(|means| rounded(means.variance)),
            mean_confidence: whole.as_ref().map(|means| rounded(means.confidence)),
            success_rate: whole.as_ref().map(|means| rounded(means.success)),
            gap: whole.as_ref().map(|means| rounded(means.gap())),
            tendency,
            recommendations: recommendations(whole.as_ref(), tendency, &buckets),
            buckets,
        }
    }
}

/// How much of a success it is.
fn worth(outcome: Outcome) -> Option<f64> {
    match outcome {
        Outcome::Success => Some(1.0),
        Outcome::Partial => Some(0.5),
        Outcome::Failure => Some(0.0),
        Outcome::Abandoned => None,
    }
}

struct Means {
    count: usize,
    confidence: f64,
    success: f64,
    brier: f64,
    variance: f64,
}

impl Means {
    fn of(counted: &[(f64, f64)]) -> Option<Self> {
        if counted.is_empty() {
            return None;
        }
        let count = counted.len() as f64;
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            counted
                .iter()
                .map(|(said, was)| of(*said, *was))
                .sum::<f64>()
                / count
        };
        let success = mean(&|_, was| was);
        Some(Self {
            count: counted.len(),
            confidence: mean(&|said, _| said),
            success,
            brier: mean(&|said, was| (said - was).powi(2)),
            variance: mean(&|_, was| (was - success).powi(2)),
        })
    }

    fn gap(&self) -> f64 {
        self.confidence - self.success
    }

    /// Only a gap that chance would hardly make says anything.
    fn tendency(&self) -> Tendency {
        if self.count < ENOUGH {
            return Tendency::Unknown;
        }
        let chance = 2.0 * (self.brier / self.count as f64).sqrt();
        match self.gap() {
            gap if gap.abs() <= TOLERATED_GAP => Tendency::WellCalibrated,
            gap if gap.abs() <= chance => Tendency::Unknown,
            gap if gap > 0.0 => Tendency::Overconfident,
            _ => Tendency::Underconfident,
        }
    }
}

fn buckets(counted: &[(f64, f64)]) -> Vec<Bucket> {
    let mut filled: [Vec<(f64, f64)>; BUCKETS] = Default::default();
    for (said, was) in counted {
        // A confidence is from 0 to 1.
        #[expect(clippy::cast_sign_loss, reason = "a confidence is not negative")]
        let bucket = (said * BUCKETS as f64) as usize;
        filled[bucket.min(BUCKETS - 1)].push((*said, *was));
    }
    let with_decisions = filled.iter().enumerate().filter_map(|(n, counted)| {
        let means = Means::of(counted)?;
        Some(Bucket {
            from: n as f64 / BUCKETS as f64,
            to: (n + 1) as f64 / BUCKETS as f64,
            decisions: means.count,
            mean_confidence: rounded(means.confidence),
            success_rate: rounded(means.success),
            gap: rounded(means.gap()),
        })
    });
    with_decisions.collect()
}

fn recommendations(whole: Option<&Means>, tendency: Tendency, buckets: &[Bucket]) -> Vec<String> {
    let count = whole.map_or(0, |means| means.count);
    if count < ENOUGH {
        let missing = ENOUGH - count;
        let decisions = if missing == 1 {
            "decision"
        } else {
            "decisions"
        };
        return vec![format!(
            "Review {missing} more {decisions} that had a confidence: fewer than {ENOUGH} say nothing"
        )];
    }
    let mut advice = Vec::new();
    if let Some(means) = whole {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let (said, was) = (percent(means.confidence), percent(means.success));
        match tendency {
            Tendency::Overconfident => advice.push(format!(
                "Overconfident: {said} sure on average, and {was} turned out well. Ask what could go \
                 wrong before saying how sure you are"
            )),
            Tendency::Underconfident => advice.push(format!(
                "Underconfident: {said} sure on average, and {was} turned out well. Say so when the \
                 reasons are good"
            )),
            Tendency::WellCalibrated | Tendency::Unknown => {}
        }
        if means.brier > means.variance {
            advice.push(format!(
                "Always saying {:.2} would score better ({:.3} instead of {:.3}): the confidence does \
                 not tell good decisions from bad ones yet",
                means.success, means.variance, means.brier
            ));
        }
    }
    let telling = buckets
        .iter()
        .filter(|bucket| bucket.decisions >= ENOUGH_IN_BUCKET && bucket.gap.abs() >= NOTABLE_GAP);
    advice.extend(telling.map(|bucket| {
        format!(
            "Between {:.1} and {:.1}, {:.0} % of {} turned out well: say {:.2} there",
            bucket.from,
            bucket.to,
            bucket.success_rate * 100.0,
            bucket.decisions,
            bucket.success_rate
        )
    }));
    if advice.is_empty() {
        advice.push(match tendency {
            Tendency::Unknown => "No clear tendency yet: review more decisions".to_owned(),
            _ => "Well calibrated: go on as you do".to_owned(),
        });
    }
    advice
}

/// Four digits tell all that there is to tell.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repeated(confidence: f64, successes: usize, failures: usize) -> Vec<(f64, Outcome)> {
        let good = std::iter::repeat_n((confidence, Outcome::Success), successes);
        let bad = std::iter::repeat_n((confidence, Outcome::Failure), failures);
        good.chain(bad).collect()
    }

    #[test]
    fn nothing_reviewed_says_nothing() {
        let none = Calibration::of(&[]);
        assert_eq!(none.brier_score, None);
        assert_eq!(none.tendency, Tendency::Unknown);
        assert_eq!(none.recommendations.len(), 1);
    }

    #[test]
    fn the_brier_score_is_the_mean_of_squares() {
        let record = [
            (0.8, Outcome::Success),
            (0.6, Outcome::Failure),
            (0.5, Outcome::Partial),
            (0.9, Outcome::Abandoned),
        ];
        let calibration = Calibration::of(&record);
        // (0.2² + 0.6² + 0²) / 3
        assert_eq!(calibration.brier_score, Some(0.1333));
        assert_eq!(calibration.decisions, 3);
    }

    #[test]
    fn the_sure_who_fail_are_overconfident() {
        let calibration = Calibration::of(&repeated(0.9, 10, 10));
        assert_eq!(calibration.tendency, Tendency::Overconfident);
        assert_eq!(calibration.gap, Some(0.4));
        let advice = calibration.recommendations.join("\n");
        assert!(advice.contains("say 0.50 there"), "{advice}");
        assert!(advice.contains("Always saying 0.50"), "{advice}");
    }

    #[test]
    fn the_doubtful_who_succeed_are_underconfident() {
        let calibration = Calibration::of(&repeated(0.5, 19, 1));
        assert_eq!(calibration.tendency, Tendency::Underconfident);
    }

    #[test]
    fn chance_is_not_taken_for_a_tendency() {
        // 12 decisions at 0.7 of which 7 instead of 8.4 succeed.
        let calibration = Calibration::of(&repeated(0.7, 7, 5));
        assert_eq!(calibration.tendency, Tendency::Unknown);
        let calibration = Calibration::of(&repeated(0.7, 7, 3));
        assert_eq!(calibration.tendency, Tendency::WellCalibrated);
    }

    proptest! {
        #[test]
        fn every_counted_decision_is_in_one_bucket(
            record in prop::collection::vec((0.0..=1.0f64, prop::sample::select(&Outcome::ALL)), 0..200)
        ) {
            let calibration = Calibration::of(&record);
            let in_buckets: usize = calibration.buckets.iter().map(|bucket| bucket.decisions).sum();
            prop_assert_eq!(in_buckets, calibration.decisions);
            for bucket in &calibration.buckets {
                prop_assert!(bucket.from <= bucket.mean_confidence + 1e-4);
                prop_assert!(bucket.mean_confidence <= bucket.to + 1e-4);
            }
            if let Some(brier) = calibration.brier_score {
                prop_assert!((0.0..=1.0).contains(&brier));
            }
            prop_assert!(!calibration.recommendations.is_empty());
        }
    }
}

//! From verdicts to figures.

use std::collections::BTreeMap;

use portcullis_models::evaluation::{
    FALSE_POSITIVE_RATES, LENGTHS, Rate, Reliability, Roc, Scored, length_bucket, threshold_at,
};
use serde::{Serialize, Serializer};

use super::judge::Verdict;
use super::sets::{Set, Text};

/// All that is found out.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) model: String,
    /// The labels that count.
    pub(super) labels: Vec<String>,
    pub(super) threshold: f32,
    pub(super) threshold_from: String,
    pub(super) sets: Vec<SetMeasured>,
    /// All sets together.
    pub(super) all: SetMeasured,
    /// The threshold that keeps each rate of false positives on the harmless texts of all sets.
    pub(super) thresholds: Vec<(f64, f32)>,
    /// The texts of all sets, by how long they are.
    pub(super) by_length: Vec<SetMeasured>,
    /// The same by what language they are in.
    pub(super) by_language: Vec<SetMeasured>,
    pub(super) reliability: Reliability,
    #[serde(skip)]
    pub(super) scored: Vec<Scored>,
}

/// A set's figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct SetMeasured {
    pub(super) name: String,
    pub(super) texts: usize,
    /// Texts of which the model has judged only a part.
    pub(super) cut_off: usize,
    #[serde(serialize_with = "with_interval")]
    pub(super) recall: Rate,
    #[serde(serialize_with = "with_interval")]
    pub(super) false_positives: Rate,
    /// Against the harmless texts of all sets.
    pub(super) auc: Option<f64>,
    pub(super) recall_at: Vec<RecallAt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patterns: Option<Found>,
    /// What the patterns or the model find.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) together: Option<Found>,
}

#[derive(Debug, Serialize)]
pub(super) struct RecallAt {
    pub(super) false_positive_rate: f64,
    #[serde(serialize_with = "with_interval")]
    pub(super) recall: Rate,
}

/// What is found, rightly and wrongly.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(super) struct Found {
    #[serde(serialize_with = "with_interval")]
    pub(super) recall: Rate,
    #[serde(serialize_with = "with_interval")]
    pub(super) false_positives: Rate,
}

impl Found {
    fn add(&mut self, found: bool, positive: bool) {
        if positive {
            self.recall.add(found);
        } else {
            self.false_positives.add(found);
        }
    }
}

fn with_interval<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WithInterval {
        hits: usize,
        of: usize,
        share: Option<f64>,
        low: f64,
        high: f64,
    }
    let (low, high) = rate.interval();
    WithInterval {
        hits: rate.hits,
        of: rate.of,
        share: (rate.of > 0).then(|| rate.share()),
        low,
        high,
    }
    .serialize(serializer)
}

/// Where texts begin to count, and who says so.
pub(super) struct Threshold {
    pub(super) value: f32,
    pub(super) from: String,
}

/// One text with all that is said of it.
struct One<'a> {
    text: &'a Text,
    verdict: Verdict,
    patterns: Option<bool>,
}

/// Counts. Verdicts are in the order of the sets' texts.
pub(super) fn measure(
    model: String,
    labels: Vec<String>,
    sets: &[Set],
    verdicts: &[Verdict],
    patterns: Option<&[bool]>,
    threshold: Threshold,
) -> Measured {
    let mut each = sets
        .iter()
        .flat_map(|set| &set.texts)
        .zip(verdicts)
        .enumerate()
        .map(|(index, (text, verdict))| One {
            text,
            verdict: *verdict,
            patterns: patterns.map(|patterns| patterns[index]),
        });
    let by_set: Vec<(&Set, Vec<One<'_>>)> = sets
        .iter()
        .map(|set| (set, each.by_ref().take(set.texts.len()).collect()))
        .collect();
    let counted = by_set.iter().filter(|(set, _)| !set.derived);
    let everything: Vec<&One<'_>> = counted.flat_map(|(_, texts)| texts).collect();
    let harmless = everything.iter().filter(|one| !one.text.positive);
    let negatives: Vec<f32> = harmless.map(|one| one.verdict.score).collect();
    let thresholds: Vec<(f64, f32)> = FALSE_POSITIVE_RATES
        .iter()
        .filter(|_| !negatives.is_empty())
        .map(|rate| (*rate, threshold_at(&negatives, *rate)))
        .collect();
    let counts = Counts {
        threshold: threshold.value,
        thresholds: &thresholds,
        negatives: &negatives,
    };
    let scored: Vec<Scored> = everything.iter().map(|one| scored(one)).collect();
    let mut by_length = LENGTHS.map(|(name, _)| (name, Vec::new()));
    let mut by_language: BTreeMap<&str, Vec<&One<'_>>> = BTreeMap::new();
    for one in &everything {
        by_length[length_bucket(&one.text.content)].1.push(*one);
        by_language.entry(&one.text.language).or_default().push(one);
    }
    let part = |(name, texts): (&str, Vec<&One<'_>>)| {
        let is_there = !texts.is_empty();
        is_there.then(|| counts.of(name, &texts))
    };
    Measured {
        model,
        labels,
        sets: by_set
            .iter()
            .map(|(set, texts)| counts.of(&set.name, &texts.iter().collect::<Vec<_>>()))
            .collect(),
        all: counts.of("all sets", &everything),
        by_length: by_length.into_iter().filter_map(part).collect(),
        by_language: by_language.into_iter().filter_map(part).collect(),
        reliability: Reliability::new(&scored),
        scored,
        threshold: threshold.value,
        threshold_from: threshold.from,
        thresholds,
    }
}

struct Counts<'a> {
    threshold: f32,
    thresholds: &'a [(f64, f32)],
    negatives: &'a [f32],
}

impl Counts<'_> {
    fn of(&self, name: &str, texts: &[&One<'_>]) -> SetMeasured {
        let (mut model, mut patterns, mut together) =
            (Found::default(), Found::default(), Found::default());
        for one in texts {
            let found = one.verdict.score >= self.threshold;
            model.add(found, one.text.positive);
            if let Some(flagged) = one.patterns {
                patterns.add(flagged, one.text.positive);
                together.add(flagged || found, one.text.positive);
            }
        }
        let with_patterns = texts.iter().any(|one| one.patterns.is_some());
        let attacks = || texts.iter().filter(|one| one.text.positive);
        let recall_at = self.thresholds.iter().map(|(rate, threshold)| RecallAt {
            false_positive_rate: *rate,
            recall: attacks()
                .map(|one| one.verdict.score >= *threshold)
                .collect(),
        });
        let negatives = self.negatives.iter().map(|score| Scored {
            score: *score,
            positive: false,
        });
        let against_all: Vec<Scored> = attacks().map(|one| scored(one)).chain(negatives).collect();
        SetMeasured {
            name: name.to_owned(),
            texts: texts.len(),
            cut_off: texts.iter().filter(|one| !one.verdict.complete).count(),
            recall: model.recall,
            false_positives: model.false_positives,
            auc: Roc::new(&against_all).map(|roc| roc.auc()),
            recall_at: if model.recall.of > 0 {
                recall_at.collect()
            } else {
                Vec::new()
            },
            patterns: with_patterns.then_some(patterns),
            together: with_patterns.then_some(together),
        }
    }
}

fn scored(one: &One<'_>) -> Scored {
    Scored {
        score: one.verdict.score,
        positive: one.text.positive,
    }
}

//! From labelled examples to a classifier, with figures for texts that it has not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_core::classifier::is_harmless;
use portcullis_core::memory::{EmbedError, Embedder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::file::{EmbedderUsed, File, SCHEMA, Training, VERSION};
use super::sections::Sections;
use super::solve::Problem;
use super::{LinearClassifier, vectors};
use crate::evaluation::{
    Confusion, FALSE_POSITIVE_RATES, Rate, Reliability, Roc, Scored, threshold_at,
};

/// A text and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// As it will come to be judged.
    pub text: String,
    /// What it is an example of.
    pub label: String,
}

/// How to train.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// What to call it.
    pub name: String,
    /// Today, for the file. It makes no difference to the classifier's name.
    pub created: String,
    /// Labels that count as a finding. With none, all that are not known names for harmless text.
    pub positive: Vec<String>,
    /// Parts of the texts: the first is judged by itself, and all of them together.
    pub sections: Sections,
    /// Into how many parts the examples are split: each is judged by a model that has seen only the others.
    pub folds: usize,
    /// Choose the threshold that finds the most while wrongly finding no more than this share. Without it, the one with
    /// the best balanced accuracy.
    pub max_false_positive_rate: Option<f64>,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            name: "classifier".to_owned(),
            created: String::new(),
            positive: Vec::new(),
            sections: Sections::default(),
            folds: 5,
            max_false_positive_rate: None,
        }
    }
}

/// Why there is no classifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// The examples cannot be learned from.
    #[error("{0}")]
    Examples(String),
    /// The same text has two labels.
    #[error(
        "examples {} and {} are the same text, once as `{}` and once as `{}`: remove one",
        places[0] + 1, places[1] + 1, labels[0], labels[1]
    )]
    Contradiction {
        /// Which examples, from 0.
        places: [usize; 2],
        /// What each says.
        labels: [String; 2],
    },
    /// The options do not fit the examples.
    #[error("{0}")]
    Options(String),
    /// So few or so many parts that there is nothing to learn from.
    #[error("`folds` is {folds}: expected 2 to {most}")]
    Folds {
        /// How many.
        folds: usize,
        /// How many there may be.
        most: usize,
    },
    /// Neither the names of the labels nor the options say which are to be found.
    #[error(
        "which labels are to be found is not clear ({0}): name one or more in `positive`, but not all"
    )]
    Unclear(String),
    /// The embedder gives no vectors.
    #[error(transparent)]
    Embed(#[from] EmbedError),
}

/// What was learned, and how well.
#[derive(Debug)]
pub struct Trained {
    /// Made from all examples.
    pub classifier: LinearClassifier,
    /// For texts that a model has not seen.
    pub cross_validation: CrossValidation,
    /// Each value of `C` that was tried, and its mean loss. The one with the smallest was taken.
    pub tried: Vec<(f64, f64)>,
    /// For every example what a model says that has not seen it.
    pub out_of_fold: Vec<Scored>,
    /// Which example each of them is, by its place.
    pub places: Vec<usize>,
    /// Examples that were left out because the same text came before with the same label.
    pub repeated: usize,
}

/// How well models do on examples that they have not seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossValidation {
    /// Into how many parts the examples were split.
    pub folds: usize,
    /// The mean negative logarithm of what the right label got.
    pub loss: f64,
    /// How likely a text to be found scores higher than one that is not.
    pub auc: f64,
    /// Expected calibration error.
    pub calibration_error: f64,
    /// The mean of recall and the share that rightly passes, at the threshold.
    pub balanced_accuracy: f64,
    /// At the threshold.
    pub recall: Rate,
    /// At the threshold.
    pub false_positives: Rate,
    /// Recall at fixed rates of false positives.
    pub recall_at: Vec<RecallAt>,
}

/// Recall at a rate of false positives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallAt {
    /// No more than this share of the others is found.
    pub false_positive_rate: f64,
    /// What is found then.
    pub recall: Rate,
}

/// Values of `C`, from few and small weights to many and large ones.
const GRID: [f64; 7] = [0.1, 1.0, 10.0, 30.0, 100.0, 300.0, 1000.0];
const MOST_FOLDS: usize = 20;

/// Learns from examples, on all cores. `progress` hears how much of how much is done. The order of the examples makes no
/// difference.
pub fn train(
    examples: &[Example],
    embedder: Arc<dyn Embedder>,
    options: &TrainOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Trained, TrainError> {
    let set = Set::new(examples, options)?;
    let width = GRID.len() * options.folds + 2;
    let vectors = vectors(&*embedder, &options.sections, &set.texts)?;
    progress(1, width);
    let folds = set.folds(options.folds);
    let fits = cross_validate(&set, &vectors, &folds, options.folds, &|done| {
        progress(1 + done, width);
    });
    let losses = fits.iter().map(|fit| set.loss(fit));
    let tried: Vec<(f64, f64)> = GRID.into_iter().zip(losses).collect();
    let best = tried.iter().enumerate().fold(
        0,
        |best, (index, (_, loss))| {
            if *loss < tried[best].1 { index } else { best }
        },
    );
    let out_of_fold = set.scored(&fits[best]);
    let (threshold, threshold_from) = threshold(&out_of_fold, options);
    let cross_validation = figures(&out_of_fold, threshold, options.folds, tried[best].1);
    let everybody: Vec<usize> = (0..set.texts.len()).collect();
    let weights = set.problem(&vectors, &everybody, GRID[best]).solve();
    progress(width, width);
    let split: Vec<(&f64, &[f64])> = weights
        .rows
        .iter()
        .filter_map(|row| row.split_last())
        .collect();
    let file = File {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        name: options.name.clone(),
        created: options.created.clone(),
        embedder: EmbedderUsed {
            name: embedder.name().to_owned(),
            dimension: embedder.dimension(),
        },
        sections: options.sections.clone(),
        labels: set.labels.iter().map(ToString::to_string).collect(),
        positive: set.positive_names(),
        threshold,
        threshold_from,
        training: Training {
            examples: set.counts(),
            sha256: set.digest.clone(),
            c: GRID[best],
            cross_validation: cross_validation.clone(),
        },
        bias: split.iter().map(|(bias, _)| **bias as f32).collect(),
        weights: split
            .iter()
            .map(|(_, row)| row.iter().map(|weight| *weight as f32).collect())
            .collect(),
    };
    Ok(Trained {
        classifier: LinearClassifier::new(file, embedder),
        cross_validation,
        tried,
        out_of_fold,
        places: set.places,
        repeated: examples.len() - everybody.len(),
    })
}

/// The examples, each once, in an order of their own.
struct Set<'e> {
    texts: Vec<&'e str>,
    /// Where they were among those given.
    places: Vec<usize>,
    /// By their places in `labels`.
    truth: Vec<usize>,
    labels: Vec<&'e str>,
    /// For each label whether it counts as a finding.
    positive: Vec<bool>,
    digest: String,
}

impl<'e> Set<'e> {
    fn new(examples: &'e [Example], options: &TrainOptions) -> Result<Self, TrainError> {
        let wrong = |why: String| Err(TrainError::Examples(why));
        if let Some(why) = options.sections.problem() {
            return Err(TrainError::Options(why));
        }
        if !(2..=MOST_FOLDS).contains(&options.folds) {
            return Err(TrainError::Folds {
                folds: options.folds,
                most: MOST_FOLDS,
            });
        }
        let rate = options.max_false_positive_rate;
        if rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
            let why = "the highest rate of false positives is a number from 0 to 1";
            return Err(TrainError::Options(why.to_owned()));
        }
        // By digest: the order is the same whichever way the examples came, and as good as random.
        let mut by_digest: BTreeMap<[u8; 32], (usize, &Example)> = BTreeMap::new();
        for (index, example) in examples.iter().enumerate() {
            if example.text.trim().is_empty() {
                return wrong(format!("example {} has an empty text", index + 1));
            }
            if example.label.trim().is_empty() {
                return wrong(format!("example {} has an empty label", index + 1));
            }
            let digest: [u8; 32] = Sha256::digest(example.text.as_bytes()).into();
            let (first, before) = *by_digest.entry(digest).or_insert((index, example));
            if before.label != example.label {
                return Err(TrainError::Contradiction {
                    places: [first, index],
                    labels: [before, example].map(|one| one.label.clone()),
                });
            }
        }
        let names: BTreeSet<&str> = by_digest.values().map(|(_, e)| e.label.as_str()).collect();
        let labels: Vec<&str> = names.into_iter().collect();
        let mut all = Sha256::new();
        let (mut texts, mut places, mut truth) = (Vec::new(), Vec::new(), Vec::new());
        for (place, example) in by_digest.into_values() {
            for part in [&example.label, &example.text] {
                all.update((part.len() as u64).to_le_bytes());
                all.update(part.as_bytes());
            }
            texts.push(example.text.as_str());
            places.push(place);
            truth.extend(labels.binary_search(&example.label.as_str()));
        }
        let set = Self {
            positive: positive(&labels, &options.positive)?,
            texts,
            places,
            truth,
            labels,
            digest: hex(&all.finalize()),
        };
        for (label, count) in set.counts() {
            if count < options.folds {
                return wrong(format!(
                    "`{label}` has {count} different example(s), and {} folds need as many of each label: add some, or \
                     take fewer folds",
                    options.folds
                ));
            }
        }
        Ok(set)
    }

    fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for &label in &self.truth {
            *counts.entry(self.labels[label].to_owned()).or_default() += 1;
        }
        counts
    }

    fn positive_names(&self) -> Vec<String> {
        let named = self.labels.iter().zip(&self.positive);
        let named = named.filter(|(_, positive)| **positive);
        named.map(|(label, _)| (*label).to_owned()).collect()
    }

    /// For each example its fold: of every label as many in one as in another.
    fn folds(&self, count: usize) -> Vec<usize> {
        let mut next = vec![0; self.labels.len()];
        let deal = |label: &usize| {
            let fold = next[*label] % count;
            next[*label] += 1;
            fold
        };
        self.truth.iter().map(deal).collect()
    }

    fn problem<'a>(&'a self, vectors: &'a [Vec<f32>], members: &'a [usize], c: f64) -> Problem<'a> {
        Problem {
            vectors,
            labels: &self.truth,
            members,
            classes: self.labels.len(),
            c,
        }
    }

    /// The mean negative logarithm of what the right label got.
    fn loss(&self, scores: &[Vec<f64>]) -> f64 {
        let each = scores.iter().zip(&self.truth);
        let each = each.map(|(scores, &label)| -scores[label].max(1e-15).ln());
        each.sum::<f64>() / self.truth.len() as f64
    }

    fn scored(&self, scores: &[Vec<f64>]) -> Vec<Scored> {
        let each = scores.iter().zip(&self.truth);
        each.map(|(scores, &label)| {
            let sought = scores.iter().zip(&self.positive);
            let sought = sought.filter(|(_, positive)| **positive);
            Scored {
                score: sought.map(|(score, _)| score).sum::<f64>() as f32,
                positive: self.positive[label],
            }
        })
        .collect()
    }
}

fn positive(labels: &[&str], named: &[String]) -> Result<Vec<bool>, TrainError> {
    let all = labels.join(", ");
    if labels.len() < 2 {
        let found = if labels.is_empty() { "none" } else { &all };
        return Err(TrainError::Examples(format!(
            "two labels at least are needed to tell texts apart, and the examples have {found}"
        )));
    }
    if let Some(name) = named.iter().find(|name| !labels.contains(&name.as_str())) {
        return Err(TrainError::Options(format!(
            "no example has the label `{name}`: they have {all}"
        )));
    }
    let positive: Vec<bool> = labels
        .iter()
        .map(|label| match named {
            [] => !is_harmless(label),
            _ => named.iter().any(|name| name == label),
        })
        .collect();
    if positive.iter().all(|one| *one) || !positive.contains(&true) {
        return Err(TrainError::Unclear(all));
    }
    Ok(positive)
}

/// For each value of `C` and each example what a model says that has not seen the example.
fn cross_validate(
    set: &Set<'_>,
    vectors: &[Vec<f32>],
    folds: &[usize],
    count: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Vec<Vec<f64>>> {
    let jobs = GRID.len() * count;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut results = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return results;
            }
            let (grid, fold) = (job / count, job % count);
            let inside = |inside: bool| {
                let places = folds.iter().enumerate();
                let places = places.filter(move |(_, of)| (**of == fold) == inside);
                places.map(|(place, _)| place).collect::<Vec<_>>()
            };
            let weights = set.problem(vectors, &inside(false), GRID[grid]).solve();
            for place in inside(true) {
                results.push((grid, place, weights.judge(&vectors[place])));
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(jobs)).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for other in others {
            match other.join() {
                Ok(found) => results.extend(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    let mut fits = vec![vec![vec![0.0; set.labels.len()]; vectors.len()]; GRID.len()];
    for (grid, place, scores) in results {
        fits[grid][place] = scores;
    }
    fits
}

/// Where texts begin to count, and how that was chosen.
fn threshold(scored: &[Scored], options: &TrainOptions) -> (f32, String) {
    let folds = options.folds;
    if let Some(most) = options.max_false_positive_rate {
        let negatives = scored.iter().filter(|one| !one.positive);
        let negatives: Vec<f32> = negatives.map(|one| one.score).collect();
        let from = format!(
            "at most {} % false positives in {folds}-fold cross-validation",
            rounded(100.0 * most)
        );
        return (threshold_at(&negatives, most).min(1.0), from);
    }
    let threshold = Roc::new(scored).map_or(0.5, |roc| roc.balanced_threshold());
    let from = format!("best balanced accuracy in {folds}-fold cross-validation");
    (threshold, from)
}

fn figures(scored: &[Scored], threshold: f32, folds: usize, loss: f64) -> CrossValidation {
    let confusion = Confusion::at(scored, threshold);
    let roc = Roc::new(scored);
    let recall_at = |roc: &Roc| {
        let at = |rate| RecallAt {
            false_positive_rate: rate,
            recall: roc.at_false_positive_rate(rate).recall,
        };
        FALSE_POSITIVE_RATES.map(at).to_vec()
    };
    CrossValidation {
        folds,
        loss: rounded(loss),
        auc: rounded(roc.as_ref().map_or(0.5, Roc::auc)),
        calibration_error: rounded(Reliability::new(scored).error),
        balanced_accuracy: rounded(confusion.balanced_accuracy()),
        recall: confusion.recall(),
        false_positives: confusion.false_positive_rate(),
        recall_at: roc.as_ref().map(recall_at).unwrap_or_default(),
    }
}

/// To six places: more would be noise in the file.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

//! What a model, another program or the patterns say of the texts.

use std::collections::HashMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::ProgressBar;
use portcullis_core::classifier::{Sample, SoughtLabels, TextClassifier};
use portcullis_models::evaluation::Patterns;
use serde::Deserialize;

use super::sets::Text;
use crate::output::Failure;

/// What is said of one text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verdict {
    pub(super) score: f32,
    /// Whether all of the text was judged.
    pub(super) complete: bool,
}

/// Few enough for progress to be seen with a slow model, many enough for a batch.
const AT_ONCE: usize = 16;

pub(super) fn by_model(
    classifier: &dyn TextClassifier,
    sought: &SoughtLabels,
    texts: &[&Text],
    bar: &ProgressBar,
) -> Result<Vec<Verdict>, Failure> {
    let judge = |texts: &[&Text]| -> Result<Vec<Verdict>> {
        let samples = texts.iter().map(|text| Sample {
            text: &text.content,
            channel: text.channel,
        });
        let scores = classifier.classify(&samples.collect::<Vec<_>>())?;
        ensure!(
            scores.len() == texts.len(),
            "{} answered {} of {} texts",
            classifier.name(),
            scores.len(),
            texts.len()
        );
        let labels = classifier.labels().len();
        ensure!(
            scores.iter().all(|one| one.is_sound(labels)),
            "{} gave something else than a probability for each of its {labels} labels",
            classifier.name()
        );
        let verdicts = scores.iter().map(|scores| Verdict {
            score: sought.score(scores),
            complete: scores.complete,
        });
        Ok(verdicts.collect())
    };
    on_all_cores(texts, bar, judge).map_err(Failure::Unavailable)
}

/// Whether the patterns find something in each text.
pub(super) fn by_patterns(texts: &[&Text], bar: &ProgressBar) -> Result<Vec<bool>, Failure> {
    let patterns = Patterns::injection().map_err(|report| Failure::Input(report.into()))?;
    let judge = |texts: &[&Text]| {
        let flags = texts
            .iter()
            .map(|text| Ok(patterns.flags(&text.content, text.channel)?));
        flags.collect()
    };
    on_all_cores(texts, bar, judge).map_err(Failure::Unavailable)
}

/// Judges pieces on every core. The answers are in the order of the texts; the first error ends it.
fn on_all_cores<R: Send + Clone>(
    texts: &[&Text],
    bar: &ProgressBar,
    judge: impl Fn(&[&Text]) -> Result<Vec<R>> + Sync,
) -> Result<Vec<R>> {
    let pieces: Vec<&[&Text]> = texts.chunks(AT_ONCE).collect();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<(usize, Result<Vec<R>>)>> = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(pieces.len()) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = pieces.get(index) else {
                        return;
                    };
                    let result = judge(piece);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    bar.inc(piece.len() as u64);
                    if let Ok(mut results) = results.lock() {
                        results.push((index, result));
                    }
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .map_err(|_| anyhow!("judging was cut off"))?;
    results.sort_by_key(|(index, _)| *index);
    let mut all = Vec::with_capacity(texts.len());
    for (_, result) in results {
        all.extend(result?);
    }
    ensure!(all.len() == texts.len(), "judging was cut off");
    Ok(all)
}

#[derive(Deserialize)]
struct ScoreLine {
    #[serde(default)]
    id: Option<String>,
    score: f32,
}

/// What another program says, by id or in order.
pub(super) fn by_scores(path: &Path, texts: &[&Text]) -> Result<Vec<Verdict>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let mut by_id: HashMap<String, f32> = HashMap::new();
    let mut in_order = Vec::new();
    let lines = text.lines().enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let ScoreLine { id, score } = serde_json::from_str(line).with_context(|| {
            format!("{shown}, line {number}: expected {{\"id\": …, \"score\": 0.7}}")
        })?;
        ensure!(
            (0.0..=1.0).contains(&score),
            "{shown}, line {number}: `score` is {score}, not from 0 to 1"
        );
        match id {
            Some(id) if by_id.contains_key(&id) => {
                bail!("{shown}, line {number}: `{id}` has a score already")
            }
            Some(id) => drop(by_id.insert(id, score)),
            None => in_order.push(score),
        }
    }
    ensure!(
        by_id.is_empty() || in_order.is_empty(),
        "{shown}: some lines have an `id` and some have none: give all of them one, or none"
    );
    let verdict = |score| Verdict {
        score,
        complete: true,
    };
    if by_id.is_empty() {
        ensure!(
            in_order.len() == texts.len(),
            "{shown} has {} scores for {} texts: --texts writes the texts that are to be judged",
            in_order.len(),
            texts.len()
        );
        return Ok(in_order.into_iter().map(verdict).collect());
    }
    let known = texts.iter().map(|text| {
        let score = by_id.get(&text.id).copied();
        score
            .map(verdict)
            .with_context(|| format!("{shown} has no score for `{}`", text.id))
    });
    known.collect()
}

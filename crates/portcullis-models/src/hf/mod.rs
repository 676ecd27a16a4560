//! Classifiers of texts from folders of Hugging Face, without Python.
//!
//! A folder has `config.json`, `tokenizer.json` and `model.safetensors`, as `save_pretrained` of `transformers`
//! writes them for a model of sequence classification. Three families are understood, by `model_type`:
//!
//! | `model_type` | such as |
//! |---|---|
//! | `bert` | BERT, `MiniLM` |
//! | `deberta-v2` | `DeBERTa-v2`, `DeBERTa-v3` |
//! | `modernbert` | `ModernBERT` |
//!
//! ```no_run
//! use portcullis_core::classifier::{Channel, Sample, TextClassifier};
//! use portcullis_models::hf::{Options, SequenceClassifier};
//!
//! let model = SequenceClassifier::load("models/injection".as_ref(), Options::default())?;
//! let sample = Sample { text: "Ignore the above.", channel: Channel::User };
//! let scores = model.classify(&[sample])?;
//! println!("{:?} {:?}", model.labels(), scores[0].windows);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The logits are those of `transformers` to four digits after the point. Two things are done differently: a text
//! that says `[SEP]` is a text and not the end of itself, and a text longer than a window is judged window by window
//! instead of being cut.
//!
//! # Long texts
//!
//! Windows overlap, so that what lies across the end of one is whole in the next. Where a text may have several labels,
//! each has its largest score of all windows. Where it has one, one window decides, with its scores as they are: the one
//! that is least likely to be harmless, which is the one with the most on all labels that
//! [`SoughtLabels`] does not know as harmless. Where no label is known as harmless, the first counts as such.

mod bert;
mod config;
mod deberta;
mod head;
mod modernbert;
mod pieces;
mod windows;

use std::fmt;
use std::path::{Path, PathBuf};

use portcullis_core::classifier::{ClassifyError, Sample, Scores, TextClassifier};
use sha2::{Digest, Sha256};

use crate::load::{LARGEST_TEXT, LoadError, read, read_optional};
use crate::numeric::Machine;
use crate::tensors::Tensors;
use config::{Config, Family};
use head::Head;
use pieces::Pieces;

/// How texts are read, and what a model may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Tokens of a window, with those that the model adds. A model with fewer positions has shorter windows.
    pub window: usize,
    /// Tokens that a window shares with the one before. At most half of a window.
    pub overlap: usize,
    /// Windows of a text. What comes after them is not read.
    pub max_windows: usize,
    /// How many tokens go through the model at once. Windows are never cut for it.
    pub batch: usize,
    /// The most bytes that all weights may take as F32. While they are read, the file is in memory besides.
    pub max_memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window: 512,
            overlap: 64,
            max_windows: 8,
            batch: 256,
            max_memory: 4 << 30,
        }
    }
}

/// A classifier from a folder. Each call runs on the thread that makes it.
pub struct SequenceClassifier {
    name: String,
    labels: Vec<String>,
    is_exclusive: bool,
    pieces: Pieces,
    windows: windows::Plan,
    batch: usize,
    encoder: Box<dyn Encoder>,
    head: Head,
    machine: Machine,
}

/// What the model says of a text.
struct Judged {
    /// The logits of each window.
    windows: Vec<Vec<f32>>,
    /// Whether these are all of the text.
    complete: bool,
}

/// What a family makes of tokens.
trait Encoder: Send + Sync {
    /// The row of each text that its head looks at, one behind the other. No text is empty or longer than a window,
    /// and every token is below the size of the vocabulary.
    fn pooled(&self, machine: Machine, texts: &[Vec<u32>]) -> Vec<f32>;
}

impl SequenceClassifier {
    /// Reads `config.json`, `tokenizer.json` and `model.safetensors`.
    pub fn load(folder: &Path, options: Options) -> Result<Self, LoadError> {
        let paths = Paths::of(folder);
        let config = read(&paths.config, LARGEST_TEXT)?;
        let tokenizer = read(&paths.tokenizer, LARGEST_TEXT)?;
        let Some(weights) = read_optional(&paths.weights, options.max_memory)? else {
            return Err(no_weights(folder, &paths.weights));
        };
        Self::from_parts(&paths, &config, &tokenizer, &weights, options)
    }

    /// The same from what the three files have in them.
    pub fn from_bytes(
        config: &[u8],
        tokenizer: &[u8],
        weights: &[u8],
        options: Options,
    ) -> Result<Self, LoadError> {
        Self::from_parts(
            &Paths::of(Path::new("")),
            config,
            tokenizer,
            weights,
            options,
        )
    }

    fn from_parts(
        paths: &Paths,
        config: &[u8],
        tokenizer: &[u8],
        weights: &[u8],
        options: Options,
    ) -> Result<Self, LoadError> {
        let (machine, raw_config) = (Machine::new(), config);
        let config = Config::parse(&paths.config, config)?;
        let pieces = Pieces::parse(&paths.tokenizer, tokenizer, config.vocabulary())?;
        let windows = windows::Plan::new(options, config.positions(), pieces.added())
            .map_err(|why| LoadError::unusable(&paths.config, why))?;

        let tensors = Tensors::parse(&paths.weights, weights)?;
        let size = tensors.size();
        if size > options.max_memory {
            let why = format!(
                "out of memory: the weights take {size} bytes as F32, and `max_memory` is {}",
                options.max_memory
            );
            return Err(LoadError::unusable(&paths.weights, why));
        }
        config.check_labels(paths, &tensors)?;
        let labels = config.labels.clone();
        let encoder: Box<dyn Encoder> = match &config.family {
            Family::Bert(family) => Box::new(bert::Encoder::read(&tensors, family, machine)?),
            Family::DeBerta(family) => Box::new(deberta::Encoder::read(
                &tensors,
                family,
                windows.length,
                machine,
            )?),
            Family::ModernBert(family) => Box::new(modernbert::Encoder::read(
                &tensors,
                family,
                windows.length,
                machine,
            )?),
        };
        let head = Head::read(&tensors, &config, machine)?;

        // Other labels, tokens or windows are another judge.
        let mut digest = Sha256::new();
        for part in [raw_config, tokenizer, weights] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.update(format!("{options:?}"));
        let digest = digest.finalize();
        let start = digest[..6]
            .iter()
            .fold(0, |start, &byte| start << 8 | u64::from(byte));
        Ok(Self {
            name: format!("{}-{start:012x}", config.family.name()),
            is_exclusive: config.is_exclusive,
            labels,
            pieces,
            windows,
            batch: options.batch,
            encoder,
            head,
            machine,
        })
    }

    /// What the model says before it is turned into scores: for each text, for each of its windows, a number for each
    /// label.
    pub fn logits(&self, texts: &[&str]) -> Result<Vec<Vec<Vec<f32>>>, ClassifyError> {
        let texts = self.run(texts.iter().copied())?;
        Ok(texts.into_iter().map(|text| text.windows).collect())
    }

    /// A text's tokens as the model gets them, window by window, and whether these are all.
    pub fn tokens(&self, text: &str) -> Result<(Vec<Vec<u32>>, bool), ClassifyError> {
        let most = self.windows.most();
        let (ids, is_all) = self.pieces.ids(text, most).map_err(|why| self.error(why))?;
        let windows = self.windows.cut(&ids);
        let whole = windows.map(|ids| self.pieces.surround(ids)).collect();
        Ok((whole, is_all))
    }

    fn run<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Result<Vec<Judged>, ClassifyError> {
        let mut counts = Vec::new();
        let mut logits = Vec::new();
        let mut batch: Vec<Vec<u32>> = Vec::new();
        let mut room = self.batch;
        for text in texts {
            let (windows, complete) = self.tokens(text)?;
            counts.push((windows.len(), complete));
            for window in windows {
                if window.len() > room && !batch.is_empty() {
                    logits.extend(self.forward(&batch)?);
                    batch.clear();
                    room = self.batch;
                }
                room = room.saturating_sub(window.len());
                batch.push(window);
            }
        }
        if !batch.is_empty() {
            logits.extend(self.forward(&batch)?);
        }
        let mut rest = logits.into_iter();
        let judged = counts.into_iter().map(|(count, complete)| Judged {
            windows: rest.by_ref().take(count).collect(),
            complete,
        });
        Ok(judged.collect())
    }

    fn forward(&self, windows: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, ClassifyError> {
        let pooled = self.encoder.pooled(self.machine, windows);
        let logits = self.head.logits(self.machine, pooled);
        if logits.iter().flatten().all(|number| number.is_finite()) {
            return Ok(logits);
        }
        Err(self.error("its numbers leave the range of F32: the weights are damaged"))
    }

    /// From a window's logits to a score for each label.
    fn scores(&self, logits: &[f32]) -> Vec<f32> {
        if self.is_exclusive {
            softmax(logits)
        } else {
            logits.iter().copied().map(sigmoid).collect()
        }
    }

    fn error(&self, why: impl Into<String>) -> ClassifyError {
        ClassifyError {
            model: self.name.clone(),
            why: why.into(),
        }
    }
}

impl TextClassifier for SequenceClassifier {
    fn name(&self) -> &str {
        &self.name
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// The channel makes no difference: these models know texts alone.
    fn classify(&self, samples: &[Sample<'_>]) -> Result<Vec<Scores>, ClassifyError> {
        let judged = self.run(samples.iter().map(|sample| sample.text))?;
        let scores = judged.into_iter().map(|text| Scores {
            windows: text.windows.iter().map(|one| self.scores(one)).collect(),
            complete: text.complete,
        });
        Ok(scores.collect())
    }
}

impl fmt::Debug for SequenceClassifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceClassifier")
            .field("name", &self.name)
            .field("labels", &self.labels)
            .field("windows", &self.windows)
            .finish_non_exhaustive()
    }
}

/// Where a folder's files are, for errors.
struct Paths {
    config: PathBuf,
    tokenizer: PathBuf,
    weights: PathBuf,
}

impl Paths {
    fn of(folder: &Path) -> Self {
        Self {
            config: folder.join("config.json"),
            tokenizer: folder.join("tokenizer.json"),
            weights: folder.join("model.safetensors"),
        }
    }
}

/// A folder without the file, by what it has instead.
fn no_weights(folder: &Path, path: &Path) -> LoadError {
    let has = |name: &str| folder.join(name).exists();
    let why = if has("model.safetensors.index.json") {
        "is missing, and its parts are not read: load the model with transformers and write it as one file, with \
         `model.save_pretrained(FOLDER, max_shard_size=\"100GB\")`"
    } else if has("pytorch_model.bin") {
        "is missing, and `pytorch_model.bin` is not read: load the model with transformers and write it with \
         `model.save_pretrained(FOLDER)`"
    } else {
        "is missing: it has the model's weights"
    };
    LoadError::unusable(path, why)
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits
        .iter()
        .map(|number| (number - largest).exp())
        .collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

fn sigmoid(logit: f32) -> f32 {
    (1.0 + (-logit).exp()).recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_stay_within_their_range() {
        assert_eq!(softmax(&[1000.0, -1000.0]), [1.0, 0.0]);
        assert_eq!(softmax(&[3.0, 3.0]), [0.5, 0.5]);
        assert_eq!(
            [sigmoid(0.0), sigmoid(1000.0), sigmoid(-1000.0)],
            [0.5, 1.0, 0.0]
        );
    }
}

//! A classifier of one's own: embeddings, and one weight for each of their numbers.
//!
//! A few dozen labelled examples are enough to begin with. [`train`] learns from them and says how well it does on
//! texts that it has not seen; the [`LinearClassifier`] is kept in one file of JSON.

mod file;
mod sections;
mod solve;
mod train;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use portcullis_core::classifier::{ClassifyError, Sample, Scores, TextClassifier};
use portcullis_core::memory::{EmbedError, Embedder};
use sha2::{Digest, Sha256};

use crate::builtin::BuiltIn;
use crate::load::{self, LoadError};
use file::File;
pub use sections::Sections;
pub use train::{CrossValidation, Example, RecallAt, TrainError, TrainOptions, Trained, train};

/// No classifier is anywhere near as large: a thousand labels by four sections of a thousand numbers.
const MOST_BYTES: u64 = 64 << 20;

/// Tells texts apart by a weighted sum over their embedding. How a text came makes no difference to it.
pub struct LinearClassifier {
    file: File,
    /// The file's name for itself, and the beginning of its digest without the day it was made.
    name: String,
    embedder: Arc<dyn Embedder>,
}

impl LinearClassifier {
    /// Reads a file that was trained with the built-in embedder.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::load_with(path, Arc::new(BuiltIn::new()))
    }

    /// Reads a file that was trained with this embedder.
    pub fn load_with(path: &Path, embedder: Arc<dyn Embedder>) -> Result<Self, LoadError> {
        Self::from_bytes(path, &load::read(path, MOST_BYTES)?, embedder)
    }

    /// Reads a file's bytes. `path` is where they come from, for errors.
    pub fn from_bytes(
        path: &Path,
        bytes: &[u8],
        embedder: Arc<dyn Embedder>,
    ) -> Result<Self, LoadError> {
        let file = File::parse(bytes).map_err(|why| LoadError::unusable(path, why))?;
        let used = &file.embedder;
        if used.name != embedder.name() {
            let why = format!(
                "`embedder.name` is `{}`, but the embedder in use is `{}`: use the one it was trained with, or train it \
                 again with this one",
                used.name,
                embedder.name()
            );
            return Err(LoadError::unusable(path, why));
        }
        if used.dimension != embedder.dimension() {
            let why = format!(
                "`embedder.dimension` is {}, but `{}` has {}: train it again",
                used.dimension,
                used.name,
                embedder.dimension()
            );
            return Err(LoadError::unusable(path, why));
        }
        Ok(Self::new(file, embedder))
    }

    fn new(file: File, embedder: Arc<dyn Embedder>) -> Self {
        let undated = File {
            created: String::new(),
            ..file.clone()
        };
        let digest = train::hex(&Sha256::digest(undated.text().as_bytes()));
        Self {
            name: format!("{}/{}", file.name, &digest[..12]),
            file,
            embedder,
        }
    }

    /// The file to keep.
    pub fn to_json(&self) -> String {
        self.file.text()
    }

    /// The labels that count as a finding. The threshold is for the sum of their scores.
    pub fn positive(&self) -> &[String] {
        &self.file.positive
    }

    /// How the threshold was chosen.
    pub fn threshold_from(&self) -> &str {
        &self.file.threshold_from
    }

    /// The parts of a text that it judges by themselves.
    pub fn sections(&self) -> &Sections {
        &self.file.sections
    }

    /// How well it did on examples that it had not seen.
    pub fn cross_validation(&self) -> &CrossValidation {
        &self.file.training.cross_validation
    }

    /// How much the examples weighed against small weights.
    pub fn c(&self) -> f64 {
        self.file.training.c
    }

    fn judge(&self, vector: &[f32]) -> Vec<f32> {
        let rows = self.file.weights.iter().zip(&self.file.bias);
        let sums: Vec<f64> = rows
            .map(|(row, bias)| {
                let products = row.iter().zip(vector);
                let sum: f64 = products.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                sum + f64::from(*bias)
            })
            .collect();
        let values = solve::probabilities(&sums);
        values.into_iter().map(|value| value as f32).collect()
    }
}

impl TextClassifier for LinearClassifier {
    fn name(&self) -> &str {
        &self.name
    }

    fn labels(&self) -> &[String] {
        &self.file.labels
    }

    fn threshold(&self) -> Option<f32> {
        Some(self.file.threshold)
    }

    fn classify(&self, samples: &[Sample<'_>]) -> Result<Vec<Scores>, ClassifyError> {
        let texts: Vec<&str> = samples.iter().map(|sample| sample.text).collect();
        let vectors = vectors(&*self.embedder, &self.file.sections, &texts);
        let vectors = vectors.map_err(|error| ClassifyError {
            model: self.name.clone(),
            why: error.to_string(),
        })?;
        let judged = vectors.iter().zip(samples).map(|(vector, sample)| Scores {
            windows: vec![self.judge(vector)],
            // What the other sections say is only what the first is judged by.
            complete: self
                .file
                .sections
                .judged(sample.text)
                .first()
                .is_none_or(|part| self.embedder.reads_all(part)),
        });
        Ok(judged.collect())
    }
}

impl fmt::Debug for LinearClassifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinearClassifier")
            .field("name", &self.name)
            .field("labels", &self.file.labels)
            .finish_non_exhaustive()
    }
}

/// The vectors of a text, one behind the other.
fn vectors(
    embedder: &dyn Embedder,
    sections: &Sections,
    texts: &[&str],
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let parts: Vec<_> = texts
        .iter()
        .flat_map(|text| sections.judged(text))
        .collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let vectors = embedder.embed(&parts)?;
    let fits = |vector: &Vec<f32>| {
        vector.len() == embedder.dimension() && vector.iter().all(|number| number.is_finite())
    };
    if vectors.len() != parts.len() || !vectors.iter().all(fits) {
        return Err(EmbedError {
            model: embedder.name().to_owned(),
            why: "it answered with other vectors than it says it makes".to_owned(),
        });
    }
    let joined = vectors.chunks(sections.vectors()).map(<[Vec<f32>]>::concat);
    Ok(joined.collect())
}

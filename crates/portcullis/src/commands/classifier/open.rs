//! From what was typed to a classifier.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use portcullis_core::classifier::TextClassifier;
use portcullis_core::memory::Embedder;
use portcullis_models::{Bert, BuiltIn, LinearClassifier, PortcullisClassifier};

use super::input;
use crate::output::Failure;

/// What stands for the classifier inside the binary.
pub(super) const BUILT_IN: &str = "built-in";

/// Where a classifier is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelSpec {
    BuiltIn,
    /// What `classifier train` wrote, or one of ours that was trained anew.
    File(PathBuf),
    /// From Hugging Face.
    Folder(PathBuf),
}

/// A classifier, and what its makers say about it.
pub(super) struct Opened {
    pub(super) classifier: Arc<dyn TextClassifier>,
    /// The labels that count, where it says so itself.
    pub(super) labels: Vec<String>,
    /// Where its threshold comes from.
    pub(super) threshold_from: String,
}

impl ModelSpec {
    pub(super) fn new(typed: &str) -> Result<Self, Failure> {
        let path = Path::new(typed);
        if typed == BUILT_IN {
            Ok(Self::BuiltIn)
        } else if path.is_dir() {
            Ok(Self::Folder(path.to_owned()))
        } else if path.is_file() {
            Ok(Self::File(path.to_owned()))
        } else {
            Err(input(anyhow!(
                "--model {typed}: no such file or folder; expected `built-in`, a file that `portcullis classifier train` \
                 wrote, or a folder from Hugging Face"
            )))
        }
    }

    /// Whether it is what `classifier train` wrote.
    fn is_trained(&self) -> bool {
        matches!(self, Self::File(path) if !is_ours(path))
    }
}

/// Whether a file is one of our own classifiers, by its name.
fn is_ours(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "safetensors")
}

/// Opens a classifier. The embedder is for files that were trained with it, and refused for others.
pub(super) fn open_classifier(
    spec: &ModelSpec,
    embedder: Option<&Path>,
) -> Result<Opened, Failure> {
    if let Some(folder) = embedder.filter(|_| !spec.is_trained()) {
        return Err(input(anyhow!(
            "--embedder {}: only a file that `portcullis classifier train` wrote is used with one; leave it out",
            folder.display()
        )));
    }
    match spec {
        ModelSpec::BuiltIn => {
            let classifier = PortcullisClassifier::built_in().map_err(input)?;
            Ok(of_its_makers(Arc::new(classifier)))
        }
        ModelSpec::Folder(folder) => hugging_face(folder),
        ModelSpec::File(path) if is_ours(path) => {
            let classifier = PortcullisClassifier::load(path).map_err(input)?;
            Ok(of_its_makers(Arc::new(classifier)))
        }
        ModelSpec::File(path) => {
            let classifier =
                LinearClassifier::load_with(path, open_embedder(embedder)?).map_err(input)?;
            Ok(Opened {
                labels: classifier.positive().to_vec(),
                threshold_from: format!("{}: {}", path.display(), classifier.threshold_from()),
                classifier: Arc::new(classifier),
            })
        }
    }
}

/// One that says itself from which score on a text counts.
fn of_its_makers(classifier: Arc<dyn TextClassifier>) -> Opened {
    Opened {
        labels: Vec::new(),
        threshold_from: "the model's file".to_owned(),
        classifier,
    }
}

#[cfg(feature = "hf")]
fn hugging_face(folder: &Path) -> Result<Opened, Failure> {
    use portcullis_models::SequenceClassifier;
    use portcullis_models::hf::Options;

    let classifier = SequenceClassifier::load(folder, Options::default()).map_err(input)?;
    Ok(Opened {
        labels: Vec::new(),
        threshold_from: String::new(),
        classifier: Arc::new(classifier),
    })
}

#[cfg(not(feature = "hf"))]
fn hugging_face(folder: &Path) -> Result<Opened, Failure> {
    Err(input(anyhow!(
        "--model {}: this build does not run models from Hugging Face; build it with the feature `hf`, or use --scores",
        folder.display()
    )))
}

/// A folder's embedding model, or the built-in one.
pub(super) fn open_embedder(folder: Option<&Path>) -> Result<Arc<dyn Embedder>, Failure> {
    Ok(match folder {
        Some(folder) => Arc::new(Bert::load(folder).map_err(input)?),
        None => Arc::new(BuiltIn::new()),
    })
}

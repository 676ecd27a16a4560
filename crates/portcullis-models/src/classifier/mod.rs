//! Our own classifier: a few convolutions over pieces of words, small enough for every event.
//!
//! `training/` makes the file, `training/FORMAT.md` says what is in it, and `docs/model-card.md` what it is good for.

mod file;
mod network;
mod readings;
mod windows;

use std::fmt;
use std::path::Path;

use portcullis_core::classifier::{Channel, ClassifyError, Sample, Scores, TextClassifier};
use sha2::{Digest, Sha256};

use crate::builtin::BuiltIn;
use crate::load::{LoadError, read};
use crate::wordpiece::WordPiece;
use file::Model;
use network::Pass;
pub use windows::Window;

/// What is larger is another kind of model.
const LARGEST_FILE: u64 = 64 << 20;

/// Says which of RFC-001's five intents a text has, or that it is harmless.
///
/// A text is read in windows, as it stands and, where it is disguised, as a person would read it. Of a text, the first
/// [`LONGEST_TEXT`](Self::LONGEST_TEXT) bytes are read.
pub struct PortcullisClassifier {
    name: String,
    model: Model,
    pieces: WordPiece,
}

impl PortcullisClassifier {
    /// What is read of a text. The rest of a longer one is said to be unread.
    pub const LONGEST_TEXT: usize = 4 * WordPiece::LONGEST_TEXT;
    /// As much as a text of that length has, if its words are ordinary ones. Of one that is all punctuation, the rest is
    /// unread: it would take seconds.
    const MOST_WINDOWS: usize = 640;

    /// The one inside the binary.
    pub fn built_in() -> Result<Self, LoadError> {
        let name = "portcullis-classifier-1.safetensors";
        let bytes = include_bytes!("../../assets/portcullis-classifier-1.safetensors");
        Self::from_bytes(Path::new(name), bytes)
    }

    /// One that was trained anew.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::from_bytes(path, &read(path, LARGEST_FILE)?)
    }

    /// From a file's bytes; `path` is for errors.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, LoadError> {
        let pieces = BuiltIn::new().tokenizer().clone();
        let model = Model::parse(path, bytes, &pieces)?;
        let digest = Sha256::digest(bytes);
        let start = digest.first_chunk().copied().unwrap_or_default();
        let (name, version) = (&model.config.name, &model.config.version);
        Ok(Self {
            name: format!("{name}/{version}-{:08x}", u32::from_be_bytes(start)),
            model,
            pieces,
        })
    }

    /// What it makes of each window of a text, read as it stands.
    pub fn windows(&self, text: &str, channel: Channel) -> Vec<Window> {
        let mut pass = Pass::new(&self.model);
        self.read(&mut pass, text, channel).0
    }

    /// The windows of a text, and whether these are all.
    fn read(&self, pass: &mut Pass<'_>, text: &str, channel: Channel) -> (Vec<Window>, bool) {
        let start = &text[..text.floor_char_boundary(Self::LONGEST_TEXT)];
        let mut found = Vec::new();
        for part in windows::parts(start, WordPiece::LONGEST_TEXT) {
            let ids = self.pieces.ids(part, usize::MAX);
            for window in windows::of(ids.len(), &self.model.config) {
                if found.len() == Self::MOST_WINDOWS {
                    return (found, false);
                }
                let logits = pass.run(&ids[window], channel);
                found.push(Window::new(logits, self.model.config.calibration));
            }
        }
        (found, start.len() == text.len())
    }

    fn scores(&self, sample: &Sample<'_>) -> Result<Scores, ClassifyError> {
        let mut pass = Pass::new(&self.model);
        let mut scores = Scores {
            windows: Vec::new(),
            complete: true,
        };
        for reading in readings::of(sample.text, &self.pieces) {
            let (windows, complete) = self.read(&mut pass, &reading, sample.channel);
            scores.windows.extend(windows.iter().map(Window::shares));
            scores.complete &= complete;
        }
        if scores.is_sound(self.model.config.labels.len()) {
            return Ok(scores);
        }
        Err(ClassifyError {
            model: self.name.clone(),
            why: "its numbers leave the range of F32: the weights are damaged".to_owned(),
        })
    }
}

impl TextClassifier for PortcullisClassifier {
    fn name(&self) -> &str {
        &self.name
    }

    fn labels(&self) -> &[String] {
        &self.model.config.labels
    }

    fn threshold(&self) -> Option<f32> {
        Some(self.model.config.threshold)
    }

    fn classify(&self, samples: &[Sample<'_>]) -> Result<Vec<Scores>, ClassifyError> {
        samples.iter().map(|sample| self.scores(sample)).collect()
    }
}

impl fmt::Debug for PortcullisClassifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortcullisClassifier")
            .field("name", &self.name)
            .field("config", &self.model.config)
            .finish_non_exhaustive()
    }
}

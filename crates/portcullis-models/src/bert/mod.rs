//! Sentence transformers of BERT's shape, such as all-MiniLM-L6-v2, from a local folder.

mod config;
mod forward;
mod weights;

#[cfg(feature = "hf")]
pub(crate) use config::Config as BertConfig;
#[cfg(feature = "hf")]
pub(crate) use forward::run;
#[cfg(feature = "hf")]
pub(crate) use weights::Weights as BertWeights;

use std::fmt;
use std::path::Path;

use portcullis_core::memory::{EmbedError, Embedder};
use sha2::{Digest, Sha256};

use crate::encoder::Keep;
use crate::load::{LoadError, read};
use crate::numeric::Machine;
use crate::tensors::Tensors;
use crate::wordpiece::WordPiece;
use config::Config;
use weights::{WORDS, Weights};

/// What is larger is no model to run in a server's own process.
const LARGEST_WEIGHTS: u64 = 4 << 30;
/// How many pieces go through the model at once: what is needed for them is all the memory that a call takes,
/// and more are no faster.
const PIECES_AT_ONCE: usize = 256;

/// Milliseconds a text, on the calling thread.
///
/// Whoever calls decides how many threads do: a call takes some megabytes besides the weights.
pub struct Bert {
    name: String,
    config: Config,
    pieces: WordPiece,
    /// What each text begins and ends with.
    ends: (u32, u32),
    weights: Weights,
    machine: Machine,
}

impl Bert {
    /// Reads `config.json`, `model.safetensors` and `tokenizer.json` (or `vocab.txt`); where there are, also
    /// `sentence_bert_config.json`, `modules.json` and `1_Pooling/config.json`, which must ask for the mean.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        let config = Config::load(folder)?;
        let pieces = config::tokenizer(folder)?;
        if pieces.size() > config.vocabulary {
            let why = format!(
                "`vocab_size` is {}, but the tokenizer has {} tokens",
                config.vocabulary,
                pieces.size()
            );
            return Err(LoadError::unusable(&folder.join("config.json"), why));
        }
        let special = |token: &str| {
            pieces.number(token).ok_or_else(|| {
                LoadError::unusable(folder, format!("the tokenizer lacks `{token}`"))
            })
        };
        let ends = (special("[CLS]")?, special("[SEP]")?);

        let path = folder.join("model.safetensors");
        let machine = Machine::new();
        let (weights, digest) = {
            let bytes = read(&path, LARGEST_WEIGHTS)?;
            let mut tensors = Tensors::parse(&path, &bytes)?;
            if !tensors.has(WORDS) {
                // As a model with a head stores it.
                tensors.prefix = "bert.";
            }
            let weights = Weights::read(&tensors, &config, machine)?;
            (weights, Sha256::digest(&bytes))
        };
        let start = digest[..6]
            .iter()
            .fold(0, |start, &byte| start << 8 | u64::from(byte));
        Ok(Self {
            // The same weights, read as far: the same vectors, whatever the folder is called.
            name: format!(
                "bert-{}-{start:012x}/{}",
                config.sizes.hidden, config.longest
            ),
            config,
            pieces,
            ends,
            weights,
            machine,
        })
    }

    /// How it splits texts.
    pub fn tokenizer(&self) -> &WordPiece {
        &self.pieces
    }

    /// A text's pieces with those that BERT adds. Nothing for a text without any.
    pub fn ids(&self, text: &str) -> Vec<u32> {
        let own = self.pieces.ids(text, self.config.longest - 2);
        if own.is_empty() {
            return own;
        }
        let (first, last) = self.ends;
        [&[first], own.as_slice(), &[last]].concat()
    }

    fn vectors(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let pass = forward::run(&self.config, &self.weights, self.machine, texts, Keep::All);
        forward::means(&self.config, &pass)
    }
}

impl fmt::Debug for Bert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bert")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Embedder for Bert {
    fn name(&self) -> &str {
        &self.name
    }

    fn dimension(&self) -> usize {
        self.config.sizes.hidden
    }

    fn reads_all(&self, text: &str) -> bool {
        let room = self.config.longest - 2;
        text.len() <= WordPiece::LONGEST_TEXT && self.pieces.ids(text, room + 1).len() <= room
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut batch: Vec<Vec<u32>> = Vec::new();
        let mut room = PIECES_AT_ONCE;
        for text in texts {
            let ids = self.ids(text);
            if ids.len() > room {
                vectors.extend(self.vectors(&batch));
                batch.clear();
                room = PIECES_AT_ONCE;
            }
            room = room.saturating_sub(ids.len());
            batch.push(ids);
        }
        vectors.extend(self.vectors(&batch));
        Ok(vectors)
    }
}

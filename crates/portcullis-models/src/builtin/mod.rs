//! The embedder inside the binary: a vector for every piece of a word, and their mean for a text.
//!
//! It is [potion-base-8M](https://huggingface.co/minishlab/potion-base-8M), a model without layers, with eight
//! bits a number. See `assets/README.md`.

mod asset;

use std::fmt;

use portcullis_core::memory::{EmbedError, Embedder};

use crate::numeric::Machine;
use crate::vector::make_unit;
use crate::wordpiece::{Form, Vocabulary, WordPiece};
use asset::Asset;

/// Parsed by the compiler: an asset that is not one does not build.
const ASSET: Asset<'static> =
    match Asset::parse(include_bytes!("../../assets/potion-base-8m-int8.bin")) {
        Ok(asset) => asset,
        Err(_) => {
            panic!("assets/potion-base-8m-int8.bin is damaged: scripts/embedding_asset.py makes it")
        }
    };

/// Microseconds a text, without files or network.
#[derive(Clone)]
pub struct BuiltIn {
    asset: Asset<'static>,
    pieces: WordPiece,
    machine: Machine,
}

impl BuiltIn {
    /// What was trained with this vocabulary says so by this.
    pub(crate) const ASSET_SHA256: &'static str =
        "3353ab87c2cada4fc4b6960de1867fa5af86c64345a49e969a5411f377cae461";

    /// Costs nothing: all of it lies ready in the binary.
    pub fn new() -> Self {
        Self::from_asset(ASSET)
    }

    /// How it splits texts.
    pub fn tokenizer(&self) -> &WordPiece {
        &self.pieces
    }

    fn from_asset(asset: Asset<'static>) -> Self {
        let vocabulary =
            Vocabulary::from_parts(asset.slots, asset.offsets, asset.tokens, asset.longest);
        Self {
            asset,
            pieces: WordPiece::new(
                vocabulary,
                asset.unknown,
                WordPiece::LONGEST_WORD,
                Form::UNCASED,
            ),
            machine: Machine::new(),
        }
    }

    /// The mean of the known pieces' vectors, made as long as one.
    fn vector(&self, text: &str) -> Vec<f32> {
        let ids = self.pieces.ids(text, usize::MAX);
        let mut sum = vec![0.0; self.asset.dimension];
        self.machine.widely(
            #[inline(always)]
            || {
                for &id in &ids {
                    if id == self.asset.unknown {
                        continue;
                    }
                    let Some((scale, row)) = self.asset.row(id) else {
                        continue;
                    };
                    for (sum, number) in sum.iter_mut().zip(row) {
                        *sum += scale * f32::from(number.cast_signed());
                    }
                }
            },
        );
        make_unit(&mut sum);
        sum
    }
}

impl Default for BuiltIn {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltIn")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Embedder for BuiltIn {
    fn name(&self) -> &'static str {
        "potion-base-8m-int8/1"
    }

    fn dimension(&self) -> usize {
        self.asset.dimension
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn reads_all(&self, text: &str) -> bool {
        text.len() <= WordPiece::LONGEST_TEXT
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| self.vector(text)).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_the_mean_of_its_known_pieces() {
        let bytes = asset::tests::small().leak();
        let model = BuiltIn::from_asset(Asset::parse(bytes).unwrap());
        assert_eq!(model.vector("A a, b"), [0.6, -0.8]);
        assert_eq!(model.vector("b"), [0.0, 0.0]);
    }

    #[test]
    fn the_asset_is_the_one_that_models_were_trained_with() {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(include_bytes!("../../assets/potion-base-8m-int8.bin"));
        let known = BuiltIn::ASSET_SHA256;
        let known = (0..known.len()).step_by(2).map(|at| &known[at..at + 2]);
        let known = known.map(|byte| u8::from_str_radix(byte, 16).unwrap());
        assert!(digest.iter().copied().eq(known));
    }

    #[test]
    fn what_follows_the_limit_is_not_read() {
        let model = BuiltIn::new();
        let long = "é".repeat(WordPiece::LONGEST_TEXT);
        let text = format!("deploy {long}");
        assert_eq!(
            model.vector(&format!("{text} rollback")),
            model.vector(&text)
        );
    }

    proptest! {
        #[test]
        fn any_text_has_a_vector_of_length_one_or_none(text in ".*") {
            let vector = BuiltIn::new().vector(&text);
            let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
            prop_assert!(length == 0.0 || (length - 1.0).abs() < 1e-5, "{}", length);
        }

        #[test]
        fn a_damaged_asset_gives_vectors_and_no_panic(place in 12_usize..200, other: u8, text in "[a-z ]*") {
            let mut bytes = asset::tests::small();
            if let Some(byte) = bytes.get_mut(place) {
                *byte = other;
            }
            if let Ok(asset) = Asset::parse(bytes.leak()) {
                prop_assert_eq!(BuiltIn::from_asset(asset).vector(&text).len(), asset.dimension);
            }
        }
    }
}

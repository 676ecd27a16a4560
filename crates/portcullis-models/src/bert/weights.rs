//! A model's numbers, from `model.safetensors`.

use super::config::Config;
use crate::encoder::Layer;
use crate::load::LoadError;
use crate::numeric::Machine;
use crate::tensors::{Norm, Tensors};

/// A row for each token.
pub(super) const WORDS: &str = "embeddings.word_embeddings.weight";

/// Everything that a forward pass multiplies with.
pub(crate) struct Weights {
    /// A row for each token.
    pub(super) words: Vec<f32>,
    /// A row for each place, with what the first kind of token adds.
    pub(super) positions: Vec<f32>,
    pub(super) norm: Norm,
    pub(super) layers: Vec<Layer>,
}

impl Weights {
    pub(crate) fn read(
        tensors: &Tensors<'_>,
        config: &Config,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let sizes = config.sizes;
        let hidden = sizes.hidden;
        let scale = ((hidden / sizes.heads) as f32).sqrt().recip();

        let mut positions = tensors.get(
            "embeddings.position_embeddings.weight",
            &[config.positions, hidden],
        )?;
        let types = tensors.get(
            "embeddings.token_type_embeddings.weight",
            &[config.types, hidden],
        )?;
        for row in positions.chunks_exact_mut(hidden) {
            for (number, kind) in row.iter_mut().zip(&types) {
                *number += kind;
            }
        }
        Ok(Self {
            words: tensors.get(WORDS, &[config.vocabulary, hidden])?,
            positions,
            norm: tensors.norm("embeddings.LayerNorm", hidden)?,
            layers: (0..config.layers)
                .map(|layer| {
                    let name = format!("encoder.layer.{layer}");
                    Layer::read(
                        tensors,
                        &name,
                        ["query", "key", "value"],
                        scale,
                        sizes,
                        machine,
                    )
                })
                .collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::encoder::Sizes;

    proptest! {
        #[test]
        fn any_bytes_are_weights_or_an_error(header in ".*", bytes: Vec<u8>, hidden in 1_usize..9) {
            let sizes = Sizes { hidden, inner: 2, heads: 1, epsilon: 0.0 };
            let config = Config { sizes, layers: 1, vocabulary: 3, positions: 3, types: 1, longest: 3 };
            let size = u64::try_from(header.len()).unwrap().to_le_bytes();
            for bytes in [bytes.clone(), [&size, header.as_bytes(), &bytes].concat()] {
                if let Ok(tensors) = Tensors::parse(Path::new("a"), &bytes) {
                    let _ = Weights::read(&tensors, &config, Machine::new());
                }
            }
        }
    }
}

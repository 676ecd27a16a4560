//! A model's numbers, from `model.safetensors`.

use std::path::Path;

use super::config::Config;
use crate::load::LoadError;
use crate::numeric::{Machine, Panels};
use crate::tensors::{Norm, Tensors};

/// Everything that a forward pass multiplies with.
pub(super) struct Weights {
    /// A row for each token.
    pub(super) words: Vec<f32>,
    /// A row for each place, with what the first kind of token adds.
    pub(super) positions: Vec<f32>,
    pub(super) norm: Norm,
    pub(super) layers: Vec<Layer>,
}

pub(super) struct Layer {
    /// Queries, keys and values side by side; the queries are already divided by the root of a head's size.
    pub(super) attention: Panels,
    pub(super) attention_out: Panels,
    pub(super) attention_norm: Norm,
    pub(super) widen: Panels,
    pub(super) narrow: Panels,
    pub(super) norm: Norm,
}

impl Weights {
    /// `path` is where the bytes come from, for errors.
    pub(super) fn parse(
        path: &Path,
        bytes: &[u8],
        config: &Config,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let words = "embeddings.word_embeddings.weight";
        let mut tensors = Tensors::parse(path, bytes)?;
        if !tensors.has(words) {
            // As a model with a head stores it.
            tensors.prefix = "bert.";
        }
        let hidden = config.hidden;

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
            words: tensors.get(words, &[config.vocabulary, hidden])?,
            positions,
            norm: tensors.norm("embeddings.LayerNorm", hidden)?,
            layers: (0..config.layers)
                .map(|layer| Layer::read(&tensors, layer, config, machine))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl Layer {
    fn read(
        tensors: &Tensors<'_>,
        layer: usize,
        config: &Config,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let (hidden, inner) = (config.hidden, config.inner);
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let dense = |part: &str, out: usize, into: usize| {
            let (weight, bias) = tensors.dense(&name(part), out, into)?;
            Ok(Panels::of_weights(machine, &weight, &bias))
        };

        let (mut weights, mut biases) =
            tensors.dense(&name("attention.self.query"), hidden, hidden)?;
        let factor = ((hidden / config.heads) as f32).sqrt().recip();
        for number in weights.iter_mut().chain(&mut biases) {
            *number *= factor;
        }
        for part in ["attention.self.key", "attention.self.value"] {
            let (weight, bias) = tensors.dense(&name(part), hidden, hidden)?;
            weights.extend(weight);
            biases.extend(bias);
        }
        Ok(Self {
            attention: Panels::of_weights(machine, &weights, &biases),
            attention_out: dense("attention.output.dense", hidden, hidden)?,
            attention_norm: tensors.norm(&name("attention.output.LayerNorm"), hidden)?,
            widen: dense("intermediate.dense", inner, hidden)?,
            narrow: dense("output.dense", hidden, inner)?,
            norm: tensors.norm(&name("output.LayerNorm"), hidden)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_weights_or_an_error(header in ".*", bytes: Vec<u8>, hidden in 1_usize..9) {
            let config = Config {
                hidden, inner: 2, heads: 1, layers: 1, vocabulary: 3, positions: 3, types: 1,
                epsilon: 0.0, longest: 3,
            };
            let size = u64::try_from(header.len()).unwrap().to_le_bytes();
            for bytes in [bytes.clone(), [&size, header.as_bytes(), &bytes].concat()] {
                let _ = Weights::parse(Path::new("a"), &bytes, &config, Machine::new());
            }
        }
    }
}

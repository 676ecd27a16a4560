//! A model's numbers, from `model.safetensors`.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use super::config::Config;
use super::gemm::{Machine, Panels};
use crate::load::LoadError;

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

pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

impl Weights {
    /// `path` is where the bytes come from, for errors.
    pub(super) fn parse(
        path: &Path,
        bytes: &[u8],
        config: &Config,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let file = SafeTensors::deserialize(bytes)
            .map_err(|error| LoadError::unusable(path, error.to_string()))?;
        let words = "embeddings.word_embeddings.weight";
        let prefix = match file.tensor(words) {
            Ok(_) => "",
            // As a model with a head stores it.
            Err(_) => "bert.",
        };
        let tensors = Tensors { path, file, prefix };
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
                .map(|layer| tensors.layer(layer, config, machine))
                .collect::<Result<_, _>>()?,
        })
    }
}

struct Tensors<'a> {
    path: &'a Path,
    file: SafeTensors<'a>,
    prefix: &'static str,
}

impl Tensors<'_> {
    fn layer(&self, layer: usize, config: &Config, machine: Machine) -> Result<Layer, LoadError> {
        let (hidden, inner) = (config.hidden, config.inner);
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let dense = |part: &str, out: usize, into: usize| {
            let (weight, bias) = self.dense(&name(part), out, into)?;
            Ok(Panels::of_weights(machine, &weight, &bias))
        };

        let (mut weights, mut biases) =
            self.dense(&name("attention.self.query"), hidden, hidden)?;
        let factor = ((hidden / config.heads) as f32).sqrt().recip();
        for number in weights.iter_mut().chain(&mut biases) {
            *number *= factor;
        }
        for part in ["attention.self.key", "attention.self.value"] {
            let (weight, bias) = self.dense(&name(part), hidden, hidden)?;
            weights.extend(weight);
            biases.extend(bias);
        }
        Ok(Layer {
            attention: Panels::of_weights(machine, &weights, &biases),
            attention_out: dense("attention.output.dense", hidden, hidden)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), hidden)?,
            widen: dense("intermediate.dense", inner, hidden)?,
            narrow: dense("output.dense", hidden, inner)?,
            norm: self.norm(&name("output.LayerNorm"), hidden)?,
        })
    }

    fn dense(
        &self,
        name: &str,
        out: usize,
        into: usize,
    ) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        Ok((
            self.get(&format!("{name}.weight"), &[out, into])?,
            self.get(&format!("{name}.bias"), &[out])?,
        ))
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, LoadError> {
        Ok(Norm {
            weight: self.get(&format!("{name}.weight"), &[width])?,
            bias: self.get(&format!("{name}.bias"), &[width])?,
        })
    }

    fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let name = format!("{}{name}", self.prefix);
        let unusable = |why: String| LoadError::unusable(self.path, format!("`{name}` {why}"));
        let tensor = self
            .file
            .tensor(&name)
            .map_err(|_| unusable(format!("is missing: it must be F32 of {shape:?}")))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            return Err(unusable(format!(
                "is {:?} of {:?}: it must be F32 of {shape:?}",
                tensor.dtype(),
                tensor.shape()
            )));
        }
        let numbers: Vec<f32> = tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err(unusable("has numbers that are not finite".to_owned()));
        }
        Ok(numbers)
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

//! `DeBERTa-v2` and v3: attention that also looks at how far tokens are from each other.

mod config;
mod convolution;
mod distances;

use crate::encoder::{Keep, Layer, Pass};
use crate::load::LoadError;
use crate::numeric::{Machine, Panels, Rows, multiply, normalize_rows};
use crate::tensors::{Norm, Tensors};
pub(super) use config::Config;
use convolution::Convolution;
use distances::{Disentangled, Places, Relative};

/// Everything that a forward pass multiplies with.
pub(super) struct Encoder {
    config: Config,
    words: Vec<f32>,
    /// What is added to the row of a word: a row for each place, or one for all.
    beside: Vec<f32>,
    project: Option<Panels>,
    norm: Norm,
    layers: Vec<(Layer, Relative)>,
    convolution: Option<Convolution>,
}

impl Encoder {
    /// No text is longer than `window`.
    pub(super) fn read(
        tensors: &Tensors<'_>,
        config: &Config,
        window: usize,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let tensors = tensors.under("deberta.");
        let (sizes, width) = (config.sizes, config.width);
        let words = tensors.get(
            "embeddings.word_embeddings.weight",
            &[config.vocabulary, width],
        )?;
        let mut beside = if config.has_positions {
            let shape = [config.positions, width];
            let mut positions = tensors.get("embeddings.position_embeddings.weight", &shape)?;
            positions.truncate(window * width);
            positions
        } else {
            vec![0.0; width]
        };
        if config.types > 0 {
            let types = tensors.get(
                "embeddings.token_type_embeddings.weight",
                &[config.types, width],
            )?;
            for row in beside.chunks_exact_mut(width) {
                for (number, kind) in row.iter_mut().zip(&types) {
                    *number += kind;
                }
            }
        }
        let project = if width == sizes.hidden {
            None
        } else {
            let weight = tensors.get("embeddings.embed_proj.weight", &[sizes.hidden, width])?;
            Some(Panels::of_weights(
                machine,
                &weight,
                &vec![0.0; sizes.hidden],
            ))
        };
        let distances = match config.distances {
            Some(distances) => {
                let rows = 2 * distances.span;
                let mut numbers =
                    tensors.get("encoder.rel_embeddings.weight", &[rows, sizes.hidden])?;
                if config.normalizes_distances {
                    let norm = tensors.norm("encoder.LayerNorm", sizes.hidden)?;
                    normalize_rows(&mut numbers, &norm.weight, &norm.bias, sizes.epsilon);
                }
                Some(numbers)
            }
            None => None,
        };
        let scale = config.asks.scale(sizes.hidden / sizes.heads);
        let layers = (0..config.layers).map(|layer| {
            let name = format!("encoder.layer.{layer}");
            let projections = ["query_proj", "key_proj", "value_proj"];
            let layer = Layer::read(&tensors, &name, projections, scale, sizes, machine)?;
            let relative = Relative::read(&tensors, &name, config, distances.as_deref(), machine)?;
            Ok((layer.with_activation(config.activation), relative))
        });
        let layers = layers.collect::<Result<_, _>>()?;
        let convolution = match config.convolution {
            Some(kernel) => Some(Convolution::read(&tensors, kernel, sizes, machine)?),
            None => None,
        };
        Ok(Self {
            config: config.clone(),
            words,
            beside,
            project,
            norm: tensors.norm("embeddings.LayerNorm", sizes.hidden)?,
            layers,
            convolution,
        })
    }

    fn look_up(&self, pass: &mut Pass, texts: &[Vec<u32>]) {
        let width = self.config.width;
        let mut rows = Vec::with_capacity(pass.lengths().iter().sum::<usize>() * width);
        for text in texts {
            // One row for all, or one for each.
            let beside = self.beside.chunks_exact(width).cycle();
            for (id, beside) in text.iter().zip(beside) {
                let word = &self.words[*id as usize * width..][..width];
                rows.extend(word.iter().zip(beside).map(|(word, beside)| word + beside));
            }
        }
        pass.states = match &self.project {
            None => rows,
            Some(panels) => {
                let (machine, hidden) = (pass.machine(), self.config.sizes.hidden);
                let count = rows.len() / width;
                let mut left = Rows::empty();
                left.set(machine, count, width, &rows, width);
                let mut states = vec![0.0; count * hidden];
                multiply(machine, &left, panels, &mut states, hidden);
                states
            }
        };
        pass.normalize(&self.norm);
    }
}

impl super::Encoder for Encoder {
    fn pooled(&self, machine: Machine, texts: &[Vec<u32>]) -> Vec<f32> {
        let lengths = texts.iter().map(Vec::len).collect();
        let sizes = self.config.sizes;
        let mut pass = Pass::new(machine, sizes, lengths, sizes.inner);
        self.look_up(&mut pass, texts);
        let embedded = self.convolution.as_ref().map(|_| pass.states.clone());

        let places = self
            .config
            .distances
            .map(|distances| Places::new(distances, pass.longest()));
        let mut scoring = Disentangled::new(places);
        for (number, (layer, relative)) in self.layers.iter().enumerate() {
            scoring.relative = Some(relative);
            let convolution = self.convolution.as_ref().filter(|_| number == 0);
            let is_last = number + 1 == self.layers.len();
            let keep = if is_last && convolution.is_none() {
                Keep::First
            } else {
                Keep::All
            };
            pass.run(layer, &mut scoring, keep);
            if let (Some(convolution), Some(embedded)) = (convolution, &embedded) {
                convolution.run(&mut pass, embedded);
            }
        }
        pass.keep_first();
        pass.states
    }
}

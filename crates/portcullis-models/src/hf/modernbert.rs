//! `ModernBERT`: rotated queries and keys, layers that see all of a text and layers that see what is near.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::config::activation;
use crate::encoder::{Keep, Pass, Scoring, Sizes};
use crate::load::{LoadError, check_epsilon, check_heads, check_sizes};
use crate::numeric::{Activation, Machine, Panels};
use crate::tensors::{Norm, Tensors};

/// The sizes of a `ModernBERT`.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) sizes: Sizes,
    pub(super) vocabulary: usize,
    pub(super) positions: usize,
    activation: Activation,
    /// For each layer whether it sees only what is near.
    locals: Vec<bool>,
    /// How far a local layer sees, to each side.
    reach: usize,
    /// How slowly queries and keys turn: in layers that see all, and in local ones.
    thetas: (f32, f32),
    pub(super) norm_bias: bool,
    attention_bias: bool,
    mlp_bias: bool,
    pub(super) head_bias: bool,
    pub(super) head: Activation,
    pools_mean: bool,
}

#[derive(Deserialize)]
pub(super) struct File {
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "gelu")]
    hidden_activation: String,
    #[serde(default = "usual_epsilon")]
    norm_eps: f32,
    #[serde(default)]
    norm_bias: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    classifier_bias: bool,
    #[serde(default = "gelu")]
    classifier_activation: String,
    classifier_pooling: Option<String>,
    local_attention: Option<usize>,
    global_attn_every_n_layers: Option<usize>,
    global_rope_theta: Option<f32>,
    local_rope_theta: Option<f32>,
    /// Since version 5 of transformers, in place of the three above.
    layer_types: Option<Vec<String>>,
    rope_parameters: Option<BTreeMap<String, Option<Rotation>>>,
}

#[derive(Deserialize)]
struct Rotation {
    rope_type: Option<String>,
    rope_theta: Option<f32>,
}

const FULL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";

impl Config {
    pub(super) fn from_file(file: &File) -> Result<Self, String> {
        let local = file.local_attention.unwrap_or(128);
        let every = file.global_attn_every_n_layers.unwrap_or(3);
        check_sizes(&[
            ("hidden_size", file.hidden_size, 1 << 13),
            ("intermediate_size", file.intermediate_size, 1 << 15),
            ("num_attention_heads", file.num_attention_heads, 1 << 8),
            ("num_hidden_layers", file.num_hidden_layers, 1 << 7),
            ("vocab_size", file.vocab_size, 1 << 20),
            (
                "max_position_embeddings",
                file.max_position_embeddings,
                1 << 17,
            ),
            ("local_attention", local, 1 << 17),
            ("global_attn_every_n_layers", every, 1 << 7),
        ])?;
        check_heads(file.hidden_size, file.num_attention_heads)?;
        check_epsilon("norm_eps", file.norm_eps)?;
        if !(file.hidden_size / file.num_attention_heads).is_multiple_of(2) {
            return Err(format!(
                "`hidden_size` is {}, which leaves {} `num_attention_heads` an odd size",
                file.hidden_size, file.num_attention_heads
            ));
        }
        let pools_mean = match file.classifier_pooling.as_deref() {
            None | Some("cls") => false,
            Some("mean") => true,
            Some(other) => {
                return Err(format!(
                    "`classifier_pooling` is `{other}`: only `cls` and `mean` are understood"
                ));
            }
        };
        Ok(Self {
            sizes: Sizes {
                hidden: file.hidden_size,
                inner: file.intermediate_size,
                heads: file.num_attention_heads,
                epsilon: file.norm_eps,
            },
            vocabulary: file.vocab_size,
            positions: file.max_position_embeddings,
            activation: activation("hidden_activation", &file.hidden_activation)?,
            locals: locals(file, every)?,
            reach: local / 2,
            thetas: (
                theta(file, FULL, file.global_rope_theta.unwrap_or(160_000.0))?,
                theta(file, LOCAL, file.local_rope_theta.unwrap_or(10_000.0))?,
            ),
            norm_bias: file.norm_bias,
            attention_bias: file.attention_bias,
            mlp_bias: file.mlp_bias,
            head_bias: file.classifier_bias,
            head: activation("classifier_activation", &file.classifier_activation)?,
            pools_mean,
        })
    }
}

/// Everything that a forward pass multiplies with.
pub(super) struct Encoder {
    config: Config,
    words: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    last_norm: Norm,
    full: Turns,
    local: Turns,
}

struct Layer {
    /// The first layer has none.
    attention_norm: Option<Norm>,
    /// Queries, keys and values side by side; the queries are already scaled.
    attention: Panels,
    attention_out: Panels,
    norm: Norm,
    /// What a function is applied to, and what that is multiplied with, side by side.
    widen: Panels,
    narrow: Panels,
    is_local: bool,
}

impl Encoder {
    /// No text is longer than `window`.
    pub(super) fn read(
        tensors: &Tensors<'_>,
        config: &Config,
        window: usize,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let tensors = tensors.under("model.");
        let sizes = config.sizes;
        let norm = |name: &str| tensors.norm_with(name, sizes.hidden, config.norm_bias);
        let layers =
            config.locals.iter().enumerate().map(|(number, &is_local)| {
                Layer::read(&tensors, number, is_local, config, machine)
            });
        let layers = layers.collect::<Result<_, _>>()?;
        let head = sizes.hidden / sizes.heads;
        Ok(Self {
            words: tensors.get(
                "embeddings.tok_embeddings.weight",
                &[config.vocabulary, sizes.hidden],
            )?,
            norm: norm("embeddings.norm")?,
            layers,
            last_norm: norm("final_norm")?,
            full: Turns::new(config.thetas.0, head, window),
            local: Turns::new(config.thetas.1, head, window),
            config: config.clone(),
        })
    }

    fn means(&self, pass: &Pass) -> Vec<f32> {
        let hidden = self.config.sizes.hidden;
        let mut means = vec![0.0; pass.lengths().len() * hidden];
        let mut rows = pass.states.chunks_exact(hidden);
        for (mean, &length) in means.chunks_exact_mut(hidden).zip(pass.lengths()) {
            for row in rows.by_ref().take(length) {
                for (mean, number) in mean.iter_mut().zip(row) {
                    *mean += number / length as f32;
                }
            }
        }
        means
    }
}

impl super::Encoder for Encoder {
    fn pooled(&self, machine: Machine, texts: &[Vec<u32>]) -> Vec<f32> {
        let sizes = self.config.sizes;
        let lengths = texts.iter().map(Vec::len).collect();
        let mut pass = Pass::new(machine, sizes, lengths, 2 * sizes.inner);
        for id in texts.iter().flatten() {
            let word = &self.words[*id as usize * sizes.hidden..][..sizes.hidden];
            pass.states.extend_from_slice(word);
        }
        pass.normalize(&self.norm);
        for (number, layer) in self.layers.iter().enumerate() {
            let is_last = number + 1 == self.layers.len();
            let keep = if is_last && !self.config.pools_mean {
                Keep::First
            } else {
                Keep::All
            };
            match &layer.attention_norm {
                Some(norm) => pass.project_normalized(norm, &layer.attention),
                None => pass.project(&layer.attention),
            }
            let (turns, reach) = if layer.is_local {
                (&self.local, self.config.reach)
            } else {
                (&self.full, usize::MAX)
            };
            turns.turn(&mut pass, sizes);
            pass.attend(&mut Near { reach }, keep);
            pass.project_update(&layer.attention_out);
            pass.add_update();

            pass.project_normalized(&layer.norm, &layer.widen);
            pass.gate(self.config.activation, sizes.inner);
            pass.narrow(&layer.narrow, 2 * sizes.inner);
            pass.add_update();
        }
        pass.normalize(&self.last_norm);
        if self.config.pools_mean {
            self.means(&pass)
        } else {
            pass.states
        }
    }
}

impl Layer {
    fn read(
        tensors: &Tensors<'_>,
        number: usize,
        is_local: bool,
        config: &Config,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let Sizes {
            hidden,
            inner,
            heads,
            ..
        } = config.sizes;
        let name = |part: &str| format!("layers.{number}.{part}");
        let dense = |part: &str, out: usize, into: usize, has_bias: bool| {
            let (weight, bias) = tensors.dense_with(&name(part), out, into, has_bias)?;
            Ok(Panels::of_weights(machine, &weight, &bias))
        };
        let norm = |part: &str| tensors.norm_with(&name(part), hidden, config.norm_bias);

        let (mut weights, mut biases) = tensors.dense_with(
            &name("attn.Wqkv"),
            3 * hidden,
            hidden,
            config.attention_bias,
        )?;
        let scale = ((hidden / heads) as f32).sqrt().recip();
        let queries = weights[..hidden * hidden]
            .iter_mut()
            .chain(&mut biases[..hidden]);
        for number in queries {
            *number *= scale;
        }
        Ok(Self {
            attention_norm: match number {
                0 => None,
                _ => Some(norm("attn_norm")?),
            },
            attention: Panels::of_weights(machine, &weights, &biases),
            attention_out: dense("attn.Wo", hidden, hidden, config.attention_bias)?,
            norm: norm("mlp_norm")?,
            widen: dense("mlp.Wi", 2 * inner, hidden, config.mlp_bias)?,
            narrow: dense("mlp.Wo", hidden, inner, config.mlp_bias)?,
            is_local,
        })
    }
}

/// By how much queries and keys are turned at each place: a cosine and a sine for each pair of numbers.
struct Turns {
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl Turns {
    fn new(theta: f32, head: usize, window: usize) -> Self {
        let angles = (0..window).flat_map(|place| {
            (0..head / 2).map(move |pair| {
                let power = (2 * pair) as f64 / head as f64;
                let speed = f64::from(theta).powf(power).recip() as f32;
                place as f32 * speed
            })
        });
        let (sines, cosines) = angles
            .map(|angle| {
                let (sine, cosine) = f64::from(angle).sin_cos();
                (sine as f32, cosine as f32)
            })
            .unzip();
        Self { cosines, sines }
    }

    fn turn(&self, pass: &mut Pass, sizes: Sizes) {
        let half = sizes.hidden / sizes.heads / 2;
        let lengths = pass.lengths().to_vec();
        let mut rows = pass
            .wide(3 * sizes.hidden)
            .chunks_exact_mut(3 * sizes.hidden);
        for length in lengths {
            let places = self
                .cosines
                .chunks_exact(half)
                .zip(self.sines.chunks_exact(half));
            for (row, (cosines, sines)) in rows.by_ref().take(length).zip(places) {
                for head in row[..2 * sizes.hidden].chunks_exact_mut(2 * half) {
                    let (first, second) = head.split_at_mut(half);
                    let pairs = first.iter_mut().zip(second);
                    for ((a, b), (cosine, sine)) in pairs.zip(cosines.iter().zip(sines)) {
                        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                    }
                }
            }
        }
    }
}

/// Scores of what is within reach.
struct Near {
    reach: usize,
}

impl Scoring for Near {
    fn adjust(&self, _first: usize, length: usize, scores: &mut [f32]) {
        if self.reach >= length {
            return;
        }
        for (query, scores) in scores.chunks_exact_mut(length).enumerate() {
            let near = query.saturating_sub(self.reach)..(query + self.reach + 1).min(length);
            scores[..near.start].fill(f32::NEG_INFINITY);
            scores[near.end..].fill(f32::NEG_INFINITY);
        }
    }
}

fn locals(file: &File, every: usize) -> Result<Vec<bool>, String> {
    let Some(types) = &file.layer_types else {
        return Ok((0..file.num_hidden_layers)
            .map(|layer| !layer.is_multiple_of(every))
            .collect());
    };
    if types.len() != file.num_hidden_layers {
        return Err(format!(
            "`layer_types` has {} layers, but `num_hidden_layers` is {}",
            types.len(),
            file.num_hidden_layers
        ));
    }
    let is_local = |name: &String| match name.as_str() {
        FULL => Ok(false),
        LOCAL => Ok(true),
        other => Err(format!(
            "`layer_types` has `{other}`: only `{FULL}` and `{LOCAL}` are understood"
        )),
    };
    types.iter().map(is_local).collect()
}

fn theta(file: &File, kind: &str, usual: f32) -> Result<f32, String> {
    let rotation = file
        .rope_parameters
        .as_ref()
        .and_then(|kinds| kinds.get(kind));
    let rotation = rotation.and_then(Option::as_ref);
    if let Some(other) = rotation.and_then(|rotation| rotation.rope_type.as_deref())
        && other != "default"
    {
        return Err(format!(
            "`rope_parameters.{kind}.rope_type` is `{other}`: only `default` is understood"
        ));
    }
    let theta = rotation
        .and_then(|rotation| rotation.rope_theta)
        .unwrap_or(usual);
    if !(1.0..1e9).contains(&theta) {
        return Err(format!(
            "the rope theta of `{kind}` is {theta}: it must be 1 to 1e9"
        ));
    }
    Ok(theta)
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn usual_epsilon() -> f32 {
    1e-5
}

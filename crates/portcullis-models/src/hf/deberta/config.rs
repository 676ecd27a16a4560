//! What `config.json` says of a `DeBERTa`.

use serde::Deserialize;

use super::distances::Distances;
use crate::encoder::Sizes;
use crate::hf::config::activation;
use crate::load::{check_epsilon, check_heads, check_sizes};
use crate::numeric::Activation;

/// The sizes of a `DeBERTa`.
#[derive(Debug, Clone)]
pub(in crate::hf) struct Config {
    pub(in crate::hf) sizes: Sizes,
    pub(super) layers: usize,
    pub(in crate::hf) vocabulary: usize,
    pub(in crate::hf) positions: usize,
    pub(super) types: usize,
    /// Of the rows of the vocabulary, where they are narrower than the model's.
    pub(super) width: usize,
    pub(super) has_positions: bool,
    pub(super) activation: Activation,
    pub(in crate::hf) pooler: Activation,
    pub(super) distances: Option<Distances>,
    pub(super) asks: Asks,
    pub(super) shares_projections: bool,
    pub(super) normalizes_distances: bool,
    pub(super) convolution: Option<Kernel>,
}

/// What is asked of distances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asks {
    /// Queries ask for the distance of keys.
    pub(super) content_to_position: bool,
    /// Distances ask for keys.
    pub(super) position_to_content: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    /// Odd.
    pub(super) size: usize,
    pub(super) groups: usize,
    pub(super) activation: Activation,
}

#[derive(Deserialize)]
pub(in crate::hf) struct File {
    hidden_act: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    #[serde(default)]
    type_vocab_size: usize,
    layer_norm_eps: f32,
    attention_head_size: Option<usize>,
    embedding_size: Option<usize>,
    #[serde(default)]
    relative_attention: bool,
    max_relative_positions: Option<i64>,
    position_buckets: Option<i64>,
    #[serde(default = "yes")]
    position_biased_input: bool,
    pos_att_type: Option<OneOrMany>,
    #[serde(default)]
    share_att_key: bool,
    norm_rel_ebd: Option<String>,
    pooler_hidden_act: Option<String>,
    pooler_hidden_size: Option<usize>,
    conv_kernel_size: Option<usize>,
    conv_groups: Option<usize>,
    conv_act: Option<String>,
}

/// `"p2c|c2p"` or `["p2c", "c2p"]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Config {
    pub(in crate::hf) fn from_file(file: &File) -> Result<Self, String> {
        let width = file.embedding_size.unwrap_or(file.hidden_size);
        check_sizes(&[
            ("hidden_size", file.hidden_size, 1 << 13),
            ("intermediate_size", file.intermediate_size, 1 << 15),
            ("num_attention_heads", file.num_attention_heads, 1 << 8),
            ("num_hidden_layers", file.num_hidden_layers, 1 << 7),
            ("vocab_size", file.vocab_size, 1 << 20),
            (
                "max_position_embeddings",
                file.max_position_embeddings,
                1 << 13,
            ),
            (
                "type_vocab_size + 1",
                file.type_vocab_size.saturating_add(1),
                1 << 8,
            ),
            ("embedding_size", width, 1 << 13),
        ])?;
        check_heads(file.hidden_size, file.num_attention_heads)?;
        check_epsilon("layer_norm_eps", file.layer_norm_eps)?;
        let head = file.hidden_size / file.num_attention_heads;
        for (field, found, expected) in [
            ("attention_head_size", file.attention_head_size, head),
            (
                "pooler_hidden_size",
                file.pooler_hidden_size,
                file.hidden_size,
            ),
        ] {
            if found.is_some_and(|found| found != expected) {
                return Err(format!(
                    "`{field}` must be {expected} with this `hidden_size`, or be left out"
                ));
            }
        }
        Ok(Self {
            sizes: Sizes {
                hidden: file.hidden_size,
                inner: file.intermediate_size,
                heads: file.num_attention_heads,
                epsilon: file.layer_norm_eps,
            },
            layers: file.num_hidden_layers,
            vocabulary: file.vocab_size,
            positions: file.max_position_embeddings,
            types: file.type_vocab_size,
            width,
            has_positions: file.position_biased_input,
            activation: activation("hidden_act", &file.hidden_act)?,
            pooler: activation(
                "pooler_hidden_act",
                file.pooler_hidden_act.as_deref().unwrap_or("gelu"),
            )?,
            distances: Distances::from_file(file)?,
            asks: Asks::from_file(file)?,
            shares_projections: file.share_att_key,
            normalizes_distances: normalizes(file.norm_rel_ebd.as_deref())?,
            convolution: Kernel::from_file(file)?,
        })
    }
}

impl Asks {
    fn from_file(file: &File) -> Result<Self, String> {
        let names: Vec<String> = match &file.pos_att_type {
            None => Vec::new(),
            Some(OneOrMany::One(names)) => names
                .to_lowercase()
                .split('|')
                .map(|name| name.trim().to_owned())
                .collect(),
            Some(OneOrMany::Many(names)) => names.clone(),
        };
        let unknown = names
            .iter()
            .find(|name| !["", "none", "c2p", "p2c"].contains(&name.as_str()));
        if let Some(name) = unknown {
            return Err(format!(
                "`pos_att_type` has `{name}`: only `c2p` and `p2c` are understood"
            ));
        }
        let has = |name: &str| names.iter().any(|other| other == name);
        Ok(Self {
            content_to_position: has("c2p"),
            position_to_content: has("p2c"),
        })
    }

    /// What queries are multiplied by: there are one, two or three sums in a score.
    pub(super) fn scale(self, head: usize) -> f32 {
        let sums =
            1 + usize::from(self.content_to_position) + usize::from(self.position_to_content);
        ((head * sums) as f32).sqrt().recip()
    }
}

impl Kernel {
    fn from_file(file: &File) -> Result<Option<Self>, String> {
        let Some(size) = file.conv_kernel_size.filter(|&size| size > 0) else {
            return Ok(None);
        };
        let groups = file.conv_groups.unwrap_or(1);
        check_sizes(&[
            ("conv_kernel_size", size, 31),
            ("conv_groups", groups, 1 << 13),
        ])?;
        if size % 2 == 0 {
            return Err(format!("`conv_kernel_size` is {size}: it must be odd"));
        }
        if !file.hidden_size.is_multiple_of(groups) {
            return Err(format!(
                "`hidden_size` is {}, which {groups} `conv_groups` cannot share",
                file.hidden_size
            ));
        }
        Ok(Some(Self {
            size,
            groups,
            activation: activation("conv_act", file.conv_act.as_deref().unwrap_or("tanh"))?,
        }))
    }
}

impl Distances {
    fn from_file(file: &File) -> Result<Option<Self>, String> {
        if !file.relative_attention {
            return Ok(None);
        }
        let positive = |number: Option<i64>| {
            let number = number.filter(|&number| number > 0);
            number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        let buckets = positive(file.position_buckets);
        let farthest =
            positive(file.max_relative_positions).unwrap_or(file.max_position_embeddings);
        check_sizes(&[
            ("position_buckets", buckets.unwrap_or(1), 1 << 13),
            ("max_relative_positions", farthest, 1 << 13),
        ])?;
        Ok(Some(Self {
            span: buckets.unwrap_or(farthest),
            buckets,
            farthest,
        }))
    }
}

fn normalizes(setting: Option<&str>) -> Result<bool, String> {
    match setting.map(str::trim) {
        None | Some("none" | "") => Ok(false),
        Some(setting) if setting.eq_ignore_ascii_case("layer_norm") => Ok(true),
        Some(other) => Err(format!(
            "`norm_rel_ebd` is `{other}`: only `layer_norm` and `none` are understood"
        )),
    }
}

fn yes() -> bool {
    true
}

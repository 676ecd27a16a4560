//! What is in the file.

use std::path::Path;

use portcullis_core::classifier::Channel;
use serde::Deserialize;

use super::second::Second;
use crate::builtin::BuiltIn;
use crate::load::LoadError;
use crate::numeric::{Machine, Panels};
use crate::tensors::{Norm, Tensors};
use crate::wordpiece::WordPiece;

/// Longer ones take longer than a verdict may.
const LONGEST_WINDOW: usize = 1024;

/// The sizes of the network, and what its numbers mean.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) pieces: usize,
    pub(super) dim: usize,
    pub(super) bigrams: usize,
    pub(super) kernel: usize,
    pub(super) dilations: Vec<usize>,
    pub(super) heads: usize,
    pub(super) hidden: usize,
    pub(super) window: usize,
    pub(super) stride: usize,
    pub(super) labels: Vec<String>,
    pub(super) calibration: Calibration,
    pub(super) second: Option<SecondConfig>,
    pub(super) threshold: f32,
    pub(super) tokenizer_sha256: String,
}

/// The sizes of the encoder that looks again, and at what.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecondConfig {
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    /// The score from which on a window is looked at again.
    pub(super) from: f32,
    pub(super) calibration: Calibration,
}

/// From a difference of logits to a probability, by who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calibration {
    pub(super) scale: f32,
    pub(super) user: f32,
    pub(super) tool: f32,
}

impl Calibration {
    pub(super) fn score(self, raw: f32, channel: Channel) -> f32 {
        let shift = match channel {
            Channel::User => self.user,
            Channel::Tool => self.tool,
        };
        (1.0 + (-(self.scale * raw + shift)).exp()).recip()
    }

    fn check(self) -> Result<(), String> {
        let Self { scale, user, tool } = self;
        if scale > 0.0 && [scale, user, tool].iter().all(|one| one.is_finite()) {
            return Ok(());
        }
        Err(format!(
            "`calibration` is {scale}, {user} and {tool}: the scale must be positive, and all finite"
        ))
    }
}

/// A file that was read whole.
pub(super) struct Model {
    pub(super) config: Config,
    pub(super) machine: Machine,
    pub(super) pieces: Table,
    pub(super) bigrams: Table,
    /// A row for each channel.
    pub(super) channels: Vec<f32>,
    pub(super) blocks: Vec<Block>,
    pub(super) queries: Panels,
    pub(super) hidden: Panels,
    pub(super) labels: Panels,
    pub(super) second: Option<Second>,
}

/// Vectors of eight bits a number.
pub(super) struct Table {
    numbers: Vec<u8>,
    scales: Vec<f32>,
}

/// A gated convolution.
pub(super) struct Block {
    pub(super) dilation: usize,
    pub(super) norm: Norm,
    /// A row for each place of the kernel.
    pub(super) kernel: Vec<f32>,
    pub(super) kernel_bias: Vec<f32>,
    /// The update and its gate, side by side.
    pub(super) gate: Panels,
}

impl Table {
    pub(super) fn read(
        tensors: &Tensors<'_>,
        name: &str,
        rows: usize,
        width: usize,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            numbers: tensors
                .bytes(&format!("{name}.weight"), &[rows, width])?
                .to_vec(),
            scales: tensors.get(&format!("{name}.scale"), &[rows])?,
        })
    }

    /// A row and what its numbers are to be multiplied with.
    pub(super) fn row(&self, row: usize) -> (f32, &[u8]) {
        let width = self.numbers.len() / self.scales.len();
        (self.scales[row], &self.numbers[row * width..][..width])
    }
}

impl Model {
    pub(super) fn parse(
        path: &Path,
        bytes: &[u8],
        tokenizer: &WordPiece,
    ) -> Result<Self, LoadError> {
        let tensors = Tensors::parse(path, bytes)?;
        let text = tensors.note("config")?;
        let unusable = |why: String| LoadError::unusable(path, format!("`config`: {why}"));
        let config: Config = serde_json::from_str(text).map_err(|e| unusable(e.to_string()))?;
        config.check(tokenizer).map_err(unusable)?;

        let machine = Machine::new();
        let (dim, hidden) = (config.dim, config.hidden);
        let features = (config.heads + 1) * dim;
        let dense = |name: &str, out: usize, into: usize| {
            tensors.panels(machine, &[(name.to_owned(), 1.0)], out, into)
        };
        let queries = tensors.get("pool.query", &[config.heads, dim])?;
        let second = config.second.as_ref();
        Ok(Self {
            second: second
                .map(|second| Second::read(&tensors, &config, second, machine))
                .transpose()?,
            pieces: Table::read(&tensors, "pieces", config.pieces, dim)?,
            bigrams: Table::read(&tensors, "bigrams", config.bigrams, dim)?,
            channels: tensors.get("channel.weight", &[2, dim])?,
            blocks: (0..config.dilations.len())
                .map(|index| {
                    let name = |part: &str| format!("blocks.{index}.{part}");
                    Ok(Block {
                        dilation: config.dilations[index],
                        norm: tensors.norm(&name("norm"), dim)?,
                        kernel: tensors.get(&name("conv.weight"), &[config.kernel, dim])?,
                        kernel_bias: tensors.get(&name("conv.bias"), &[dim])?,
                        gate: dense(&name("gate"), 2 * dim, dim)?,
                    })
                })
                .collect::<Result<_, LoadError>>()?,
            queries: Panels::of_weights(machine, &queries, &vec![0.0; config.heads]),
            hidden: dense("head.0", hidden, features)?,
            labels: dense("head.1", config.labels.len(), hidden)?,
            machine,
            config,
        })
    }
}

impl Config {
    /// What the shapes of tensors do not say.
    fn check(&self, tokenizer: &WordPiece) -> Result<(), String> {
        const MOST: usize = 1 << 16;
        let sizes = [
            ("dim", self.dim),
            ("heads", self.heads),
            ("hidden", self.hidden),
            ("kernel", self.kernel),
            ("window", self.window),
            ("stride", self.stride),
        ];
        let dilations = self.dilations.iter().map(|&size| ("dilations", size));
        for (name, size) in sizes.into_iter().chain(dilations) {
            if size == 0 || size > MOST {
                return Err(format!("`{name}` is {size}: it must be from 1 to {MOST}"));
            }
        }
        if self.kernel.is_multiple_of(2) {
            return Err(format!("`kernel` is {}: it must be odd", self.kernel));
        }
        if self.window > LONGEST_WINDOW || self.stride < self.window / 4 {
            let (stride, window) = (self.stride, self.window);
            return Err(format!(
                "`window` is {window} and `stride` {stride}: a window has at most {LONGEST_WINDOW} pieces, and the next begins no \
                 sooner than after a quarter of it"
            ));
        }
        if self.stride > self.window {
            let (stride, window) = (self.stride, self.window);
            return Err(format!(
                "`stride` is {stride}, past the window of {window}: something would be left out"
            ));
        }
        if !(2..=1 << 24).contains(&self.bigrams) || !self.bigrams.is_power_of_two() {
            return Err(format!(
                "`bigrams` is {}: it must be a power of two up to 2^24",
                self.bigrams
            ));
        }
        if self.labels.len() < 2 || self.labels[0] != "benign" {
            return Err("`labels` must begin with `benign` and name an attack".to_owned());
        }
        self.calibration.check()?;
        if !(self.threshold > 0.0 && self.threshold < 1.0) {
            return Err(format!(
                "`threshold` is {}: it must be between 0 and 1",
                self.threshold
            ));
        }
        if let Some(second) = &self.second {
            second.check(self.threshold)?;
        }
        if self.pieces != tokenizer.size() || self.tokenizer_sha256 != BuiltIn::ASSET_SHA256 {
            return Err(format!(
                "it was trained with another tokenizer, of {} pieces (`tokenizer_sha256` {}): this one has {} ({})",
                self.pieces,
                self.tokenizer_sha256,
                tokenizer.size(),
                BuiltIn::ASSET_SHA256
            ));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn example() -> Self {
        Self {
            name: "example".to_owned(),
            version: "1".to_owned(),
            pieces: BuiltIn::new().tokenizer().size(),
            dim: 4,
            bigrams: 8,
            kernel: 3,
            dilations: vec![1, 2],
            heads: 2,
            hidden: 3,
            window: 6,
            stride: 4,
            labels: vec!["benign".to_owned(), "jb_override".to_owned()],
            calibration: Calibration {
                scale: 1.0,
                user: 0.0,
                tool: 0.0,
            },
            second: None,
            threshold: 0.5,
            tokenizer_sha256: BuiltIn::ASSET_SHA256.to_owned(),
        }
    }
}

impl SecondConfig {
    fn check(&self, threshold: f32) -> Result<(), String> {
        const MOST: usize = 1 << 12;
        let sizes = [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("inner", self.inner),
        ];
        for (name, size) in sizes {
            if size == 0 || size > MOST {
                return Err(format!(
                    "`second.{name}` is {size}: it must be from 1 to {MOST}"
                ));
            }
        }
        if !self.width.is_multiple_of(self.heads) {
            let (width, heads) = (self.width, self.heads);
            return Err(format!(
                "`second.width` is {width}: {heads} heads cannot share it evenly"
            ));
        }
        // Otherwise a window that nobody looked at again could be an attack.
        if !(self.from > 0.0 && self.from < threshold) {
            return Err(format!(
                "`second.from` is {}: it must be above 0 and below the threshold, {threshold}",
                self.from
            ));
        }
        let calibration = self.calibration.check();
        calibration.map_err(|why| format!("`second`: {why}"))
    }
}

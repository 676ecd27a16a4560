//! The second look: an encoder of six layers, for the windows that the convolutions suspect.

use portcullis_core::classifier::Channel;

use super::file::{Config, SecondConfig, Table};
use crate::encoder::{Keep, Layer, Pass, Plain, Sizes};
use crate::load::LoadError;
use crate::numeric::{Activation, Machine, Panels, Rows, multiply};
use crate::tensors::{Norm, Tensors};

const EPSILON: f32 = 1e-12;
/// What a window begins with: the row that will stand for all of it, and who speaks.
const FRONT: usize = 2;

pub(super) struct Second {
    machine: Machine,
    sizes: Sizes,
    /// A row for each piece, then the first row's, a user's and a tool's.
    words: Table,
    pieces: u32,
    /// A row for each place.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    pooler: Panels,
    labels: Panels,
}

impl Second {
    pub(super) fn read(
        tensors: &Tensors<'_>,
        config: &Config,
        second: &SecondConfig,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let (width, labels) = (second.width, config.labels.len());
        let sizes = Sizes {
            hidden: width,
            inner: second.inner,
            heads: second.heads,
            epsilon: EPSILON,
        };
        let scale = ((width / second.heads) as f32).sqrt().recip();
        let layer = |index: usize| {
            let name = format!("second.layer.{index}");
            let projections = ["query", "key", "value"];
            Layer::read(tensors, &name, projections, scale, sizes, machine)
        };
        let dense =
            |name: &str, out: usize| tensors.panels(machine, &[(name.to_owned(), 1.0)], out, width);
        Ok(Self {
            machine,
            sizes,
            words: Table::read(tensors, "second.words", config.pieces + FRONT + 1, width)?,
            pieces: u32::try_from(config.pieces).unwrap_or(u32::MAX),
            positions: tensors.get("second.positions", &[config.window + FRONT, width])?,
            norm: tensors.norm("second.norm", width)?,
            layers: (0..second.layers).map(layer).collect::<Result<_, _>>()?,
            pooler: dense("second.pooler", width)?,
            labels: dense("second.labels", labels)?,
        })
    }

    /// Every piece's number is below the size of the vocabulary, and there are no more than a window has.
    pub(super) fn logits(&self, pieces: &[u32], channel: Channel) -> Vec<f32> {
        let speaker = match channel {
            Channel::User => self.pieces + 1,
            Channel::Tool => self.pieces + 2,
        };
        let front = [self.pieces, speaker];
        let rows = FRONT + pieces.len();
        let mut pass = Pass::new(self.machine, self.sizes, vec![rows], self.sizes.inner);
        let words = front.iter().chain(pieces);
        for (&word, position) in words.zip(self.positions.chunks_exact(self.sizes.hidden)) {
            let (scale, numbers) = self.words.row(word as usize);
            let sums = numbers.iter().zip(position);
            pass.states.extend(
                sums.map(|(number, place)| scale * f32::from(number.cast_signed()) + place),
            );
        }
        pass.normalize(&self.norm);
        if let Some((last, others)) = self.layers.split_last() {
            for layer in others {
                pass.run(layer, &mut Plain, Keep::All);
            }
            pass.run(last, &mut Plain, Keep::First);
        }
        let mut pooled = self.dense(&pass.states, &self.pooler);
        Activation::Tanh.apply(self.machine, &mut pooled);
        self.dense(&pooled, &self.labels)
    }

    fn dense(&self, row: &[f32], panels: &Panels) -> Vec<f32> {
        let mut left = Rows::empty();
        left.set_for(panels, self.machine, 1, row, row.len());
        let mut out = vec![0.0; panels.columns()];
        let columns = out.len();
        multiply(self.machine, &left, panels, &mut out, columns);
        out
    }
}

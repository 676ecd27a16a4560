//! From the row that stands for a text to a number for each label.

use super::config::{Config, Family};
use crate::load::LoadError;
use crate::numeric::{Activation, Machine, Panels, Rows, multiply, normalize_rows};
use crate::tensors::{Norm, Tensors};

/// A product with a function, perhaps a norm, and the labels' product.
pub(super) struct Head {
    dense: Panels,
    activation: Activation,
    norm: Option<(Norm, f32)>,
    labels: Panels,
}

impl Head {
    pub(super) fn read(
        tensors: &Tensors<'_>,
        config: &Config,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let hidden = config.hidden();
        let (name, has_bias, activation) = match &config.family {
            Family::Bert(_) => ("bert.pooler.dense", true, Activation::Tanh),
            Family::DeBerta(family) => ("pooler.dense", true, family.pooler),
            Family::ModernBert(family) => ("head.dense", family.head_bias, family.head),
        };
        let (weight, bias) = tensors.dense_with(name, hidden, hidden, has_bias)?;
        let norm = match &config.family {
            Family::ModernBert(family) => Some((
                tensors.norm_with("head.norm", hidden, family.norm_bias)?,
                family.sizes.epsilon,
            )),
            _ => None,
        };
        let (labels, label_biases) = tensors.dense("classifier", config.labels.len(), hidden)?;
        Ok(Self {
            dense: Panels::of_weights(machine, &weight, &bias),
            activation,
            norm,
            labels: Panels::of_weights(machine, &labels, &label_biases),
        })
    }

    /// The logits of each row.
    pub(super) fn logits(&self, machine: Machine, mut rows: Vec<f32>) -> Vec<Vec<f32>> {
        let hidden = self.dense.columns();
        let count = rows.len() / hidden;
        let mut left = Rows::empty();
        left.set(machine, count, hidden, &rows, hidden);
        multiply(machine, &left, &self.dense, &mut rows, hidden);
        self.activation.apply(machine, &mut rows);
        if let Some((norm, epsilon)) = &self.norm {
            normalize_rows(&mut rows, &norm.weight, &norm.bias, *epsilon);
        }
        left.set(machine, count, hidden, &rows, hidden);
        let labels = self.labels.columns();
        let mut logits = vec![0.0; count * labels];
        multiply(machine, &left, &self.labels, &mut logits, labels);
        logits.chunks_exact(labels).map(<[f32]>::to_vec).collect()
    }
}

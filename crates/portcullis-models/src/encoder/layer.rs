//! The layer of BERT and of those that kept it: attention, then two products, each added and normalised.

use crate::load::LoadError;
use crate::numeric::{Activation, Machine, Panels};
use crate::tensors::{Norm, Tensors};

/// What shapes an encoder's layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) hidden: usize,
    pub(crate) inner: usize,
    /// They share `hidden` evenly.
    pub(crate) heads: usize,
    pub(crate) epsilon: f32,
}

pub(crate) struct Layer {
    /// Queries, keys and values side by side; the queries are already scaled.
    pub(super) attention: Panels,
    pub(super) attention_out: Panels,
    pub(super) attention_norm: Norm,
    pub(super) widen: Panels,
    pub(super) activation: Activation,
    pub(super) narrow: Panels,
    pub(super) norm: Norm,
}

impl Layer {
    /// `name` is what the layer's tensors begin with, `projections` are queries, keys and values under
    /// `attention.self`, and `scale` is what the queries are multiplied by.
    pub(crate) fn read(
        tensors: &Tensors<'_>,
        name: &str,
        projections: [&str; 3],
        scale: f32,
        sizes: Sizes,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let (hidden, inner) = (sizes.hidden, sizes.inner);
        let name = |part: &str| format!("{name}.{part}");
        let dense = |part: &str, out: usize, into: usize| {
            tensors.panels(machine, &[(name(part), 1.0)], out, into)
        };
        let [queries, keys, values] =
            projections.map(|part| name(&format!("attention.self.{part}")));
        let attention = [(queries, scale), (keys, 1.0), (values, 1.0)];
        Ok(Self {
            attention: tensors.panels(machine, &attention, hidden, hidden)?,
            attention_out: dense("attention.output.dense", hidden, hidden)?,
            attention_norm: tensors.norm(&name("attention.output.LayerNorm"), hidden)?,
            widen: dense("intermediate.dense", inner, hidden)?,
            activation: Activation::Gelu,
            narrow: dense("output.dense", hidden, inner)?,
            norm: tensors.norm(&name("output.LayerNorm"), hidden)?,
        })
    }

    /// The same with another function between its two products.
    pub(crate) fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }
}

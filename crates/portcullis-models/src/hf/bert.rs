//! BERT and what kept its shape, such as `MiniLM`.

use crate::bert::{BertConfig, BertWeights, run};
use crate::encoder::Keep;
use crate::load::LoadError;
use crate::numeric::Machine;
use crate::tensors::Tensors;

pub(super) struct Encoder {
    config: BertConfig,
    weights: BertWeights,
}

impl Encoder {
    pub(super) fn read(
        tensors: &Tensors<'_>,
        config: &BertConfig,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let weights = BertWeights::read(&tensors.under("bert."), config, machine)?;
        Ok(Self {
            config: config.clone(),
            weights,
        })
    }
}

impl super::Encoder for Encoder {
    fn pooled(&self, machine: Machine, texts: &[Vec<u32>]) -> Vec<f32> {
        run(&self.config, &self.weights, machine, texts, Keep::First).states
    }
}

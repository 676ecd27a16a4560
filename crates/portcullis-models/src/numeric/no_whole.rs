//! For machines of which no instruction on pairs is known: products of floats do it all.

use super::gemm::Machine;

#[derive(Debug, Clone)]
pub(super) enum Whole {}

#[derive(Debug, Clone, Default)]
pub(super) struct WholeRows;

impl Whole {
    pub(super) fn of_weights(_: Machine, _: &[u8], _: &[f32]) -> Option<Self> {
        None
    }

    pub(super) fn multiply(
        &self,
        _: Machine,
        _: &WholeRows,
        _: &[f32],
        _: usize,
        _: &mut [f32],
        _: usize,
    ) {
        match *self {}
    }
}

impl WholeRows {
    pub(super) fn set(&mut self, _: Machine, _: usize, _: usize, _: &[f32], _: usize) {}
}

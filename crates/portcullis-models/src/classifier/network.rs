//! From the pieces of a window to its logits.

use portcullis_core::classifier::Channel;

use super::file::{Block, Model, Table};
use crate::numeric::{Rows, add_gated, multiply, normalize_rows, softmax_rows};

const EPSILON: f32 = 1e-5;
/// Fractional parts of no meaning, which spread pairs over the slots.
const MIX: (u32, u32) = (0x9E37_79B1, 0x85EB_CA77);

/// One window after the other, and the room that takes.
pub(super) struct Pass<'m> {
    model: &'m Model,
    left: Rows,
    /// A row for each piece.
    states: Vec<f32>,
    normal: Vec<f32>,
    mixed: Vec<f32>,
    updates: Vec<f32>,
    /// A row for each head: how much of each piece it takes.
    attention: Vec<f32>,
}

impl<'m> Pass<'m> {
    pub(super) fn new(model: &'m Model) -> Self {
        Self {
            model,
            left: Rows::empty(),
            states: Vec::new(),
            normal: Vec::new(),
            mixed: Vec::new(),
            updates: Vec::new(),
            attention: Vec::new(),
        }
    }

    /// Every piece's number is below the size of the vocabulary, and there is at least one.
    pub(super) fn run(&mut self, pieces: &[u32], channel: Channel) -> Vec<f32> {
        self.look_up(pieces, channel);
        for block in &self.model.blocks {
            self.convolve(block);
        }
        let features = self.pool();
        let hidden = self.dense(&features, &self.model.hidden, self.model.config.hidden);
        // What is no number stays none, so that it is noticed.
        let relu = |number: &f32| if *number < 0.0 { 0.0 } else { *number };
        let hidden: Vec<f32> = hidden.iter().map(relu).collect();
        self.dense(&hidden, &self.model.labels, self.model.config.labels.len())
    }

    fn look_up(&mut self, pieces: &[u32], channel: Channel) {
        let model = self.model;
        let dim = model.config.dim;
        let channel = match channel {
            Channel::User => &model.channels[..dim],
            Channel::Tool => &model.channels[dim..],
        };
        let bits = model.config.bigrams.trailing_zeros();
        let mut before = u32::try_from(model.config.pieces).unwrap_or(u32::MAX);
        self.states.clear();
        for &piece in pieces {
            let start = self.states.len();
            self.states.extend_from_slice(channel);
            let state = &mut self.states[start..];
            let slot = before
                .wrapping_mul(MIX.0)
                .wrapping_add(piece.wrapping_mul(MIX.1))
                >> (u32::BITS - bits);
            model.machine.widely(
                #[inline(always)]
                || {
                    add_row(state, &model.pieces, piece);
                    add_row(state, &model.bigrams, slot);
                },
            );
            before = piece;
        }
    }

    /// Each piece takes from its neighbours what its gate lets through.
    fn convolve(&mut self, block: &Block) {
        let machine = self.model.machine;
        let dim = self.model.config.dim;
        let Self {
            states,
            normal,
            mixed,
            updates,
            left,
            ..
        } = self;
        normal.clone_from(states);
        mixed.resize(states.len(), 0.0);
        machine.widely(
            #[inline(always)]
            || {
                normalize_rows(normal, &block.norm.weight, &block.norm.bias, EPSILON);
                mix(mixed, normal, block, dim);
            },
        );
        let rows = states.len() / dim;
        left.set_for(&block.gate, machine, rows, mixed, dim);
        updates.resize(2 * states.len(), 0.0);
        multiply(machine, left, &block.gate, updates, 2 * dim);
        machine.widely(
            #[inline(always)]
            || add_gated(states, updates, dim),
        );
    }

    /// What each head gathers, and the largest of each number.
    fn pool(&mut self) -> Vec<f32> {
        let machine = self.model.machine;
        let (dim, heads) = (self.model.config.dim, self.model.config.heads);
        let rows = self.states.len() / dim;
        self.left.set(machine, rows, dim, &self.states, dim);
        self.updates.resize(rows * heads, 0.0);
        multiply(
            machine,
            &self.left,
            &self.model.queries,
            &mut self.updates,
            heads,
        );
        self.attention.clear();
        for head in 0..heads {
            let scores = self.updates[head..].iter().step_by(heads);
            self.attention.extend(scores.take(rows));
        }
        let mut features = vec![0.0; heads * dim];
        features.resize((heads + 1) * dim, f32::NEG_INFINITY);
        let (states, attention) = (&self.states, &mut self.attention);
        machine.widely(
            #[inline(always)]
            || {
                softmax_rows(attention, rows);
                let (gathered, largest) = features.split_at_mut(heads * dim);
                for (gathered, shares) in gathered.chunks_exact_mut(dim).zip(attention.chunks(rows))
                {
                    for (state, share) in states.chunks_exact(dim).zip(shares) {
                        add_scaled(gathered, state, *share);
                    }
                }
                for state in states.chunks_exact(dim) {
                    for (largest, number) in largest.iter_mut().zip(state) {
                        *largest = if *number <= *largest {
                            *largest
                        } else {
                            *number
                        };
                    }
                }
            },
        );
        features
    }

    fn dense(
        &mut self,
        numbers: &[f32],
        panels: &crate::numeric::Panels,
        columns: usize,
    ) -> Vec<f32> {
        let machine = self.model.machine;
        let mut out = vec![0.0; columns];
        self.left
            .set_for(panels, machine, 1, numbers, numbers.len());
        multiply(machine, &self.left, panels, &mut out, columns);
        out
    }
}

#[expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for a machine without wide registers"
)]
#[inline(always)]
fn add_row(state: &mut [f32], table: &Table, row: u32) {
    let (scale, numbers) = table.row(row as usize);
    for (state, number) in state.iter_mut().zip(numbers) {
        *state += scale * f32::from(number.cast_signed());
    }
}

#[expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for a machine without wide registers"
)]
#[inline(always)]
fn add_scaled(to: &mut [f32], from: &[f32], factor: f32) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from * factor;
    }
}

/// The convolution: each number of a row with those above and below it. Beyond the window there is nothing.
#[expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for a machine without wide registers"
)]
#[inline(always)]
fn mix(mixed: &mut [f32], rows: &[f32], block: &Block, dim: usize) {
    let reach = block.kernel.len() / dim / 2 * block.dilation;
    for (place, mixed) in mixed.chunks_exact_mut(dim).enumerate() {
        mixed.copy_from_slice(&block.kernel_bias);
        for (step, weights) in block.kernel.chunks_exact(dim).enumerate() {
            let Some(from) = (place + step * block.dilation).checked_sub(reach) else {
                continue;
            };
            let Some(row) = rows.get(from * dim..(from + 1) * dim) else {
                continue;
            };
            for ((mixed, weight), number) in mixed.iter_mut().zip(weights).zip(row) {
                *mixed += weight * number;
            }
        }
    }
}

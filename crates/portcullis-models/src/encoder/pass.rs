//! From rows to rows, layer by layer.

use super::layer::{Layer, Sizes};
use crate::numeric::{
    Activation, Machine, Panels, Rows, add, multiply, normalize_rows, softmax_rows,
};
use crate::tensors::Norm;

/// One pass over some texts, and the room it needs.
///
/// The texts' rows lie one behind the other without padding: products take them all at once, and each text
/// attends to itself alone.
pub(crate) struct Pass {
    machine: Machine,
    sizes: Sizes,
    /// How many rows each text has.
    lengths: Vec<usize>,
    pub(crate) states: Vec<f32>,
    wide: Vec<f32>,
    update: Vec<f32>,
    scores: Vec<f32>,
    left: Rows,
    right: Panels,
}

/// Which rows go on after a layer's attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    /// The first of each text. For a last layer before something that looks at no other: it takes a quarter of
    /// the time.
    First,
}

/// What a family of encoders does to the scores of attention.
pub(crate) trait Scoring {
    /// Before the texts of a head: its queries begin at `start` of each row of `wide`, its keys `hidden` further.
    fn begin_head(&mut self, _machine: Machine, _wide: &[f32], _start: usize, _sizes: Sizes) {}

    /// Changes the scores of a text, a row for each query and a column for each key. Its rows begin at `first`.
    fn adjust(&self, _first: usize, _length: usize, _scores: &mut [f32]) {}
}

/// Scores as they are.
pub(crate) struct Plain;

impl Scoring for Plain {}

impl Pass {
    /// `lengths` has the number of rows of each text, `width` is that of the widest product.
    pub(crate) fn new(machine: Machine, sizes: Sizes, lengths: Vec<usize>, width: usize) -> Self {
        let rows: usize = lengths.iter().sum();
        Self {
            machine,
            sizes,
            lengths,
            states: Vec::with_capacity(rows * sizes.hidden),
            wide: vec![0.0; rows * width.max(3 * sizes.hidden)],
            update: vec![0.0; rows * sizes.hidden],
            scores: Vec::new(),
            left: Rows::empty(),
            right: Panels::empty(),
        }
    }

    pub(crate) fn machine(&self) -> Machine {
        self.machine
    }

    pub(crate) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    pub(crate) fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or_default()
    }

    pub(crate) fn rows(&self) -> usize {
        self.states.len() / self.sizes.hidden
    }

    /// A layer of BERT's shape.
    pub(crate) fn run(&mut self, layer: &Layer, scoring: &mut impl Scoring, keep: Keep) {
        self.project(&layer.attention);
        self.attend(scoring, keep);
        self.project_update(&layer.attention_out);
        self.add_update();
        self.normalize(&layer.attention_norm);

        let inner = self.sizes.inner;
        self.project(&layer.widen);
        let filled = self.rows() * inner;
        layer
            .activation
            .apply(self.machine, &mut self.wide[..filled]);
        self.narrow(&layer.narrow, inner);
        self.add_update();
        self.normalize(&layer.norm);
    }

    /// `wide` becomes the states' product.
    pub(crate) fn project(&mut self, panels: &Panels) {
        let (hidden, rows) = (self.sizes.hidden, self.rows());
        self.left
            .set_for(panels, self.machine, rows, &self.states, hidden);
        let columns = panels.columns();
        multiply(self.machine, &self.left, panels, &mut self.wide, columns);
    }

    /// `wide` becomes the product of the states, normalised; they stay as they are.
    pub(crate) fn project_normalized(&mut self, norm: &Norm, panels: &Panels) {
        let (hidden, rows) = (self.sizes.hidden, self.rows());
        let update = &mut self.update[..rows * hidden];
        update.copy_from_slice(&self.states);
        normalize(self.machine, update, norm, self.sizes.epsilon);
        self.left
            .set_for(panels, self.machine, rows, update, hidden);
        let columns = panels.columns();
        multiply(self.machine, &self.left, panels, &mut self.wide, columns);
    }

    /// What `project` has made of the states, for changes in place.
    pub(crate) fn wide(&mut self, width: usize) -> &mut [f32] {
        let rows = self.rows();
        &mut self.wide[..rows * width]
    }

    /// `update` becomes what each row takes from the others of its text, by queries, keys and values in `wide`.
    pub(crate) fn attend(&mut self, scoring: &mut impl Scoring, keep: Keep) {
        let Self {
            machine,
            sizes,
            lengths,
            wide,
            update,
            scores,
            left,
            right,
            ..
        } = self;
        let (machine, hidden) = (*machine, sizes.hidden);
        let (stride, head) = (3 * hidden, hidden / sizes.heads);
        let rows: usize = lengths.iter().sum();
        let wide = &wide[..rows * stride];
        for start in (0..hidden).step_by(head) {
            scoring.begin_head(machine, wide, start, *sizes);
            let (mut first, mut target) = (0, 0);
            for &length in lengths.iter().filter(|&&length| length > 0) {
                let asking = match keep {
                    Keep::All => length,
                    Keep::First => 1,
                };
                let own = &wide[first * stride..(first + length) * stride];
                let (queries, keys) = (&own[start..], &own[hidden + start..]);
                let values = &own[2 * hidden + start..];
                left.set(machine, asking, head, queries, stride);
                right.set_transposed(machine, head, length, keys, stride);
                scores.clear();
                scores.resize(asking * length, 0.0);
                multiply(machine, left, right, scores, length);
                scoring.adjust(first, length, scores);
                machine.widely(
                    #[inline(always)]
                    || softmax_rows(scores, length),
                );

                left.set(machine, asking, length, scores, length);
                right.set(machine, length, head, values, stride);
                let out = &mut update[target * hidden + start..];
                multiply(machine, left, right, out, hidden);
                first += length;
                target += asking;
            }
        }
        if keep == Keep::First {
            self.keep_first();
        }
    }

    /// From here on each text is its first row.
    pub(crate) fn keep_first(&mut self) {
        let hidden = self.sizes.hidden;
        let (mut first, mut target) = (0, 0);
        for length in self.lengths.iter_mut().filter(|length| **length > 0) {
            let row = first * hidden..(first + 1) * hidden;
            self.states.copy_within(row, target * hidden);
            first += *length;
            target += 1;
            *length = 1;
        }
        self.states.truncate(target * hidden);
    }

    /// `update` becomes its own product.
    pub(crate) fn project_update(&mut self, panels: &Panels) {
        let (hidden, rows) = (self.sizes.hidden, self.rows());
        self.left
            .set_for(panels, self.machine, rows, &self.update, hidden);
        multiply(self.machine, &self.left, panels, &mut self.update, hidden);
    }

    /// `update` becomes the product of the first columns of `wide`, whose rows are `stride` apart.
    pub(crate) fn narrow(&mut self, panels: &Panels, stride: usize) {
        let (hidden, rows) = (self.sizes.hidden, self.rows());
        self.left
            .set_for(panels, self.machine, rows, &self.wide, stride);
        multiply(self.machine, &self.left, panels, &mut self.update, hidden);
    }

    pub(crate) fn add_update(&mut self) {
        let (states, update) = (&mut self.states, &self.update);
        self.machine.widely(
            #[inline(always)]
            || add(states, update),
        );
    }

    pub(crate) fn normalize(&mut self, norm: &Norm) {
        normalize(self.machine, &mut self.states, norm, self.sizes.epsilon);
    }

    /// The first half of each row of `wide`, by a function, times its second.
    pub(crate) fn gate(&mut self, activation: Activation, inner: usize) {
        let machine = self.machine;
        for row in self.wide(2 * inner).chunks_exact_mut(2 * inner) {
            let (input, gate) = row.split_at_mut(inner);
            activation.apply(machine, input);
            for (input, gate) in input.iter_mut().zip(gate) {
                *input *= *gate;
            }
        }
    }
}

fn normalize(machine: Machine, rows: &mut [f32], norm: &Norm, epsilon: f32) {
    machine.widely(
        #[inline(always)]
        || normalize_rows(rows, &norm.weight, &norm.bias, epsilon),
    );
}

//! From pieces to vectors.

use super::config::Config;
use super::weights::{Layer, Weights};
use crate::numeric::{Machine, Panels, Rows, add, gelu, multiply, normalize_rows, softmax_rows};
use crate::tensors::Norm;
use crate::vector::make_unit;

/// One pass over some texts, and the room it needs.
///
/// The texts' rows lie one behind the other without padding: products take them all at once, and each text
/// attends to itself alone.
pub(super) struct Pass<'a> {
    config: &'a Config,
    machine: Machine,
    /// How many rows each text has.
    lengths: Vec<usize>,
    states: Vec<f32>,
    wide: Vec<f32>,
    update: Vec<f32>,
    scores: Vec<f32>,
    left: Rows,
    right: Panels,
}

impl<'a> Pass<'a> {
    /// The texts' vectors. Every piece's number is below the size of the vocabulary, and no text is longer
    /// than there are positions.
    pub(super) fn run(
        config: &'a Config,
        weights: &Weights,
        machine: Machine,
        texts: &[Vec<u32>],
    ) -> Vec<Vec<f32>> {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let rows: usize = lengths.iter().sum();
        let mut pass = Self {
            config,
            machine,
            lengths,
            states: Vec::with_capacity(rows * config.hidden),
            wide: vec![0.0; rows * config.inner.max(3 * config.hidden)],
            update: vec![0.0; rows * config.hidden],
            scores: Vec::new(),
            left: Rows::empty(),
            right: Panels::empty(),
        };
        pass.look_up(weights, texts);
        for layer in &weights.layers {
            pass.attend(layer);
            pass.feed_forward(layer);
        }
        pass.means()
    }

    fn look_up(&mut self, weights: &Weights, texts: &[Vec<u32>]) {
        let hidden = self.config.hidden;
        for text in texts {
            for (id, position) in text.iter().zip(weights.positions.chunks_exact(hidden)) {
                let word = &weights.words[*id as usize * hidden..][..hidden];
                let sums = word
                    .iter()
                    .zip(position)
                    .map(|(word, position)| word + position);
                self.states.extend(sums);
            }
        }
        self.normalize(&weights.norm);
    }

    /// Each piece takes from the others what its head asks for.
    fn attend(&mut self, layer: &Layer) {
        let (hidden, machine) = (self.config.hidden, self.machine);
        let (stride, head) = (3 * hidden, hidden / self.config.heads);
        let rows = self.states.len() / hidden;
        self.left.set(machine, rows, hidden, &self.states, hidden);
        multiply(
            machine,
            &self.left,
            &layer.attention,
            &mut self.wide,
            stride,
        );

        let mut first = 0;
        for &length in self.lengths.iter().filter(|&&length| length > 0) {
            let own = &self.wide[first * stride..(first + length) * stride];
            for start in (0..hidden).step_by(head) {
                let (queries, keys) = (&own[start..], &own[hidden + start..]);
                let values = &own[2 * hidden + start..];
                self.left.set(machine, length, head, queries, stride);
                self.right
                    .set_transposed(machine, head, length, keys, stride);
                self.scores.clear();
                self.scores.resize(length * length, 0.0);
                multiply(machine, &self.left, &self.right, &mut self.scores, length);
                let scores = &mut self.scores;
                machine.arch.dispatch(|| softmax_rows(scores, length));

                self.left.set(machine, length, length, &self.scores, length);
                self.right.set(machine, length, head, values, stride);
                let out = &mut self.update[first * hidden + start..];
                multiply(machine, &self.left, &self.right, out, hidden);
            }
            first += length;
        }

        self.left.set(machine, rows, hidden, &self.update, hidden);
        multiply(
            machine,
            &self.left,
            &layer.attention_out,
            &mut self.update,
            hidden,
        );
        self.add_update(&layer.attention_norm);
    }

    fn feed_forward(&mut self, layer: &Layer) {
        let (hidden, inner, machine) = (self.config.hidden, self.config.inner, self.machine);
        let rows = self.states.len() / hidden;
        self.left.set(machine, rows, hidden, &self.states, hidden);
        multiply(machine, &self.left, &layer.widen, &mut self.wide, inner);
        let wide = &mut self.wide[..rows * inner];
        machine.arch.dispatch(|| gelu(wide));
        self.left.set(machine, rows, inner, &self.wide, inner);
        multiply(machine, &self.left, &layer.narrow, &mut self.update, hidden);
        self.add_update(&layer.norm);
    }

    fn add_update(&mut self, norm: &Norm) {
        let (states, update) = (&mut self.states, &self.update);
        self.machine.arch.dispatch(|| add(states, update));
        self.normalize(norm);
    }

    fn normalize(&mut self, norm: &Norm) {
        let (states, epsilon) = (&mut self.states, self.config.epsilon);
        self.machine
            .arch
            .dispatch(|| normalize_rows(states, &norm.weight, &norm.bias, epsilon));
    }

    /// A text's vector is the mean of its pieces', made as long as one: the sum points the same way.
    fn means(&self) -> Vec<Vec<f32>> {
        let hidden = self.config.hidden;
        let mut rest = self.states.as_slice();
        let mut vectors = Vec::with_capacity(self.lengths.len());
        for length in &self.lengths {
            let (own, others) = rest.split_at(length * hidden);
            let mut sum = vec![0.0; hidden];
            for row in own.chunks_exact(hidden) {
                add(&mut sum, row);
            }
            make_unit(&mut sum);
            vectors.push(sum);
            rest = others;
        }
        vectors
    }
}

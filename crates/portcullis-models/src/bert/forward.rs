//! From pieces to rows, and from rows to vectors.

use super::config::Config;
use super::weights::Weights;
use crate::encoder::{Keep, Pass, Plain};
use crate::numeric::{Machine, add};
use crate::vector::make_unit;

/// All layers over some texts. Every piece's number is below the size of the vocabulary, and no text is longer
/// than there are positions.
pub(crate) fn run(
    config: &Config,
    weights: &Weights,
    machine: Machine,
    texts: &[Vec<u32>],
    keep: Keep,
) -> Pass {
    let lengths = texts.iter().map(Vec::len).collect();
    let mut pass = Pass::new(machine, config.sizes, lengths, config.sizes.inner);
    look_up(&mut pass, config.sizes.hidden, weights, texts);
    if let Some((last, others)) = weights.layers.split_last() {
        for layer in others {
            pass.run(layer, &mut Plain, Keep::All);
        }
        pass.run(last, &mut Plain, keep);
    }
    pass
}

/// A text's vector is the mean of its pieces', made as long as one: the sum points the same way.
pub(super) fn means(config: &Config, pass: &Pass) -> Vec<Vec<f32>> {
    let hidden = config.sizes.hidden;
    let mut rest = pass.states.as_slice();
    let mut vectors = Vec::with_capacity(pass.lengths().len());
    for length in pass.lengths() {
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

fn look_up(pass: &mut Pass, hidden: usize, weights: &Weights, texts: &[Vec<u32>]) {
    for text in texts {
        for (id, position) in text.iter().zip(weights.positions.chunks_exact(hidden)) {
            let word = &weights.words[*id as usize * hidden..][..hidden];
            let sums = word.iter().zip(position);
            pass.states
                .extend(sums.map(|(word, position)| word + position));
        }
    }
    pass.normalize(&weights.norm);
}

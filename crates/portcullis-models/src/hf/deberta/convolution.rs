//! What neighbours say, after the first layer.

use super::config::Kernel;
use crate::encoder::{Pass, Sizes};
use crate::load::LoadError;
use crate::numeric::{Machine, Panels, Rows, multiply};
use crate::tensors::{Norm, Tensors};

pub(super) struct Convolution {
    kernel: Kernel,
    /// A product for each group.
    groups: Vec<Panels>,
    norm: Norm,
}

impl Convolution {
    pub(super) fn read(
        tensors: &Tensors<'_>,
        kernel: Kernel,
        sizes: Sizes,
        machine: Machine,
    ) -> Result<Self, LoadError> {
        let hidden = sizes.hidden;
        let width = hidden / kernel.groups;
        let shape = [hidden, width, kernel.size];
        let weight = tensors.get("encoder.conv.conv.weight", &shape)?;
        let bias = tensors.get("encoder.conv.conv.bias", &[hidden])?;
        // From one number a tap for each channel to one row of channels for each tap, as states lie.
        let by_tap: Vec<f32> = weight
            .chunks_exact(width * kernel.size)
            .flat_map(|out| {
                (0..kernel.size).flat_map(|tap| out.iter().skip(tap).step_by(kernel.size))
            })
            .copied()
            .collect();
        let groups = by_tap
            .chunks_exact(width * width * kernel.size)
            .zip(bias.chunks_exact(width));
        let groups = groups.map(|(weight, bias)| Panels::of_weights(machine, weight, bias));
        Ok(Self {
            kernel,
            groups: groups.collect(),
            norm: tensors.norm("encoder.conv.LayerNorm", hidden)?,
        })
    }

    /// Adds to the states what neighbours in `embedded` say.
    pub(super) fn run(&self, pass: &mut Pass, embedded: &[f32]) {
        let machine = pass.machine();
        let (size, reach) = (self.kernel.size, self.kernel.size / 2);
        let width = self.norm.weight.len() / self.groups.len();
        let hidden = self.norm.weight.len();
        let rows = embedded.len() / hidden;
        let mut left = Rows::empty();
        let mut out = vec![0.0; embedded.len()];
        let mut taps = vec![0.0; rows * size * width];
        for (group, panels) in self.groups.iter().enumerate() {
            taps.fill(0.0);
            let mut first = 0;
            for &length in pass.lengths() {
                for row in 0..length {
                    for tap in 0..size {
                        let Some(from) =
                            (row + tap).checked_sub(reach).filter(|&from| from < length)
                        else {
                            continue;
                        };
                        let from = &embedded[(first + from) * hidden + group * width..][..width];
                        let to = ((first + row) * size + tap) * width;
                        taps[to..to + width].copy_from_slice(from);
                    }
                }
                first += length;
            }
            left.set(machine, rows, size * width, &taps, size * width);
            multiply(machine, &left, panels, &mut out[group * width..], hidden);
        }
        self.kernel.activation.apply(machine, &mut out);
        for (state, out) in pass.states.iter_mut().zip(&out) {
            *state += out;
        }
        pass.normalize(&self.norm);
    }
}

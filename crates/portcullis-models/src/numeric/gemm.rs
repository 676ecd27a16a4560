//! Products of matrices.
//!
//! A model's weights are laid out once, when they are loaded, in the order in which they are needed; a library
//! that takes them as they come does that again for every text, which is most of its time for short ones. The
//! kernel is the usual one: a block of rows times a panel of columns, all sums in registers.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for a machine without wide registers"
)]

use pulp::{Arch, Simd, WithSimd};

use super::whole::{Whole, WholeRows};

/// What the machine can do at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(super) arch: Arch,
    /// Columns of a panel.
    pub(super) width: usize,
    /// Rows of a block.
    rows: usize,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let arch = Arch::new();
        let lanes = arch.dispatch(Lanes);
        Self {
            arch,
            width: 2 * lanes,
            // Sums, a panel's row and a factor fill 32 registers of 16 numbers, or 16 smaller ones.
            rows: if lanes >= 16 { 12 } else { 6 },
        }
    }

    /// Runs something with the widest registers. It has to be `#[inline(always)]`, and so does what it calls: anything else
    /// is compiled for the narrowest.
    pub(crate) fn widely<T>(self, work: impl FnMut() -> T) -> T {
        self.arch.dispatch(Widely(work))
    }

    /// How `rows` rows are cut into blocks: as evenly as can be, since a block of one row takes as long as
    /// one of several.
    pub(super) fn blocks(self, rows: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let count = rows.div_ceil(self.rows);
        (0..count).map(move |block| rows * block / count..rows * (block + 1) / count)
    }
}

/// The right side of a product: panels of columns.
#[derive(Debug, Clone)]
pub(crate) struct Panels {
    depth: usize,
    columns: usize,
    numbers: Vec<f32>,
    /// What each column starts with.
    bias: Vec<f32>,
    /// Instead of `numbers`, where they have eight bits.
    whole: Option<Whole>,
}

impl Panels {
    pub(crate) fn empty() -> Self {
        Self {
            depth: 0,
            columns: 0,
            numbers: Vec::new(),
            bias: Vec::new(),
            whole: None,
        }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Weights as models store them, a row for each column of the result.
    pub(crate) fn of_weights(machine: Machine, weights: &[f32], bias: &[f32]) -> Self {
        let (columns, depth) = (bias.len(), weights.len() / bias.len().max(1));
        let mut panels = Self::empty();
        panels.set_transposed(machine, depth, columns, weights, depth);
        panels.bias[..columns].copy_from_slice(bias);
        panels
    }

    /// Weights of eight bits, a row for each column of the result; `units` is what the numbers of each count in.
    pub(crate) fn of_eight_bits(
        machine: Machine,
        weights: &[u8],
        units: &[f32],
        bias: &[f32],
    ) -> Self {
        let (columns, depth) = (bias.len(), weights.len() / bias.len().max(1));
        let Some(whole) = Whole::of_weights(machine, weights, units) else {
            let rows = weights.chunks_exact(depth.max(1)).zip(units);
            let scaled = |(row, unit): (&[u8], &f32)| {
                let numbers = row.iter().map(|number| f32::from(number.cast_signed()));
                numbers.map(|number| unit * number).collect::<Vec<_>>()
            };
            let weights: Vec<f32> = rows.flat_map(scaled).collect();
            return Self::of_weights(machine, &weights, bias);
        };
        let mut bias = bias.to_vec();
        bias.resize(columns.next_multiple_of(machine.width), 0.0);
        Self {
            depth,
            columns,
            numbers: Vec::new(),
            bias,
            whole: Some(whole),
        }
    }

    /// Takes a matrix whose columns lie one behind the other, `stride` apart.
    pub(crate) fn set_transposed(
        &mut self,
        machine: Machine,
        depth: usize,
        columns: usize,
        matrix: &[f32],
        stride: usize,
    ) {
        self.resize(machine, depth, columns);
        let width = machine.width;
        for (column, from) in matrix.chunks(stride).take(columns).enumerate() {
            let panel = &mut self.numbers[column / width * width * depth..];
            let to = panel[column % width..].iter_mut().step_by(width);
            for (to, from) in to.zip(&from[..depth]) {
                *to = *from;
            }
        }
    }

    /// Takes a matrix whose rows lie one behind the other, `stride` apart.
    pub(crate) fn set(
        &mut self,
        machine: Machine,
        depth: usize,
        columns: usize,
        matrix: &[f32],
        stride: usize,
    ) {
        self.resize(machine, depth, columns);
        let width = machine.width;
        for (row, from) in matrix.chunks(stride).take(depth).enumerate() {
            for (panel, from) in from[..columns].chunks(width).enumerate() {
                let start = (panel * depth + row) * width;
                self.numbers[start..start + from.len()].copy_from_slice(from);
            }
        }
    }

    fn resize(&mut self, machine: Machine, depth: usize, columns: usize) {
        self.depth = depth;
        self.columns = columns;
        let padded = columns.next_multiple_of(machine.width);
        self.numbers.clear();
        self.numbers.resize(padded * depth, 0.0);
        self.bias.clear();
        self.bias.resize(padded, 0.0);
    }
}

/// The left side of a product: blocks of rows.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    count: usize,
    depth: usize,
    numbers: Vec<f32>,
    /// Instead of `numbers`, where the other side has eight bits.
    whole: WholeRows,
}

impl Rows {
    pub(crate) fn empty() -> Self {
        Self {
            count: 0,
            depth: 0,
            numbers: Vec::new(),
            whole: WholeRows::default(),
        }
    }

    /// Takes a matrix whose rows lie one behind the other, `stride` apart, for a product with these panels.
    pub(crate) fn set_for(
        &mut self,
        panels: &Panels,
        machine: Machine,
        count: usize,
        matrix: &[f32],
        stride: usize,
    ) {
        if panels.whole.is_none() {
            return self.set(machine, count, panels.depth, matrix, stride);
        }
        self.count = count;
        self.depth = panels.depth;
        self.whole.set(machine, count, panels.depth, matrix, stride);
    }

    /// Takes a matrix whose rows lie one behind the other, `stride` apart.
    pub(crate) fn set(
        &mut self,
        machine: Machine,
        count: usize,
        depth: usize,
        matrix: &[f32],
        stride: usize,
    ) {
        self.count = count;
        self.depth = depth;
        self.numbers.clear();
        self.numbers.resize(count * depth, 0.0);
        for block in machine.blocks(count) {
            let numbers = &mut self.numbers[block.start * depth..block.end * depth];
            interleave(
                numbers,
                &matrix[block.start * stride..],
                block.len(),
                stride,
            );
        }
    }
}

/// Takes `size` rows that lie `stride` apart, one number of each in turn.
pub(super) fn interleave<T: Copy>(to: &mut [T], from: &[T], size: usize, stride: usize) {
    for (place, to) in to.chunks_exact_mut(size).enumerate() {
        let from = from[place..].iter().step_by(stride);
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
}

/// Writes the product, row by row, `stride` apart.
pub(crate) fn multiply(
    machine: Machine,
    rows: &Rows,
    panels: &Panels,
    out: &mut [f32],
    stride: usize,
) {
    if let Some(whole) = &panels.whole {
        let (bias, columns) = (&panels.bias, panels.columns);
        return whole.multiply(machine, &rows.whole, bias, columns, out, stride);
    }
    machine.arch.dispatch(Multiply {
        machine,
        rows,
        panels,
        out,
        stride,
    });
}

struct Widely<F>(F);

impl<F: FnMut() -> T, T> WithSimd for Widely<F> {
    type Output = T;

    /// `FnOnce` would do, but calls what is not inlined.
    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> T {
        (self.0)()
    }
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

struct Multiply<'a> {
    machine: Machine,
    rows: &'a Rows,
    panels: &'a Panels,
    out: &'a mut [f32],
    stride: usize,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            machine,
            rows,
            panels,
            out,
            stride,
        } = self;
        let (depth, width) = (panels.depth, machine.width);
        for (index, bias) in panels.bias.chunks_exact(width).enumerate() {
            let start = index * width;
            let panel = Panel {
                numbers: S::as_simd_f32s(&panels.numbers[start * depth..][..width * depth]).0,
                bias: S::as_simd_f32s(bias).0,
                columns: width.min(panels.columns - start),
            };
            for block in machine.blocks(rows.count) {
                let numbers = &rows.numbers[block.start * depth..block.end * depth];
                let out = &mut out[block.start * stride + start..];
                times_rows!(block.len(), panel, simd, numbers, out, stride);
            }
        }
    }
}

struct Panel<'a, S: Simd> {
    numbers: &'a [S::f32s],
    bias: &'a [S::f32s],
    columns: usize,
}

impl<S: Simd> Panel<'_, S> {
    #[inline(always)]
    fn times<const ROWS: usize>(&self, simd: S, rows: &[f32], out: &mut [f32], stride: usize) {
        let mut sums = [[self.bias[0], self.bias[1]]; ROWS];
        let (steps, _) = self.numbers.as_chunks::<2>();
        for (factors, step) in rows.as_chunks::<ROWS>().0.iter().zip(steps) {
            for (sums, &factor) in sums.iter_mut().zip(factors) {
                let factor = simd.splat_f32s(factor);
                sums[0] = simd.mul_add_e_f32s(factor, step[0], sums[0]);
                sums[1] = simd.mul_add_e_f32s(factor, step[1], sums[1]);
            }
        }
        for (out, sums) in out.chunks_mut(stride).zip(sums) {
            let out = &mut out[..self.columns];
            if let [first, second] = S::as_mut_simd_f32s(out).0 {
                [*first, *second] = sums;
            } else {
                let (first, second) = out.split_at_mut(S::F32_LANES.min(self.columns));
                simd.partial_store_f32s(first, sums[0]);
                simd.partial_store_f32s(second, sums[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn products_are_what_three_loops_say(
            count in 1_usize..40, depth in 1_usize..40, columns in 1_usize..80, extra in 0_usize..3,
            seed: u32,
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f32::from(u8::try_from(state >> 24).unwrap()) / 64.0 - 2.0
            };
            let left: Vec<f32> = (0..count * (depth + extra)).map(|_| next()).collect();
            let right: Vec<f32> = (0..depth * columns).map(|_| next()).collect();
            let bias: Vec<f32> = (0..columns).map(|_| next()).collect();
            let transposed: Vec<f32> = (0..columns)
                .flat_map(|column| right.iter().copied().skip(column).step_by(columns))
                .collect();

            let machine = Machine::new();
            let mut rows = Rows::empty();
            rows.set(machine, count, depth, &left, depth + extra);
            let mut plain = Panels::empty();
            plain.set(machine, depth, columns, &right, columns);
            plain.bias[..columns].copy_from_slice(&bias);
            for panels in [plain, Panels::of_weights(machine, &transposed, &bias)] {
                let mut out = vec![7.0; count * (columns + extra)];
                multiply(machine, &rows, &panels, &mut out, columns + extra);
                for row in 0..count {
                    for column in 0..columns {
                        let products = (0..depth)
                            .map(|k| left[row * (depth + extra) + k] * right[k * columns + column]);
                        let expected = bias[column] + products.sum::<f32>();
                        let found = out[row * (columns + extra) + column];
                        prop_assert!((found - expected).abs() < 1e-3, "{found} {expected}");
                    }
                    let beside = &out[row * (columns + extra) + columns..][..extra];
                    prop_assert!(beside.iter().all(|&number| number == 7.0));
                }
            }
        }
    }
}

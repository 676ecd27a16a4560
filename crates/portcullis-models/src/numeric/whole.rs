//! Products with weights of eight bits: whole numbers, two of them in each place of a register.
//!
//! The other side is brought to whole numbers too, each row by its own unit, with as many bits as keep the sums
//! within 32. That is 13 bits and more for the depths that models have, so nothing is lost that eight bits had not
//! lost before; and one instruction multiplies twice as many numbers as it does of floats.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for a machine without wide registers"
)]

use pulp::x86::{V3, V4};
use pulp::{Arch, NullaryFnOnce, Simd};

use super::gemm::{Machine, interleave};
use super::math::{largest, sum};

/// The right side of a product: panels of columns, two rows at a time.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    /// Two numbers of 16 bits each, the upper row's in the lower half.
    pairs: Vec<i32>,
    /// What a column's numbers count in.
    units: Vec<f32>,
}

/// The left side of a product, brought to whole numbers: blocks of rows, two columns at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct WholeRows {
    pairs: Vec<i32>,
    /// What a row's numbers count in.
    units: Vec<f32>,
    /// Room for one block, row by row.
    block: Vec<i32>,
}

pulp::simd_type!({
    /// [`V4`], and an instruction that multiplies pairs and adds them up.
    struct V4Adding {
        sse: f!("sse"),
        sse2: f!("sse2"),
        fxsr: f!("fxsr"),
        sse3: f!("sse3"),
        ssse3: f!("ssse3"),
        sse4_1: f!("sse4.1"),
        sse4_2: f!("sse4.2"),
        popcnt: f!("popcnt"),
        avx: f!("avx"),
        avx2: f!("avx2"),
        bmi1: f!("bmi1"),
        bmi2: f!("bmi2"),
        fma: f!("fma"),
        lzcnt: f!("lzcnt"),
        avx512f: f!("avx512f"),
        avx512bw: f!("avx512bw"),
        avx512cd: f!("avx512cd"),
        avx512dq: f!("avx512dq"),
        avx512vl: f!("avx512vl"),
        avx512vnni: f!("avx512vnni"),
    }
});

/// Registers of pairs.
trait Pairs: Simd {
    /// In each place the sum of the products of both numbers.
    fn products(self, left: Self::i32s, right: Self::i32s) -> Self::i32s;
}

impl Pairs for V3 {
    #[inline(always)]
    fn products(self, left: Self::i32s, right: Self::i32s) -> Self::i32s {
        let (left, right) = (pulp::cast(left), pulp::cast(right));
        pulp::cast(self.avx2._mm256_madd_epi16(left, right))
    }
}

impl Pairs for V4 {
    #[inline(always)]
    fn products(self, left: Self::i32s, right: Self::i32s) -> Self::i32s {
        let (left, right) = (pulp::cast(left), pulp::cast(right));
        pulp::cast(self.avx512bw._mm512_madd_epi16(left, right))
    }
}

impl Whole {
    /// `None` where the machine has no instruction for it. `numbers` has a row for each column of the product.
    pub(super) fn of_weights(machine: Machine, numbers: &[u8], units: &[f32]) -> Option<Self> {
        if !matches!(machine.arch, Arch::V3(_) | Arch::V4(_)) {
            return None;
        }
        let (columns, width) = (units.len(), machine.width);
        let depth = numbers.len() / columns.max(1);
        let padded = columns.next_multiple_of(width);
        let steps = depth.div_ceil(2);
        let mut pairs = vec![0; padded * steps];
        for (column, numbers) in numbers.chunks_exact(depth.max(1)).enumerate() {
            let panel = &mut pairs[column / width * width * steps..];
            let to = panel[column % width..].iter_mut().step_by(width);
            for (to, from) in to.zip(numbers.chunks(2)) {
                let number = |place: usize| from.get(place).map_or(0, |one| one.cast_signed());
                *to = pair(number(0).into(), number(1).into());
            }
        }
        let mut units = units.to_vec();
        units.resize(padded, 0.0);
        Some(Self { pairs, units })
    }

    /// Writes the product, row by row, `stride` apart.
    pub(super) fn multiply(
        &self,
        machine: Machine,
        rows: &WholeRows,
        bias: &[f32],
        columns: usize,
        out: &mut [f32],
        stride: usize,
    ) {
        let product = Product {
            machine,
            whole: self,
            rows,
            bias,
            columns,
            out,
            stride,
        };
        match machine.arch {
            // The compiler makes one instruction of two where it may.
            Arch::V4(simd) => match V4Adding::try_new() {
                Some(adding) => adding.vectorize(On(simd, product)),
                None => simd.vectorize(On(simd, product)),
            },
            Arch::V3(simd) => simd.vectorize(On(simd, product)),
            _ => unreachable!("made for a machine that has pairs"),
        }
    }
}

impl WholeRows {
    /// Takes a matrix whose rows lie one behind the other, `stride` apart.
    pub(super) fn set(
        &mut self,
        machine: Machine,
        count: usize,
        depth: usize,
        matrix: &[f32],
        stride: usize,
    ) {
        let Self {
            pairs,
            units,
            block,
        } = self;
        let steps = depth.div_ceil(2).max(1);
        let most = most(depth);
        pairs.resize(count * steps, 0);
        units.resize(count, 0.0);
        for range in machine.blocks(count) {
            block.resize(range.len() * steps, 0);
            let rows = matrix[range.start * stride..].chunks(stride);
            for ((to, from), unit) in block
                .chunks_exact_mut(steps)
                .zip(rows)
                .zip(&mut units[range.clone()])
            {
                *unit = machine.widely(
                    #[inline(always)]
                    || whole_row(to, &from[..depth], most),
                );
            }
            let pairs = &mut pairs[range.start * steps..range.end * steps];
            interleave(pairs, block, range.len(), steps);
        }
    }
}

/// Brings a row to whole numbers and says what they count in.
#[inline(always)]
fn whole_row(to: &mut [i32], from: &[f32], most: f32) -> f32 {
    let largest = largest(from);
    // A row of less is as good as zeros, and its factor would be infinite.
    let factor = if largest > 1e-30 { most / largest } else { 0.0 };
    let whole = |number: f32| (number * factor).round_ties_even() as i32 as i16;
    let (twos, rest) = from.as_chunks();
    for (to, &[first, second]) in to.iter_mut().zip(twos) {
        *to = pair(whole(first), whole(second));
    }
    if let (Some(to), &[last]) = (to.last_mut(), rest) {
        *to = pair(whole(last), 0);
    }
    // What is no number has to stay none: it is no number times zero either.
    largest / most + sum(from, |number| number * 0.0)
}

/// The largest number of a row: with it, a sum of `depth` products with eight bits has no more than 32.
fn most(depth: usize) -> f32 {
    let most = i32::MAX as usize / (128 * depth.max(1));
    most.min(i16::MAX as usize) as f32
}

#[inline(always)]
fn pair(first: i16, second: i16) -> i32 {
    (i32::from(second) << 16) | i32::from(first.cast_unsigned())
}

struct Product<'a> {
    machine: Machine,
    whole: &'a Whole,
    rows: &'a WholeRows,
    bias: &'a [f32],
    columns: usize,
    out: &'a mut [f32],
    stride: usize,
}

struct On<'a, S>(S, Product<'a>);

impl<S: Pairs> NullaryFnOnce for On<'_, S> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self(simd, product) = self;
        let Product {
            machine,
            whole,
            rows,
            bias,
            columns,
            out,
            stride,
        } = product;
        let (width, count) = (machine.width, rows.units.len());
        let steps = rows.pairs.len() / count.max(1);
        for start in (0..columns).step_by(width) {
            let panel = Panel::<S> {
                pairs: S::as_simd_i32s(&whole.pairs[start * steps..][..width * steps]).0,
                units: &whole.units[start..start + width],
                bias: &bias[start..start + width],
                columns: width.min(columns - start),
            };
            for block in machine.blocks(count) {
                let pairs = &rows.pairs[block.start * steps..block.end * steps];
                let units = &rows.units[block.clone()];
                let out = &mut out[block.start * stride + start..];
                times_rows!(block.len(), panel, simd, pairs, units, out, stride);
            }
        }
    }
}

struct Panel<'a, S: Simd> {
    pairs: &'a [S::i32s],
    units: &'a [f32],
    bias: &'a [f32],
    columns: usize,
}

impl<S: Pairs> Panel<'_, S> {
    #[inline(always)]
    fn times<const ROWS: usize>(
        &self,
        simd: S,
        rows: &[i32],
        units: &[f32],
        out: &mut [f32],
        stride: usize,
    ) {
        let mut sums = [[simd.splat_i32s(0); 2]; ROWS];
        let (steps, _) = self.pairs.as_chunks::<2>();
        for (factors, step) in rows.as_chunks::<ROWS>().0.iter().zip(steps) {
            for (sums, &factor) in sums.iter_mut().zip(factors) {
                let factor = simd.splat_i32s(factor);
                sums[0] = simd.add_i32s(sums[0], simd.products(factor, step[0]));
                sums[1] = simd.add_i32s(sums[1], simd.products(factor, step[1]));
            }
        }
        for ((out, sums), row) in out.chunks_mut(stride).zip(&sums).zip(units) {
            let sums: &[i32] = pulp::bytemuck::cast_slice(sums);
            let columns = sums.iter().zip(self.units).zip(self.bias);
            for (out, ((&sum, unit), bias)) in out[..self.columns].iter_mut().zip(columns) {
                *out = sum as f32 * (row * unit) + bias;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::gemm::{Panels, Rows, multiply};
    use super::*;

    proptest! {
        #[test]
        fn products_are_nearly_those_of_floats(
            count in 1_usize..40, depth in 1_usize..40, columns in 1_usize..80, extra in 0_usize..3,
            seed: u32,
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                u8::try_from(state >> 24).unwrap()
            };
            let stride = depth + extra;
            let left: Vec<f32> = (0..count * stride).map(|_| f32::from(next()) / 64.0 - 2.0).collect();
            let right: Vec<u8> = (0..depth * columns).map(|_| next()).collect();
            let units: Vec<f32> = (0..columns).map(|_| f32::from(next()) / 1e4).collect();
            let bias: Vec<f32> = (0..columns).map(|_| f32::from(next()) / 64.0).collect();

            let machine = Machine::new();
            let panels = Panels::of_eight_bits(machine, &right, &units, &bias);
            let mut rows = Rows::empty();
            rows.set_for(&panels, machine, count, &left, stride);
            let mut out = vec![7.0; count * (columns + extra)];
            multiply(machine, &rows, &panels, &mut out, columns + extra);
            for (out, left) in out.chunks(columns + extra).zip(left.chunks(stride)) {
                for (column, (found, right)) in out.iter().zip(right.chunks(depth)).enumerate() {
                    let products = left.iter().zip(right).map(|(left, right)| left * f32::from(right.cast_signed()));
                    let expected = bias[column] + units[column] * products.sum::<f32>();
                    prop_assert!((found - expected).abs() < 1e-3, "{found} {expected}");
                }
                prop_assert!(out[columns..].iter().all(|&number| number == 7.0));
            }
        }
    }

    #[test]
    fn the_largest_sums_fit() {
        for depth in [1, 384, 1536, 65_536] {
            let machine = Machine::new();
            let panels = Panels::of_eight_bits(machine, &vec![0x80; depth], &[1.0], &[0.0]);
            let mut rows = Rows::empty();
            rows.set_for(&panels, machine, 1, &vec![-3.0; depth], depth);
            let mut out = [0.0];
            multiply(machine, &rows, &panels, &mut out, 1);
            let expected = 3.0 * 128.0 * depth as f32;
            assert!(
                (out[0] / expected - 1.0).abs() < 1e-3,
                "{out:?} for {depth}"
            );
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let machine = Machine::new();
        let panels = Panels::of_eight_bits(machine, &[1, 2, 3], &[1.0], &[0.5]);
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut rows = Rows::empty();
            rows.set_for(&panels, machine, 2, &[1.0, wrong, 1.0, 1.0, 1.0, 1.0], 3);
            let mut out = [0.0; 2];
            multiply(machine, &rows, &panels, &mut out, 1);
            assert!(out[0].is_nan() && (out[1] - 6.5).abs() < 1e-3, "{out:?}");
        }
    }

    #[test]
    fn rows_of_zeros_are_zeros() {
        let machine = Machine::new();
        let panels = Panels::of_eight_bits(machine, &[1, 2, 3], &[1.0], &[0.5]);
        let mut rows = Rows::empty();
        rows.set_for(&panels, machine, 2, &[0.0; 6], 3);
        let mut out = [0.0; 2];
        multiply(machine, &rows, &panels, &mut out, 1);
        assert_eq!(out, [0.5, 0.5]);
    }
}

//! What models do between their products, in loops that the compiler turns into wide instructions.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for a machine without wide registers"
)]

/// Sums that do not wait for each other.
const LANES: usize = 16;

/// Makes each row of mean 0 and deviation 1, then scales and shifts it.
#[inline(always)]
pub(crate) fn normalize_rows(rows: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let width = weight.len();
    for row in rows.chunks_exact_mut(width) {
        let mean = sum(row, |number| number) / width as f32;
        let variance = sum(row, |number| (number - mean) * (number - mean)) / width as f32;
        let factor = (variance + epsilon).sqrt().recip();
        for ((number, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
            *number = (*number - mean) * factor * weight + bias;
        }
    }
}

/// Adds one matrix to another.
#[inline(always)]
pub(crate) fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// Turns each row into shares of one.
#[inline(always)]
pub(crate) fn softmax_rows(rows: &mut [f32], width: usize) {
    for row in rows.chunks_exact_mut(width) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for number in &mut *row {
            *number = exp_of_negative(*number - largest);
        }
        let factor = sum(row, |number| number).recip();
        for number in row {
            *number *= factor;
        }
    }
}

/// The exact form, by the error function.
#[inline(always)]
pub(crate) fn gelu(numbers: &mut [f32]) {
    for number in numbers {
        let x = *number;
        *number = 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// Adds to each row the first half of its update, as far as the second half lets it.
#[inline(always)]
pub(crate) fn add_gated(rows: &mut [f32], updates: &[f32], width: usize) {
    let pairs = rows
        .chunks_exact_mut(width)
        .zip(updates.chunks_exact(2 * width));
    for (row, update) in pairs {
        let (values, gates) = update.split_at(width);
        for ((number, value), gate) in row.iter_mut().zip(values).zip(gates) {
            *number += value * sigmoid(*gate);
        }
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let of_absolute = (1.0 + exp_of_negative(-x.abs())).recip();
    if x < 0.0 {
        1.0 - of_absolute
    } else {
        of_absolute
    }
}

/// The largest number, whatever its sign. What is no number does not count.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn largest(numbers: &[f32]) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut largest = [0.0_f32; LANES];
    for chunk in chunks {
        for (largest, number) in largest.iter_mut().zip(chunk) {
            let number = number.abs();
            *largest = if number > *largest { number } else { *largest };
        }
    }
    let all = largest.iter().chain(rest);
    all.fold(0.0, |largest, number| largest.max(number.abs()))
}

#[inline(always)]
pub(super) fn sum(numbers: &[f32], each: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        for (sum, &number) in sums.iter_mut().zip(chunk) {
            *sum += each(number);
        }
    }
    for (sum, &number) in sums.iter_mut().zip(rest) {
        *sum += each(number);
    }
    sums.iter().sum()
}

/// Abramowitz and Stegun, 7.1.26: to 1.5 × 10⁻⁷.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let z = x.abs();
    let t = (1.0 + 0.327_591_1 * z).recip();
    let series = t
        * (0.254_829_6
            + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    (1.0 - series * exp_of_negative(-z * z)).copysign(x)
}

/// A power of two by its bits, and the rest by a series. `f32::exp` is a call for each number.
#[inline(always)]
fn exp_of_negative(x: f32) -> f32 {
    /// Added to a number, it leaves the number's integer in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // ln 2 in two parts, the first of them exact.
    let rest = x - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let series = 0.5
        + rest
            * (0.166_666_55
                + rest
                    * (0.041_665_795
                        + rest * (0.008_333_452 + rest * (0.001_398_2 + rest * 1.987_569_1e-4))));
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    (1.0 + rest + rest * rest * series) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_exact_enough() {
        for step in 0_u16..8700 {
            let x = -f32::from(step) / 100.0;
            let (found, expected) = (f64::from(exp_of_negative(x)), f64::from(x).exp());
            assert!(
                (found / expected - 1.0).abs() < 1e-6,
                "{x}: {found} {expected}"
            );
        }
        assert!(exp_of_negative(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn the_error_function_is_exact_enough() {
        for (x, expected) in [
            (0.0_f32, 0.0_f32),
            (0.1, 0.112_462_92),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (5.0, 1.0),
        ] {
            assert!((erf(x) - expected).abs() < 5e-7, "{x}: {}", erf(x));
            assert!((erf(-x) + expected).abs() < 5e-7, "{x}: {}", erf(-x));
        }
    }

    #[test]
    fn gates_let_through_what_they_should() {
        let mut rows = [1.0, 1.0, 1.0];
        add_gated(&mut rows, &[2.0, 2.0, 2.0, 0.0, 100.0, -100.0], 3);
        assert_eq!(rows, [2.0, 3.0, 1.0]);
        for step in -200_i16..200 {
            let x = f32::from(step) / 10.0;
            let expected = (1.0 + f64::from(-x).exp()).recip();
            assert!((f64::from(sigmoid(x)) - expected).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn the_largest_number_is_found_wherever_it_stands() {
        for place in 0..40 {
            let mut numbers = [0.5; 40];
            numbers[place] = -2.0;
            numbers[(place + 7) % 40] = f32::NAN;
            assert_eq!(largest(&numbers), 2.0);
        }
        assert_eq!(largest(&[]), 0.0);
    }

    #[test]
    fn rows_become_shares_of_one() {
        let mut rows = [1.0, 1.0, 1000.0, -1000.0];
        softmax_rows(&mut rows, 2);
        assert_eq!(rows[..3], [0.5, 0.5, 1.0]);
        assert!(rows[3] < 1e-30);
    }

    #[test]
    fn rows_become_normal() {
        let mut rows = [1.0, 3.0];
        normalize_rows(&mut rows, &[1.0, 2.0], &[0.0, 5.0], 0.0);
        assert_eq!(rows, [-1.0, 7.0]);
    }
}

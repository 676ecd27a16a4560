//! Vectors in a byte a number, and how alike they point.

use pulp::{Arch, Simd, WithSimd};

/// The highest number of a code.
const MAX_CODE: f32 = 127.0;

/// The highest number of a probe, if its products still fit.
const MAX_PROBE: usize = 4095;

/// Many vectors, one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Codes {
    codes: Vec<i8>,
    /// What a code is to be multiplied with to get a vector of length one.
    scales: Vec<f32>,
}

/// One vector, to be held against many.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    numbers: Vec<i16>,
    scale: f32,
}

/// One vector of many.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Code<'a> {
    pub(super) codes: &'a [i8],
    pub(super) scale: f32,
}

impl Codes {
    /// None yet, with room for so many.
    pub(super) fn with_room(count: usize, dimension: usize) -> Self {
        Self {
            codes: Vec::with_capacity(count * dimension),
            scales: Vec::with_capacity(count),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.scales.len()
    }

    pub(super) fn get(&self, at: usize) -> Code<'_> {
        let dimension = self.codes.len() / self.scales.len().max(1);
        Code {
            codes: &self.codes[at * dimension..(at + 1) * dimension],
            scale: self.scales[at],
        }
    }

    pub(super) fn push(&mut self, code: Code<'_>) {
        // By less than doubling: there are many of these, and all grow.
        if self.scales.len() == self.scales.capacity() {
            let more = (self.scales.len() / 4).max(4);
            self.scales.reserve_exact(more);
            self.codes.reserve_exact(more * code.codes.len());
        }
        self.codes.extend_from_slice(code.codes);
        self.scales.push(code.scale);
    }

    /// Takes the last one away.
    pub(super) fn pop(&mut self) {
        let dimension = self.codes.len() / self.scales.len().max(1);
        self.codes.truncate(self.codes.len() - dimension);
        self.scales.pop();
    }

    /// Puts another in the place of one.
    pub(super) fn set(&mut self, at: usize, code: Code<'_>) {
        let dimension = code.codes.len();
        self.codes[at * dimension..(at + 1) * dimension].copy_from_slice(code.codes);
        self.scales[at] = code.scale;
    }

    /// Adds a vector, if it points anywhere.
    pub(super) fn encode(&mut self, vector: &[f32]) -> bool {
        let Some((largest, length)) = size(vector) else {
            return false;
        };
        let step = largest / MAX_CODE;
        let codes: Vec<i8> = vector.iter().map(|it| (it / step).round() as i8).collect();
        let scale = step / length;
        self.push(Code {
            codes: &codes,
            scale,
        });
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Code<'_>> {
        let dimension = self.codes.len() / self.scales.len().max(1);
        let codes = self.codes.chunks_exact(dimension.max(1));
        let both = codes.zip(&self.scales);
        both.map(|(codes, scale)| Code {
            codes,
            scale: *scale,
        })
    }
}

impl Probe {
    /// Of a vector, if it points anywhere.
    pub(super) fn of(vector: &[f32]) -> Option<Self> {
        let (largest, length) = size(vector)?;
        let most = i32::MAX as usize / (1 << 7) / vector.len();
        let step = largest / most.min(MAX_PROBE) as f32;
        Some(Self {
            numbers: vector.iter().map(|it| (it / step).round() as i16).collect(),
            scale: step / length,
        })
    }

    /// Of one that is coded.
    pub(super) fn of_code(code: Code<'_>) -> Self {
        Self {
            numbers: code.codes.iter().copied().map(i16::from).collect(),
            scale: code.scale,
        }
    }

    /// The cosines with some vectors, in their order.
    pub(super) fn cosines<'a>(
        &self,
        codes: impl Iterator<Item = Code<'a>>,
        cosines: &mut Vec<f32>,
    ) {
        cosines.clear();
        let probe = self;
        Arch::new().dispatch(Cosines {
            probe,
            codes,
            found: cosines,
        });
    }
}

/// The largest number of a vector and its length; none if it does not point anywhere.
fn size(vector: &[f32]) -> Option<(f32, f32)> {
    let largest = vector.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    (length.is_normal() && largest > 1e-20).then_some((largest, length))
}

/// The work of [`Probe::cosines`], compiled for what the processor can do.
struct Cosines<'a, I> {
    probe: &'a Probe,
    codes: I,
    found: &'a mut Vec<f32>,
}

impl<'a, I: Iterator<Item = Code<'a>>> WithSimd for Cosines<'_, I> {
    type Output = ();

    #[expect(
        clippy::inline_always,
        reason = "what is not inlined is not compiled for the processor"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for code in self.codes {
            let dot = dot(&self.probe.numbers, code.codes);
            let cosine = dot as f32 * self.probe.scale * code.scale;
            self.found.push(cosine);
        }
    }
}

#[expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor"
)]
#[inline(always)]
fn dot(numbers: &[i16], codes: &[i8]) -> i32 {
    let products = numbers.iter().zip(codes);
    products
        .map(|(one, other)| i32::from(*one) * i32::from(*other))
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cosines_are_near_to_the_exact(
            one in prop::collection::vec(-1.0_f32..1.0, 64),
            other in prop::collection::vec(-1.0_f32..1.0, 64),
        ) {
            let mut codes = Codes::default();
            prop_assert!(codes.encode(&other));
            let mut found = Vec::new();
            Probe::of(&one).unwrap().cosines(codes.iter(), &mut found);
            let dot: f32 = one.iter().zip(&other).map(|(a, b)| a * b).sum();
            let length = |it: &[f32]| it.iter().map(|it| it * it).sum::<f32>().sqrt();
            let cosine = dot / length(&one) / length(&other);
            prop_assert!((found[0] - cosine).abs() < 0.01, "{} {cosine}", found[0]);
        }
    }

    #[test]
    fn what_points_nowhere_is_no_vector() {
        for vector in [
            &[][..],
            &[0.0; 8],
            &[f32::NAN; 8],
            &[f32::INFINITY; 8],
            &[f32::MAX; 8],
            &[1e-30; 8],
        ] {
            assert!(Probe::of(vector).is_none());
            assert!(!Codes::default().encode(vector));
        }
    }

    #[test]
    fn vectors_of_any_length_are_held_against_each_other() {
        for dimension in [1, 3, 17, 4096, 100_000] {
            let vector = vec![0.5; dimension];
            let mut codes = Codes::default();
            assert!(codes.encode(&vector));
            let mut found = Vec::new();
            Probe::of(&vector)
                .unwrap()
                .cosines(codes.iter(), &mut found);
            assert!((found[0] - 1.0).abs() < 0.01, "{dimension}: {}", found[0]);
        }
    }
}

//! A text in blocks of 32 bytes, each as a number: a bit for every byte of a kind.
//!
//! Where such bytes stand, how far apart they are and how many follow each other, is then arithmetic with a few numbers,
//! whatever is in the text.
//!
//! Rejected: to ask of each block whether it has any, and let the compiler find the vectors. It takes three times as many
//! instructions, and whoever wants to know where has to look again.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor at hand"
)]

use std::ops::{ControlFlow, RangeInclusive};

#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;

/// Bytes per block.
pub(super) const BLOCK: usize = 32;

/// Bytes that are blank or control characters.
pub(super) const BLANK: RangeInclusive<u8> = 0..=b' ';

/// What stands after the end of the text.
const FILLER: u8 = b' ';

/// Calls `look` with each block, in order, until it has seen enough: where the block begins, and a bit for each of its
/// bytes that is in the range, the first in the lowest. After the end of the text there are blanks.
#[inline]
pub(super) fn each<B>(
    text: &[u8],
    range: RangeInclusive<u8>,
    look: impl FnMut(usize, u32) -> ControlFlow<B>,
) -> Option<B> {
    let (first, span) = (*range.start(), range.end() - range.start());
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = V3::try_new() {
        return simd.vectorize(
            #[inline(always)]
            || each_with(text, wide_mask(simd, first, span), look),
        );
    }
    each_with(text, mask(first, span), look)
}

#[inline(always)]
fn each_with<B>(
    text: &[u8],
    mask: impl Fn(&[u8; BLOCK]) -> u32,
    mut look: impl FnMut(usize, u32) -> ControlFlow<B>,
) -> Option<B> {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    for (index, block) in blocks.iter().enumerate() {
        if let ControlFlow::Break(seen) = look(index * BLOCK, mask(block)) {
            return Some(seen);
        }
    }
    if rest.is_empty() {
        return None;
    }
    let mut last = [FILLER; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    look(blocks.len() * BLOCK, mask(&last)).break_value()
}

fn mask(first: u8, span: u8) -> impl Fn(&[u8; BLOCK]) -> u32 {
    move |block| {
        let bits = block.iter().enumerate();
        bits.fold(0, |bits, (place, byte)| {
            bits | u32::from(byte.wrapping_sub(first) <= span) << place
        })
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn wide_mask(simd: V3, first: u8, span: u8) -> impl Fn(&[u8; BLOCK]) -> u32 {
    let all = |byte: u8| simd.avx._mm256_set1_epi8(byte.cast_signed());
    let (first, span) = (all(first), all(span));
    #[inline(always)]
    move |block| {
        let avx2 = simd.avx2;
        let above = avx2._mm256_sub_epi8(pulp::cast(*block), first);
        let within = avx2._mm256_cmpeq_epi8(avx2._mm256_min_epu8(above, span), above);
        avx2._mm256_movemask_epi8(within).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every way to look gives the bytes of the range, and no others.
        #[test]
        fn every_processor_sees_the_same_bytes(
            text in prop::collection::vec(any::<u8>(), 0..120),
            ends in any::<(u8, u8)>(),
        ) {
            let range = ends.0.min(ends.1)..=ends.0.max(ends.1);
            let mut padded = text.clone();
            padded.resize(text.len().next_multiple_of(BLOCK), FILLER);
            let is_in = |(place, byte): (usize, &u8)| range.contains(byte).then_some(place);
            let expected: Vec<usize> = padded.iter().enumerate().filter_map(is_in).collect();
            let places = |from: usize, bits: u32| {
                (0..BLOCK).filter(move |place| bits >> place & 1 != 0).map(move |place| from + place)
            };
            let (mut found, mut plainly) = (Vec::new(), Vec::new());
            each(&text, range.clone(), |from, bits| {
                found.extend(places(from, bits));
                ControlFlow::<()>::Continue(())
            });
            let plain = mask(*range.start(), range.end() - range.start());
            each_with(&text, plain, |from, bits| {
                plainly.extend(places(from, bits));
                ControlFlow::<()>::Continue(())
            });
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(&plainly, &expected);
        }
    }
}

//! How a text is cut, and what is made of a piece of it.

use std::ops::Range;

use portcullis_core::classifier::Channel;

use super::file::{Calibration, Config};

/// What two parts of a very long text have in common, so that no sentence falls between them.
const OVERLAP: usize = 1024;

/// One window's verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// One for each label, the harmless one first.
    pub logits: Vec<f32>,
    /// The same by the second look, if there was one.
    pub second: Option<Vec<f32>>,
    /// How likely it is an attack, from 0 to 1.
    pub score: f32,
}

impl Window {
    pub(super) fn new(logits: Vec<f32>, calibration: Calibration, channel: Channel) -> Self {
        let score = calibration.score(raw(&logits), channel);
        let second = None;
        Self {
            logits,
            second,
            score,
        }
    }

    /// What the second look said is what counts.
    pub(super) fn look_again(
        &mut self,
        logits: Vec<f32>,
        calibration: Calibration,
        channel: Channel,
    ) {
        self.score = calibration.score(raw(&logits), channel);
        self.second = Some(logits);
    }

    /// A score for each label. The attacks share the window's score as their logits would have it.
    pub(super) fn shares(&self) -> Vec<f32> {
        let logits = self.second.as_ref().unwrap_or(&self.logits);
        let attacks = logits.get(1..).unwrap_or_default();
        let all = log_sum_exp(attacks);
        let attacks = attacks.iter().map(|logit| self.score * (logit - all).exp());
        std::iter::once(1.0 - self.score).chain(attacks).collect()
    }
}

/// The windows over so many pieces: each begins a stride after the last, until one reaches the end.
pub(super) fn of(pieces: usize, config: &Config) -> impl Iterator<Item = Range<usize>> {
    let (window, stride) = (config.window, config.stride);
    let covered = window - stride;
    let starts = (0..pieces).step_by(stride);
    starts
        .take_while(move |&start| start == 0 || start + covered < pieces)
        .map(move |start| start..pieces.min(start + window))
}

/// A text in parts of at most so many bytes, each beginning a little before the last one's end.
pub(super) fn parts(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.floor_char_boundary(most);
        rest = (end < text.len()).then(|| &text[text.floor_char_boundary(end - OVERLAP)..]);
        Some(&text[..end])
    })
}

fn log_sum_exp(numbers: &[f32]) -> f32 {
    let largest = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest == f32::NEG_INFINITY {
        return largest;
    }
    let sum: f32 = numbers.iter().map(|number| (number - largest).exp()).sum();
    largest + sum.ln()
}

/// How much more an attack is than harmless.
fn raw(logits: &[f32]) -> f32 {
    log_sum_exp(logits.get(1..).unwrap_or_default()) - logits[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_cover_every_piece_and_none_is_for_nothing(
            pieces in 0_usize..2000,
            window in 1_usize..300,
            share in 1_usize..=100,
        ) {
            let stride = (window * share / 100).max(1);
            let config = Config { window, stride, ..Config::example() };
            let windows: Vec<_> = of(pieces, &config).collect();
            let mut covered = 0;
            for (index, one) in windows.iter().enumerate() {
                prop_assert_eq!(one.start, index * stride);
                prop_assert!(one.start <= covered && one.end > covered);
                covered = one.end;
            }
            prop_assert_eq!(covered, pieces);
        }

        #[test]
        fn parts_overlap_and_leave_nothing_out(text in "\\PC{0,4000}", most in 1100_usize..3000) {
            let mut covered = 0;
            for part in parts(&text, most) {
                let start = part.as_ptr() as usize - text.as_ptr() as usize;
                prop_assert!(part.len() <= most && start <= covered);
                covered = start + part.len();
            }
            prop_assert_eq!(covered, text.len());
        }

        #[test]
        fn shares_add_up_to_one(logits in prop::collection::vec(-50.0_f32..50.0, 6), scale in 0.1_f32..4.0, shift in -5.0_f32..5.0) {
            let calibration = Calibration { scale, user: shift, tool: -shift };
            let window = Window::new(logits, calibration, Channel::Tool);
            let sum: f32 = window.shares().iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-4, "{}", sum);
        }
    }
}

//! How signs of an attack add up.

use std::ops::Range;

use smallvec::SmallVec;

use crate::intent::JailbreakIntent;

/// Signs of an attack add up within so many bytes.
const NEAR: usize = 600;

/// Sums of weights are compared with this much room for rounding.
const ROUNDING: f64 = 1e-9;

/// A match of a pattern: an attack, or a sign of one.
#[derive(Debug, Clone)]
pub(crate) struct Sign {
    /// Which of the texts that are judged together.
    pub(crate) place: usize,
    pub(crate) range: Range<usize>,
    /// Which pattern.
    pub(crate) index: usize,
    pub(crate) intent: JailbreakIntent,
    /// 1 decides alone; less adds up with what stands near it.
    pub(crate) weight: f64,
}

/// What each sign is trying to do, if it is an attack or part of one. Sorts the signs by position.
pub(crate) fn add_up(signs: &mut [Sign]) -> Vec<Option<JailbreakIntent>> {
    signs.sort_by_key(|sign| (sign.place, sign.range.start));
    let mut parts = vec![None; signs.len()];
    for from in 0..signs.len() {
        combine(&signs[from..], &mut parts[from..]);
    }
    parts
}

/// Whether the first of these signs is an attack, alone or with what stands near it; if so, notes
/// for each that is part of it what it is trying to do.
fn combine(signs: &[Sign], parts: &mut [Option<JailbreakIntent>]) {
    let first = &signs[0];
    if first.weight >= 1.0 {
        note(&mut parts[0], first.intent);
        return;
    }
    let near =
        |sign: &&Sign| sign.place == first.place && sign.range.start - first.range.start <= NEAR;
    let mut seen: SmallVec<[usize; 16]> = SmallVec::new();
    let mut shares = [0.0; JailbreakIntent::ATTACKS.len()];
    let len = signs.iter().take_while(near).count();
    for sign in &signs[..len] {
        if sign.weight < 1.0 && !seen.contains(&sign.index) {
            seen.push(sign.index);
            let intents = JailbreakIntent::ATTACKS.iter().zip(&mut shares);
            for (_, share) in intents.filter(|(intent, _)| **intent == sign.intent) {
                *share += sign.weight;
            }
        }
    }
    if shares.iter().sum::<f64>() < 1.0 - ROUNDING {
        return;
    }
    let largest = JailbreakIntent::ATTACKS
        .into_iter()
        .zip(shares)
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    if let Some((intent, _)) = largest {
        let members = signs[..len].iter().zip(parts);
        for (_, part) in members.filter(|(sign, _)| sign.weight < 1.0) {
            note(part, intent);
        }
    }
}

/// A sign can be part of several attacks; the strongest action counts.
fn note(part: &mut Option<JailbreakIntent>, intent: JailbreakIntent) {
    if part.is_none_or(|known| known.default_action() < intent.default_action()) {
        *part = Some(intent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JailbreakIntent::{ExfilPrompt, JbOverride, ToolEscalation};

    fn sign(at: usize, index: usize, intent: JailbreakIntent, weight: f64) -> Sign {
        Sign {
            place: 0,
            range: at..at + 1,
            index,
            intent,
            weight,
        }
    }

    #[test]
    fn signs_count_once_a_pattern_and_only_near_each_other() {
        for (mut signs, expected) in [
            (vec![sign(0, 0, JbOverride, 1.0)], vec![Some(JbOverride)]),
            (vec![sign(0, 0, JbOverride, 0.6)], vec![None]),
            (
                vec![sign(9, 1, ExfilPrompt, 0.6), sign(0, 0, JbOverride, 0.4)],
                vec![Some(ExfilPrompt); 2],
            ),
            (
                vec![sign(0, 0, JbOverride, 0.6), sign(9, 0, JbOverride, 0.6)],
                vec![None; 2],
            ),
            (
                vec![sign(0, 0, JbOverride, 0.6), sign(601, 1, JbOverride, 0.6)],
                vec![None; 2],
            ),
            (
                vec![
                    sign(0, 0, JbOverride, 0.6),
                    sign(5, 2, ToolEscalation, 1.0),
                    sign(600, 1, JbOverride, 0.6),
                ],
                vec![Some(JbOverride), Some(ToolEscalation), Some(JbOverride)],
            ),
        ] {
            assert_eq!(add_up(&mut signs), expected, "{signs:?}");
        }
    }

    #[test]
    fn signs_of_two_texts_do_not_add_up() {
        let mut signs = vec![sign(0, 0, JbOverride, 0.6), sign(9, 1, JbOverride, 0.6)];
        signs[1].place = 1;
        assert_eq!(add_up(&mut signs), [None, None]);
    }
}

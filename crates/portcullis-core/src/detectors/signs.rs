//! How signs of an attack add up.

use std::ops::Range;

use smallvec::SmallVec;

use crate::intent::JailbreakIntent;

/// Signs of an attack add up within so many bytes.
const NEAR: usize = 600;

/// A longer span may be that of a run which was decoded, and then all signs in the run have it.
const LONGEST_MARK: usize = 32;

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
        // A run that was decoded may have thousands of the same, and the first has said it for all.
        if from == 0 || !repeats(&signs[from - 1], &signs[from]) {
            combine(&signs[from..], &mut parts[from..]);
        }
    }
    parts
}

/// Whether a sign that does not decide alone adds up to just what the one before it does.
fn repeats(before: &Sign, sign: &Sign) -> bool {
    let same = before.index == sign.index && before.place == sign.place;
    sign.weight < 1.0 && same && before.range == sign.range
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
    let len = signs.iter().take_while(near).count();
    let mut counted = patterns(&signs[..len]);
    if sum(&counted) >= 1.0 - ROUNDING {
        leave_out_doubles(&mut counted, &signs[..len]);
    }
    if sum(&counted) < 1.0 - ROUNDING {
        return;
    }
    let mut shares = [0.0; JailbreakIntent::ATTACKS.len()];
    for sign in &counted {
        let intents = JailbreakIntent::ATTACKS.iter().zip(&mut shares);
        for (_, share) in intents.filter(|(intent, _)| **intent == sign.intent) {
            *share += sign.weight;
        }
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

/// The signs by which patterns count: the first of each.
type Counted<'s> = SmallVec<[&'s Sign; 16]>;

fn patterns(signs: &[Sign]) -> Counted<'_> {
    let mut counted = Counted::new();
    for sign in signs.iter().filter(|sign| sign.weight < 1.0) {
        if counted.iter().all(|known| known.index != sign.index) {
            counted.push(sign);
        }
    }
    counted
}

fn sum(counted: &[&Sign]) -> f64 {
    counted.iter().map(|sign| sign.weight).sum()
}

/// A mark such as `[INST]` that two patterns take for two kinds of attack, here or in another place nearby, is one thing:
/// the stronger counts. Patterns of one kind each say something else of it, and so do two that only share some of their
/// characters: both count.
fn leave_out_doubles(counted: &mut Counted<'_>, signs: &[Sign]) {
    let mut doubles: SmallVec<[(usize, usize); 16]> = SmallVec::new();
    let marks = signs.iter().enumerate();
    for (at, sign) in marks.filter(|(_, sign)| sign.range.len() <= LONGEST_MARK) {
        let rest = signs[at + 1..].iter();
        let beside = rest.take_while(|other| other.range.start == sign.range.start);
        let same = beside.filter(|other| other.range.end == sign.range.end);
        for other in same.filter(|other| other.intent != sign.intent) {
            let pair = ordered(sign.index, other.index);
            if !doubles.contains(&pair) {
                doubles.push(pair);
            }
        }
    }
    counted.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let mut taken: SmallVec<[usize; 16]> = SmallVec::new();
    counted.retain(|sign| {
        let mut others = taken.iter();
        let free = others.all(|other| !doubles.contains(&ordered(sign.index, *other)));
        if free {
            taken.push(sign.index);
        }
        free
    });
}

fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
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
    fn what_two_kinds_of_signs_see_counts_once() {
        let signs = |second: usize, intent| {
            let mut signs = [
                sign(0, 0, JbOverride, 0.6),
                sign(second, 1, intent, 0.7),
                sign(20, 0, JbOverride, 0.6),
            ];
            for sign in &mut signs {
                sign.range.end = sign.range.start + 10;
            }
            signs
        };
        for (second, intent, expected) in [
            (0, ExfilPrompt, None),
            // Once is enough: elsewhere it is still the same sign.
            (20, ExfilPrompt, None),
            (9, ExfilPrompt, Some(ExfilPrompt)),
            (25, ExfilPrompt, Some(ExfilPrompt)),
            (0, JbOverride, Some(JbOverride)),
        ] {
            let found = add_up(&mut signs(second, intent));
            assert_eq!(found[0], expected, "{second} {intent:?}");
        }
    }

    /// All of them stand where the run stands.
    #[test]
    fn signs_in_what_was_decoded_add_up() {
        let mut signs = [
            sign(0, 0, JbOverride, 0.3),
            sign(0, 0, JbOverride, 0.3),
            sign(0, 1, ExfilPrompt, 0.7),
            sign(0, 2, ToolEscalation, 1.0),
            sign(0, 2, ToolEscalation, 1.0),
        ];
        for sign in &mut signs {
            sign.range.end = 64;
        }
        let (added, alone) = (Some(ExfilPrompt), Some(ToolEscalation));
        assert_eq!(add_up(&mut signs), [added, added, added, alone, alone]);
        assert_eq!(add_up(&mut signs[..2]), [None, None]);
    }

    #[test]
    fn signs_of_two_texts_do_not_add_up() {
        let mut signs = vec![sign(0, 0, JbOverride, 0.6), sign(9, 1, JbOverride, 0.6)];
        signs[1].place = 1;
        assert_eq!(add_up(&mut signs), [None, None]);
    }
}

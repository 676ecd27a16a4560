//! Works out literals of which any match of a pattern must contain one.

use regex_syntax::hir::{Class, Hir, HirKind};
use smallvec::SmallVec;

/// The filter looks at this many bytes at a time.
pub(super) const WINDOW: usize = 4;

/// A shorter keyword occurs too often to be worth looking for.
pub const MIN_KEYWORD_BYTES: usize = 3;

/// At most so many literals stand for one place of a pattern.
const MAX_VARIANTS: usize = 64;

/// Longer literals say nothing more.
const MAX_CHARS: usize = 12;

/// Literals in lower case, and how often one of them is expected per byte of ordinary text.
#[derive(Debug, Clone)]
struct Required {
    literals: Vec<String>,
    cost: f64,
}

/// The cheapest set of literals that covers every match of the pattern. Empty if there is none.
pub(super) fn required(hir: &Hir) -> Vec<String> {
    best(hir, &cheapest_window)
        .map(|required| required.literals)
        .unwrap_or_default()
}

/// Whether every match contains one of the keywords; if so, the literals to look for. They can be
/// more than the keywords: `k` also stands for the Kelvin sign when case is ignored.
pub(super) fn from_keywords(hir: &Hir, keywords: &[String]) -> Option<Vec<String>> {
    let lowered: Vec<Vec<char>> = keywords
        .iter()
        .map(|keyword| keyword.chars().map(|c| c.to_ascii_lowercase()).collect())
        .collect();
    best(hir, &|run| {
        lowered
            .iter()
            .filter_map(|keyword| window_with(run, keyword))
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
    })
    .map(|required| required.literals)
}

/// The two windows that a literal is known by: the rarest that starts at an even offset and the
/// rarest that starts at an odd one. Each has at least three bytes of the literal in it; -1 is a
/// window that starts a byte before.
pub(super) fn windows(literal: &[u8]) -> [i32; 2] {
    let last = literal.len() as i32 - MIN_KEYWORD_BYTES as i32;
    [0, 1].map(|parity| {
        (-1..=last)
            .filter(|offset| offset.rem_euclid(2) == parity)
            .min_by(|a, b| frequency(literal, *a).total_cmp(&frequency(literal, *b)))
            .unwrap_or(0)
    })
}

/// A longer repeated part is looked at once only.
const MAX_ROUND: usize = 64;

/// One character of a pattern, as a list of what it can be; or a place where anything can stand.
#[derive(Clone)]
enum Item {
    Choice(Vec<char>),
    Gap(Option<Required>),
}

type Judge<'a> = &'a dyn Fn(&[Vec<char>]) -> Option<Required>;

fn best(hir: &Hir, judge: Judge<'_>) -> Option<Required> {
    let mut items = Vec::new();
    flatten(hir, judge, &mut items);
    let mut found: Vec<Required> = Vec::new();
    let mut run: Vec<Vec<char>> = Vec::new();
    for item in items {
        match item {
            Item::Choice(choice) => run.push(choice),
            Item::Gap(required) => {
                found.extend(judge(&run));
                found.extend(required);
                run.clear();
            }
        }
    }
    found.extend(judge(&run));
    found.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost))
}

fn flatten(hir: &Hir, judge: Judge<'_>, items: &mut Vec<Item>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => items.extend(
                text.chars()
                    .map(|c| Item::Choice(vec![c.to_ascii_lowercase()])),
            ),
            Err(_) => items.push(Item::Gap(None)),
        },
        HirKind::Class(class) => items.push(match choices(class) {
            Some(choice) => Item::Choice(choice),
            None => Item::Gap(None),
        }),
        HirKind::Capture(capture) => flatten(&capture.sub, judge, items),
        HirKind::Concat(parts) => parts.iter().for_each(|part| flatten(part, judge, items)),
        HirKind::Repetition(repetition) => match (repetition.min, repetition.max) {
            (0, _) => items.push(Item::Gap(None)),
            (1, Some(1)) => flatten(&repetition.sub, judge, items),
            // The first and the last round touch what is around them; between them, anything.
            _ => {
                let mut round = Vec::new();
                flatten(&repetition.sub, judge, &mut round);
                // Rounds of rounds double each time; the first of them says enough.
                let last = (round.len() <= MAX_ROUND).then(|| round.clone());
                items.append(&mut round);
                items.push(Item::Gap(None));
                items.extend(last.into_iter().flatten());
            }
        },
        HirKind::Alternation(branches) => {
            let mut all: Option<Required> = Some(Required {
                literals: Vec::new(),
                cost: 0.0,
            });
            for branch in branches {
                all = match (all, best(branch, judge)) {
                    (Some(mut all), Some(one)) => {
                        all.literals.extend(one.literals);
                        all.cost += one.cost;
                        Some(all)
                    }
                    _ => None,
                };
            }
            items.push(Item::Gap(all));
        }
    }
}

/// The members of a small class, with ASCII case folded away.
fn choices(class: &Class) -> Option<Vec<char>> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let mut members = Vec::new();
    for range in class.iter() {
        for c in range.start()..=range.end() {
            members.push(c.to_ascii_lowercase());
            if members.len() > 2 * MAX_VARIANTS {
                return None;
            }
        }
    }
    members.sort_unstable();
    members.dedup();
    (!members.is_empty() && members.len() <= MAX_VARIANTS).then_some(members)
}

fn cheapest_window(run: &[Vec<char>]) -> Option<Required> {
    let mut cheapest: Option<(f64, &[Vec<char>])> = None;
    for start in 0..run.len() {
        for end in worthwhile_ends(run, start) {
            let part = &run[start..end];
            if let Some(cost) = estimate(part)
                && cheapest.is_none_or(|(cheapest, _)| cost < cheapest)
            {
                cheapest = Some((cost, part));
            }
        }
    }
    cheapest.and_then(|(_, part)| expand(part))
}

/// What the literals of a run will cost, by its most ordinary one; writing all of them out only to
/// compare them is what would take the time. `None` if they are too short.
fn estimate(run: &[Vec<char>]) -> Option<f64> {
    let mut literal: SmallVec<[u8; 64]> = SmallVec::new();
    let mut variants = 1;
    let mut shortest = 0;
    for choice in run {
        literal.extend_from_slice(choice.first()?.encode_utf8(&mut [0; 4]).as_bytes());
        shortest += choice.iter().map(|c| c.len_utf8()).min()?;
        variants *= choice.len();
    }
    let cost: f64 = windows(&literal)
        .map(|at| frequency(&literal, at))
        .iter()
        .sum();
    (shortest >= MIN_KEYWORD_BYTES).then_some(cost * variants as f64)
}

/// A longer literal is never worse, but for what a character with several forms multiplies. So a
/// literal ends before such a character, or where it must.
fn worthwhile_ends(run: &[Vec<char>], start: usize) -> impl Iterator<Item = usize> {
    let mut variants = 1;
    let mut ends: SmallVec<[usize; MAX_CHARS]> = SmallVec::new();
    let mut end = start;
    for choice in run[start..].iter().take(MAX_CHARS) {
        if choice.len() > 1 && end > start {
            ends.push(end);
        }
        variants *= choice.len();
        if variants > MAX_VARIANTS {
            break;
        }
        end += 1;
    }
    if ends.last() != Some(&end) && end > start {
        ends.push(end);
    }
    ends.into_iter()
}

fn window_with(run: &[Vec<char>], keyword: &[char]) -> Option<Required> {
    run.windows(keyword.len())
        .filter(|window| {
            window
                .iter()
                .zip(keyword)
                .all(|(choice, wanted)| choice.contains(wanted) && choice.len() <= 3)
        })
        .filter_map(expand)
        .find(long_enough)
}

fn long_enough(required: &Required) -> bool {
    required
        .literals
        .iter()
        .all(|literal| literal.len() >= MIN_KEYWORD_BYTES)
}

/// Every text that a run of choices can be, unless there are too many.
fn expand(run: &[Vec<char>]) -> Option<Required> {
    let mut literals = vec![String::new()];
    for choice in run {
        if literals.len() * choice.len() > MAX_VARIANTS {
            return None;
        }
        literals = literals
            .iter()
            .flat_map(|prefix| {
                choice.iter().map(move |c| {
                    let mut literal = prefix.clone();
                    literal.push(*c);
                    literal
                })
            })
            .collect();
    }
    let cost = literals
        .iter()
        .filter(|literal| literal.len() >= MIN_KEYWORD_BYTES)
        .flat_map(|literal| windows(literal.as_bytes()).map(|at| frequency(literal.as_bytes(), at)))
        .sum();
    Some(Required { literals, cost })
}

/// How often this window of a literal is expected per byte of ordinary text.
fn frequency(literal: &[u8], offset: i32) -> f64 {
    (offset..offset + WINDOW as i32)
        .filter_map(|at| literal.get(usize::try_from(at).ok()?))
        .map(|byte| byte_frequency(*byte))
        .product()
}

/// Per ten thousand bytes of English prose, roughly; the exact values only break ties.
fn byte_frequency(byte: u8) -> f64 {
    const LETTERS: [u16; 26] = [
        640, 120, 220, 340, 1000, 180, 160, 480, 560, 12, 62, 320, 190, 560, 600, 150, 8, 480, 510,
        720, 220, 78, 190, 14, 160, 6,
    ];
    let per_ten_thousand = match byte {
        b'a'..=b'z' => LETTERS[usize::from(byte - b'a')],
        b' ' => 1700,
        b'0'..=b'9' => 30,
        b'\n' | b'.' | b',' | b'-' | b'"' => 90,
        0x80.. => 60,
        _ => 15,
    };
    f64::from(per_ten_thousand) / 10_000.0
}

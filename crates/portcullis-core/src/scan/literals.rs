//! Works out literals that any match of a pattern must contain.
//!
//! A pattern gives a few *factors*: sets of literals such that every match contains one literal of
//! the set. `(ignore|forget) (previous|prior) rules` has three. The one that ordinary text has least
//! often announces the pattern, together with what the pattern says of the text around it
//! ([`screen`](super::screen)).

use std::ops::Range;

use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Look};
use smallvec::SmallVec;

use super::frequency;
use super::neighbours::End;
use super::screen::Surroundings;

/// The filter looks at this many bytes at a time.
pub(super) const WINDOW: usize = 4;

/// A shorter keyword occurs too often to be worth looking for.
pub const MIN_KEYWORD_BYTES: usize = 3;

/// At most so many literals stand for one place of a pattern.
const MAX_VARIANTS: usize = 64;

/// Longer literals say nothing more.
const MAX_CHARS: usize = 12;

/// What it costs to compare a literal where one of its windows is, and to look around it where it is.
const COST_OF_CHECK: f64 = 1.0;
const COST_OF_HIT: f64 = 4.0;

/// What it costs besides if nearly anything can stand around it.
const COST_OF_DOUBT: f64 = 20.0;

/// A window that is not all of it in the literal is looked for with every byte that may stand beside that: it crowds the
/// filter, which then looks closer this much more often.
const CROWDING: f64 = 60.0;

/// A text to look for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Literal {
    /// In lower case unless it is exact.
    pub(super) text: String,
    /// Whether case matters.
    pub(super) exact: bool,
    /// What cannot stand before it.
    pub(super) before: Edge,
    /// What cannot stand after it.
    pub(super) after: Edge,
}

/// How certainly a word ends at a place of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) enum Edge {
    /// It may go on.
    #[default]
    None,
    /// No ASCII letter or digit goes on across the place, but an underscore may.
    Part,
    /// Neither does an underscore.
    Word,
}

impl Edge {
    /// Of a character beside the place.
    fn beside(c: char) -> Self {
        match c {
            '_' => Self::Part,
            _ if c.is_ascii_alphanumeric() => Self::None,
            _ => Self::Word,
        }
    }

    fn item<'h>(self) -> Option<Item<'h>> {
        (self != Self::None).then_some(Item::Edge(self))
    }
}

/// Literals of which every match contains one.
#[derive(Debug, Clone)]
pub(super) struct Factor<'h> {
    pub(super) places: Vec<Place<'h>>,
    /// What looking for them costs.
    cost: f64,
    /// How often one of them is expected per million bytes of ordinary text.
    pub(super) frequency: f64,
}

/// Literals that stand at one place of a pattern.
#[derive(Debug, Clone)]
pub(super) struct Place<'h> {
    pub(super) literals: Vec<Literal>,
    pub(super) around: Surroundings<'h>,
    frequency: f64,
}

impl Factor<'_> {
    pub(super) fn literals(&self) -> impl Iterator<Item = &Literal> {
        self.places.iter().flat_map(|place| &place.literals)
    }

    /// Whether the literals would crowd the filter.
    pub(super) fn crowds(&self) -> bool {
        const MANY: usize = 8;
        let short = self
            .literals()
            .filter(|literal| literal.text.len() <= WINDOW);
        short.count() > MANY
    }
}

/// The pattern's cheapest factor. None if nothing is certain to be in every match.
pub(super) fn required(hir: &Hir) -> Option<Factor<'_>> {
    let read = |blanks: bool| {
        let judge = &cheapest_window;
        let factors = factors(hir, Edges::default(), Reading { judge, blanks });
        let cost = |factor: &Factor<'_>| factor.cost + factor.cost_of_doubt();
        let cheapest = |a: &Factor<'_>, b: &Factor<'_>| cost(a).total_cmp(&cost(b));
        factors.into_iter().min_by(cheapest)
    };
    read(false).or_else(|| read(true))
}

/// The factor of these keywords, if every match contains one of them. Its literals can be more than
/// the keywords: `k` also stands for the Kelvin sign when case is ignored.
pub(super) fn from_keywords<'h>(hir: &'h Hir, keywords: &[String]) -> Option<Factor<'h>> {
    let lowered: Vec<Vec<char>> = keywords
        .iter()
        .map(|keyword| keyword.chars().map(|c| c.to_ascii_lowercase()).collect())
        .collect();
    let judge = |run: Run<'_>| {
        lowered
            .iter()
            .filter_map(|keyword| window_with(run, keyword))
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
    };
    let reading = Reading {
        judge: &judge,
        blanks: true,
    };
    let factors = factors(hir, Edges::default(), reading);
    factors.into_iter().next()
}

/// The two windows that a literal is known by: the cheapest that starts at an even offset and the
/// cheapest that starts at an odd one. Each has at least three bytes of the literal in it; -1 is a
/// window that starts a byte before.
pub(super) fn windows(literal: &[u8]) -> [i32; 2] {
    cheapest_windows(literal).map(|(offset, _)| offset)
}

/// The same, and how often text has each per million bytes.
fn cheapest_windows(literal: &[u8]) -> [(i32, f64); 2] {
    /// Of a long literal the beginning is enough, and near to where it stands.
    const LOOKED_AT: usize = 64;
    let last = literal.len().min(LOOKED_AT) as i32 - MIN_KEYWORD_BYTES as i32;
    let frequency = |offset: i32| {
        let byte = |at: i32| {
            let byte = usize::try_from(at).ok().and_then(|at| literal.get(at));
            byte.copied().unwrap_or(0)
        };
        frequency::of_window(std::array::from_fn(|place| byte(offset + place as i32)))
    };
    let crowding = |offset: i32| {
        let end = usize::try_from(offset).map(|start| start + WINDOW);
        let inside = end.is_ok_and(|end| end <= literal.len());
        if inside { 0.0 } else { CROWDING }
    };
    [0, 1].map(|parity| {
        let offsets = (-1..=last).filter(|offset| offset.rem_euclid(2) == parity);
        let windows = offsets.map(|offset| (offset, frequency(offset)));
        // Each is looked for at every other place.
        let looks = |(offset, often): &(i32, f64)| often / 2.0 + crowding(*offset);
        let cheapest = windows.min_by(|a, b| looks(a).total_cmp(&looks(b)));
        cheapest.unwrap_or((0, 0.0))
    })
}

/// A class without letters or digits that has more members is not spelled out.
const MAX_BLANKS: usize = 4;

/// A longer repeated part is looked at once only.
const MAX_ROUND: usize = 64;

/// How words end around a part of a pattern.
#[derive(Debug, Clone, Copy, Default)]
struct Edges {
    before: Edge,
    after: Edge,
}

/// What one character of a pattern can be.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// In lower case unless they are exact.
    pub(super) chars: Vec<char>,
    pub(super) exact: bool,
}

/// Characters of a pattern that follow each other.
#[derive(Debug, Clone, Copy)]
struct Run<'r> {
    choices: &'r [Choice],
    /// Before each of them, and after the last.
    edges: &'r [Edge],
}

/// A part of a pattern, read from front to back.
#[derive(Clone)]
pub(super) enum Item<'h> {
    Choice(Choice),
    /// A word ends at this place.
    Edge(Edge),
    /// A part that is not spelled out, with these factors in it.
    Gap(&'h Hir, Vec<Factor<'h>>),
    /// Any number of rounds of a repetition. So many items before, and so many after, are also rounds
    /// of it, and may be the same one.
    Rounds(&'h Hir, [usize; 2]),
}

/// What is made of a run.
struct Chosen {
    literals: Vec<Literal>,
    /// The part of the run that they are.
    part: Range<usize>,
    cost: f64,
    frequency: f64,
}

/// How a pattern is read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    /// What to make of a run.
    judge: &'a dyn Fn(Run<'_>) -> Option<Chosen>,
    /// Whether white space is spelled out in all its forms.
    blanks: bool,
}

impl Reading<'_> {
    /// White space in all its forms multiplies the literals around it.
    fn spells_out(&self, choice: &Choice, class: &Hir) -> bool {
        self.blanks || choice.chars.len() <= MAX_BLANKS || starts_at_edge(class) < Edge::Word
    }
}

/// Every factor, the cheapest first.
fn factors<'h>(hir: &'h Hir, edges: Edges, reading: Reading<'_>) -> Vec<Factor<'h>> {
    let mut items = Vec::new();
    items.extend(edges.before.item());
    flatten(hir, edges, reading, &mut items);
    items.extend(edges.after.item());
    let mut found: Vec<Factor<'h>> = Vec::new();
    let mut choices: Vec<Choice> = Vec::new();
    // Where the choices are among the items.
    let mut places = Vec::new();
    let mut at_edge = vec![Edge::None];
    for (index, item) in items.iter().map(Some).chain([None]).enumerate() {
        match item {
            Some(Item::Choice(choice)) => {
                choices.push(choice.clone());
                places.push(index);
                at_edge.push(Edge::None);
            }
            Some(Item::Edge(edge)) => {
                let here = &mut at_edge[choices.len()];
                *here = (*here).max(*edge);
            }
            Some(Item::Gap(..) | Item::Rounds(..)) | None => {
                let chosen = (reading.judge)(Run {
                    choices: &choices,
                    edges: &at_edge,
                });
                if let Some(chosen) = chosen {
                    let (first, last) = (places[chosen.part.start], places[chosen.part.end - 1]);
                    let mut around = Surroundings::default();
                    around.extend(&items[..first], &items[last + 1..]);
                    found.push(Factor {
                        places: vec![Place {
                            literals: chosen.literals,
                            around,
                            frequency: chosen.frequency,
                        }],
                        cost: chosen.cost,
                        frequency: chosen.frequency,
                    });
                }
                if let Some(Item::Gap(_, inside)) = item {
                    let mut inside = inside.clone();
                    for place in inside.iter_mut().flat_map(|factor| &mut factor.places) {
                        place.around.extend(&items[..index], &items[index + 1..]);
                    }
                    found.append(&mut inside);
                }
                choices.clear();
                places.clear();
                at_edge = vec![Edge::None];
            }
        }
    }
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    found
}

fn flatten<'h>(hir: &'h Hir, edges: Edges, reading: Reading<'_>, items: &mut Vec<Item<'h>>) {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Look(look) => items.extend(of_look(*look).item()),
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => items.extend(text.chars().map(|c| {
                Item::Choice(Choice {
                    chars: vec![c],
                    exact: true,
                })
            })),
            Err(_) => items.push(Item::Gap(hir, Vec::new())),
        },
        HirKind::Class(class) => match choice(class) {
            Some(choice) if reading.spells_out(&choice, hir) => {
                items.push(Item::Choice(choice));
            }
            _ => gap(hir, Vec::new(), items),
        },
        HirKind::Capture(capture) => flatten(&capture.sub, edges, reading, items),
        HirKind::Concat(parts) => {
            for (index, part) in parts.iter().enumerate() {
                let before = match index.checked_sub(1) {
                    Some(before) => ends_at_edge(&parts[before]),
                    None => edges.before,
                };
                let after = match parts.get(index + 1) {
                    Some(after) => starts_at_edge(after),
                    None => edges.after,
                };
                flatten(part, Edges { before, after }, reading, items);
            }
        }
        HirKind::Repetition(repetition) => match (repetition.min, repetition.max) {
            (0, _) => items.push(Item::Gap(hir, Vec::new())),
            (1, Some(1)) => flatten(&repetition.sub, edges, reading, items),
            // The first and the last round touch what is around them.
            (min, _) => {
                let mut first = Vec::new();
                flatten(&repetition.sub, Edges::default(), reading, &mut first);
                // Rounds of rounds double each time; the first of them says enough.
                let mut last = if first.len() <= MAX_ROUND {
                    first.clone()
                } else {
                    Vec::new()
                };
                let the_same = if min > 1 {
                    [0; 2]
                } else {
                    [first.len(), last.len()]
                };
                // An underscore that a round begins with ends what stands before it, but is itself part of a word.
                let outer = |edge: Edge| edge.item().filter(|_| edge == Edge::Word);
                items.extend(outer(starts_at_edge(hir)));
                items.append(&mut first);
                items.push(Item::Rounds(hir, the_same));
                items.append(&mut last);
                items.extend(outer(ends_at_edge(hir)));
            }
        },
        HirKind::Alternation(branches) => {
            let branches = branches
                .iter()
                .map(|branch| factors(branch, edges, reading));
            let together = branches.reduce(|all, one| {
                let pairs = all.into_iter().zip(one);
                pairs.map(|(all, one)| all.or(one)).collect()
            });
            gap(hir, together.unwrap_or_default(), items);
        }
    }
}

impl Factor<'_> {
    fn cost_of_doubt(&self) -> f64 {
        let doubtful = self.places.iter().filter(|place| place.around.is_vague());
        COST_OF_DOUBT * doubtful.map(|place| place.frequency).sum::<f64>()
    }

    fn or(mut self, other: Self) -> Self {
        self.places.extend(other.places);
        self.cost += other.cost;
        self.frequency += other.frequency;
        self
    }
}

/// A part that is not spelled out, with the edges of words that it makes.
fn gap<'h>(hir: &'h Hir, factors: Vec<Factor<'h>>, items: &mut Vec<Item<'h>>) {
    items.extend(starts_at_edge(hir).item());
    items.push(Item::Gap(hir, factors));
    items.extend(ends_at_edge(hir).item());
}

const fn of_look(look: Look) -> Edge {
    match look {
        Look::WordAscii | Look::WordUnicode => Edge::Word,
        _ => Edge::None,
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// How what stands before this part ends.
fn starts_at_edge(hir: &Hir) -> Edge {
    at_edge(hir, End::First)
}

/// How what stands after this part begins.
fn ends_at_edge(hir: &Hir) -> Edge {
    at_edge(hir, End::Last)
}

fn at_edge(hir: &Hir, end: End) -> Edge {
    let outer = |parts: &[Hir]| match end {
        End::First => parts.first().map(|part| at_edge(part, end)),
        End::Last => parts.last().map(|part| at_edge(part, end)),
    };
    match hir.kind() {
        HirKind::Look(look) => of_look(*look),
        HirKind::Class(Class::Unicode(class)) => of_class(class),
        HirKind::Literal(literal) => {
            let outer = match end {
                End::First => literal.0.first(),
                End::Last => literal.0.last(),
            };
            outer.map_or(Edge::None, |byte| Edge::beside(char::from(*byte)))
        }
        HirKind::Capture(capture) => at_edge(&capture.sub, end),
        HirKind::Repetition(repetition) if repetition.min > 0 => at_edge(&repetition.sub, end),
        HirKind::Concat(parts) => outer(parts).unwrap_or_default(),
        HirKind::Alternation(branches) => {
            let branches = branches.iter().map(|branch| at_edge(branch, end));
            branches.min().unwrap_or_default()
        }
        HirKind::Empty | HirKind::Class(_) | HirKind::Repetition(_) => Edge::None,
    }
}

/// The least that any member makes sure of.
fn of_class(class: &ClassUnicode) -> Edge {
    let ascii = class.iter().take_while(|range| range.start().is_ascii());
    let members = ascii.flat_map(|range| range.start()..=range.end().min('\x7f'));
    members.map(Edge::beside).min().unwrap_or(Edge::Word)
}

/// The members of a small class. If all its letters come in both cases, case is folded away.
fn choice(class: &Class) -> Option<Choice> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let mut chars = Vec::new();
    for range in class.iter() {
        for c in range.start()..=range.end() {
            chars.push(c);
            if chars.len() > 2 * MAX_VARIANTS {
                return None;
            }
        }
    }
    let other_case = |c: char| {
        if c.is_ascii_uppercase() {
            c.to_ascii_lowercase()
        } else {
            c.to_ascii_uppercase()
        }
    };
    let letters = || chars.iter().filter(|c| c.is_ascii_alphabetic());
    let exact = !letters().any(|c| chars.contains(&other_case(*c)));
    if !exact {
        for c in &mut chars {
            c.make_ascii_lowercase();
        }
        chars.sort_unstable();
        chars.dedup();
    }
    (!chars.is_empty() && chars.len() <= MAX_VARIANTS).then_some(Choice { chars, exact })
}

impl<'r> Run<'r> {
    /// A part of the run.
    fn part(&self, start: usize, end: usize) -> Part<'r> {
        let choices = &self.choices[start..end];
        let of_words = |choice: Option<&Choice>, edge: Edge| match choice {
            Some(choice) if choice.chars.iter().all(|c| is_word(*c)) => edge,
            _ => Edge::None,
        };
        Part {
            choices,
            range: start..end,
            edges: Edges {
                before: of_words(choices.first(), self.edges[start]),
                after: of_words(choices.last(), self.edges[end]),
            },
        }
    }
}

/// A part of a run that may become literals.
#[derive(Debug, Clone)]
struct Part<'r> {
    choices: &'r [Choice],
    range: Range<usize>,
    edges: Edges,
}

fn cheapest_window(run: Run<'_>) -> Option<Chosen> {
    let mut cheapest: Option<(f64, Part<'_>)> = None;
    for start in 0..run.choices.len() {
        for end in worthwhile_ends(run.choices, start) {
            let part = run.part(start, end);
            if let Some(cost) = estimate(&part)
                && cheapest
                    .as_ref()
                    .is_none_or(|(cheapest, _)| cost < *cheapest)
            {
                cheapest = Some((cost, part));
            }
        }
    }
    cheapest.and_then(|(_, part)| expand(part))
}

/// What the literals of a run will cost, by its most ordinary one; writing all of them out only to
/// compare them is what would take the time. `None` if they are too short.
fn estimate(run: &Part<'_>) -> Option<f64> {
    let mut literal: SmallVec<[u8; 64]> = SmallVec::new();
    let mut variants = 1;
    let mut shortest = 0;
    for choice in run.choices {
        let c = choice.chars.first()?.to_ascii_lowercase();
        literal.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        shortest += choice.chars.iter().map(|c| c.len_utf8()).min()?;
        // Letters that only Unicode takes for these are rare.
        variants *= choice.chars.iter().filter(|c| c.is_ascii()).count().max(1);
    }
    let frequency = frequency::of_literal(&literal, run.edges.before, run.edges.after);
    let cost = cost(&literal, frequency) * variants as f64;
    (shortest >= MIN_KEYWORD_BYTES).then_some(cost)
}

/// A longer literal is never worse, but for what a character with several forms multiplies. So a
/// literal ends before such a character, or where it must.
fn worthwhile_ends(run: &[Choice], start: usize) -> impl Iterator<Item = usize> {
    let mut variants = 1;
    let mut ends: SmallVec<[usize; MAX_CHARS]> = SmallVec::new();
    let mut end = start;
    for choice in run[start..].iter().take(MAX_CHARS) {
        if choice.chars.len() > 1 && end > start {
            ends.push(end);
        }
        variants *= choice.chars.len();
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

fn window_with(run: Run<'_>, keyword: &[char]) -> Option<Chosen> {
    let fits = |choice: &Choice, wanted: &char| {
        let is_wanted = |c: &char| c.to_ascii_lowercase() == *wanted;
        choice.chars.iter().any(is_wanted) && choice.chars.len() <= 3
    };
    let windows = run.choices.windows(keyword.len()).enumerate();
    windows
        .filter(|(_, window)| window.iter().zip(keyword).all(|(c, k)| fits(c, k)))
        .filter_map(|(start, _)| expand(run.part(start, start + keyword.len())))
        .find(|chosen| {
            let long_enough = |literal: &Literal| literal.text.len() >= MIN_KEYWORD_BYTES;
            chosen.literals.iter().all(long_enough)
        })
}

/// Every text that a run of choices can be, unless there are too many.
fn expand(run: Part<'_>) -> Option<Chosen> {
    let letters = |choice: &&Choice| choice.chars.iter().any(char::is_ascii_alphabetic);
    let exact = run
        .choices
        .iter()
        .filter(letters)
        .all(|choice| choice.exact);
    let mut texts = vec![String::new()];
    for choice in run.choices {
        if texts.len() * choice.chars.len() > MAX_VARIANTS {
            return None;
        }
        texts = texts
            .iter()
            .flat_map(|prefix| {
                choice.chars.iter().map(move |c| {
                    let mut literal = prefix.clone();
                    literal.push(if exact { *c } else { c.to_ascii_lowercase() });
                    literal
                })
            })
            .collect();
    }
    texts.sort_unstable();
    texts.dedup();
    let Edges { before, after } = run.edges;
    let (mut costs, mut often) = (0.0, 0.0);
    for text in &texts {
        let folded = text.to_ascii_lowercase();
        let frequency = frequency::of_literal(folded.as_bytes(), before, after);
        costs += cost(folded.as_bytes(), frequency);
        often += frequency;
    }
    let literals = texts.into_iter().map(|text| Literal {
        text,
        exact,
        before,
        after,
    });
    Some(Chosen {
        literals: literals.collect(),
        part: run.range,
        cost: costs,
        frequency: often,
    })
}

/// What a literal costs that is expected so often.
fn cost(literal: &[u8], frequency: f64) -> f64 {
    if literal.len() < MIN_KEYWORD_BYTES {
        return 0.0;
    }
    // Once for both windows: with more, short literals lose to words that stand anywhere.
    let crowding = if literal.len() <= WINDOW {
        CROWDING
    } else {
        0.0
    };
    let windows = cheapest_windows(literal).map(|(_, often)| often / 2.0);
    COST_OF_CHECK * (windows.iter().sum::<f64>() + crowding) + COST_OF_HIT * frequency
}

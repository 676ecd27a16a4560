//! Works out literals that any match of a pattern must contain.
//!
//! A pattern gives a few *factors*: sets of literals such that every match contains one literal of
//! each set. `(ignore|forget) (previous|prior) rules` has three. One factor alone is often an ordinary
//! word; all of them close together hardly ever are, unless the pattern matches.

use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Look};
use smallvec::SmallVec;

/// The filter looks at this many bytes at a time.
pub(super) const WINDOW: usize = 4;

/// A shorter keyword occurs too often to be worth looking for.
pub const MIN_KEYWORD_BYTES: usize = 3;

/// At most so many literals stand for one place of a pattern.
const MAX_VARIANTS: usize = 64;

/// Longer literals say nothing more.
const MAX_CHARS: usize = 12;

/// More factors say hardly more.
const MAX_FACTORS: usize = 3;

/// A further factor that is expected more often, per byte of text, costs more than it saves; so does one
/// with more literals.
const MAX_FURTHER_RARITY: f64 = 0.004;
const MAX_FURTHER: usize = 64;

/// A literal that is not longer than a window is looked for with every byte that may stand beside it:
/// it crowds the filter.
const CROWDING: f64 = 16.0;

/// Of places where a literal stands, so many are where a word begins; as many are where one ends.
const AT_BOUNDARY: f64 = 0.4;

/// A literal that a match begins with says where to look, which makes up for being this much more common.
const AT_START: f64 = 0.2;

/// A text to look for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Literal {
    /// In lower case unless it is exact.
    pub(super) text: String,
    /// Whether case matters.
    pub(super) exact: bool,
    /// Whether no ASCII letter, digit or underscore stands before it.
    pub(super) starts_word: bool,
    /// Whether none stands after it.
    pub(super) ends_word: bool,
    /// Whether a match begins with it.
    pub(super) first: bool,
}

/// Literals of which every match contains one.
#[derive(Debug, Clone)]
struct Factor {
    literals: Vec<Literal>,
    /// How often the filter must look closer because of them, per byte of ordinary text, and how much
    /// they crowd it.
    cost: f64,
    /// How often one of them is expected there.
    rarity: f64,
}

/// Whether these literals would crowd the filter.
pub(super) fn crowd(literals: &[Literal]) -> bool {
    const MANY: usize = 8;
    let short = literals
        .iter()
        .filter(|literal| literal.text.len() <= WINDOW);
    short.count() > MANY
}

/// The pattern's factors, the cheapest first. None if nothing is certain to be in every match.
pub(super) fn required(hir: &Hir) -> Vec<Vec<Literal>> {
    let read = |blanks: bool| {
        let judge = &cheapest_window;
        factors(hir, Edges::WHOLE, Reading { judge, blanks })
    };
    let mut factors = read(false);
    if factors.is_empty() {
        factors = read(true);
    }
    let worthwhile = |(index, factor): &(usize, Factor)| {
        *index == 0 || factor.rarity <= MAX_FURTHER_RARITY && factor.literals.len() <= MAX_FURTHER
    };
    let factors = factors.into_iter().enumerate().filter(worthwhile);
    factors
        .take(MAX_FACTORS)
        .map(|(_, factor)| factor.literals)
        .collect()
}

/// Whether every match contains one of the keywords; if so, the factors, first that of the keywords.
/// Its literals can be more than the keywords: `k` also stands for the Kelvin sign when case is
/// ignored.
pub(super) fn from_keywords(hir: &Hir, keywords: &[String]) -> Option<Vec<Vec<Literal>>> {
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
    let of_keywords = factors(hir, Edges::WHOLE, reading);
    let first = of_keywords.into_iter().next()?;
    let first = first.literals;
    let further = required(hir).into_iter().filter(|factor| *factor != first);
    let further: Vec<_> = further.take(MAX_FACTORS - 1).collect();
    Some([vec![first], further].concat())
}

/// The two windows that a literal is known by: the rarest that starts at an even offset and the
/// rarest that starts at an odd one. Each has at least three bytes of the literal in it; -1 is a
/// window that starts a byte before.
pub(super) fn windows(literal: &[u8]) -> [i32; 2] {
    /// Of a long literal the beginning is enough, and near to where it stands.
    const LOOKED_AT: usize = 64;
    let last = literal.len().min(LOOKED_AT) as i32 - MIN_KEYWORD_BYTES as i32;
    [0, 1].map(|parity| {
        (-1..=last)
            .filter(|offset| offset.rem_euclid(2) == parity)
            .min_by(|a, b| frequency(literal, *a).total_cmp(&frequency(literal, *b)))
            .unwrap_or(0)
    })
}

/// A class without letters or digits that has more members is not spelled out.
const MAX_BLANKS: usize = 4;

/// A longer repeated part is looked at once only.
const MAX_ROUND: usize = 64;

/// Whether a part of a pattern stands at the edge of a word.
#[derive(Debug, Clone, Copy, Default)]
struct Edges {
    before: bool,
    after: bool,
    /// Whether a match begins with it.
    first: bool,
}

impl Edges {
    /// Of a whole pattern.
    const WHOLE: Self = Self {
        before: false,
        after: false,
        first: true,
    };
}

/// What one character of a pattern can be.
#[derive(Debug, Clone)]
struct Choice {
    /// In lower case unless they are exact.
    chars: Vec<char>,
    exact: bool,
}

/// Characters of a pattern that follow each other.
#[derive(Debug, Clone, Copy)]
struct Run<'r> {
    choices: &'r [Choice],
    /// Before each of them, and after the last: whether no word goes on across this place.
    edges: &'r [bool],
    /// Whether a match begins with it.
    first: bool,
}

/// A part of a pattern, read from front to back.
#[derive(Clone)]
enum Item {
    Choice(Choice),
    /// No word goes on across this place.
    Edge,
    /// Anything can stand here, with these factors in it.
    Gap(Vec<Factor>),
}

/// How a pattern is read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    /// What to make of a run.
    judge: &'a dyn Fn(Run<'_>) -> Option<Factor>,
    /// Whether white space is spelled out in all its forms.
    blanks: bool,
}

impl Reading<'_> {
    /// White space in all its forms multiplies the literals around it.
    fn spells_out(&self, choice: &Choice, class: &Hir) -> bool {
        self.blanks || choice.chars.len() <= MAX_BLANKS || !starts_at_edge(class)
    }
}

/// Every factor, the cheapest first.
fn factors(hir: &Hir, edges: Edges, reading: Reading<'_>) -> Vec<Factor> {
    let mut items = Vec::new();
    items.extend(edges.before.then_some(Item::Edge));
    flatten(hir, edges, reading, &mut items);
    items.extend(edges.after.then_some(Item::Edge));
    items.push(Item::Gap(Vec::new()));
    let mut found: Vec<Factor> = Vec::new();
    let mut choices: Vec<Choice> = Vec::new();
    let mut at_edge = vec![false];
    let mut first = edges.first;
    for item in items {
        match item {
            Item::Choice(choice) => {
                choices.push(choice);
                at_edge.push(false);
            }
            Item::Edge => at_edge[choices.len()] = true,
            Item::Gap(factors) => {
                found.extend((reading.judge)(Run {
                    choices: &choices,
                    edges: &at_edge,
                    first,
                }));
                found.extend(factors);
                choices.clear();
                at_edge = vec![false];
                first = false;
            }
        }
    }
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    found
}

fn flatten(hir: &Hir, edges: Edges, reading: Reading<'_>, items: &mut Vec<Item>) {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Look(look) => items.extend(is_edge(*look).then_some(Item::Edge)),
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => items.extend(text.chars().map(|c| {
                Item::Choice(Choice {
                    chars: vec![c],
                    exact: true,
                })
            })),
            Err(_) => items.push(Item::Gap(Vec::new())),
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
                let lead = |part: &Hir| part.properties().maximum_len() == Some(0);
                let first = edges.first && parts[..index].iter().all(lead);
                let edges = Edges {
                    before,
                    after,
                    first,
                };
                flatten(part, edges, reading, items);
            }
        }
        HirKind::Repetition(repetition) => match (repetition.min, repetition.max) {
            (0, _) => items.push(Item::Gap(Vec::new())),
            (1, Some(1)) => flatten(&repetition.sub, edges, reading, items),
            // The first and the last round touch what is around them; between them, anything.
            _ => {
                let mut round = Vec::new();
                flatten(&repetition.sub, Edges::default(), reading, &mut round);
                // Rounds of rounds double each time; the first of them says enough.
                let last = (round.len() <= MAX_ROUND).then(|| round.clone());
                items.extend(starts_at_edge(hir).then_some(Item::Edge));
                items.append(&mut round);
                items.push(Item::Gap(Vec::new()));
                items.extend(last.into_iter().flatten());
                items.extend(ends_at_edge(hir).then_some(Item::Edge));
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

impl Factor {
    fn or(mut self, other: Self) -> Self {
        self.literals.extend(other.literals);
        self.cost += other.cost;
        self.rarity += other.rarity;
        self
    }
}

/// A part that is not spelled out, with the edges of words that it makes.
fn gap(hir: &Hir, factors: Vec<Factor>, items: &mut Vec<Item>) {
    items.extend(starts_at_edge(hir).then_some(Item::Edge));
    items.push(Item::Gap(factors));
    items.extend(ends_at_edge(hir).then_some(Item::Edge));
}

const fn is_edge(look: Look) -> bool {
    matches!(look, Look::WordAscii | Look::WordUnicode)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether what stands before this part is at the end of a word, or no word at all.
fn starts_at_edge(hir: &Hir) -> bool {
    at_edge(hir, <[Hir]>::first)
}

/// Whether what stands after this part is at the start of a word, or no word at all.
fn ends_at_edge(hir: &Hir) -> bool {
    at_edge(hir, <[Hir]>::last)
}

fn at_edge(hir: &Hir, outer: fn(&[Hir]) -> Option<&Hir>) -> bool {
    match hir.kind() {
        HirKind::Look(look) => is_edge(*look),
        HirKind::Class(Class::Unicode(class)) => !has_word(class),
        HirKind::Capture(capture) => at_edge(&capture.sub, outer),
        HirKind::Repetition(repetition) => repetition.min > 0 && at_edge(&repetition.sub, outer),
        HirKind::Concat(parts) => outer(parts).is_some_and(|part| at_edge(part, outer)),
        HirKind::Alternation(branches) => branches.iter().all(|branch| at_edge(branch, outer)),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => false,
    }
}

/// Whether an ASCII letter, digit or underscore is among the members.
fn has_word(class: &ClassUnicode) -> bool {
    let ascii = class.iter().take_while(|range| range.start().is_ascii());
    ascii.into_iter().any(|range| {
        let end = range.end().min('\x7f');
        (range.start()..=end).any(is_word)
    })
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
        let of_words = |choice: Option<&Choice>| {
            choice.is_some_and(|choice| choice.chars.iter().all(|c| is_word(*c)))
        };
        Part {
            choices,
            edges: Edges {
                before: self.edges[start] && of_words(choices.first()),
                after: self.edges[end] && of_words(choices.last()),
                first: self.first && start == 0,
            },
        }
    }
}

/// A part of a run that may become literals.
#[derive(Debug, Clone, Copy)]
struct Part<'r> {
    choices: &'r [Choice],
    edges: Edges,
}

impl Part<'_> {
    /// How much rarer its literals are where words begin and end.
    fn discount(&self) -> f64 {
        let Edges { before, after, .. } = self.edges;
        let discount = |edge: bool| if edge { AT_BOUNDARY } else { 1.0 };
        discount(before) * discount(after) * if self.edges.first { AT_START } else { 1.0 }
    }
}

fn cheapest_window(run: Run<'_>) -> Option<Factor> {
    let mut cheapest: Option<(f64, Part<'_>)> = None;
    for start in 0..run.choices.len() {
        for end in worthwhile_ends(run.choices, start) {
            let part = run.part(start, end);
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
fn estimate(run: Part<'_>) -> Option<f64> {
    let mut literal: SmallVec<[u8; 64]> = SmallVec::new();
    let mut variants = 1;
    let mut shortest = 0;
    for choice in run.choices {
        let c = choice.chars.first()?.to_ascii_lowercase();
        literal.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        shortest += choice.chars.iter().map(|c| c.len_utf8()).min()?;
        variants *= choice.chars.len();
    }
    let cost = literal_cost(&literal) * variants as f64 * run.discount();
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

fn window_with(run: Run<'_>, keyword: &[char]) -> Option<Factor> {
    let fits = |choice: &Choice, wanted: &char| {
        let is_wanted = |c: &char| c.to_ascii_lowercase() == *wanted;
        choice.chars.iter().any(is_wanted) && choice.chars.len() <= 3
    };
    let windows = run.choices.windows(keyword.len()).enumerate();
    windows
        .filter(|(_, window)| window.iter().zip(keyword).all(|(c, k)| fits(c, k)))
        .filter_map(|(start, _)| expand(run.part(start, start + keyword.len())))
        .find(|factor| {
            let long_enough = |literal: &Literal| literal.text.len() >= MIN_KEYWORD_BYTES;
            factor.literals.iter().all(long_enough)
        })
}

/// Every text that a run of choices can be, unless there are too many.
fn expand(run: Part<'_>) -> Option<Factor> {
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
    let (mut cost, mut rarity) = (0.0, 0.0);
    for text in &texts {
        let folded = text.to_ascii_lowercase();
        cost += literal_cost(folded.as_bytes());
        rarity += literal_rarity(folded.as_bytes());
    }
    let literals = texts.into_iter().map(|text| Literal {
        text,
        exact,
        starts_word: run.edges.before,
        ends_word: run.edges.after,
        first: run.edges.first,
    });
    Some(Factor {
        literals: literals.collect(),
        cost: cost * run.discount(),
        rarity: rarity * run.discount(),
    })
}

/// How often the filter must look closer because of a literal, per byte of ordinary text, and how much
/// it crowds the filter.
fn literal_cost(literal: &[u8]) -> f64 {
    let crowding = if literal.len() <= WINDOW {
        CROWDING
    } else {
        1.0
    };
    literal_rarity(literal) * crowding
}

/// How often a literal is expected per byte of ordinary text, by its two windows.
fn literal_rarity(literal: &[u8]) -> f64 {
    if literal.len() < MIN_KEYWORD_BYTES {
        return 0.0;
    }
    let windows = windows(literal).map(|at| frequency(literal, at));
    let sum = windows.iter().sum::<f64>();
    // Letters say little of words.
    let is_common = std::str::from_utf8(literal).is_ok_and(|literal| COMMON.contains(literal));
    if is_common {
        (sum * 50.0).max(0.002)
    } else {
        sum
    }
}

/// Words that people use at work all the time, and that attacks are made of too.
const COMMON: &str = "\
    about above access according account action actually address after again agree allow \
    already always answer anything application approve article asked assigned available \
    because before begin behind being below between change check clear click code command \
    company complete confirm contact content context continue correct could create current \
    customer describe design designed detail different direct discuss document does during \
    each email employee ensure enter even every everything exactly example execute expected \
    explain false file final find first follow following format forward from function \
    general give given going good great group handle have help here however important \
    include including information inside instead instruction intended issue keep know known \
    language last later list little login longer look made make manager many maybe meeting \
    mention message method might model more most must name need never new next note nothing \
    number offer office once only open option order other output over page paragraph part \
    people perform person place plan please point policy possible present previous print \
    prior problem process product program project provide question quick read real really \
    reason receive recent regarding release remember reply report request require required \
    response result return review right role rules safety same search secret section \
    security send sentence service several share short should show similar simple since \
    some someone something special specific start state step still stop story such suggest \
    summarise summarize summary support sure system table take task team tell test text \
    than thank that their them then there these they thing think this through time title \
    today together tool total translate true under understand until update user using value \
    version very visit want website week well were what when where which while will with \
    within without word work would write written year your and for are not you all any can \
    her was one our out day get has him his how its may now old see two way who did let put \
    say she too use";

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

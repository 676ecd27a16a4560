//! Whether a match can lie around a literal that announces it.
//!
//! Attacks are made of everyday words, so everyday words announce patterns. What the pattern says of
//! the text right before and right after the literal settles nearly all of these within a word or
//! two. [`Surroundings`] collects that while literals are chosen; [`Screens`] makes one automaton of
//! what stands before the literals of all patterns, and one of what stands after.
//!
//! A screen lets through whatever it is not sure of: it knows bytes, not characters, no boundaries of
//! words, and nothing far away.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use regex_syntax::hir::{
    Class, ClassBytes, ClassBytesRange, ClassUnicodeRange, Hir, HirKind, Look, Repetition,
};

use super::automaton::Reads;
use super::literals::{Choice, Item};
use super::neighbours::{End, Neighbours};
use super::outline::Outline;
use super::spares::Spares;
use super::walk::{Learned, Walk};

/// So many bytes beside a literal say enough.
const ENOUGH_BYTES: usize = 6;

/// So many parts of a pattern do.
const ENOUGH_PARTS: usize = 24;

/// Repetitions up to this many times are followed exactly, longer ones as if they had no end.
const MAX_EXACT: u32 = 3;

/// What may be further away is not looked at.
const MAX_BYTES: usize = 512;

/// What an automaton may take in memory, for each scan at the same time.
const MAX_LEARNED_BYTES: usize = 8 << 20;

/// What a pattern says of the text around a literal.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings<'h> {
    before: Side<'h>,
    after: Side<'h>,
}

impl<'h> Surroundings<'h> {
    /// Goes on with what stands further out.
    pub(super) fn extend(&mut self, before: &[Item<'h>], after: &[Item<'h>]) {
        self.before
            .extend(before.iter().rev(), |[before, _]| before);
        self.after.extend(after.iter(), |[_, after]| after);
    }

    /// What must hold around the literal. Equal outlines are kept once.
    pub(super) fn screen(&self, known: &mut HashSet<Outline>) -> Screen {
        let says_something = |outline: &Hir| min_len(outline) > 0 || has_look(outline);
        let before = Some(self.before.outline(End::Last)).filter(says_something);
        let after = Some(self.after.outline(End::First)).filter(says_something);
        let mut keep = |outline: Hir| {
            let outline = Outline::of(&outline)?;
            if let Some(known) = known.get(&outline) {
                return Some(known.clone());
            }
            known.insert(outline.clone());
            Some(outline)
        };
        Screen {
            neighbours: Neighbours::of(before.as_ref(), after.as_ref()),
            before: before.and_then(&mut keep),
            after: after.and_then(keep),
            before_first: self.before.telling > self.after.telling,
        }
    }

    /// Whether nearly anything can stand around the literal.
    pub(super) fn is_vague(&self) -> bool {
        const TELLING: usize = 2;
        self.before.telling < TELLING && self.after.telling < TELLING
    }

    /// The most bytes of a match that can stand before the literal.
    pub(super) fn max_before(&self) -> Option<usize> {
        self.before.max_len
    }
}

/// What a pattern says of the text on one side of a literal, the nearest first.
#[derive(Debug, Clone)]
struct Side<'h> {
    parts: Vec<Part<'h>>,
    min_len: usize,
    max_len: Option<usize>,
    /// The fewest bytes up to where nearly anything can stand for a while.
    telling: usize,
    has_gap: bool,
}

#[derive(Debug, Clone)]
enum Part<'h> {
    Choice(Choice),
    Hir(&'h Hir),
    /// Any number of rounds of a repetition.
    Rounds(&'h Hir),
}

impl Default for Side<'_> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            min_len: 0,
            max_len: Some(0),
            telling: 0,
            has_gap: false,
        }
    }
}

impl<'h> Side<'h> {
    /// Goes on with these items. Of a repetition that has only one round, the items on this side are
    /// that round, so the ones on the other side are not there.
    fn extend<'i>(
        &mut self,
        mut items: impl Iterator<Item = &'i Item<'h>>,
        the_same: fn([usize; 2]) -> usize,
    ) where
        'h: 'i,
    {
        while let Some(item) = items.next() {
            self.push(item);
            if let Item::Rounds(_, counts) = item
                && let Some(last) = the_same(*counts).checked_sub(1)
            {
                items.nth(last);
            }
        }
    }

    fn push(&mut self, item: &Item<'h>) {
        let (min, max, part) = match item {
            Item::Edge(_) => return,
            Item::Choice(choice) => {
                let lens = || choice.chars.iter().map(|c| c.len_utf8());
                let (min, max) = (lens().min().unwrap_or(0), lens().max());
                (min, max, Part::Choice(choice.clone()))
            }
            Item::Gap(hir, _) => {
                let properties = hir.properties();
                let min = properties.minimum_len().unwrap_or(0);
                (min, properties.maximum_len(), Part::Hir(hir))
            }
            Item::Rounds(hir, _) => (0, hir.properties().maximum_len(), Part::Rounds(hir)),
        };
        self.max_len = self.max_len.zip(max).map(|(sum, max)| sum + max);
        let near = self.max_len.is_some_and(|max| max <= MAX_BYTES);
        if near && self.min_len < ENOUGH_BYTES && self.parts.len() < ENOUGH_PARTS {
            self.parts.push(part);
            self.min_len += min;
        }
        self.has_gap |= match item {
            Item::Gap(hir, _) | Item::Rounds(hir, _) => is_gap(hir),
            Item::Choice(_) | Item::Edge(_) => false,
        };
        if !self.has_gap {
            self.telling += min;
        }
    }

    /// The nearest parts as one expression over bytes, which matches wherever they do, and elsewhere.
    fn outline(&self, end: End) -> Hir {
        let mut outline = Vec::new();
        let mut wanted = ENOUGH_BYTES;
        for part in &self.parts {
            let (part, min) = match part {
                Part::Choice(choice) => (of_choice(choice), 1),
                Part::Hir(hir) => (nearest(hir, wanted, end), min_len(hir)),
                Part::Rounds(hir) => (rounds(hir), 0),
            };
            outline.push(part);
            wanted = wanted.saturating_sub(min);
            if wanted == 0 {
                break;
            }
        }
        end.concat(outline)
    }
}

impl End {
    /// These parts, the nearest first, one after the other.
    fn concat(self, mut parts: Vec<Hir>) -> Hir {
        if let Self::Last = self {
            parts.reverse();
        }
        Hir::concat(parts)
    }
}

fn min_len(hir: &Hir) -> usize {
    hir.properties().minimum_len().unwrap_or(0)
}

/// The outline of an expression, or if that has enough, of the nearest bytes of its matches. What is
/// cut off is certain to be all there is: nothing can follow it.
fn nearest(hir: &Hir, wanted: usize, end: End) -> Hir {
    if min_len(hir) < wanted {
        return outline(hir);
    }
    match hir.kind() {
        HirKind::Literal(literal) => Hir::literal(match end {
            End::First => &literal.0[..wanted],
            End::Last => &literal.0[literal.0.len() - wanted..],
        }),
        HirKind::Capture(capture) => nearest(&capture.sub, wanted, end),
        HirKind::Alternation(parts) => {
            let parts = parts.iter().map(|part| nearest(part, wanted, end));
            Hir::alternation(parts.collect())
        }
        HirKind::Concat(parts) => {
            let (mut all, mut wanted) = (Vec::new(), wanted);
            let mut parts: Vec<&Hir> = parts.iter().collect();
            if let End::Last = end {
                parts.reverse();
            }
            for part in parts {
                all.push(nearest(part, wanted, end));
                wanted = wanted.saturating_sub(min_len(part));
                if wanted == 0 {
                    break;
                }
            }
            end.concat(all)
        }
        HirKind::Repetition(repetition) if min_len(&repetition.sub) >= wanted => {
            nearest(&repetition.sub, wanted, end)
        }
        _ => outline(hir),
    }
}

#[cfg(test)]
impl Surroundings<'_> {
    pub(super) fn outlines(&self) -> [Hir; 2] {
        [
            self.before.outline(End::Last),
            self.after.outline(End::First),
        ]
    }
}

/// What must hold around a literal; `None` is no condition.
#[derive(Debug, Clone, Default)]
pub(super) struct Screen {
    before: Option<Outline>,
    after: Option<Outline>,
    /// Whether what stands after takes longer to decide.
    before_first: bool,
    pub(super) neighbours: Neighbours,
}

fn has_look(hir: &Hir) -> bool {
    !hir.properties().look_set().is_empty()
}

/// Whether nearly anything can stand here for a while.
fn is_gap(hir: &Hir) -> bool {
    /// Of the ASCII characters, more than letters and digits.
    const MANY: usize = 64;
    let HirKind::Repetition(repetition) = hir.kind() else {
        return false;
    };
    match repetition.sub.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            let ascii = class.iter().filter(|range| range.start().is_ascii());
            let len = |range: &ClassUnicodeRange| {
                u32::from(range.end()).min(0x7f) - u32::from(range.start()) + 1
            };
            ascii.map(len).sum::<u32>() as usize > MANY
        }
        _ => false,
    }
}

/// The screens of many patterns.
#[derive(Default)]
pub(super) struct Screens {
    before: Outlines,
    after: Outlines,
    /// Made when first needed: most environments of a pack never are.
    automata: OnceLock<Option<Automata>>,
    /// What earlier scans have learned.
    spare: Spares<Memory>,
}

/// Different outlines, and where each is.
#[derive(Default)]
struct Outlines(HashMap<Outline, u16>);

impl Outlines {
    fn add(&mut self, outline: Option<&Outline>) -> Option<u16> {
        let outline = outline?;
        if let Some(number) = self.0.get(outline) {
            return Some(*number);
        }
        let number = u16::try_from(self.0.len()).ok()?;
        self.0.insert(outline.clone(), number);
        Some(number)
    }

    /// All of them by their numbers.
    fn read(&self) -> Vec<Hir> {
        let mut all: Vec<(&Outline, &u16)> = self.0.iter().collect();
        all.sort_unstable_by_key(|(_, number)| **number);
        all.into_iter().map(|(outline, _)| outline.read()).collect()
    }
}

/// A screen by its numbers: what must hold, in the order in which it is looked at. Without a first there is no second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ScreenId {
    first: Option<Condition>,
    second: Option<Condition>,
}

/// What stands on a side of the literal must be as an outline has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    side: Beside,
    outline: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Before,
    After,
}

struct Automata {
    before: Walk,
    after: Walk,
}

/// What one scan learns of the automata.
struct Memory {
    before: Learned,
    after: Learned,
}

impl Screens {
    pub(super) fn add(&mut self, screen: &Screen) -> ScreenId {
        let condition = |side, outline: Option<u16>| Some(side).zip(outline);
        let before = condition(Beside::Before, self.before.add(screen.before.as_ref()));
        let after = condition(Beside::After, self.after.add(screen.after.as_ref()));
        // Whichever is likely to be settled sooner goes first.
        let order = if screen.before_first {
            [before, after]
        } else {
            [after, before]
        };
        let in_order = order.into_iter().flatten();
        let mut conditions = in_order.map(|(side, outline)| Condition { side, outline });
        ScreenId {
            first: conditions.next(),
            second: conditions.next(),
        }
    }

    /// Makes the automata, if there are none yet. If they would be too large, nothing is screened.
    pub(super) fn warm(&self) {
        self.automata();
    }

    fn automata(&self) -> Option<&Automata> {
        let walk = |outlines: &Outlines, reads| {
            Walk::new(&outlines.read(), reads, MAX_LEARNED_BYTES, MAX_BYTES)
        };
        let make = || {
            Some(Automata {
                before: walk(&self.before, Reads::Backwards)?,
                after: walk(&self.after, Reads::Forwards)?,
            })
        };
        self.automata.get_or_init(make).as_ref()
    }

    /// What one scan needs to ask.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            screens: self,
            asked: None,
        }
    }

    fn memory(&self, automata: &Automata) -> Box<Memory> {
        self.spare.take_or(|| Memory {
            before: automata.before.learned(),
            after: automata.after.learned(),
        })
    }
}

impl fmt::Debug for Screens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screens")
            .field("before", &self.before.0.len())
            .field("after", &self.after.0.len())
            .finish_non_exhaustive()
    }
}

/// Asks the screens during one scan.
pub(super) struct Reader<'s> {
    screens: &'s Screens,
    /// What is asked, once somebody has asked.
    asked: Option<(&'s Automata, Box<Memory>)>,
}

impl Reader<'_> {
    /// Whether a match with this screen can have its literal here.
    #[inline(never)]
    pub(super) fn lets_through(&mut self, id: ScreenId, text: &[u8], at: &Range<usize>) -> bool {
        let (mut condition, mut then) = (id.first, id.second);
        if condition.is_none() {
            return true;
        }
        if self.asked.is_none() {
            self.begin();
        }
        let Some((automata, memory)) = &mut self.asked else {
            return true;
        };
        while let Some(Condition { side, outline }) = condition {
            let (walk, learned, beside) = match side {
                Beside::Before => (&automata.before, &mut memory.before, &text[..at.start]),
                Beside::After => (&automata.after, &mut memory.after, &text[at.end..]),
            };
            if !walk.may_go_on(learned, outline, beside) {
                return false;
            }
            condition = then.take();
        }
        true
    }

    #[cold]
    fn begin(&mut self) {
        let screens = self.screens;
        let automata = screens.automata();
        self.asked = automata.map(|automata| (automata, screens.memory(automata)));
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Some((_, memory)) = self.asked.take() {
            self.screens.spare.keep(memory);
        }
    }
}

fn of_choice(choice: &Choice) -> Hir {
    let mut class = ClassBytes::empty();
    let mut other = false;
    for c in &choice.chars {
        match u8::try_from(*c) {
            Ok(byte) if byte.is_ascii() => {
                class.push(ClassBytesRange::new(byte, byte));
                if !choice.exact {
                    let upper = byte.to_ascii_uppercase();
                    class.push(ClassBytesRange::new(upper, upper));
                }
            }
            _ => other = true,
        }
    }
    of_bytes(class, other)
}

/// One of these ASCII characters, or if `other` is set, any other character.
fn of_bytes(class: ClassBytes, other: bool) -> Hir {
    let ascii = Hir::class(Class::Bytes(class));
    if !other {
        return ascii;
    }
    let bytes = ClassBytes::new([ClassBytesRange::new(0x80, 0xff)]);
    let other = Hir::repetition(Repetition {
        min: 1,
        max: None,
        greedy: true,
        sub: Box::new(Hir::class(Class::Bytes(bytes))),
    });
    Hir::alternation(vec![ascii, other])
}

fn rounds(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            min: 0,
            max: None,
            greedy: true,
            sub: Box::new(outline(&repetition.sub)),
        }),
        _ => Hir::empty(),
    }
}

/// What matches wherever an expression does, in few states.
fn outline(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(outline).collect();
    match hir.kind() {
        HirKind::Look(Look::Start | Look::End)
        | HirKind::Literal(_)
        | HirKind::Class(Class::Bytes(_)) => hir.clone(),
        HirKind::Empty | HirKind::Look(_) => Hir::empty(),
        HirKind::Class(Class::Unicode(class)) => {
            let mut ascii = ClassBytes::empty();
            let mut other = false;
            for range in class.iter() {
                let (start, end) = (u32::from(range.start()), u32::from(range.end()));
                other |= end > 0x7f;
                if start <= 0x7f {
                    ascii.push(ClassBytesRange::new(start as u8, end.min(0x7f) as u8));
                }
            }
            of_bytes(ascii, other)
        }
        HirKind::Capture(capture) => outline(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            min: repetition.min.min(MAX_EXACT),
            max: repetition.max.filter(|max| *max <= MAX_EXACT),
            greedy: true,
            sub: Box::new(outline(&repetition.sub)),
        }),
    }
}

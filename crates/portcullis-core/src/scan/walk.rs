//! Whether a text goes on as an outline has it: an automaton whose states are made as they are needed.
//!
//! A few bytes settle nearly every question, so getting ready must take no time, and a byte no more than a look into one
//! table. What it reads is always beside a literal: the beginning of the text is never where it begins.
//!
//! Rejected: `hybrid::dfa::DFA`, whose start depends on the byte before, and which says of a match one byte later: half as
//! many instructions again for the same bytes.

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::PatternID;
use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

use super::automaton::{self, Reads};

/// What a state may lead to besides others: nobody knows yet, no match, and a match. States are known by where their row of the
/// table begins, which is behind these.
const UNKNOWN: u32 = 0;
const NO: u32 = 1;
const YES: u32 = 2;

/// What else it takes to keep a state, in bytes.
const BESIDES: usize = 64;

/// So many bytes settle nearly everything.
const NEAREST: usize = 16;

/// An automaton for many outlines.
pub(super) struct Walk {
    nfa: NFA,
    reads: Reads,
    /// Bytes of one class lead to the same.
    classes: [u8; 256],
    /// How long a row of the table is.
    row: usize,
    /// What it may learn, roughly.
    max_bytes: usize,
    /// How far it goes. What is further away is not looked at.
    far: usize,
}

/// What walks have learned.
pub(super) struct Learned {
    /// Where each outline begins.
    starts: Box<[u32]>,
    /// For each state and class, what comes next.
    next: Vec<u32>,
    /// What of the NFA each state is. The first row is nobody's.
    sets: Vec<Arc<[StateID]>>,
    rows: HashMap<Arc<[StateID]>, u32>,
    bytes: usize,
    reached: Reached,
}

/// States of the NFA that are reached at once.
struct Reached {
    /// Those from which bytes or the end of the text lead on.
    set: Vec<StateID>,
    seen: Vec<StateID>,
    /// A bit for each state that has been seen.
    bits: Box<[u64]>,
    is_match: bool,
}

impl Walk {
    /// For outlines by their numbers, with so many bytes for what each scan learns. `None` if it would be too large.
    pub(super) fn new(
        outlines: &[Hir],
        reads: Reads,
        max_bytes: usize,
        far: usize,
    ) -> Option<Self> {
        let nfa = automaton::nfa(outlines, reads)?;
        let classes = nfa.byte_classes();
        Some(Self {
            classes: std::array::from_fn(|byte| classes.get(byte as u8)),
            row: classes.alphabet_len().max(YES as usize + 1),
            nfa,
            reads,
            max_bytes,
            far,
        })
    }

    /// Nothing yet.
    pub(super) fn learned(&self) -> Learned {
        Learned {
            starts: vec![UNKNOWN; self.nfa.pattern_len()].into(),
            next: vec![UNKNOWN; self.row],
            sets: vec![Arc::default()],
            rows: HashMap::new(),
            bytes: 0,
            reached: Reached {
                set: Vec::new(),
                seen: Vec::new(),
                bits: vec![0; self.nfa.states().len().div_ceil(u64::BITS as usize)].into(),
                is_match: false,
            },
        }
    }

    /// Whether what stands on this side of a literal, all of it, may be as an outline has it.
    #[inline]
    pub(super) fn may_go_on(&self, learned: &mut Learned, outline: u16, beside: &[u8]) -> bool {
        match self.soon(learned, outline, beside) {
            YES => true,
            NO => false,
            _ => self.in_the_end(learned, outline, beside),
        }
    }

    /// Where the nearest bytes lead, as far as that is known.
    #[inline]
    fn soon(&self, learned: &Learned, outline: u16, beside: &[u8]) -> u32 {
        let nearest: Option<&[u8; NEAREST]> = match self.reads {
            Reads::Forwards => beside.first_chunk(),
            Reads::Backwards => beside.last_chunk(),
        };
        let Some(nearest) = nearest else {
            return UNKNOWN;
        };
        let start = learned.starts[usize::from(outline)];
        match self.reads {
            Reads::Forwards => self.follow(&learned.next, start, nearest.iter()),
            Reads::Backwards => self.follow(&learned.next, start, nearest.iter().rev()),
        }
    }

    #[inline]
    fn follow<'t>(&self, table: &[u32], mut at: u32, near: impl Iterator<Item = &'t u8>) -> u32 {
        for byte in near {
            if at <= YES {
                break;
            }
            let class = self.classes[usize::from(*byte)];
            at = table[at as usize + usize::from(class)];
        }
        at
    }

    /// The same, however long it takes.
    #[cold]
    #[inline(never)]
    fn in_the_end(&self, learned: &mut Learned, outline: u16, beside: &[u8]) -> bool {
        let is_all = beside.len() <= self.far;
        match self.reads {
            Reads::Forwards => self.read(learned, outline, beside.iter().take(self.far), is_all),
            Reads::Backwards => {
                let near = beside.iter().rev().take(self.far);
                self.read(learned, outline, near, is_all)
            }
        }
    }

    /// Whether a text that begins like this may go on as an outline has it. `is_all` says whether nothing follows.
    fn read<'t>(
        &self,
        learned: &mut Learned,
        outline: u16,
        mut near: impl Iterator<Item = &'t u8>,
        is_all: bool,
    ) -> bool {
        let mut at = learned.starts[usize::from(outline)];
        if at == UNKNOWN {
            at = self.begin(learned, outline);
        }
        while at > YES {
            let Some(byte) = near.next() else {
                return !is_all || self.may_end(learned, at);
            };
            let class = self.classes[usize::from(*byte)];
            at = match learned.next[at as usize + usize::from(class)] {
                UNKNOWN => self.learn(learned, at, *byte),
                next => next,
            };
        }
        at == YES
    }

    #[cold]
    #[inline(never)]
    fn begin(&self, learned: &mut Learned, outline: u16) -> u32 {
        let reached = &mut learned.reached;
        reached.clear();
        let start = PatternID::new(usize::from(outline)).ok();
        if let Some(start) = start.and_then(|outline| self.nfa.start_pattern(outline)) {
            reached.add(&self.nfa, start, false);
        }
        let (row, _) = self.row_of_reached(learned);
        learned.starts[usize::from(outline)] = row;
        row
    }

    /// What a byte leads to.
    #[cold]
    #[inline(never)]
    fn learn(&self, learned: &mut Learned, at: u32, byte: u8) -> u32 {
        let reached = &mut learned.reached;
        reached.clear();
        for state in &*learned.sets[at as usize / self.row] {
            let next = match self.nfa.state(*state) {
                State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
                State::Sparse(transitions) => transitions.matches_byte(byte),
                State::Dense(transitions) => transitions.matches_byte(byte),
                _ => None,
            };
            if let Some(next) = next {
                reached.add(&self.nfa, next, false);
            }
        }
        let (next, forgot) = self.row_of_reached(learned);
        if !forgot {
            learned.next[at as usize + usize::from(self.classes[usize::from(byte)])] = next;
        }
        next
    }

    /// Whether the text may end here.
    #[cold]
    #[inline(never)]
    fn may_end(&self, learned: &mut Learned, at: u32) -> bool {
        let reached = &mut learned.reached;
        reached.clear();
        for state in &*learned.sets[at as usize / self.row] {
            if let State::Look { next, .. } = self.nfa.state(*state) {
                reached.add(&self.nfa, *next, true);
            }
        }
        reached.is_match
    }

    /// The row of what has been reached, and whether all others had to be forgotten for it.
    fn row_of_reached(&self, learned: &mut Learned) -> (u32, bool) {
        let reached = &mut learned.reached;
        if reached.is_match || reached.set.is_empty() {
            return (if reached.is_match { YES } else { NO }, false);
        }
        reached.set.sort_unstable();
        if let Some(row) = learned.rows.get(&*reached.set) {
            return (*row, false);
        }
        let set: Arc<[StateID]> = Arc::from(&*reached.set);
        let bytes = self.row * size_of::<u32>() + size_of_val(&*set) + BESIDES;
        let forgets = learned.bytes + bytes > self.max_bytes;
        if forgets {
            learned.forget(self.row);
        }
        learned.bytes += bytes;
        let row = learned.next.len() as u32;
        learned.next.resize(learned.next.len() + self.row, UNKNOWN);
        learned.sets.push(Arc::clone(&set));
        learned.rows.insert(set, row);
        (row, forgets)
    }
}

impl Learned {
    fn forget(&mut self, row: usize) {
        self.starts.fill(UNKNOWN);
        self.next.truncate(row);
        self.sets.truncate(1);
        self.rows.clear();
        self.bytes = 0;
    }
}

impl Reached {
    fn clear(&mut self) {
        for state in self.seen.drain(..) {
            self.bits[state.as_usize() / u64::BITS as usize] = 0;
        }
        self.set.clear();
        self.is_match = false;
    }

    /// Adds a state and all that it is without reading anything. At the end of the text that may be more.
    fn add(&mut self, nfa: &NFA, state: StateID, at_end: bool) {
        let first = self.seen.len();
        self.see(state);
        let mut place = first;
        while let Some(state) = self.seen.get(place).copied() {
            place += 1;
            match nfa.state(state) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => {
                    self.set.push(state);
                }
                State::Look { look, next } => match look {
                    Look::End if at_end => self.see(*next),
                    Look::End => self.set.push(state),
                    _ => {}
                },
                State::Union { alternates } => alternates.iter().for_each(|next| self.see(*next)),
                State::BinaryUnion { alt1, alt2 } => {
                    self.see(*alt1);
                    self.see(*alt2);
                }
                State::Capture { next, .. } => self.see(*next),
                State::Fail => {}
                State::Match { .. } => self.is_match = true,
            }
        }
    }

    fn see(&mut self, state: StateID) {
        let (word, bit) = (
            state.as_usize() / u64::BITS as usize,
            1 << (state.as_usize() % u64::BITS as usize),
        );
        if self.bits[word] & bit == 0 {
            self.bits[word] |= bit;
            self.seen.push(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_automata::Input;
    use regex_automata::meta::{Config, Regex};

    use super::super::neighbours::tests::outline;
    use super::*;

    fn regex(parts: Vec<Hir>) -> Regex {
        Regex::builder()
            .configure(Config::new().utf8_empty(false))
            .build_from_hir(&Hir::concat(parts))
            .unwrap()
    }

    proptest! {
        /// It lets through exactly what matches in all of a text, and of a part of it whatever may still match: however much
        /// it knows, and however often it has to forget.
        #[test]
        fn a_text_goes_on_as_an_outline_if_it_matches(
            outlines in prop::collection::vec((outline(), any::<bool>()), 1..4),
            texts in prop::collection::vec("[abc. \n]{0,24}", 1..12),
            max_bytes in prop::sample::select(vec![0, 500, usize::MAX]),
        ) {
            let at = |look: Look, bounded: bool| match (look, bounded) {
                (_, false) => Hir::empty(),
                (Look::Start, true) => Hir::look(regex_syntax::hir::Look::Start),
                (_, true) => Hir::look(regex_syntax::hir::Look::End),
            };
            let afters: Vec<Hir> = outlines.iter().map(|(outline, bounded)| {
                Hir::concat(vec![outline.clone(), at(Look::End, *bounded)])
            }).collect();
            let befores: Vec<Hir> = outlines.iter().map(|(outline, bounded)| {
                Hir::concat(vec![at(Look::Start, *bounded), outline.clone()])
            }).collect();
            for far in [3, usize::MAX] {
                let after = Walk::new(&afters, Reads::Forwards, max_bytes, far).unwrap();
                let before = Walk::new(&befores, Reads::Backwards, max_bytes, far).unwrap();
                let (mut after_learned, mut before_learned) = (after.learned(), before.learned());
                // The second time it is known.
                for text in texts.iter().chain(&texts) {
                    let text = text.as_bytes();
                    for number in 0..outlines.len() {
                        let outline = number as u16;
                        let input = Input::new(text).anchored(regex_automata::Anchored::Yes);
                        let matches = regex(vec![afters[number].clone()]).is_match(input);
                        let may = after.may_go_on(&mut after_learned, outline, text);
                        prop_assert!(may || !matches);
                        prop_assert!(may == matches || text.len() > far);

                        let end = Hir::look(regex_syntax::hir::Look::End);
                        let matches = regex(vec![befores[number].clone(), end]).is_match(text);
                        let may = before.may_go_on(&mut before_learned, outline, text);
                        prop_assert!(may || !matches);
                        prop_assert!(may == matches || text.len() > far);
                    }
                }
            }
        }
    }
}

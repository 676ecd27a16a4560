//! Automata that are built as they are used.

use std::borrow::Borrow;

use regex_automata::MatchKind;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_syntax::hir::Hir;

/// Which way an automaton reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    Forwards,
    Backwards,
}

/// One that finds all matches of these expressions, of any of them or of one, and takes no more than so
/// many bytes for what it learns. `None` if it would be too large.
pub(super) fn lazy<H: Borrow<Hir>>(
    expressions: &[H],
    reads: Reads,
    max_cache_bytes: usize,
) -> Option<DFA> {
    let config = DFA::config()
        .match_kind(MatchKind::All)
        .starts_for_each_pattern(true)
        .cache_capacity(max_cache_bytes)
        .skip_cache_capacity_check(true);
    DFA::builder()
        .configure(config)
        .build_from_nfa(nfa(expressions, reads)?)
        .ok()
}

/// What such an automaton is made of.
pub(super) fn nfa<H: Borrow<Hir>>(expressions: &[H], reads: Reads) -> Option<NFA> {
    let config = thompson::Config::new()
        .utf8(false)
        .reverse(reads == Reads::Backwards)
        .which_captures(WhichCaptures::None);
    thompson::Compiler::new()
        .configure(config)
        .build_many_from_hir(expressions)
        .ok()
}

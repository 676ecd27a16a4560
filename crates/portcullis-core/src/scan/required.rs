//! Patterns that no literal announces, but what they require does.
//!
//! Numbers of all kinds look alike: where there are digits, dozens of patterns may match. One automaton
//! for all of them says which do, and only those are searched for.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Input, PatternID, PatternSet};

use super::automaton::{self, Reads};
use super::pattern::Pattern;
use super::spares::Spares;
use super::{Features, PatternId, Requirement};

/// The automaton is for patterns whose matches are no longer: it looks so far around every spot.
const NEAR: usize = 256;

/// What an automaton may take in memory, for each scan at the same time.
const MAX_CACHE_BYTES: usize = 4 << 20;

/// The patterns that require the same.
pub(super) struct Required {
    requirement: Requirement,
    patterns: Vec<(PatternId, Arc<Pattern>)>,
    /// How long a match of any of them can be; `None` if that is long.
    max_len: Option<usize>,
    /// One for all patterns, made when first needed; `None` if it would be too large.
    automaton: OnceLock<Option<DFA>>,
    /// What earlier scans have learned.
    spare: Spares<Cache>,
}

impl Required {
    /// Groups those patterns that are announced by what they require.
    pub(super) fn groups(patterns: &[Arc<Pattern>]) -> Vec<Self> {
        let near = |pattern: &Pattern| {
            let max_len = pattern.max_len().filter(|max| *max <= NEAR);
            // A long branch may be one that finds nothing.
            max_len.or_else(|| {
                let max_len = pattern.finding_hir().properties().maximum_len();
                max_len.filter(|max| *max <= NEAR)
            })
        };
        let mut groups = Vec::new();
        for requirement in Requirement::ALL {
            let those = patterns.iter().zip(0..).filter_map(|(pattern, index)| {
                let here = pattern.requirement() == Some(requirement);
                here.then(|| (PatternId(index), Arc::clone(pattern)))
            });
            let (close, far): (Vec<_>, Vec<_>) =
                those.partition(|(_, pattern)| near(pattern).is_some());
            let max_len = close.iter().filter_map(|(_, pattern)| near(pattern)).max();
            for (patterns, max_len) in [(close, max_len), (far, None)] {
                groups.extend((!patterns.is_empty()).then(|| Self {
                    requirement,
                    patterns,
                    max_len,
                    automaton: OnceLock::new(),
                    spare: Spares::default(),
                }));
            }
        }
        groups
    }

    pub(super) fn feature(&self) -> Features {
        self.requirement.feature()
    }

    /// Notes the patterns that may match a text with these features, and where.
    pub(super) fn look(
        &self,
        text: &str,
        features: Features,
        wanted: impl Fn(PatternId) -> bool,
        mut note: impl FnMut(PatternId, Range<usize>),
    ) {
        if !self.patterns.iter().any(|(id, _)| wanted(*id)) {
            return;
        }
        let automaton = self.max_len.and_then(|_| self.automaton());
        let mut cache = automaton.map(|automaton| self.spare.take_or(|| automaton.create_cache()));
        let mut matching = PatternSet::new(self.patterns.len());
        self.requirement.spots(text.as_bytes(), features, |spot| {
            let around = self.max_len.map(|max| {
                let start = text.floor_char_boundary(spot.start.saturating_sub(max));
                start..text.len().min(spot.end + max)
            });
            matching.clear();
            let known = match (automaton, &mut cache, around) {
                (Some(automaton), Some(cache), Some(around)) => {
                    let input = Input::new(text).range(around);
                    let told =
                        automaton.try_which_overlapping_matches(cache, &input, &mut matching);
                    told.is_ok().then_some(&matching)
                }
                _ => None,
            };
            for (index, (id, pattern)) in self.patterns.iter().enumerate() {
                let may_match = known.is_none_or(|known| known.contains(PatternID::must(index)));
                if may_match && wanted(*id) {
                    let start = match pattern.max_len() {
                        Some(max) => text.floor_char_boundary(spot.start.saturating_sub(max)),
                        None => 0,
                    };
                    note(*id, start..spot.end);
                }
            }
        });
        if let Some(cache) = cache {
            self.spare.keep(cache);
        }
    }

    fn automaton(&self) -> Option<&DFA> {
        let make = || {
            let rough = self
                .patterns
                .iter()
                .map(|(_, pattern)| pattern.finding_hir());
            automaton::lazy(&rough.collect::<Vec<_>>(), Reads::Forwards, MAX_CACHE_BYTES)
        };
        self.automaton.get_or_init(make).as_ref()
    }

    pub(super) fn warm(&self) {
        if self.max_len.is_some() {
            self.automaton();
        }
    }
}

impl fmt::Debug for Required {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Required")
            .field("requirement", &self.requirement)
            .field("patterns", &self.patterns.len())
            .finish_non_exhaustive()
    }
}

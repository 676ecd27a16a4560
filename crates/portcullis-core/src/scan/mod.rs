//! One scan for every pattern of a policy.
//!
//! Each pattern is reduced to a few literals of which any match must contain one ([`literals`]).
//! A filter over four-byte windows ([`filter`]) finds the literals of all patterns in one pass whose
//! cost hardly depends on how many there are, and names the patterns that *may* match. Only those
//! run their regular expression. Ordinary text names none, so the common case is that one pass and
//! nothing else: no allocation, linear time.
//!
//! Rejected: `RegexSet` or one automaton over all patterns (0.45 GB/s here, and growing with the set);
//! Aho–Corasick over the literals (each byte waits for the one before it); Teddy (64 literals at most).

mod features;
mod filter;
mod literals;
mod pattern;
mod prefix;
mod requirement;

use std::ops::Range;

use smallvec::SmallVec;

use crate::detectors::Check;
use crate::event::EventType;
pub use features::Features;
use filter::LiteralFilter;
pub use literals::MIN_KEYWORD_BYTES;
pub use pattern::PatternError;
pub(crate) use pattern::compile;
use pattern::{Found, Pattern};
pub(crate) use prefix::{Memory, Prefixes};
pub use requirement::Requirement;

/// What to look for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PatternSpec<'a> {
    /// A regular expression; `\s` and `\w` are Python's. Its group `value`, or else the whole match,
    /// is what is found.
    pub regex: &'a str,
    /// Whether case is ignored, as Python's `re.IGNORECASE`.
    pub ignore_case: bool,
    /// Literals of which every match contains one; empty to have them worked out.
    pub keywords: &'a [String],
    /// What a match must contain besides.
    pub requires: Option<Requirement>,
    /// What the value must satisfy.
    pub checks: &'a [Check],
    /// Whether it is known to compile, so that it need not be compiled before it is needed.
    pub built_in: bool,
    /// Whether to look for it without its white space and word boundaries, in a text that has none.
    pub unspaced: bool,
}

/// A set of event types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventSet {
    /// A bit for each type that has a name here, and [`ANY`].
    named: u8,
    /// Sorted, so that the order in which a pack names them makes no difference.
    other: Vec<Box<str>>,
}

/// The bit that stands for every type, the embedder's own included.
const ANY: u8 = 1 << 7;

impl EventSet {
    /// The four standard stages.
    pub fn standard() -> Self {
        EventType::STANDARD.into_iter().collect()
    }

    /// Every type there is or will be.
    pub fn any() -> Self {
        Self {
            named: u8::MAX,
            other: Vec::new(),
        }
    }

    /// Whether the set has this type.
    pub fn contains(&self, event_type: &EventType) -> bool {
        if self.named & ANY != 0 {
            return true;
        }
        match named_bit(event_type) {
            Some(bit) => self.named & bit != 0,
            None => self.other.iter().any(|name| **name == *event_type.as_str()),
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.named == 0 && self.other.is_empty()
    }

    /// The members' names, our own first.
    pub fn names(&self) -> Vec<&str> {
        const NAMED: &[EventType] = &EventType::NAMED;
        let mut names: Vec<&str> = NAMED
            .iter()
            .filter(|named| self.contains(named))
            .map(EventType::as_str)
            .collect();
        names.extend(self.other.iter().map(|name| &**name));
        names
    }

    /// Adds all members of another set.
    pub fn extend(&mut self, other: &Self) {
        self.named |= other.named;
        for name in &other.other {
            self.insert(name.clone());
        }
    }

    fn insert(&mut self, name: Box<str>) {
        if let Err(place) = self.other.binary_search(&name) {
            self.other.insert(place, name);
        }
    }
}

impl FromIterator<EventType> for EventSet {
    fn from_iter<I: IntoIterator<Item = EventType>>(types: I) -> Self {
        let mut set = Self::default();
        for event_type in types {
            match (named_bit(&event_type), event_type) {
                (Some(bit), _) => set.named |= bit,
                (None, EventType::Other(name)) => set.insert(name),
                (None, _) => {}
            }
        }
        set
    }
}

fn named_bit(event_type: &EventType) -> Option<u8> {
    Some(match event_type {
        EventType::LlmBefore => 1,
        EventType::ToolCallStart => 2,
        EventType::ToolCallResult => 4,
        EventType::LlmStreamChunk => 8,
        EventType::ToolDefinitions => 16,
        EventType::Other(_) => return None,
    })
}

/// A pattern of a [`Scanner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternId(u16);

/// Collects patterns, then becomes a [`Scanner`].
#[derive(Debug, Default)]
pub struct ScannerBuilder {
    patterns: Vec<Pattern>,
    events: Vec<EventSet>,
}

impl ScannerBuilder {
    /// Adds a pattern that events of these types are searched for. The same pattern asked for twice
    /// is searched for once.
    pub fn add(
        &mut self,
        spec: &PatternSpec<'_>,
        events: &EventSet,
    ) -> Result<PatternId, PatternError> {
        let known = self.patterns.iter().position(|known| known.is(spec));
        let index = match known {
            Some(index) => {
                self.events[index].extend(events);
                index
            }
            None => {
                self.patterns.push(Pattern::new(spec)?);
                self.events.push(events.clone());
                self.patterns.len() - 1
            }
        };
        u16::try_from(index)
            .map(PatternId)
            .map_err(|_| PatternError::TooMany(usize::from(u16::MAX)))
    }

    /// Whether nothing announces the pattern, so that it runs on every text.
    pub fn is_unfiltered(&self, id: PatternId) -> bool {
        self.patterns[usize::from(id.0)].is_unfiltered()
    }

    /// The fewest bytes that a match of the pattern has.
    pub(crate) fn min_len(&self, id: PatternId) -> usize {
        let properties = self.patterns[usize::from(id.0)].hir().properties();
        properties.minimum_len().unwrap_or(0)
    }

    /// Compiles the filter.
    pub fn build(self) -> Scanner {
        let literals = self.patterns.iter().map(Pattern::literals);
        let filter = LiteralFilter::new(literals);
        let unfiltered = self
            .patterns
            .iter()
            .enumerate()
            .filter(|(_, pattern)| pattern.is_unfiltered())
            .map(|(index, _)| PatternId(index as u16))
            .collect();
        let required: Vec<(Requirement, PatternId)> = self
            .patterns
            .iter()
            .enumerate()
            .filter_map(|(index, pattern)| Some((pattern.requirement()?, PatternId(index as u16))))
            .collect();
        let requirements = required.iter().fold(Features::default(), |all, (one, _)| {
            all.union(one.feature())
        });
        Scanner {
            filter,
            patterns: self.patterns,
            events: self.events,
            unfiltered,
            required,
            requirements,
        }
    }
}

/// All patterns of a policy, ready to be searched for at once.
#[derive(Debug)]
pub struct Scanner {
    filter: LiteralFilter,
    patterns: Vec<Pattern>,
    events: Vec<EventSet>,
    /// Patterns that nothing announces: they run on every text.
    unfiltered: Vec<PatternId>,
    /// Patterns that are announced by what they require.
    required: Vec<(Requirement, PatternId)>,
    /// All that they require.
    requirements: Features,
}

impl Scanner {
    /// How many patterns there are.
    pub fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The patterns that nothing announces, as they were written. Each costs a run over every text.
    pub fn unfiltered(&self) -> impl Iterator<Item = &str> {
        self.unfiltered
            .iter()
            .map(|id| self.patterns[usize::from(id.0)].source())
    }

    /// Which patterns may match this text.
    pub fn scan(&self, text: &str, event_type: &EventType) -> Candidates {
        let features = if self.uses_features() {
            Features::of(text)
        } else {
            Features::default()
        };
        self.scan_with(text, features, event_type)
    }

    /// Whether some pattern is announced by what it requires.
    pub(crate) fn uses_features(&self) -> bool {
        !self.required.is_empty()
    }

    /// Which patterns may match a text that has these features. One pass.
    pub(crate) fn scan_with(
        &self,
        text: &str,
        features: Features,
        event_type: &EventType,
    ) -> Candidates {
        let mut candidates = Candidates::none(self.patterns.len());
        for id in &self.unfiltered {
            candidates.insert(*id);
        }
        if features.intersects(self.requirements) {
            for (requirement, id) in &self.required {
                if features.contains(requirement.feature()) {
                    candidates.insert(*id);
                }
            }
        }
        self.filter.scan(text.as_bytes(), |pattern| {
            candidates.insert(PatternId(pattern));
        });
        candidates.retain(|id| self.events[usize::from(id.0)].contains(event_type));
        candidates
    }

    /// The first value that a pattern finds.
    pub fn find(&self, id: PatternId, text: &str) -> Option<Range<usize>> {
        self.patterns[usize::from(id.0)].find(text)
    }

    /// How long a match of a pattern can be, if that is known.
    pub(crate) fn max_len(&self, id: PatternId) -> Option<usize> {
        let hir = self.patterns[usize::from(id.0)].hir();
        hir.properties().maximum_len()
    }

    /// Where matches of these patterns begin that a text does not yet decide.
    pub(crate) fn prefixes(&self, ids: &[PatternId]) -> Prefixes {
        Prefixes::new(ids.iter().map(|id| self.patterns[usize::from(id.0)].hir()))
    }

    /// Every match of a pattern in this part of the text, in order, whether its value counts or not.
    pub(crate) fn each_match(
        &self,
        id: PatternId,
        text: &str,
        window: Range<usize>,
        found: impl FnMut(Found),
    ) {
        self.patterns[usize::from(id.0)].each(text, window, found);
    }

    /// All values that a pattern finds in this part of the text, in order. What stands around it is
    /// only looked at for word boundaries.
    pub fn find_all(
        &self,
        id: PatternId,
        text: &str,
        window: Range<usize>,
        mut found: impl FnMut(Range<usize>),
    ) {
        self.each_match(id, text, window, |one| {
            if let Some(value) = one.value {
                found(value);
            }
        });
    }
}

/// The patterns that may match a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates(SmallVec<[u64; 8]>);

impl Candidates {
    fn none(patterns: usize) -> Self {
        Self(SmallVec::from_elem(0, patterns.div_ceil(64)))
    }

    #[inline]
    fn insert(&mut self, id: PatternId) {
        self.0[usize::from(id.0 / 64)] |= 1 << (id.0 % 64);
    }

    /// Whether this pattern may match.
    #[inline]
    pub fn contains(&self, id: PatternId) -> bool {
        self.0[usize::from(id.0 / 64)] & (1 << (id.0 % 64)) != 0
    }

    /// Whether no pattern can match.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn retain(&mut self, keep: impl Fn(PatternId) -> bool) {
        for (index, word) in self.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                if !keep(PatternId((index * 64) as u16 + bit as u16)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! One scan for every pattern of a policy.
//!
//! Each pattern is reduced to a few sets of literals, of each of which any match must contain one
//! ([`literals`]). A filter over four-byte windows ([`filter`]) finds the literals of all patterns in
//! one pass whose cost hardly depends on how many there are. Patterns of which every set is seen
//! within two neighbouring blocks *may* match there, and only those run their regular expression, and
//! only there. Ordinary text names none, so the common case is that one pass and nothing else: no
//! allocation, linear time.
//!
//! Rejected: `RegexSet` or one automaton over all patterns (0.45 GB/s here, and growing with the set);
//! Aho–Corasick over the literals (each byte waits for the one before it); Teddy (64 literals at most).

mod features;
mod filter;
mod literals;
mod pattern;
mod prefix;
mod requirement;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::detectors::Check;
use crate::event::EventType;
pub use features::Features;
use filter::LiteralFilter;
use literals::Literal;
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
    /// A bit for each standard type, and [`ANY`].
    standard: u8,
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
            standard: u8::MAX,
            other: Vec::new(),
        }
    }

    /// Whether the set has this type.
    pub fn contains(&self, event_type: &EventType) -> bool {
        if self.standard & ANY != 0 {
            return true;
        }
        match standard_bit(event_type) {
            Some(bit) => self.standard & bit != 0,
            None => self.other.iter().any(|name| **name == *event_type.as_str()),
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.standard == 0 && self.other.is_empty()
    }

    /// The members' names, standard ones first.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = STANDARD_NAMES
            .into_iter()
            .filter(|name| self.contains(&EventType::from(*name)))
            .collect();
        names.extend(self.other.iter().map(|name| &**name));
        names
    }

    /// Adds all members of another set.
    pub fn extend(&mut self, other: &Self) {
        self.standard |= other.standard;
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
            match (standard_bit(&event_type), event_type) {
                (Some(bit), _) => set.standard |= bit,
                (None, EventType::Other(name)) => set.insert(name),
                (None, _) => {}
            }
        }
        set
    }
}

const STANDARD_NAMES: [&str; 4] = [
    "llm_before",
    "tool_call_start",
    "tool_call_result",
    "llm_stream_chunk",
];

fn standard_bit(event_type: &EventType) -> Option<u8> {
    Some(match event_type {
        EventType::LlmBefore => 1,
        EventType::ToolCallStart => 2,
        EventType::ToolCallResult => 4,
        EventType::LlmStreamChunk => 8,
        EventType::Other(_) => return None,
    })
}

/// A pattern of a [`Scanner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternId(u16);

/// Collects patterns, then becomes a [`Scanner`].
#[derive(Debug, Default)]
pub struct ScannerBuilder {
    patterns: Vec<Arc<Pattern>>,
    /// Where the patterns of a regular expression are.
    by_regex: HashMap<String, Vec<usize>>,
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
        let same = self.by_regex.get(spec.regex).into_iter().flatten();
        let known = same.copied().find(|index| self.patterns[*index].is(spec));
        let index = match known {
            Some(index) => {
                self.events[index].extend(events);
                index
            }
            None => {
                self.patterns.push(Pattern::shared(spec)?);
                self.events.push(events.clone());
                let index = self.patterns.len() - 1;
                let same = self.by_regex.entry(spec.regex.to_owned()).or_default();
                same.push(index);
                index
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
        let (mut unfiltered, mut required) = (Vec::new(), Vec::new());
        // The first factor of a pattern has the pattern's number; further ones come after those of all.
        let mut further = Vec::new();
        let mut more: Vec<&[Literal]> = Vec::new();
        for (index, pattern) in self.patterns.iter().enumerate() {
            let id = PatternId(index as u16);
            if pattern.is_unfiltered() {
                unfiltered.push(id);
            }
            required.extend(pattern.requirement().map(|requirement| (requirement, id)));
            let start = (self.patterns.len() + more.len()) as u16;
            if reach(pattern) == Reach::Near {
                more.extend(pattern.factors().iter().skip(1).map(Vec::as_slice));
            }
            further.push(start..(self.patterns.len() + more.len()) as u16);
        }
        let firsts: Vec<&[Literal]> = self
            .patterns
            .iter()
            .map(|pattern| pattern.factors().first().map_or(&[][..], Vec::as_slice))
            .collect();
        let filter = LiteralFilter::new(firsts.iter().chain(&more).copied());
        let requirements = required
            .iter()
            .fold(Features::default(), |all, (one, _): &(Requirement, _)| {
                all.union(one.feature())
            });
        Scanner {
            filter,
            factors: self.patterns.len() + more.len(),
            further,
            patterns: self.patterns,
            events: self.events,
            unfiltered,
            required,
            requirements,
        }
    }
}

/// A text is looked at in blocks of so many bytes.
const BLOCK: usize = 1 << 10;

/// How far the literals of a match can be from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// In two neighbouring blocks at most.
    Near,
    /// So many bytes.
    Far(usize),
    /// Anywhere.
    Anywhere,
}

fn reach(pattern: &Pattern) -> Reach {
    match pattern.max_len() {
        Some(max) if max < BLOCK => Reach::Near,
        Some(max) => Reach::Far(max),
        None => Reach::Anywhere,
    }
}

/// All patterns of a policy, ready to be searched for at once.
#[derive(Debug)]
pub struct Scanner {
    filter: LiteralFilter,
    /// How many factors all patterns have.
    factors: usize,
    /// The further factors of each pattern.
    further: Vec<Range<u16>>,
    patterns: Vec<Arc<Pattern>>,
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
        let mut look = |text: &str, features: Features, block: usize, seen: &Bits| {
            self.announce(text, features, block, seen, event_type, &mut candidates);
        };
        let bytes = text.as_bytes();
        let mut seen = Bits::none(self.factors);
        if bytes.len() <= 2 * BLOCK {
            let found = |factor| seen.insert(factor);
            self.filter.scan(bytes, 0..bytes.len(), found);
            look(text, features, 0, &seen);
        } else {
            let mut before = Bits::none(self.factors);
            for block in 0..bytes.len().div_ceil(BLOCK) {
                let part = block * BLOCK..bytes.len().min((block + 1) * BLOCK);
                let found = |factor| seen.insert(factor);
                self.filter.scan(bytes, part.clone(), found);
                let here = if features.intersects(self.requirements) {
                    let from = text.floor_char_boundary(part.start.saturating_sub(BLOCK));
                    Features::of(&text[from..text.ceil_char_boundary(part.end)])
                } else {
                    Features::default()
                };
                before.union(&seen);
                look(text, here, block, &before);
                std::mem::swap(&mut before, &mut seen);
                seen.clear();
            }
        }
        candidates.everywhere(&self.unfiltered, text.len(), |id| {
            self.events[usize::from(id.0)].contains(event_type)
        });
        candidates
    }

    /// Notes the patterns that what was seen in a block and the one before it announces, and where
    /// their matches can begin.
    fn announce(
        &self,
        text: &str,
        features: Features,
        block: usize,
        seen: &Bits,
        event_type: &EventType,
        candidates: &mut Candidates,
    ) {
        let short = text.len() <= 2 * BLOCK;
        let mut note = |id: PatternId| {
            let index = usize::from(id.0);
            if !self.events[index].contains(event_type) {
                return;
            }
            let end = ((block + 1) * BLOCK).min(text.len());
            let start = match reach(&self.patterns[index]) {
                _ if short => 0,
                Reach::Near => block.saturating_sub(1) * BLOCK,
                Reach::Far(max) => (block * BLOCK).saturating_sub(max + BLOCK),
                Reach::Anywhere => 0,
            };
            let end = if short { text.len() } else { end };
            candidates.note(
                id,
                text.floor_char_boundary(start)..text.ceil_char_boundary(end),
            );
        };
        for id in seen.iter(self.patterns.len()) {
            if self.further[usize::from(id)]
                .clone()
                .all(|further| seen.contains(further))
            {
                note(PatternId(id));
            }
        }
        if features.intersects(self.requirements) {
            for (requirement, id) in &self.required {
                if features.contains(requirement.feature()) {
                    note(*id);
                }
            }
        }
    }

    /// The first value that a pattern finds.
    pub fn find(&self, id: PatternId, text: &str) -> Option<Range<usize>> {
        self.patterns[usize::from(id.0)].find(text)
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
        candidates: &Candidates,
        window: Range<usize>,
        mut found: impl FnMut(Found),
    ) {
        let mut done = window.start;
        for region in candidates.regions(id) {
            let here = done.max(region.start)..window.end.min(region.end);
            if here.start < here.end {
                self.patterns[usize::from(id.0)].each(text, here, |one| {
                    done = one.whole.end;
                    found(one);
                });
            }
        }
    }

    /// All values that a pattern finds in this part of the text, in order, given what the scan of the
    /// whole text said. What stands around the part is only looked at for word boundaries.
    pub fn find_all(
        &self,
        id: PatternId,
        text: &str,
        candidates: &Candidates,
        window: Range<usize>,
        mut found: impl FnMut(Range<usize>),
    ) {
        self.each_match(id, text, candidates, window, |one| {
            if let Some(value) = one.value {
                found(value);
            }
        });
    }
}

/// The patterns that may match a text, and where their matches can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    patterns: Bits,
    /// In the order of the text, for each pattern.
    regions: SmallVec<[(PatternId, Range<usize>); 2]>,
}

impl Candidates {
    fn none(patterns: usize) -> Self {
        Self {
            patterns: Bits::none(patterns),
            regions: SmallVec::new(),
        }
    }

    fn note(&mut self, id: PatternId, region: Range<usize>) {
        if self.patterns.contains(id.0) {
            let known = self
                .regions
                .iter_mut()
                .rev()
                .find(|(known, _)| *known == id);
            if let Some((_, known)) = known
                && region.start <= known.end
            {
                known.end = known.end.max(region.end);
                return;
            }
        }
        self.patterns.insert(id.0);
        self.regions.push((id, region));
    }

    fn everywhere(&mut self, ids: &[PatternId], len: usize, wanted: impl Fn(&PatternId) -> bool) {
        for id in ids.iter().filter(|id| wanted(id)) {
            self.patterns.insert(id.0);
            self.regions.push((*id, 0..len));
        }
    }

    /// Whether this pattern may match.
    #[inline]
    pub fn contains(&self, id: PatternId) -> bool {
        self.patterns.contains(id.0)
    }

    /// Whether no pattern can match.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    fn regions(&self, id: PatternId) -> impl Iterator<Item = Range<usize>> {
        let own = self.regions.iter().filter(move |(known, _)| *known == id);
        own.map(|(_, region)| region.clone())
    }
}

/// A set of small numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bits(SmallVec<[u64; 32]>);

impl Bits {
    fn none(len: usize) -> Self {
        Self(SmallVec::from_elem(0, len.div_ceil(64)))
    }

    #[inline]
    fn insert(&mut self, number: u16) {
        self.0[usize::from(number / 64)] |= 1 << (number % 64);
    }

    #[inline]
    fn contains(&self, number: u16) -> bool {
        self.0[usize::from(number / 64)] & (1 << (number % 64)) != 0
    }

    fn union(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The members below a limit.
    fn iter(&self, below: usize) -> impl Iterator<Item = u16> {
        let words = self.0.iter().enumerate().take(below.div_ceil(64));
        words
            .flat_map(|(index, word)| {
                let mut rest = *word;
                std::iter::from_fn(move || {
                    let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                    rest &= rest - 1;
                    Some((index * 64) as u16 + bit as u16)
                })
            })
            .take_while(move |number| usize::from(*number) < below)
    }
}

#[cfg(test)]
mod tests;

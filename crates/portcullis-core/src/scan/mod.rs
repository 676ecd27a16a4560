//! One scan for every pattern of a policy.
//!
//! Each pattern is reduced to a set of literals of which any match must contain one ([`literals`]). A
//! filter over four-byte windows ([`filter`]) finds the literals of all patterns in one pass whose cost
//! hardly depends on how many there are. Where one is found, the text right around it says whether a
//! match can lie there ([`screen`]); only then does the pattern run its regular expression, and only
//! there. Ordinary text lets none through, so the common case is that one pass and hardly anything
//! else: no allocation, linear time.
//!
//! Rejected: `RegexSet` or one automaton over all patterns (0.45 GB/s here, and growing with the set);
//! Aho–Corasick over the literals (each byte waits for the one before it); Teddy (64 literals at most).

mod automaton;
mod bitmap;
mod blocks;
mod candidates;
mod dialect;
mod ends;
mod features;
mod filter;
mod forms;
mod frequency;
mod literals;
mod neighbours;
mod outline;
mod pattern;
mod prefix;
mod required;
mod requirement;
mod runs;
mod screen;
mod search;
mod spares;
mod unbroken;
mod walk;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::detectors::Check;
use crate::event::EventType;
pub use candidates::Candidates;
use candidates::Regions;
pub(crate) use dialect::compile;
pub(crate) use ends::BETWEEN;
pub use features::Features;
use filter::{Announced, Beside, LiteralFilter};
use literals::Literal;
pub use literals::MIN_KEYWORD_BYTES;
pub use pattern::PatternError;
use pattern::{Found, Pattern};
pub(crate) use prefix::Prefixes;
use required::Required;
pub use requirement::Requirement;
use runs::Runs;
pub(crate) use runs::next_stretch;
use screen::Screens;

/// What to look for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PatternSpec<'a> {
    /// A regular expression; `\s` and `\w` are Python's. Its group `value`, or else the whole match,
    /// is what is found; a match with a group `skip…` in it finds nothing.
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

/// What stands for every type where a set is written down.
const EVERY: &str = "*";

impl Serialize for EventSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.named & ANY != 0 {
            return serializer.collect_seq([EVERY]);
        }
        serializer.collect_seq(self.names())
    }
}

impl<'de> Deserialize<'de> for EventSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        Ok(Self::of_names(names.iter().map(String::as_str)))
    }
}

impl EventSet {
    /// The set of these names; `*` is every type.
    pub fn of_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut set = Self::default();
        for name in names {
            set.extend(&match name {
                EVERY => Self::any(),
                _ => Self::from_iter([EventType::from(name)]),
            });
        }
        set
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

impl PatternId {
    /// Its number: patterns are numbered as they are added, from 0.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

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
        self.patterns[usize::from(id.0)].min_len()
    }

    /// Compiles the filters.
    pub fn build(self) -> Scanner {
        let mut unfiltered = Vec::new();
        let mut screens = Screens::default();
        let mut literals: Vec<(Announced, &Literal)> = Vec::new();
        for (index, pattern) in self.patterns.iter().enumerate() {
            let id = PatternId(index as u16);
            if pattern.is_unfiltered() {
                unfiltered.push(id);
            }
            for cue in pattern.cues() {
                // A search that may go on far is limited by the text, or made once for all literals.
                let near = |before: &usize| *before == 0 || pattern.max_len().is_some();
                let max_before = cue.max_before.filter(near);
                let max_before = max_before.filter(|_| pattern.confirms_locally());
                let announced = Announced {
                    pattern: id,
                    screen: screens.add(&cue.screen),
                    max_before: max_before.and_then(|max| u32::try_from(max).ok()),
                    neighbours: cue.screen.neighbours,
                };
                literals.push((announced, &cue.literal));
            }
        }
        // Stages that are searched for the same share one.
        let mut made: Vec<(Vec<bool>, Arc<StageFilter>)> = Vec::new();
        let filters = std::array::from_fn(|stage| {
            let event_type = EventType::STANDARD.get(stage);
            let is_wanted = |events: &EventSet| event_type.is_none_or(|one| events.contains(one));
            let wanted: Vec<bool> = self.events.iter().map(is_wanted).collect();
            if let Some((_, filter)) = made.iter().find(|(known, _)| *known == wanted) {
                return Arc::clone(filter);
            }
            let of_stage = || {
                let of_stage = literals.iter();
                let of_stage = of_stage.filter(|(one, _)| wanted[usize::from(one.pattern.0)]);
                of_stage.copied()
            };
            let ascii = of_stage().filter(|(_, literal)| literal.text.is_ascii());
            let mut of_stage_only = self.patterns.iter().zip(&wanted);
            let filter = Arc::new(StageFilter {
                joins: of_stage_only.all(|(pattern, wanted)| !wanted || !pattern.knows_ends()),
                plain: LiteralFilter::new(ascii, Beside::Plain),
                other: LiteralFilter::new(of_stage(), Beside::Other),
            });
            made.push((wanted, Arc::clone(&filter)));
            filter
        });
        Scanner {
            filters,
            screens,
            required: Required::groups(&self.patterns),
            patterns: self.patterns,
            events: self.events,
            unfiltered,
        }
    }
}

/// The literals of the patterns that one stage is searched for.
#[derive(Debug)]
struct StageFilter {
    /// Whether none of the patterns asks for the beginning or the end of a text.
    joins: bool,
    plain: LiteralFilter,
    /// What only a text can have that is not all ASCII or has control characters.
    other: LiteralFilter,
}

impl StageFilter {
    fn scan(&self, text: &[u8], plain: bool, mut found: impl FnMut(Range<usize>, &Announced)) {
        self.plain.scan(text, &mut found);
        if !plain {
            self.other.scan(text, found);
        }
    }
}

/// The stages that have a filter of their own, and one for all others.
const STAGES: usize = EventType::STANDARD.len() + 1;

fn stage(event_type: &EventType) -> usize {
    let standard = EventType::STANDARD
        .iter()
        .position(|known| known == event_type);
    standard.unwrap_or(STAGES - 1)
}

/// All patterns of a policy, ready to be searched for at once.
#[derive(Debug)]
pub struct Scanner {
    filters: [Arc<StageFilter>; STAGES],
    screens: Screens,
    patterns: Vec<Arc<Pattern>>,
    events: Vec<EventSet>,
    /// Patterns that nothing announces: they run on every text.
    unfiltered: Vec<PatternId>,
    /// Patterns that are announced by what they require.
    required: Vec<Required>,
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

    /// Whether texts of such an event can be searched together, with [`BETWEEN`] before each and at least the end of a line
    /// behind: what may match one of them may then match where it stands.
    pub(crate) fn joins(&self, event_type: &EventType) -> bool {
        self.filters[stage(event_type)].joins
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
        let mut candidates = Candidates::none();
        self.scan_into(text, features, event_type, &mut candidates);
        candidates
    }

    /// The same, into what no scan has said anything in: short texts are scanned in less time than it
    /// takes to make room for an answer.
    pub(crate) fn scan_into(
        &self,
        text: &str,
        features: Features,
        event_type: &EventType,
        candidates: &mut Candidates,
    ) {
        // No pattern matches it, and the events of tools mostly have no other.
        if text.is_empty() {
            return;
        }
        let wanted = |id: PatternId| self.events[usize::from(id.0)].contains(event_type);
        for id in self.unfiltered.iter().filter(|id| wanted(**id)) {
            candidates.note(*id, 0..text.len());
        }
        let has = |required: &&Required| features.contains(required.feature());
        for required in self.required.iter().filter(has) {
            required.look(text, features, wanted, |id, region| {
                candidates.note(id, region);
            });
        }
        let (ascii, plain) = if self.uses_features() {
            (
                !features.contains(Features::NON_ASCII),
                !features.intersects(Features::UNUSUAL),
            )
        } else {
            (text.is_ascii(), filter::is_all_plain(text.as_bytes()))
        };
        let filter = &self.filters[stage(event_type)];
        let mut screens = self.screens.reader();
        // Hardly anything comes so far: that it is a function of its own keeps what every literal goes through short.
        let note: &mut dyn FnMut(Range<usize>, &Announced) = &mut |literal, announced| {
            if !wanted(announced.pattern) {
                return;
            }
            let max = match announced.max_before {
                Some(max) => Some(max as usize),
                None => {
                    let runs = candidates.runs.get_or_insert_with(|| Runs::of(text));
                    self.patterns[usize::from(announced.pattern.0)].max_len_in(*runs)
                }
            };
            let region = match max {
                None => 0..text.len(),
                Some(max) => {
                    let start = literal.start.saturating_sub(max);
                    text.floor_char_boundary(start)..literal.start + 1
                }
            };
            candidates.note(announced.pattern, region);
        };
        filter.scan(text.as_bytes(), plain, |literal, announced| {
            if screens.lets_through(announced.screen, text.as_bytes(), &literal) {
                note(literal, announced);
            }
        });
        candidates.ascii = ascii;
        candidates.put_in_order();
        // Compiling is not counted against the rules, which have little time.
        if ascii {
            for id in candidates.iter() {
                self.patterns[usize::from(id.0)].warm(true);
            }
        } else {
            self.sift(text, candidates);
        }
    }

    /// Leaves out where a pattern cannot match, and compiles what the rest needs: for text that is not all ASCII, most patterns
    /// never need more than their sieve.
    fn sift(&self, text: &str, candidates: &mut Candidates) {
        let mut kept = Regions::new();
        for id in candidates.iter() {
            let pattern = &self.patterns[usize::from(id.0)];
            let haystack = candidates.haystack(text, pattern);
            let regions = candidates.worthwhile_regions(id, haystack.max_len, text.len());
            for region in regions.filter(|region| pattern.may_match(&haystack, region)) {
                pattern.warm(haystack.meets_only_ascii(&region));
                kept.push((id, region));
            }
        }
        candidates.leave(kept);
    }

    /// Compiles what would otherwise be compiled when it is first needed.
    pub(crate) fn warm(&self) {
        self.screens.warm();
        self.required.iter().for_each(Required::warm);
        for pattern in &self.patterns {
            pattern.warm(true);
        }
    }

    /// The first value that a pattern finds.
    pub fn find(&self, id: PatternId, text: &str) -> Option<Range<usize>> {
        self.patterns[usize::from(id.0)].find(text)
    }

    /// Where matches of these patterns begin that a text does not yet decide.
    pub(crate) fn prefixes(&self, ids: &[PatternId]) -> Prefixes {
        let trees = ids.iter().map(|id| self.patterns[usize::from(id.0)].hir());
        Prefixes::new(trees)
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
        self.try_each_match(id, text, candidates, window, |one| {
            found(one);
            true
        });
    }

    /// Whether a pattern finds a value, given what the scan of the text said.
    pub(crate) fn finds(&self, id: PatternId, text: &str, candidates: &Candidates) -> bool {
        let mut any = false;
        self.try_each_match(id, text, candidates, 0..text.len(), |one| {
            any = one.value.is_some();
            !any
        });
        any
    }

    fn try_each_match(
        &self,
        id: PatternId,
        text: &str,
        candidates: &Candidates,
        window: Range<usize>,
        found: impl FnMut(Found) -> bool,
    ) {
        let pattern = &self.patterns[usize::from(id.0)];
        let haystack = candidates.haystack(text, pattern);
        let regions = candidates.worthwhile_regions(id, haystack.max_len, text.len());
        let windows = regions.filter_map(|region| {
            let here = window.start.max(region.start)..window.end.min(region.end);
            (!here.is_empty()).then_some(here)
        });
        pattern.each(&haystack, windows, found);
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

#[cfg(test)]
mod tests;

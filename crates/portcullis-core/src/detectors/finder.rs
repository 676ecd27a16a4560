//! Everything the families find in a text, for reading files rather than judging steps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::disguised::{self, Reading};
use super::reported::Excuses;
use super::signs::{self, Sign};
use super::{Entry, FAMILIES, Kind, Meaning, Unspaced};
use crate::decision::Severity;
use crate::event::EventType;
use crate::pack::diagnostic::{Report, suggestion};
use crate::scan::{
    Candidates, EventSet, Features, PatternError, PatternId, Scanner, ScannerBuilder,
};
use crate::views::{self, Disguise};

/// The families that stand beside ours: they find the same things, less precisely.
const RFC: &str = "rfc";

/// Why there is no finder.
#[derive(Debug, thiserror::Error)]
pub enum FinderError {
    /// There is no such family of the chosen kinds.
    #[error("no detector family `{name}`: {help}")]
    UnknownFamily {
        /// As it was given.
        name: String,
        /// The nearest name, or all of them.
        help: String,
    },
    /// A family's file is broken.
    #[error(transparent)]
    Broken(#[from] Report),
    /// An entry's pattern cannot be used.
    #[error("detector `{id}`: {error}")]
    Pattern {
        /// The entry.
        id: String,
        /// What is wrong with it.
        error: PatternError,
    },
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding<'f> {
    /// What the family is for.
    pub kind: Kind,
    /// The family's name.
    pub family: &'f str,
    /// The entry's id.
    pub id: &'f str,
    /// The entity, or what an attack is trying to do.
    pub what: &'f str,
    /// How bad it is.
    pub severity: Severity,
    /// Who issues it, where it is used, or in which language it is said.
    pub origin: Option<&'f str>,
    /// Where its value is, in bytes.
    pub range: Range<usize>,
    /// What had to be taken off to see it.
    pub disguise: Option<Disguise>,
}

/// Looks for everything that some families know.
#[derive(Debug)]
pub struct Finder {
    scanner: Scanner,
    known: Vec<Known>,
    /// Which entries have a pattern, by its number.
    by_pattern: Vec<SmallVec<[usize; 1]>>,
    /// Whether it looks through disguises.
    sees_through: bool,
    /// Made when a text first has its letters set apart.
    unspaced: OnceLock<Unspaced>,
}

#[derive(Debug)]
struct Known {
    pattern: PatternId,
    kind: Kind,
    family: &'static str,
    entry: Entry,
}

/// A match that counts, by the index of its entry.
struct Hit {
    index: usize,
    what: Option<&'static str>,
    range: Range<usize>,
    disguise: Option<Disguise>,
}

/// What was found so far.
#[derive(Default)]
struct Matches {
    hits: Vec<Hit>,
    /// Those of one reading do not add up with those of another.
    signs: Vec<Sign>,
    /// What was taken off for each reading. The last is at hand.
    readings: Vec<Option<Disguise>>,
}

/// What a text is scanned as. Stages have filters of their own, so that values are not looked for where nobody would count
/// them: in readings with other letters, which code with digits in its names has many of.
const ALL: EventType = EventType::ToolCallResult;
const WORDS: EventType = EventType::LlmBefore;

impl Finder {
    /// With the families of these kinds: those that are named, as `code` or `secrets/code`, or else
    /// all but `rfc`, which counts only where a kind has nothing else.
    pub fn new(kinds: &[Kind], families: &[impl AsRef<str>]) -> Result<Self, FinderError> {
        check_names(kinds, families)?;
        let mut builder = ScannerBuilder::default();
        let mut known = Vec::new();
        for (kind, family, text) in chosen(kinds, families) {
            for entry in super::parse(kind, family, text)?.entries {
                let pattern = builder
                    .add(&entry.pattern.spec(kind), &scanned_as(kind))
                    .map_err(|error| FinderError::Pattern {
                        id: entry.id.clone(),
                        error,
                    })?;
                known.push(Known {
                    pattern,
                    kind,
                    family,
                    entry,
                });
            }
        }
        let scanner = builder.build();
        let mut by_pattern = vec![SmallVec::new(); scanner.len()];
        for (index, known) in known.iter().enumerate() {
            by_pattern[known.pattern.index()].push(index);
        }
        Ok(Self {
            scanner,
            known,
            by_pattern,
            sees_through: false,
            unspaced: OnceLock::new(),
        })
    }

    /// The same, looking through the disguises that the gate's rules look through with `evasions`.
    #[must_use]
    pub fn seeing_through(mut self) -> Self {
        self.sees_through = true;
        self
    }

    /// How many entries it looks for.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it looks for nothing.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What is in this text, in order. Findings of one kind do not overlap: the worst is kept, then one that is not in
    /// disguise, then the longest, then the first family's. Signs of an attack count where they add up to one.
    pub fn find(&self, text: &str) -> Vec<Finding<'_>> {
        let hits = self.without_overlaps(self.hits(text));
        hits.into_iter().map(|hit| self.finding(hit)).collect()
    }

    /// Where in this text anything is, in order and without overlaps: what would have to be covered to
    /// hide it all, also where findings overlap.
    pub fn covered(&self, text: &str) -> Vec<Range<usize>> {
        let mut hits = self.hits(text);
        hits.sort_by_key(|hit| hit.range.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for Hit { range, .. } in hits {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Whether anything might be in this text. Several texts can be asked about at once, with newlines
    /// between them: a match counts even where its value does not, since it may be of two of them, and hide
    /// one that is in the second alone.
    pub(crate) fn may_find(&self, text: &str) -> bool {
        if self.sees_through && views::may_be_disguised(Features::of(text)) {
            return true;
        }
        let candidates = self.scanner.scan(text, &ALL);
        candidates.iter().any(|id| {
            let mut matched = false;
            let all = 0..text.len();
            self.scanner
                .each_match(id, text, &candidates, all, |_| matched = true);
            matched
        })
    }

    fn hits(&self, text: &str) -> Vec<Hit> {
        let mut matches = Matches::default();
        let features = Features::of(text);
        let candidates = self.scanner.scan_with(text, features, &ALL);
        matches.readings.push(None);
        self.look(text, &candidates, None, |index, range| {
            matches.add(&self.known[index], index, range);
        });
        if self.sees_through {
            disguised::each(text, features, |reading| {
                self.look_into(&reading, &mut matches);
            });
        }
        let mut excuses = Excuses::default();
        matches.signs.retain(|sign| {
            let pattern = &self.known[sign.index].entry.pattern;
            !(pattern.unless_reported && excuses.cover(text, &sign.range))
        });
        matches.into_hits()
    }

    fn look_into(&self, reading: &Reading, matches: &mut Matches) {
        let view = &reading.view;
        let disguise = view.disguise();
        let scanned_as = if disguise.keeps_values() { ALL } else { WORDS };
        let candidates = self.scanner.scan(view.text(), &scanned_as);
        matches.readings.push(Some(disguise));
        self.look(view.text(), &candidates, Some(disguise), |index, range| {
            if let Some(range) = reading.original(range) {
                matches.add(&self.known[index], index, range);
            }
        });
        if disguise == Disguise::Spaced {
            self.unspaced().each(view, &WORDS, |index, range| {
                if let Some(range) = reading.original(range) {
                    matches.add(&self.known[index], index, range);
                }
            });
        }
    }

    /// Everything in a text that counts in this disguise, by the index of its entry.
    fn look(
        &self,
        text: &str,
        candidates: &Candidates,
        disguise: Option<Disguise>,
        mut found: impl FnMut(usize, Range<usize>),
    ) {
        let may_match = candidates
            .iter()
            .flat_map(|id| &self.by_pattern[id.index()])
            .filter(|index| disguise.is_none_or(|one| self.known[**index].is_seen_behind(one)));
        let mut may_match: SmallVec<[usize; 16]> = may_match.copied().collect();
        // In the order of the families.
        may_match.sort_unstable();
        for index in may_match {
            let pattern = self.known[index].pattern;
            let all = 0..text.len();
            self.scanner
                .find_all(pattern, text, candidates, all, |range| found(index, range));
        }
    }

    fn unspaced(&self) -> &Unspaced {
        self.unspaced.get_or_init(|| {
            let known = self.known.iter().enumerate();
            let attacks = known.filter(|(_, known)| known.kind == Kind::Injection);
            Unspaced::new(attacks.map(|(index, known)| (index, &known.entry.pattern)))
        })
    }

    fn without_overlaps(&self, mut hits: Vec<Hit>) -> Vec<Hit> {
        hits.sort_by_key(|hit| {
            let severity = self.known[hit.index].entry.severity;
            (
                Reverse(severity),
                hit.disguise.is_some(),
                Reverse(hit.range.len()),
                hit.index,
                hit.range.start,
            )
        });
        // By kind and end: the first that ends after another's start is the only one it can overlap.
        let mut taken: BTreeMap<(&str, usize), usize> = BTreeMap::new();
        hits.retain(|hit| {
            let kind = self.known[hit.index].kind.as_str();
            let next = taken.range((kind, hit.range.start + 1)..).next();
            let free =
                next.is_none_or(|((other, _), start)| *other != kind || *start >= hit.range.end);
            if free {
                taken.insert((kind, hit.range.end), hit.range.start);
            }
            free
        });
        hits.sort_by_key(|hit| (hit.range.start, hit.range.end, hit.index));
        hits
    }

    fn finding(&self, hit: Hit) -> Finding<'_> {
        let Known {
            kind,
            family,
            entry,
            ..
        } = &self.known[hit.index];
        Finding {
            kind: *kind,
            family,
            id: &entry.id,
            what: hit.what.unwrap_or_else(|| entry.meaning.name()),
            severity: entry.severity,
            origin: entry.origin.as_deref(),
            range: hit.range,
            disguise: hit.disguise,
        }
    }
}

impl Known {
    fn is_seen_behind(&self, disguise: Disguise) -> bool {
        disguise.keeps_values() || !is_value(self.kind)
    }
}

/// Whether entries of this kind find values. The gate's rules for them do not look through disguises that exchange letters: a
/// value with other letters is another value.
const fn is_value(kind: Kind) -> bool {
    matches!(kind, Kind::Secrets | Kind::Pii)
}

fn scanned_as(kind: Kind) -> EventSet {
    if is_value(kind) {
        EventSet::from_iter([ALL])
    } else {
        EventSet::any()
    }
}

impl Matches {
    /// A match in the reading at hand.
    fn add(&mut self, known: &Known, index: usize, range: Range<usize>) {
        let place = self.readings.len() - 1;
        match known.entry.meaning {
            Meaning::Attack { intent, weight } => self.signs.push(Sign {
                place,
                range,
                index,
                intent,
                weight,
            }),
            _ => self.hits.push(Hit {
                index,
                what: None,
                range,
                disguise: self.readings[place],
            }),
        }
    }

    fn into_hits(mut self) -> Vec<Hit> {
        let parts = signs::add_up(&mut self.signs);
        for (sign, intent) in self.signs.into_iter().zip(parts) {
            self.hits.extend(intent.map(|intent| Hit {
                index: sign.index,
                what: Some(intent.as_str()),
                range: sign.range,
                disguise: self.readings[sign.place],
            }));
        }
        self.hits.retain(|hit| !hit.range.is_empty());
        self.hits
    }
}

/// Whether `name` is how somebody may call this family.
fn is_called(kind: Kind, family: &str, name: &str) -> bool {
    match name.split_once('/') {
        Some((folder, name)) => folder == kind.as_str() && name == family,
        None => name == family,
    }
}

fn check_names(kinds: &[Kind], families: &[impl AsRef<str>]) -> Result<(), FinderError> {
    let of_kinds = || FAMILIES.iter().filter(|(kind, _, _)| kinds.contains(kind));
    for name in families.iter().map(AsRef::as_ref) {
        if !of_kinds().any(|(kind, family, _)| is_called(*kind, family, name)) {
            return Err(FinderError::UnknownFamily {
                name: name.to_owned(),
                help: suggestion(name, of_kinds().map(|(_, family, _)| *family)),
            });
        }
    }
    Ok(())
}

fn chosen<'c>(
    kinds: &'c [Kind],
    families: &'c [impl AsRef<str>],
) -> impl Iterator<Item = (Kind, &'static str, &'static str)> + 'c {
    let wanted = |kind: Kind, family: &str| {
        let named = families
            .iter()
            .any(|name| is_called(kind, family, name.as_ref()));
        let has_ours = || super::names(kind).any(|name| name != RFC);
        named || families.is_empty() && (family != RFC || !has_ours())
    };
    FAMILIES
        .iter()
        .filter(move |(kind, family, _)| kinds.contains(kind) && wanted(*kind, family))
        .copied()
}

#[cfg(test)]
mod tests;

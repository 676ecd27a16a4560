//! Everything the families find in a text, for reading files rather than judging steps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use super::signs::{self, Sign};
use super::{Entry, FAMILIES, Kind, Meaning};
use crate::decision::Severity;
use crate::event::EventType;
use crate::pack::diagnostic::{Report, suggestion};
use crate::scan::{EventSet, PatternError, PatternId, Scanner, ScannerBuilder};

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
}

/// Looks for everything that some families know.
#[derive(Debug)]
pub struct Finder {
    scanner: Scanner,
    known: Vec<Known>,
    /// Which entries have a pattern, by its number.
    by_pattern: Vec<SmallVec<[usize; 1]>>,
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
}

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
                    .add(&entry.pattern.spec(kind), &EventSet::any())
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
        })
    }

    /// How many entries it looks for.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it looks for nothing.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What is in this text, in order. Findings of one kind do not overlap: the worst is kept, then
    /// the longest, then the first family's. Signs of an attack count where they add up to one.
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
        let candidates = self.scanner.scan(text, &EventType::ToolCallResult);
        candidates.iter().any(|id| {
            let mut matched = false;
            let all = 0..text.len();
            self.scanner
                .each_match(id, text, &candidates, all, |_| matched = true);
            matched
        })
    }

    fn hits(&self, text: &str) -> Vec<Hit> {
        let (mut hits, mut signs) = (Vec::new(), Vec::new());
        let candidates = self.scanner.scan(text, &EventType::ToolCallResult);
        let may_match = candidates
            .iter()
            .flat_map(|id| &self.by_pattern[id.index()]);
        let mut may_match: SmallVec<[usize; 16]> = may_match.copied().collect();
        // In the order of the families.
        may_match.sort_unstable();
        for index in may_match {
            let known = &self.known[index];
            let all = 0..text.len();
            let scanner = &self.scanner;
            scanner.find_all(known.pattern, text, &candidates, all, |range| {
                match known.entry.meaning {
                    Meaning::Attack { intent, weight } => signs.push(Sign {
                        place: 0,
                        range,
                        index,
                        intent,
                        weight,
                    }),
                    _ => hits.push(Hit {
                        index,
                        what: None,
                        range,
                    }),
                }
            });
        }
        let parts = signs::add_up(&mut signs);
        for (sign, intent) in signs.into_iter().zip(parts) {
            hits.extend(intent.map(|intent| Hit {
                index: sign.index,
                what: Some(intent.as_str()),
                range: sign.range,
            }));
        }
        hits.retain(|hit| !hit.range.is_empty());
        hits
    }

    fn without_overlaps(&self, mut hits: Vec<Hit>) -> Vec<Hit> {
        hits.sort_by_key(|hit| {
            let severity = self.known[hit.index].entry.severity;
            (
                Reverse(severity),
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
        }
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::sync::LazyLock;

    /// Every case of a property uses the same: there are many patterns to read.
    static ALL: LazyLock<Finder> = LazyLock::new(|| Finder::new(&KINDS, &[""; 0]).unwrap());

    const KINDS: [Kind; 3] = [Kind::Secrets, Kind::Injection, Kind::Pii];

    fn rfc() -> Finder {
        Finder::new(&KINDS, &[RFC]).unwrap()
    }

    fn found<'t>(finder: &Finder, text: &'t str) -> Vec<(String, &'t str)> {
        let findings = finder.find(text).into_iter();
        findings
            .map(|one| (one.what.to_owned(), &text[one.range]))
            .collect()
    }

    #[test]
    fn what_the_families_know_is_found_in_order() {
        let finder = rfc();
        let text = "é jailbreak AKIAIOSFODNN7EXAMPLE, ghp_abcdefghijklmnopqrstuvwxyz0123456789\n";
        assert_eq!(
            found(&finder, text),
            [
                ("jb_override".to_owned(), "jailbreak"),
                ("AWS_KEY".to_owned(), "AKIAIOSFODNN7EXAMPLE"),
                (
                    "GITHUB_TOKEN".to_owned(),
                    "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
                ),
            ]
        );
        assert_eq!(finder.find(""), []);
        assert_eq!(finder.find("nothing here"), []);
    }

    #[test]
    fn of_two_that_overlap_the_longer_is_kept() {
        let text = "you are now in jailbreak mode";
        assert_eq!(
            found(&rfc(), text),
            [("jb_override".to_owned(), "you are now in jailbreak mode")]
        );
    }

    #[test]
    fn families_are_chosen_by_name_with_or_without_their_kind() {
        let secrets = Finder::new(&KINDS, &["secrets/rfc"]).unwrap();
        assert_eq!(secrets.len(), 4);
        assert_eq!(found(&secrets, "jailbreak"), []);
        assert!(rfc().len() > secrets.len());
        let error = Finder::new(&KINDS, &["rcf"]).unwrap_err().to_string();
        assert_eq!(error, "no detector family `rcf`: did you mean `rfc`?");
        assert!(Finder::new(&[Kind::Secrets], &["injection/rfc"]).is_err());
        assert!(Finder::new(&[], &[""; 0]).unwrap().is_empty());
    }

    #[test]
    fn rfc_is_left_out_where_there_are_others() {
        let finder = Finder::new(&Kind::ALL, &[""; 0]).unwrap();
        for kind in Kind::ALL {
            let others = super::super::names(kind).any(|name| name != RFC);
            let of_kind = |known: &&Known| known.kind == kind && known.family == RFC;
            assert_eq!(
                finder.known.iter().find(of_kind).is_some(),
                super::super::names(kind).next().is_some() && !others
            );
        }
    }

    #[test]
    fn every_example_is_found_by_all_families_together() {
        let finder = &*ALL;
        for known in &finder.known {
            let alone =
                !matches!(known.entry.meaning, Meaning::Attack { weight, .. } if weight < 1.0);
            for example in known.entry.matches.iter().filter(|_| alone) {
                let findings = finder.find(example);
                assert!(
                    findings.iter().any(|one| one.kind == known.kind),
                    "{}: {example:?}",
                    known.entry.id
                );
            }
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let pieces = select(vec![
            "AKIAIOSFODNN7EXAMPLE",
            "sk-ant-api03-abcdefghijklmnop",
            "sk-abcdefghijklmnopqrst",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "ignore previous",
            " instructions",
            "jailbreak",
            "you are now in DAN ",
            "mode",
            "run as root",
            "\n",
            " ",
            "é",
            "İ",
            "\u{1f600}",
            "a",
        ]);
        prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn findings_are_sorted_inside_the_text_and_do_not_overlap(text in text()) {
            let finder = &*ALL;
            let findings = finder.find(&text);
            for one in &findings {
                prop_assert!(text.get(one.range.clone()).is_some_and(|value| !value.is_empty()));
            }
            prop_assert!(findings.is_sorted_by_key(|one| one.range.start));
            let covered = finder.covered(&text);
            prop_assert!(covered.windows(2).all(|pair| pair[0].end < pair[1].start), "{covered:?}");
            for one in &findings {
                let covers = |range: &Range<usize>| range.start <= one.range.start && one.range.end <= range.end;
                prop_assert!(covered.iter().any(covers), "{one:?}");
            }
            for kind in KINDS {
                let of_kind: Vec<_> = findings.iter().filter(|one| one.kind == kind).collect();
                for pair in of_kind.windows(2) {
                    prop_assert!(pair[0].range.end <= pair[1].range.start, "{pair:?}");
                }
            }
        }
    }
}

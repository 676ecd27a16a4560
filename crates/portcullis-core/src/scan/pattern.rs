//! One pattern: its regular expression and the literals that announce it.

use std::collections::{HashMap, HashSet};
use std::iter;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input, PatternID, meta};
use regex_syntax::hir::{Hir, HirKind};

use super::dialect::parse;
use super::ends::knows_ends;
use super::forms::{coarse, for_ascii, with_ascii_boundaries};
use super::literals::{self, Factor, Literal};
use super::runs::{Length, Runs};
use super::screen::Screen;
use super::search::Search;
use super::{PatternSpec, Requirement, unbroken};
use crate::detectors::Check;

/// A pattern whose matches cannot be confirmed near their end is followed for so many matches; the
/// rest of the text then counts as one more. Keeps the worst case linear in the text.
const MAX_UNBOUNDED_MATCHES: usize = 256;

/// A match this short is confirmed near its end whatever its pattern looks like.
const SHORT_MATCH: usize = 256;

/// Nor does a longer one look far, if it has an end.
const BOUNDED_MATCH: usize = 8 << 10;

/// Literals that are expected so often per million bytes are not trusted alone.
const EVERYDAY: f64 = 8.0;

/// The longest part of a text that is asked whether it is all ASCII.
const LOOK_FOR_ASCII: usize = 16 << 10;

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is not a regular expression, or one that Rust's `regex` does not have.
    #[error("not a usable regular expression: {0}")]
    Syntax(String),
    /// It would take too much memory.
    #[error("the pattern compiles to more than {0} bytes: use smaller repetition counts")]
    TooLarge(usize),
    /// It matches nothing at all, which is everywhere.
    #[error("the pattern matches the empty text, so it would match everywhere")]
    MatchesEmpty,
    /// A keyword is too short to look for.
    #[error("keyword `{0}` is too short: use at least {min} bytes", min = literals::MIN_KEYWORD_BYTES)]
    ShortKeyword(String),
    /// The keywords would hide matches.
    #[error("the pattern can match text without any of its keywords: {0}")]
    KeywordsNotImplied(String),
    /// There is a limit.
    #[error("more than {0} patterns in one policy")]
    TooMany(usize),
}

/// A text that is searched for a pattern.
#[derive(Debug, Clone, Copy)]
pub(super) struct Haystack<'t> {
    pub(super) text: &'t str,
    /// Whether all of it is known to be ASCII.
    pub(super) ascii: bool,
    /// The longest that a match can be in it, if there is a limit.
    pub(super) max_len: Option<usize>,
}

impl<'t> Haystack<'t> {
    /// Where to look for matches that begin in the window.
    fn input(&self, window: &Range<usize>) -> Input<'t> {
        // Where only one beginning is possible, the search ends as soon as that is none.
        let anchored = if window.len() == 1 {
            Anchored::Yes
        } else {
            Anchored::No
        };
        Input::new(self.text)
            .range(window.start..self.reach(window))
            .anchored(anchored)
    }

    /// No match that begins in the window reaches further, so nobody looks further.
    fn reach(&self, window: &Range<usize>) -> usize {
        match self.max_len {
            Some(max) => self.text.len().min(window.end.saturating_add(max)),
            None => self.text.len(),
        }
    }

    /// Whether a search for matches that begin in the window meets nothing but ASCII: one curly quotation mark does not
    /// change that for the rest of a text. Nobody looks far to find out, since many windows may reach far.
    pub(super) fn meets_only_ascii(&self, window: &Range<usize>) -> bool {
        // A word boundary looks at what stands beside.
        let start = window.start.saturating_sub(1);
        let end = self.text.len().min(self.reach(window) + 1);
        self.ascii || end - start <= LOOK_FOR_ASCII && self.text.as_bytes()[start..end].is_ascii()
    }
}

/// One match of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// All that the regular expression took in.
    pub(crate) whole: Range<usize>,
    /// The part that is wanted; `None` if it fails the pattern's checks.
    pub(crate) value: Option<Range<usize>>,
}

#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    ignore_case: bool,
    unspaced: bool,
    keywords: Vec<String>,
    /// As it was asked for.
    asked: Option<Requirement>,
    requires: Option<Requirement>,
    checks: Vec<Check>,
    min_len: usize,
    max_len: Option<usize>,
    compiled: OnceLock<Option<Compiled>>,
    /// For text that is all ASCII.
    compiled_for_ascii: OnceLock<Option<Compiled>>,
    /// For other text: lets through whatever `compiled` matches, and little else.
    sieve: OnceLock<Option<Search>>,
    /// Every match has one of these, unless there are none.
    cues: Vec<Cue>,
    confirms_locally: bool,
    length: Option<Length>,
    knows_ends: bool,
}

/// A literal that a match can be known by.
#[derive(Debug)]
pub(super) struct Cue {
    pub(super) literal: Literal,
    /// The most bytes of the match that can stand before it.
    pub(super) max_before: Option<usize>,
    /// What the text around it must pass.
    pub(super) screen: Screen,
}

/// One cue for each literal of a factor.
fn cues(factor: Factor<'_>) -> Vec<Cue> {
    // Nor are short ones: how often `://` is met depends on the text.
    let short = |literal: &Literal| literal.text.len() <= literals::WINDOW;
    let everyday = factor.frequency >= EVERYDAY || factor.literals().any(short);
    let mut outlines = HashSet::new();
    let mut cues = Vec::new();
    for place in factor.places {
        let screen = if everyday {
            place.around.screen(&mut outlines)
        } else {
            Screen::default()
        };
        cues.extend(place.literals.into_iter().map(|literal| Cue {
            literal,
            max_before: place.around.max_before(),
            screen: screen.clone(),
        }));
    }
    cues
}

#[derive(Debug)]
struct Compiled {
    regex: Search,
    /// With a group `value` or `skip…`: room for where it is.
    groups: Option<Captures>,
    /// Of each branch, whether it is skipped. To find the groups of a match takes far longer than the match.
    skipped: Vec<bool>,
}

impl Compiled {
    fn new(hir: &Hir) -> Result<Self, PatternError> {
        let branches = match hir.kind() {
            HirKind::Alternation(branches) if branches.iter().any(is_skip) => branches,
            _ => std::slice::from_ref(hir),
        };
        let regex = Search::of_branches(branches)?;
        let groups = regex.captures();
        let mut names = groups.group_info().all_names();
        let asked = names.any(|(_, _, name)| name.is_some_and(|name| name == VALUE || skips(name)));
        Ok(Self {
            regex,
            groups: asked.then_some(groups),
            skipped: branches.iter().map(is_skip).collect(),
        })
    }
}

/// Our own patterns, as far as some policy uses them. There are so many and no more, and every
/// environment of a pack, and every pack, uses the same.
static BUILT_IN: LazyLock<Mutex<HashMap<String, Vec<Arc<Pattern>>>>> =
    LazyLock::new(Mutex::default);

impl Pattern {
    /// The pattern, which may be in use elsewhere already.
    pub(super) fn shared(spec: &PatternSpec<'_>) -> Result<Arc<Self>, PatternError> {
        if !spec.built_in {
            return Self::new(spec).map(Arc::new);
        }
        let mut known = BUILT_IN.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.get(spec.regex).into_iter().flatten();
        if let Some(pattern) = same.into_iter().find(|pattern| pattern.is(spec)) {
            return Ok(Arc::clone(pattern));
        }
        let pattern = Arc::new(Self::new(spec)?);
        let same = known.entry(spec.regex.to_owned()).or_default();
        same.push(Arc::clone(&pattern));
        Ok(pattern)
    }

    pub(super) fn new(spec: &PatternSpec<'_>) -> Result<Self, PatternError> {
        let hir = parse(spec)?;
        if hir.properties().minimum_len() == Some(0) {
            return Err(PatternError::MatchesEmpty);
        }
        let factor = if spec.keywords.is_empty() {
            literals::required(&hir)
        } else {
            let short = |keyword: &&String| keyword.len() < literals::MIN_KEYWORD_BYTES;
            if let Some(keyword) = spec.keywords.iter().find(short) {
                return Err(PatternError::ShortKeyword(keyword.clone()));
            }
            let factor = literals::from_keywords(&hir, spec.keywords);
            let missing = || PatternError::KeywordsNotImplied(spec.keywords.join(", "));
            Some(factor.ok_or_else(missing)?)
        };
        // A long token without a telling prefix is better announced by its length.
        let long = unbroken::longest(&hir) >= Requirement::LONG;
        let crowded = factor.as_ref().is_none_or(Factor::crowds);
        let (factor, requires) = if long && spec.requires.is_none() && crowded {
            (None, Some(Requirement::Long))
        } else {
            (factor, spec.requires)
        };
        let mut pattern = Self {
            source: spec.regex.to_owned(),
            ignore_case: spec.ignore_case,
            unspaced: spec.unspaced,
            keywords: spec.keywords.to_vec(),
            asked: spec.requires,
            requires,
            checks: spec.checks.to_vec(),
            confirms_locally: confirms_locally(&hir),
            length: Length::of(&hir),
            knows_ends: knows_ends(&hir),
            cues: factor.map(cues).unwrap_or_default(),
            min_len: hir.properties().minimum_len().unwrap_or(0),
            max_len: hir.properties().maximum_len(),
            compiled: OnceLock::new(),
            compiled_for_ascii: OnceLock::new(),
            sieve: OnceLock::new(),
        };
        if !spec.built_in {
            pattern.compiled = OnceLock::from(Some(Compiled::new(&hir)?));
        }
        Ok(pattern)
    }

    /// A built-in pattern is compiled when it is first needed: most never are.
    fn compiled(&self, ascii: bool) -> Option<&Compiled> {
        let compiled = if ascii {
            let compile = || Compiled::new(&for_ascii(&self.hir())).ok();
            self.compiled_for_ascii.get_or_init(compile)
        } else {
            let compile = || Compiled::new(&self.hir()).ok();
            self.compiled.get_or_init(compile)
        };
        compiled.as_ref()
    }

    fn sieve(&self) -> Option<&Search> {
        let make = || Search::new(&coarse(&self.hir())).ok();
        self.sieve.get_or_init(make).as_ref()
    }

    /// Whether a match may begin in this part of the text. In ASCII it is as fast to look for the match itself.
    pub(super) fn may_match(&self, haystack: &Haystack<'_>, window: &Range<usize>) -> bool {
        let input = haystack.input(window).earliest(true);
        haystack.meets_only_ascii(window)
            || self.sieve().is_none_or(|sieve| {
                sieve.with(|regex, cache| regex.search_half_with(cache, &input).is_some())
            })
    }

    /// What matches wherever it finds something, and perhaps elsewhere, without Unicode's word boundaries.
    pub(super) fn finding_hir(&self) -> Hir {
        let hir = match self.hir().into_kind() {
            HirKind::Alternation(mut branches) => {
                branches.retain(|branch| !is_skip(branch));
                Hir::alternation(branches)
            }
            _ => self.hir(),
        };
        with_ascii_boundaries(&hir).unwrap_or(hir)
    }

    /// Compiles what a search of such a text needs.
    pub(super) fn warm(&self, ascii: bool) {
        self.compiled(ascii);
    }

    pub(super) fn is(&self, spec: &PatternSpec<'_>) -> bool {
        self.source == spec.regex
            && self.unspaced == spec.unspaced
            && self.ignore_case == spec.ignore_case
            && self.keywords == spec.keywords
            && self.asked == spec.requires
            && self.checks == spec.checks
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Whether some text has needed it in full.
    #[cfg(test)]
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some() || self.compiled_for_ascii.get().is_some()
    }

    /// Its tree, read again: those of a thousand patterns would take more memory than all the rest, and
    /// most patterns are never looked for.
    pub(super) fn hir(&self) -> Hir {
        let spec = PatternSpec {
            regex: &self.source,
            ignore_case: self.ignore_case,
            unspaced: self.unspaced,
            ..PatternSpec::default()
        };
        // It could be read once.
        parse(&spec).unwrap_or_else(|_| Hir::empty())
    }

    /// Whether it asks for the beginning or the end of a text, and takes nothing else for it.
    pub(super) fn knows_ends(&self) -> bool {
        self.knows_ends
    }

    /// The fewest bytes that a match has.
    pub(super) fn min_len(&self) -> usize {
        self.min_len
    }

    /// Whether looking for one match costs no more than so many bytes, however long the text.
    pub(super) fn confirms_locally(&self) -> bool {
        self.confirms_locally
    }

    pub(super) fn cues(&self) -> &[Cue] {
        &self.cues
    }

    /// The longest that a match can be, if there is a limit.
    pub(super) fn max_len(&self) -> Option<usize> {
        self.max_len
    }

    /// The longest that a match can be in a text with these runs.
    pub(super) fn max_len_in(&self, text: Runs) -> Option<usize> {
        self.length.map(|length| length.within(text))
    }

    /// What announces it, if no literal does.
    pub(super) fn requirement(&self) -> Option<Requirement> {
        self.requires.filter(|_| self.cues.is_empty())
    }

    pub(super) fn is_unfiltered(&self) -> bool {
        self.cues.is_empty() && self.requires.is_none()
    }

    /// The first value, looked for in all of the text, without a sieve.
    pub(super) fn find(&self, text: &str) -> Option<Range<usize>> {
        let haystack = Haystack {
            text,
            ascii: text.is_ascii(),
            max_len: self.max_len(),
        };
        let mut first = None;
        let all = iter::once(0..text.len());
        self.search(&haystack, haystack.ascii, all, &mut 0, |found| {
            first = found.value;
            first.is_none()
        });
        first
    }

    /// Every match that begins in one of these parts of the text, which are in order, until somebody has seen enough.
    pub(super) fn each(
        &self,
        haystack: &Haystack<'_>,
        windows: impl Iterator<Item = Range<usize>>,
        mut found: impl FnMut(Found) -> bool,
    ) {
        let mut windows = windows.peekable();
        let mut done = 0;
        while let Some(next) = windows.peek() {
            let ascii = haystack.meets_only_ascii(next);
            let alike = |window: &Range<usize>| haystack.meets_only_ascii(window) == ascii;
            let windows = iter::from_fn(|| windows.next_if(alike));
            let windows = windows.filter(|window| ascii || self.may_match(haystack, window));
            if !self.search(haystack, ascii, windows, &mut done, &mut found) {
                return;
            }
        }
    }

    /// The same from `done` on, in parts that all meet nothing but ASCII, or may meet anything else.
    pub(super) fn search(
        &self,
        haystack: &Haystack<'_>,
        ascii: bool,
        mut windows: impl Iterator<Item = Range<usize>>,
        done: &mut usize,
        mut found: impl FnMut(Found) -> bool,
    ) -> bool {
        let left = |window: Range<usize>, done: usize| {
            let window = window.start.max(done)..window.end;
            (!window.is_empty()).then_some(window)
        };
        let first = windows.by_ref().find_map(|window| left(window, *done));
        let Some(mut window) = first else {
            return true;
        };
        let Some(compiled) = self.compiled(ascii) else {
            // What cannot be searched must not pass. Tests compile every built-in pattern, so this
            // is for the reader's peace of mind.
            return found(Found {
                whole: window.clone(),
                value: Some(window),
            });
        };
        compiled.regex.with(|regex, cache| {
            loop {
                let matched = |one: Found| {
                    *done = one.whole.end;
                    found(one)
                };
                if !self.search_one(haystack, &window, compiled, (regex, cache), matched) {
                    return false;
                }
                match windows.by_ref().find_map(|window| left(window, *done)) {
                    Some(next) => window = next,
                    None => return true,
                }
            }
        })
    }

    fn search_one(
        &self,
        haystack: &Haystack<'_>,
        window: &Range<usize>,
        compiled: &Compiled,
        (regex, cache): (&meta::Regex, &mut meta::Cache),
        mut found: impl FnMut(Found) -> bool,
    ) -> bool {
        let text = haystack.text;
        let input = haystack.input(window);
        let end = input.end();
        let mut at = window.start;
        let mut count = 0;
        while let Some(one) = regex.search_with(cache, &input.clone().range(at..end)) {
            if one.start() >= window.end {
                return true;
            }
            let mut whole = one.range();
            let too_many = count == MAX_UNBOUNDED_MATCHES && !self.confirms_locally;
            if too_many {
                whole.end = text.len();
            }
            count += 1;
            at = whole.end;
            let value = if too_many {
                // Nobody has looked at the rest, so nothing speaks for it.
                Some(whole.clone())
            } else if compiled.skipped[one.pattern()] {
                None
            } else {
                let groups = compiled.groups.clone().map(|mut groups| {
                    let input = Input::new(text)
                        .range(whole.clone())
                        .anchored(Anchored::Yes);
                    regex.search_captures_with(cache, &input, &mut groups);
                    groups
                });
                self.value(groups.as_ref(), text, &whole)
            };
            if !found(Found { whole, value }) {
                return false;
            }
        }
        true
    }

    fn value(
        &self,
        groups: Option<&Captures>,
        text: &str,
        whole: &Range<usize>,
    ) -> Option<Range<usize>> {
        if self
            .requires
            .is_some_and(|requires| !requires.holds(&text[whole.clone()]))
        {
            return None;
        }
        let found = groups.iter().flat_map(|groups| {
            let pattern = groups.pattern().unwrap_or(PatternID::ZERO);
            let names = groups.group_info().pattern_names(pattern);
            names
                .zip(groups.iter())
                .filter_map(|(name, at)| name.zip(at))
        });
        let mut value = whole.clone();
        for (name, at) in found {
            if skips(name) {
                return None;
            }
            if name == VALUE {
                value = at.range();
            }
        }
        let holds = |check: &Check| check.holds(&text[value.clone()]);
        self.checks.iter().all(holds).then_some(value)
    }
}

/// The group that says which part of a match is wanted.
const VALUE: &str = "value";

/// How groups begin whose branches are only there so that what they take is not looked at.
const SKIP: &str = "skip";

/// Whether the end of a match is certain within a bounded distance after it. `a.*b` is not: each
/// match must look for a later `b` up to the end of the line, so a thousand matches can cost a
/// thousand passes.
fn confirms_locally(hir: &Hir) -> bool {
    if hir
        .properties()
        .maximum_len()
        .is_some_and(|max| max <= BOUNDED_MATCH)
    {
        return true;
    }
    let HirKind::Concat(parts) = hir.kind() else {
        return false;
    };
    let mut parts = parts.as_slice();
    while let [rest @ .., last] = parts {
        if !matches!(last.kind(), HirKind::Look(_)) {
            break;
        }
        parts = rest;
    }
    let Some((HirKind::Repetition(tail), head)) =
        parts.split_last().map(|(last, head)| (last.kind(), head))
    else {
        return false;
    };
    let one_character = matches!(tail.sub.kind(), HirKind::Class(_))
        || tail.sub.properties().maximum_len() == Some(1);
    let head_is_short = head
        .iter()
        .try_fold(0usize, |sum, part| {
            Some(sum + part.properties().maximum_len()?)
        })
        .is_some_and(|sum| sum <= SHORT_MATCH);
    tail.greedy && one_character && head_is_short
}

fn skips(group: &str) -> bool {
    group.starts_with(SKIP)
}

/// Whether it is a branch that is skipped.
fn is_skip(branch: &Hir) -> bool {
    matches!(branch.kind(), HirKind::Capture(capture) if capture.name.as_deref().is_some_and(skips))
}

//! One pattern: its regular expression and the literals that announce it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input, PatternID, meta};
use regex_syntax::hir::{Capture, Class, ClassUnicodeRange, Hir, HirKind, Repetition};

use super::boundaries::{for_ascii, with_ascii_boundaries};
use super::ends::knows_ends;
use super::literals::{self, Factor, Literal};
use super::runs::{Length, Runs};
use super::screen::Screen;
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

/// What one compiled pattern may take.
const MAX_COMPILED_BYTES: usize = 4 << 20;

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
    let mut outlines = Vec::new();
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
    regex: meta::Regex,
    /// Matches wherever `regex` does, and perhaps elsewhere, but fast on any text. Few are ever needed.
    rough: OnceLock<Option<meta::Regex>>,
    /// With a group `value` or `skip…`: room for where it is.
    groups: Option<Captures>,
}

impl Compiled {
    fn new(hir: &Hir) -> Result<Self, PatternError> {
        let regex = build(hir)?;
        let groups = regex.create_captures();
        let mut names = groups.group_info().all_names();
        let asked = names.any(|(_, _, name)| name.is_some_and(|name| name == VALUE || skips(name)));
        Ok(Self {
            regex,
            rough: OnceLock::new(),
            groups: asked.then_some(groups),
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

    fn rough<'c>(&self, compiled: &'c Compiled) -> Option<&'c meta::Regex> {
        let make = || with_ascii_boundaries(&self.hir()).and_then(|hir| build(&hir).ok());
        compiled.rough.get_or_init(make).as_ref()
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
        if let Some(compiled) = self.compiled(ascii)
            && !ascii
        {
            self.rough(compiled);
        }
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

    /// The first value.
    pub(super) fn find(&self, text: &str) -> Option<Range<usize>> {
        let mut first = None;
        self.try_each(
            text,
            0..text.len(),
            self.max_len(),
            text.is_ascii(),
            |found| {
                first = found.value;
                first.is_none()
            },
        );
        first
    }

    /// Every match that begins in this part of the text, in order, given how long one can be and whether
    /// all of the text is ASCII.
    pub(super) fn each(
        &self,
        text: &str,
        window: Range<usize>,
        max_len: Option<usize>,
        ascii: bool,
        mut found: impl FnMut(Found),
    ) {
        self.try_each(text, window, max_len, ascii, |one| {
            found(one);
            true
        });
    }

    fn try_each(
        &self,
        text: &str,
        window: Range<usize>,
        max_len: Option<usize>,
        ascii: bool,
        mut found: impl FnMut(Found) -> bool,
    ) {
        let Some(compiled) = self.compiled(ascii) else {
            // What cannot be searched must not pass. Tests compile every built-in pattern, so this
            // is for the reader's peace of mind.
            found(Found {
                whole: window.clone(),
                value: Some(window),
            });
            return;
        };
        // No match that begins in the window reaches further, so nobody looks further.
        let end = match max_len {
            Some(max) => text.len().min(window.end.saturating_add(max)),
            None => text.len(),
        };
        // Where only one beginning is possible, the search ends as soon as that is none.
        let anchored = if window.len() == 1 {
            Anchored::Yes
        } else {
            Anchored::No
        };
        // Not `is_match`: where it finds itself looking at the same text again and again, it goes on with
        // the slowest of its engines.
        let here = Input::new(text)
            .range(window.start..end)
            .anchored(anchored)
            .earliest(true);
        if !ascii
            && let Some(rough) = self.rough(compiled)
            && rough.search_half(&here).is_none()
        {
            return;
        }
        let mut at = window.start;
        let mut count = 0;
        while let Some(one) = compiled
            .regex
            .find(Input::new(text).range(at..end).anchored(anchored))
        {
            if one.start() >= window.end {
                return;
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
            } else {
                self.value(compiled, text, &whole)
            };
            if !found(Found { whole, value }) {
                return;
            }
        }
    }

    fn value(&self, compiled: &Compiled, text: &str, whole: &Range<usize>) -> Option<Range<usize>> {
        if self
            .requires
            .is_some_and(|requires| !requires.holds(&text[whole.clone()]))
        {
            return None;
        }
        let mut groups = compiled.groups.clone();
        if let Some(groups) = &mut groups {
            let input = Input::new(text)
                .range(whole.clone())
                .anchored(Anchored::Yes);
            compiled.regex.search_captures(&input, groups);
        }
        let found = groups.iter().flat_map(|groups| {
            let names = groups.group_info().pattern_names(PatternID::ZERO);
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

/// From the tree itself: printing it and reading it again does not always give it back.
fn build(hir: &Hir) -> Result<meta::Regex, PatternError> {
    meta::Regex::builder()
        .configure(meta::Config::new().nfa_size_limit(Some(MAX_COMPILED_BYTES)))
        .build_from_hir(hir)
        .map_err(|error| match error.size_limit() {
            Some(limit) => PatternError::TooLarge(limit),
            None => PatternError::Syntax(error.to_string()),
        })
}

/// The group that says which part of a match is wanted.
const VALUE: &str = "value";

/// How groups begin whose branches are only there so that what they take is not looked at.
const SKIP: &str = "skip";

fn parse(spec: &PatternSpec<'_>) -> Result<Hir, PatternError> {
    if has_extended_flag(spec.regex) {
        return Err(PatternError::Syntax(
            "the flag `x` is not taken: write the pattern without blanks and comments".to_owned(),
        ));
    }
    let hir = regex_syntax::ParserBuilder::new()
        .case_insensitive(spec.ignore_case)
        .nest_limit(64)
        .build()
        .parse(&with_python_classes(spec.regex))
        .map_err(|error| PatternError::Syntax(first_line(&error.to_string())))?;
    let hir = if spec.ignore_case {
        with_python_i(hir)
    } else {
        hir
    };
    Ok(if spec.unspaced {
        without_space(&hir)
    } else {
        hir
    })
}

/// The pattern for a text whose words run together.
fn without_space(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(without_space).collect();
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Hir::empty(),
        HirKind::Literal(literal) => {
            let space = |byte: &u8| byte.is_ascii_whitespace();
            let kept: Vec<u8> = literal.0.iter().copied().filter(|b| !space(b)).collect();
            Hir::literal(kept)
        }
        HirKind::Class(Class::Unicode(class)) => {
            let space = |range: &ClassUnicodeRange| {
                let (start, end) = (range.start(), range.end());
                (start..=end).all(|c| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
            };
            if class.iter().all(space) {
                return Hir::empty();
            }
            hir.clone()
        }
        HirKind::Class(_) => hir.clone(),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(without_space(&repetition.sub)),
            ..*repetition
        }),
        HirKind::Capture(capture) => Hir::capture(Capture {
            sub: Box::new(without_space(&capture.sub)),
            ..capture.clone()
        }),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
    }
}

/// A regular expression that takes no more than so many bytes.
pub(crate) fn compile(regex: &str, max_bytes: usize) -> Result<regex::Regex, PatternError> {
    regex::RegexBuilder::new(regex)
        .size_limit(max_bytes)
        .nest_limit(64)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => PatternError::TooLarge(limit),
            other => PatternError::Syntax(first_line(&other.to_string())),
        })
}

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

/// Whether `(?x)` is switched on anywhere. Comments could hold brackets, which the translation of
/// classes would take for the pattern's own.
fn has_extended_flag(regex: &str) -> bool {
    let mut escaped = false;
    regex.char_indices().any(|(at, c)| {
        let group = !escaped && regex[at..].starts_with("(?");
        escaped = c == '\\' && !escaped;
        let flags = || {
            regex[at + 2..]
                .chars()
                .take_while(char::is_ascii_alphabetic)
        };
        group && flags().any(|flag| flag == 'x')
    })
}

/// The pattern with Python's classes, in Rust's words. Python's `\s` takes the four information
/// separators, its `\w` takes `½` and leaves combining marks: a text must not slip past a pattern
/// that was written for Python. (Its `\b` differs alike and has no words in Rust; it stays as it is.)
fn with_python_classes(regex: &str) -> String {
    let mut out = String::with_capacity(regex.len());
    let mut in_class = 0usize;
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(class @ ('s' | 'S' | 'w' | 'W')) => {
                    let members = match class {
                        's' | 'S' => r"\s\x1c-\x1f",
                        _ => r"\p{L}\p{N}_",
                    };
                    match class {
                        'S' | 'W' => out.extend(["[^", members, "]"]),
                        _ if in_class > 0 => out.push_str(members),
                        _ => out.extend(["[", members, "]"]),
                    }
                }
                Some(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                }
                None => out.push('\\'),
            },
            '[' => {
                in_class += 1;
                out.push(c);
            }
            ']' => {
                in_class = in_class.saturating_sub(1);
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// To Python's `IGNORECASE`, `i` is also `ı` and `İ`; to Unicode they are letters of their own.
fn with_python_i(hir: Hir) -> Hir {
    let each = |parts: Vec<Hir>| parts.into_iter().map(with_python_i).collect();
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(mut class)) => {
            let has = |c: char| class.iter().any(|r| r.start() <= c && c <= r.end());
            if has('i') && has('I') {
                for c in ['\u{130}', '\u{131}'] {
                    class.push(ClassUnicodeRange::new(c, c));
                }
            }
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(class) => Hir::class(class),
        HirKind::Repetition(Repetition {
            min,
            max,
            greedy,
            sub,
        }) => Hir::repetition(Repetition {
            min,
            max,
            greedy,
            sub: Box::new(with_python_i(*sub)),
        }),
        HirKind::Capture(Capture { index, name, sub }) => Hir::capture(Capture {
            index,
            name,
            sub: Box::new(with_python_i(*sub)),
        }),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Empty => Hir::empty(),
    }
}

fn skips(group: &str) -> bool {
    group.starts_with(SKIP)
}

/// Whether it is a branch that is skipped.
fn is_skip(branch: &Hir) -> bool {
    matches!(branch.kind(), HirKind::Capture(capture) if capture.name.as_deref().is_some_and(skips))
}

/// `regex` draws a picture under the pattern; its last line says what is wrong.
fn first_line(error: &str) -> String {
    error
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("error: "))
        .unwrap_or(error)
        .to_owned()
}

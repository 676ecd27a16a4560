//! What built-in rules judge: an event with what the scan says of its texts.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;

use super::RuleInput;
use crate::decision::RedactionSpec;
use crate::redact::Cursor;
use crate::scan::{Candidates, PatternId, Scanner};
use crate::views::{Disguise, View};

/// An event with its snapshot and the result of the scan: what built-in rules judge.
#[derive(Debug)]
pub struct Subject<'e> {
    pub(crate) input: RuleInput<'e>,
    pub(crate) scanner: &'e Scanner,
    pub(crate) scan: &'e EventScan<'e>,
}

/// What the scan of an event found worth a closer look.
#[derive(Debug)]
pub struct EventScan<'e> {
    pub(crate) text: Candidates,
    /// The part of the text that is judged; what stands around it is only looked at for word
    /// boundaries.
    pub(crate) window: Range<usize>,
    /// Strings of the structured part, and views of any string, that some pattern may match.
    pub(crate) leaves: Vec<Leaf<'e>>,
    /// Whether there was room for all views of all strings.
    pub(crate) complete: bool,
    /// Whether the tool's arguments name a host; nobody knows until somebody asks.
    pub(crate) names_hosts: Answer,
}

/// A yes or no that takes long to find. Whoever asks at the same time finds the same, so that nobody has to wait for another.
#[derive(Debug, Default)]
pub(crate) struct Answer(AtomicU8);

impl Answer {
    pub(crate) fn get_or_find(&self, find: impl FnOnce() -> bool) -> bool {
        const NO: u8 = 1;
        const YES: u8 = 2;
        match self.0.load(Ordering::Relaxed) {
            NO => false,
            YES => true,
            _ => {
                let found = find();
                self.0
                    .store(if found { YES } else { NO }, Ordering::Relaxed);
                found
            }
        }
    }
}

/// Where each pattern is in a rule's list. Few of a policy's patterns may match a text, and a rule asks
/// after those only.
#[derive(Debug, Default)]
pub(crate) struct Lookup(Vec<(PatternId, usize)>);

impl Lookup {
    /// For a rule's patterns, in order.
    pub(super) fn new(patterns: impl Iterator<Item = PatternId>) -> Self {
        let mut places: Vec<_> = patterns.zip(0..).collect();
        places.sort_unstable();
        Self(places)
    }

    pub(super) fn of(&self, id: PatternId) -> impl Iterator<Item = usize> {
        let start = self.0.partition_point(|(known, _)| *known < id);
        let same = self.0[start..]
            .iter()
            .take_while(move |(known, _)| *known == id);
        same.map(|(_, place)| *place)
    }
}

/// What a redaction calls what it replaces.
pub(crate) struct Label {
    pub(crate) entity_type: Cow<'static, str>,
    pub(crate) replacement: Cow<'static, str>,
}

#[derive(Debug)]
pub(crate) struct Leaf<'e> {
    /// As in a redaction: `text`, or a JSON Pointer, with `#` before it if the text is a member's name.
    pub(crate) path: Cow<'static, str>,
    pub(crate) text: Cow<'e, str>,
    pub(crate) searched: Searched,
    /// Where the search begins, in what is searched.
    pub(crate) from: usize,
    pub(crate) candidates: Candidates,
}

/// What is searched for what a string has in it.
#[derive(Debug)]
pub(crate) enum Searched {
    /// The string.
    Plain,
    /// The string without a disguise.
    View(View),
    /// The string behind the name of the member that it is: many a value is known by its name.
    Named(Named),
}

/// `"name": "value"`.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) text: String,
    /// Where the value is in it.
    pub(crate) value: Range<usize>,
    /// The same without a disguise, if that is what is searched.
    pub(crate) view: Option<View>,
}

/// Whose values a pattern is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Names are strings by themselves.
    Apart,
    /// Names also say what stands behind them.
    Told,
}

/// Which disguises a rule sees through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// None.
    Plain,
    /// Those that leave letters, digits and their order alone: a value is still the value.
    Values,
    /// All of them.
    All,
}

impl Sight {
    /// A rule's `evasions`: off unless it says so, because RFC-001 has none.
    pub(super) fn of(evasions: bool, sight: Self) -> Self {
        if evasions { sight } else { Self::Plain }
    }

    pub(super) fn sees(self, disguise: Disguise) -> bool {
        match self {
            Self::Plain => false,
            Self::Values => disguise.keeps_values(),
            Self::All => true,
        }
    }
}

impl<'e> Subject<'e> {
    /// Whether no pattern of the policy can match any text of the event.
    pub(crate) fn is_plain(&self) -> bool {
        self.scan.text.is_empty() && self.scan.leaves.is_empty()
    }

    /// The text of a place: 0 is the event's text, the others are strings of its structured part.
    pub(crate) fn text(&self, place: usize) -> &'e str {
        match place.checked_sub(1) {
            None => self.input.event.text(),
            Some(leaf) => &self.scan.leaves[leaf].text,
        }
    }

    pub(super) fn path(&self, place: usize) -> Cow<'static, str> {
        match place.checked_sub(1) {
            None => Cow::Borrowed(RedactionSpec::TEXT),
            Some(leaf) => self.scan.leaves[leaf].path.clone(),
        }
    }

    /// Which of a rule's patterns may match somewhere, by their places in its list, in order.
    pub(crate) fn candidates(&self, patterns: &Lookup) -> SmallVec<[usize; 8]> {
        let leaves = self.scan.leaves.iter().map(|leaf| &leaf.candidates);
        let scans = std::iter::once(&self.scan.text).chain(leaves);
        let mut found: SmallVec<[usize; 8]> = scans
            .flat_map(Candidates::iter)
            .flat_map(|id| patterns.of(id))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Every match of a pattern that speaks for itself: in which place, and where in its text.
    pub(crate) fn each(&self, id: PatternId, sight: Sight, found: impl FnMut(usize, Range<usize>)) {
        self.each_by(id, sight, Names::Apart, found);
    }

    /// Every value that a pattern finds, also by the names of members.
    pub(super) fn each_value(
        &self,
        id: PatternId,
        sight: Sight,
        found: impl FnMut(usize, Range<usize>),
    ) {
        self.each_by(id, sight, Names::Told, found);
    }

    fn each_by(
        &self,
        id: PatternId,
        sight: Sight,
        names: Names,
        mut found: impl FnMut(usize, Range<usize>),
    ) {
        let EventScan {
            text,
            window,
            leaves,
            complete: _,
            names_hosts: _,
        } = self.scan;
        if text.contains(id) {
            let event_text = self.input.event.text();
            self.scanner
                .find_all(id, event_text, text, window.clone(), |range| {
                    found(0, range);
                });
        }
        for (index, leaf) in leaves.iter().enumerate() {
            if leaf.candidates.contains(id) {
                self.each_in_leaf(leaf, id, sight, names, |range| {
                    found(index + 1, range);
                });
            }
        }
    }

    /// The same in one string of the structured part, or one view.
    fn each_in_leaf(
        &self,
        leaf: &Leaf<'_>,
        id: PatternId,
        sight: Sight,
        names: Names,
        mut found: impl FnMut(Range<usize>),
    ) {
        let (scanner, candidates) = (self.scanner, &leaf.candidates);
        let view = match &leaf.searched {
            Searched::Plain => {
                let all = 0..leaf.text.len();
                return scanner.find_all(id, &leaf.text, candidates, all, found);
            }
            Searched::Named(_) if names == Names::Apart => return,
            Searched::Named(Named { text, value, view }) => {
                let searched = match view {
                    Some(view) if !sight.sees(view.disguise()) => return,
                    Some(view) => view.text(),
                    None => text,
                };
                return scanner.find_all(id, searched, candidates, 0..searched.len(), |range| {
                    let range = match view {
                        Some(view) => view.original(range),
                        None => range,
                    };
                    // Of the name its own leaf says what there is to say.
                    let (start, end) = (range.start.max(value.start), range.end.min(value.end));
                    if start < end {
                        found(start - value.start..end - value.start);
                    }
                });
            }
            Searched::View(view) if !sight.sees(view.disguise()) => return,
            Searched::View(view) => view,
        };
        let judged = |range: &Range<usize>| {
            let window = &self.scan.window;
            leaf.path != RedactionSpec::TEXT
                || window.start <= range.start && range.end <= window.end
        };
        let text = view.text();
        scanner.find_all(id, text, candidates, leaf.from..text.len(), |range| {
            let original = view.original(range);
            if judged(&original) {
                found(original);
            }
        });
    }

    /// The path of the first string in which a pattern finds something, among the paths that count.
    pub(crate) fn find_path(
        &self,
        id: PatternId,
        sight: Sight,
        counts: impl Fn(&str) -> bool,
    ) -> Option<Cow<'static, str>> {
        let mut path = None;
        self.each_value(id, sight, |place, _| {
            if path.is_none() {
                path = Some(self.path(place)).filter(|path| counts(path));
            }
        });
        path
    }

    /// The views whose words may run together, with their places.
    pub(crate) fn unspaced(&self) -> impl Iterator<Item = (usize, &View)> {
        let leaves = self.scan.leaves.iter().enumerate();
        leaves.filter_map(|(index, leaf)| match &leaf.searched {
            Searched::View(view) if view.disguise() == Disguise::Spaced => Some((index + 1, view)),
            _ => None,
        })
    }

    /// For the text of a place. What the scan knows of it need not be found out for every pattern.
    pub(super) fn cursor(&self, place: usize) -> Cursor<'e> {
        let text = self.text(place);
        let scanned = match place.checked_sub(1).map(|leaf| &self.scan.leaves[leaf]) {
            None => Some(&self.scan.text),
            Some(leaf) => matches!(leaf.searched, Searched::Plain).then_some(&leaf.candidates),
        };
        match scanned {
            Some(candidates) if candidates.is_of_ascii() => Cursor::knowing(text, true),
            _ => Cursor::new(text),
        }
    }

    /// The redaction of one value.
    pub(crate) fn redaction(
        &self,
        place: usize,
        range: Range<usize>,
        label: &Label,
    ) -> RedactionSpec {
        label.redaction(self.path(place), &mut self.cursor(place), range)
    }

    /// A redaction for every value that a pattern finds.
    /// `finish` sees each value with its redaction.
    pub(crate) fn redactions(
        &self,
        id: PatternId,
        sight: Sight,
        label: &Label,
        into: &mut Vec<RedactionSpec>,
        mut finish: impl FnMut(&str, &mut RedactionSpec),
    ) {
        let mut at: Option<(usize, Cow<'static, str>, Cursor<'_>)> = None;
        self.each_value(id, sight, |place, range| {
            if at.as_ref().is_none_or(|(known, _, _)| *known != place) {
                at = Some((place, self.path(place), self.cursor(place)));
            }
            if let Some((_, path, cursor)) = &mut at {
                let mut spec = label.redaction(path.clone(), cursor, range.clone());
                finish(&self.text(place)[range], &mut spec);
                into.push(spec);
            }
        });
    }
}

impl Label {
    pub(super) fn redaction(
        &self,
        path: Cow<'static, str>,
        cursor: &mut Cursor<'_>,
        range: Range<usize>,
    ) -> RedactionSpec {
        RedactionSpec {
            path,
            replacement: self.replacement.clone(),
            entity_type: Some(self.entity_type.clone()),
            start_offset: Some(cursor.code_point_of(range.start)),
            end_offset: Some(cursor.code_point_of(range.end)),
            restorable: false,
        }
    }
}

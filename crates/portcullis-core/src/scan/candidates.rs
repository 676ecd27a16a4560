//! What a scan says: which patterns may match a text, and where.

use std::ops::Range;

use smallvec::SmallVec;

use super::PatternId;
use super::pattern::{Haystack, Pattern};
use super::runs::Runs;

/// In order of the patterns, and for each in the order of the text.
pub(super) type Regions = SmallVec<[(PatternId, Range<usize>); 16]>;

/// The patterns that may match a text, and where their matches can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    regions: Regions,
    /// Of the text, if a pattern whose matches have no limit may match.
    pub(super) runs: Option<Runs>,
    /// Whether the text is all ASCII.
    pub(super) ascii: bool,
}

impl Candidates {
    /// What a scan that finds nothing says.
    pub(crate) fn none() -> Self {
        Self {
            regions: SmallVec::new(),
            runs: None,
            ascii: false,
        }
    }

    pub(super) fn note(&mut self, id: PatternId, region: Range<usize>) {
        match self.regions.last_mut() {
            Some((last, known))
                if *last == id && known.start <= region.start && region.start <= known.end =>
            {
                known.end = known.end.max(region.end);
            }
            _ => self.regions.push((id, region)),
        }
    }

    /// Sorts the regions, and joins those of a pattern that overlap.
    pub(super) fn put_in_order(&mut self) {
        if self.regions.len() > 1 {
            self.regions
                .sort_unstable_by_key(|(id, region)| (*id, region.start));
            self.regions.dedup_by(|(id, next), (known, region)| {
                let joined = id == known && next.start <= region.end;
                if joined {
                    region.end = region.end.max(next.end);
                }
                joined
            });
        }
    }

    /// Leaves these regions and no others.
    pub(super) fn leave(&mut self, regions: Regions) {
        self.regions = regions;
    }

    /// The patterns that may match, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PatternId> {
        let groups = self.regions.chunk_by(|(a, _), (b, _)| a == b);
        groups.map(|group| group[0].0)
    }

    /// Whether this pattern may match.
    #[inline]
    pub fn contains(&self, id: PatternId) -> bool {
        self.regions(id).next().is_some()
    }

    /// Whether no pattern can match.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Whether the text is known to be all ASCII.
    pub(crate) fn is_of_ascii(&self) -> bool {
        self.ascii
    }

    /// The text as it is searched for a pattern.
    pub(super) fn haystack<'t>(&self, text: &'t str, pattern: &Pattern) -> Haystack<'t> {
        Haystack {
            text,
            ascii: self.ascii,
            max_len: match self.runs {
                Some(runs) => pattern.max_len_in(runs),
                None => pattern.max_len(),
            },
        }
    }

    /// The regions of a pattern; or if looking into each could mean to look at the same text again and
    /// again, one that takes in all of them.
    pub(super) fn worthwhile_regions(
        &self,
        id: PatternId,
        max_len: Option<usize>,
        text_len: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        /// A match of any length that is certain of its end is past before it is long.
        const SOON_CERTAIN: usize = 64;
        let count = self.regions(id).count();
        let together =
            count.saturating_mul(max_len.unwrap_or(SOON_CERTAIN)) > text_len && count > 1;
        let all = together.then(|| {
            let start = self.regions(id).next().map_or(0, |first| first.start);
            start..self.regions(id).last().map_or(start, |last| last.end)
        });
        let each = self.regions(id).filter(move |_| !together);
        all.into_iter().chain(each)
    }

    fn regions(&self, id: PatternId) -> impl Iterator<Item = Range<usize>> {
        let start = self.regions.partition_point(|(known, _)| *known < id);
        let own = self.regions[start..].iter();
        own.take_while(move |(known, _)| *known == id)
            .map(|(_, region)| region.clone())
    }
}

//! How near a row is to a query, of how many of its words it has and how alike they mean.

/// How much meaning weighs against words, which weigh the rest. This and the other numbers here do best on
/// labelled text: `docs/BENCHMARKS.md` has the results.
pub(super) const MEANING: f32 = 0.4;

/// How soon another occurrence of a word stops to matter.
pub(super) const K1: f32 = 1.5;

/// How much a document loses for being longer than others.
pub(super) const B: f32 = 0.75;

/// Up to here the score of words is as it is; from here on it comes nearer to 1 and never over it.
const KNEE: f32 = 0.8;

/// Which half of a search decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// Both, as it should be.
    #[default]
    Both,
    /// Words alone.
    Words,
    /// Meaning alone.
    Meaning,
}

/// BM25, for a query and the documents that there are now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bm25 {
    documents: f32,
    shortest: f32,
    slope: f32,
}

impl Bm25 {
    /// For this many documents of so many words altogether.
    pub(super) fn new(documents: usize, words: u64) -> Self {
        let average = words as f32 / documents.max(1) as f32;
        Self {
            documents: documents as f32,
            shortest: K1 * (1.0 - B),
            slope: K1 * B / average.max(1.0),
        }
    }

    /// How much a word says that so many documents have. One that nobody has says as much as the rarest:
    /// a document without it lacks something.
    pub(super) fn rarity(self, having: usize) -> f32 {
        let having = having.max(1) as f32;
        let lacking = (self.documents - having).max(0.0);
        (1.0 + (lacking + 0.5) / (having + 0.5)).ln()
    }

    /// What a word is worth that a document of this length has so often: 1 for once in an average one.
    pub(super) fn part(self, count: u8, length: u16) -> f32 {
        let count = f32::from(count);
        count * (K1 + 1.0) / (count + self.shortest + self.slope * f32::from(length))
    }
}

/// The share of a query's words that a document has, from 0 to 1: its BM25 against that of a document of
/// average length which has every word once. Long documents that have all of them still get most of it, and
/// those that have them more often come nearer to 1, never over it.
pub(super) fn words(bm25: f32, once_each: f32) -> f32 {
    if once_each <= 0.0 {
        return 0.0;
    }
    let share = bm25 / once_each;
    if share <= KNEE {
        return share;
    }
    let rest = 1.0 - KNEE;
    KNEE + rest * (1.0 - ((KNEE - share) / rest).exp())
}

/// The distance of what has this share of words and this cosine, which is none if the query has no vector.
/// None if there is nothing in common at all.
///
/// It is the square of what is lacking, so that half of everything in common is near, at 0.25: few texts
/// that speak of the same thing do so in the same words.
pub(super) fn distance(by: By, cosine: Option<f32>, words: f32) -> Option<f32> {
    let near = match (by, cosine) {
        (By::Meaning, cosine) => cosine.unwrap_or_default().clamp(0.0, 1.0),
        (By::Words, _) | (By::Both, None) => words,
        (By::Both, Some(cosine)) => MEANING * cosine.clamp(0.0, 1.0) + (1.0 - MEANING) * words,
    };
    (near > 0.0).then(|| (1.0 - near).clamp(0.0, 1.0).powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_with_all_words_is_near_however_long() {
        let bm25 = Bm25::new(1_000, 40_000);
        let all = |count, length| words(3.0 * bm25.part(count, length), 3.0);
        assert!((0.9..0.95).contains(&all(1, 40)), "{}", all(1, 40));
        assert!(all(1, 80) > 0.6 && all(1, 80) < all(1, 40));
        assert!(all(3, 40) > all(1, 40) && all(15, 1) <= 1.0);
    }

    #[test]
    fn a_rare_word_says_more_and_none_says_less_than_nothing() {
        let bm25 = Bm25::new(1_000, 40_000);
        assert!(bm25.rarity(1) > bm25.rarity(10));
        assert!(bm25.rarity(1_000) > 0.0);
        assert_eq!(bm25.rarity(0), bm25.rarity(1));
        assert!(Bm25::new(0, 0).rarity(0).is_finite());
    }

    #[test]
    fn what_has_nothing_in_common_has_no_distance() {
        assert_eq!(distance(By::Both, Some(-0.5), 0.0), None);
        assert_eq!(distance(By::Words, Some(0.5), 0.0), None);
        assert_eq!(distance(By::Meaning, Some(0.0), 0.5), None);
        assert_eq!(distance(By::Both, None, 0.5), Some(0.25));
        assert_eq!(distance(By::Both, Some(1.0), 1.0), Some(0.0));
        assert_eq!(words(0.0, 0.0), 0.0);
    }
}

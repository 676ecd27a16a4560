//! Checking a log, line by line.

use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};

use super::{Checkpoint, CheckpointError, Digest, Link, MAX_ENTRY_BYTES};
use crate::canonical::{self, Member, NotCanonical};

/// What is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A line that is longer than any entry.
    #[error("the line is over {MAX_ENTRY_BYTES} bytes, longer than any entry")]
    TooLong,
    /// A line that is not JSON.
    #[error("the line is not JSON: {problem}")]
    NotJson {
        /// What is wrong with it.
        problem: String,
    },
    /// A line that says the same as an entry might, but is not written as entries are.
    #[error("the line is not in canonical form: {problem}")]
    NotCanonical {
        /// What is wrong with it.
        problem: String,
    },
    /// An entry without one of the chain's members, or with something else in its place.
    #[error("the entry has no proper `{name}`")]
    Member {
        /// The member.
        name: &'static str,
    },
    /// An entry that is not what its digest was made of.
    #[error("entry {seq} was changed: its digest should be {computed}")]
    Digest {
        /// Its number.
        seq: u64,
        /// Of what stands there.
        computed: Digest,
    },
    /// Entries are missing before this one.
    #[error("entry {expected} should follow, but {found} does: {} missing", found - expected)]
    Gap {
        /// What should be here.
        expected: u64,
        /// What is.
        found: u64,
    },
    /// An entry that was there before, or that stands in the wrong place.
    #[error("entry {expected} should follow, but {found} does: repeated, or out of order")]
    Order {
        /// What should be here.
        expected: u64,
        /// What is.
        found: u64,
    },
    /// An entry that follows on another entry than the one before it.
    #[error("entry {seq} does not follow on the entry before it, whose digest is {expected}")]
    Prev {
        /// Its number.
        seq: u64,
        /// Of the entry before.
        expected: Digest,
    },
    /// A checkpoint that is not to be believed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A checkpoint of another log, or one in the wrong place.
    #[error("the checkpoint of entry {seq} does not follow on the one before it")]
    CheckpointOrder {
        /// The entry it covers.
        seq: u64,
    },
    /// An entry that is not the one that was signed.
    #[error("entry {seq} is not the one that was signed: that had the digest {signed}")]
    Signed {
        /// Its number.
        seq: u64,
        /// What the checkpoint says.
        signed: Digest,
    },
    /// The log ends before what a checkpoint covers.
    #[error(
        "the end was cut off: the log was signed up to entry {signed}, and ends with entry {last}"
    )]
    TailCut {
        /// How far the last checkpoint goes.
        signed: u64,
        /// How far the log goes.
        last: u64,
    },
}

/// Checks lines one after the other; what it keeps does not grow.
///
/// After a fault it goes on from what it found, so that one edit is one fault and others still show.
#[derive(Debug, Clone)]
pub struct Verifier {
    head: Link,
    /// Whether nothing is known of the entry before, after a line that could not be read.
    lost: bool,
}

impl Verifier {
    /// For what follows on this entry: [`Chain::START`](super::Chain::START)'s, for a log from its
    /// beginning.
    pub fn new(after: Link) -> Self {
        Self {
            head: after,
            lost: false,
        }
    }

    /// The last entry, as far as it could be read.
    pub fn head(&self) -> Link {
        self.head
    }

    /// Checks a line, given without its newline.
    pub fn entry(&mut self, line: &[u8]) -> Result<Link, Fault> {
        let entry = read(line).inspect_err(|_| self.lost = true)?;
        let before = self.head;
        let lost = std::mem::replace(&mut self.lost, false);
        self.head = Link {
            seq: entry.seq,
            digest: entry.stated,
        };
        if entry.computed != entry.stated {
            return Err(Fault::Digest {
                seq: entry.seq,
                computed: entry.computed,
            });
        }
        if lost {
            return Ok(self.head);
        }
        let (expected, found) = (before.seq + 1, entry.seq);
        if found > expected {
            return Err(Fault::Gap { expected, found });
        }
        if found < expected {
            return Err(Fault::Order { expected, found });
        }
        if entry.prev != before.digest {
            return Err(Fault::Prev {
                seq: found,
                expected: before.digest,
            });
        }
        Ok(self.head)
    }

    /// Checks what stands after the last newline, which a writer that is at work or has been stopped may
    /// leave: the beginning of an entry. A whole one with something behind it is none, it is an edit.
    pub fn torn(&self, bytes: &[u8]) -> Result<(), Fault> {
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
        let is_whole = matches!(values.next(), Some(Ok(_)));
        if is_whole && values.byte_offset() < bytes.len() {
            return Err(Fault::NotCanonical {
                problem: "something else stands where the newline should".to_owned(),
            });
        }
        Ok(())
    }

    /// Checks that a checkpoint of the last entry says the same of it.
    pub fn agrees(&self, checkpoint: &Checkpoint) -> Result<(), Fault> {
        let Link { seq, digest } = checkpoint.head;
        if seq == self.head.seq && digest != self.head.digest {
            return Err(Fault::Signed {
                seq,
                signed: digest,
            });
        }
        Ok(())
    }

    /// Checks, after the last line, that nothing is missing of what was signed.
    pub fn end(&self, last: &Checkpoint) -> Result<(), Fault> {
        let (signed, last) = (last.head.seq, self.head.seq);
        if last < signed {
            return Err(Fault::TailCut { signed, last });
        }
        Ok(())
    }
}

impl Link {
    /// Reads a line by itself: whether it is an entry, and what its digest says. Where it belongs is for
    /// a [`Verifier`] to say.
    pub fn read(line: &[u8]) -> Result<Self, Fault> {
        let entry = read(line)?;
        if entry.computed != entry.stated {
            return Err(Fault::Digest {
                seq: entry.seq,
                computed: entry.computed,
            });
        }
        Ok(Self {
            seq: entry.seq,
            digest: entry.stated,
        })
    }
}

struct Entry {
    seq: u64,
    prev: Digest,
    stated: Digest,
    computed: Digest,
}

fn read(line: &[u8]) -> Result<Entry, Fault> {
    if line.len() >= MAX_ENTRY_BYTES {
        return Err(Fault::TooLong);
    }
    let text = str::from_utf8(line).map_err(|error| Fault::NotJson {
        problem: error.to_string(),
    })?;
    let (mut seq, mut prev, mut stated) = (None, None, None);
    let mut without = 0..0;
    let check = canonical::check(text, |Member { name, value, range }| match name {
        "digest" => {
            stated = digest(&text[value]);
            // With the comma after it; there is one, since `prev` comes later.
            without = range.start..range.end + 1;
        }
        "prev" => prev = digest(&text[value]),
        "seq" => seq = text[value].parse().ok(),
        _ => {}
    });
    check.map_err(|problem| not_canonical(line, &problem))?;
    let stated = stated.ok_or(Fault::Member { name: "digest" })?;
    let prev = prev.ok_or(Fault::Member { name: "prev" })?;
    let seq = seq.filter(|seq| (1..=canonical::MAX_EXACT_INTEGER).contains(seq));
    let seq = seq.ok_or(Fault::Member { name: "seq" })?;
    let mut hash = Sha256::new();
    hash.update(&line[..without.start]);
    hash.update(&line[without.end..]);
    Ok(Entry {
        seq,
        prev,
        stated,
        computed: Digest::new(hash.finalize().into()),
    })
}

fn digest(value: &str) -> Option<Digest> {
    value.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

fn not_canonical(line: &[u8], problem: &NotCanonical) -> Fault {
    match serde_json::from_slice::<IgnoredAny>(line) {
        Ok(_) => Fault::NotCanonical {
            problem: problem.to_string(),
        },
        Err(error) => Fault::NotJson {
            problem: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Body, Chain, Redactor};
    use proptest::prelude::*;
    use serde_json::json;

    fn log(entries: usize) -> (Vec<Vec<u8>>, Chain) {
        let mut chain = Chain::START;
        let lines = (0..entries).map(|n| {
            let body =
                json!({"event": "guardrail_check", "action": "é\n", "n": n, "z": [1.5, null]});
            let body = Body::new(body.as_object().unwrap(), &Redactor::none()).unwrap();
            let mut line = Vec::new();
            chain.append(&body, &mut line).unwrap();
            line.pop();
            line
        });
        (lines.collect(), chain)
    }

    fn faults<'l>(lines: impl IntoIterator<Item = &'l Vec<u8>>) -> Vec<Fault> {
        let mut verifier = Verifier::new(Chain::START.head());
        let lines = lines.into_iter();
        lines
            .filter_map(|line| verifier.entry(line).err())
            .collect()
    }

    #[test]
    fn an_untouched_log_has_no_faults() {
        let (lines, chain) = log(5);
        assert_eq!(faults(&lines), []);
        let mut verifier = Verifier::new(Chain::START.head());
        for line in &lines {
            verifier.entry(line).unwrap();
        }
        assert_eq!(verifier.head(), chain.head());
    }

    #[test]
    fn every_single_byte_edit_of_a_line_is_found() {
        let (lines, _) = log(3);
        for at in 0..lines[1].len() {
            for byte in 0..=255 {
                let mut edited = lines.clone();
                edited[1][at] = byte;
                let changed = edited[1][at] != lines[1][at];
                assert_eq!(!faults(&edited).is_empty(), changed, "{at} {byte}");
            }
        }
    }

    #[test]
    fn one_edit_is_one_fault_that_names_it() {
        let (mut lines, _) = log(4);
        let text = String::from_utf8(lines[1].clone()).unwrap();
        lines[1] = text.replace("\"n\":1", "\"n\":7").into_bytes();
        assert!(matches!(faults(&lines)[..], [Fault::Digest { seq: 2, .. }]));
        lines[1] = text.replace("\"n\":1", "\"n\": 1").into_bytes();
        assert!(matches!(faults(&lines)[..], [Fault::NotCanonical { .. }]));
        lines[1].truncate(20);
        assert!(matches!(faults(&lines)[..], [Fault::NotJson { .. }]));
    }

    #[test]
    fn an_entry_with_a_digest_made_for_it_breaks_the_next() {
        let (mut lines, _) = log(3);
        let mut forged = Vec::new();
        let after = Link::read(&lines[0]).unwrap();
        let body = Body::new(&serde_json::Map::new(), &Redactor::none()).unwrap();
        Chain::after(after).append(&body, &mut forged).unwrap();
        forged.pop();
        lines[1] = forged;
        assert!(matches!(faults(&lines)[..], [Fault::Prev { seq: 3, .. }]));
    }

    #[test]
    fn any_beginning_of_an_entry_may_be_left_behind_but_nothing_after_one() {
        let (lines, _) = log(1);
        let verifier = Verifier::new(Chain::START.head());
        for end in 0..=lines[0].len() {
            assert_eq!(verifier.torn(&lines[0][..end]), Ok(()));
        }
        for byte in 0..=255 {
            let edited = [lines[0].as_slice(), &[byte]].concat();
            assert!(verifier.torn(&edited).is_err(), "{byte}");
        }
        // Some file systems leave zeros behind when the power goes.
        assert_eq!(verifier.torn(&[&lines[0][..9], &[0; 9]].concat()), Ok(()));
    }

    #[test]
    fn a_checkpoint_finds_another_entry_and_a_cut_end() {
        let (lines, chain) = log(3);
        let mut checkpoint = Checkpoint {
            chain: String::new(),
            head: chain.head(),
            position: crate::evidence::Position {
                segment: 1,
                offset: 0,
            },
            timestamp: String::new(),
        };
        let mut verifier = Verifier::new(Chain::START.head());
        for line in &lines[..2] {
            verifier.entry(line).unwrap();
        }
        let cut = Fault::TailCut { signed: 3, last: 2 };
        assert_eq!(verifier.end(&checkpoint), Err(cut));
        verifier.entry(&lines[2]).unwrap();
        assert_eq!(
            (verifier.agrees(&checkpoint), verifier.end(&checkpoint)),
            (Ok(()), Ok(()))
        );
        checkpoint.head.digest = Digest::ZERO;
        assert!(verifier.agrees(&checkpoint).is_err());
    }

    proptest! {
        #[test]
        fn removed_repeated_and_moved_lines_are_found(from in 0_usize..6, to in 0_usize..6) {
            let (lines, _) = log(6);
            let mut removed = lines.clone();
            removed.remove(from);
            // What is missing at the end is for a checkpoint to find.
            prop_assert_eq!(faults(&removed).is_empty(), from == 5);
            let mut repeated = lines.clone();
            repeated.insert(to, lines[from].clone());
            prop_assert!(!faults(&repeated).is_empty());
            let mut swapped = lines.clone();
            swapped.swap(from, to);
            prop_assert_eq!(faults(&swapped).is_empty(), from == to);
        }

        #[test]
        fn any_bytes_are_checked_without_panic(line: Vec<u8>, text: String) {
            faults([&line, &text.into_bytes()]);
        }
    }
}

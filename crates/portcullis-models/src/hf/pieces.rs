//! From a text to a model's tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use tokenizers::Tokenizer;

use crate::load::LoadError;

/// What is read of a text whose tokens are ever so long.
const MOST_BYTES: usize = 1 << 20;
/// How much of a text is read for each token that there is room for, at first. Words are shorter than that.
const BYTES_A_TOKEN: usize = 16;
/// A text that is cut ends otherwise than it would go on: so many tokens before the cut are not taken.
const MARGIN: usize = 64;
/// Texts of which one has tokens in any vocabulary.
const PROBES: [&str; 4] = ["a", "the", "0", "."];

/// A folder's tokenizer.
pub(super) struct Pieces {
    tokenizer: Tokenizer,
    /// What a text begins with.
    before: Vec<u32>,
    /// What it ends with.
    after: Vec<u32>,
    /// Tokens are below.
    vocabulary: usize,
}

impl Pieces {
    /// `path` is where the bytes come from, for errors. `vocabulary` is the number of tokens that the model has rows for.
    pub(super) fn parse(path: &Path, bytes: &[u8], vocabulary: usize) -> Result<Self, LoadError> {
        let unusable = |why: String| LoadError::unusable(path, why);
        let tokenizer = guarded(|| read(bytes)).map_err(unusable)?;
        let largest = tokenizer.get_vocab(true).into_values().max();
        if let Some(largest) = largest.filter(|&largest| largest as usize >= vocabulary) {
            return Err(unusable(format!(
                "the largest token is {largest}, but the model's `vocab_size` is {vocabulary}: it is another model's \
                 tokenizer"
            )));
        }
        let (before, after) = added(&tokenizer).map_err(unusable)?;
        if before.is_empty() {
            return Err(unusable(
                "`post_processor` puts no token such as [CLS] before a text: the model looks at it"
                    .to_owned(),
            ));
        }
        let pieces = Self {
            tokenizer,
            before,
            after,
            vocabulary,
        };
        pieces.check(&pieces.surround(&[])).map_err(unusable)?;
        Ok(pieces)
    }

    /// How many tokens are put around a text.
    pub(super) fn added(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// A text's tokens with those around it.
    pub(super) fn surround(&self, ids: &[u32]) -> Vec<u32> {
        [&self.before, ids, &self.after].concat()
    }

    /// The first tokens of a text, and whether these are all. A long text is not read to its end for them.
    pub(super) fn ids(&self, text: &str, most: usize) -> Result<(Vec<u32>, bool), String> {
        let wanted = most.saturating_add(MARGIN);
        let mut limit = wanted.saturating_mul(BYTES_A_TOKEN);
        let ceiling = limit.max(MOST_BYTES);
        loop {
            let cut = text.floor_char_boundary(limit);
            let mut ids = guarded(|| encode(&self.tokenizer, &text[..cut], false))?;
            let is_whole = cut == text.len();
            if is_whole || ids.len() >= wanted || limit >= ceiling {
                let is_all = is_whole && ids.len() <= most;
                ids.truncate(most);
                self.check(&ids)?;
                return Ok((ids, is_all));
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// A file can name tokens that its vocabulary does not have.
    fn check(&self, ids: &[u32]) -> Result<(), String> {
        match ids.iter().find(|&&id| id as usize >= self.vocabulary) {
            Some(id) => Err(format!(
                "the tokenizer says token {id}, but the model has {}",
                self.vocabulary
            )),
            None => Ok(()),
        }
    }
}

fn read(bytes: &[u8]) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    let untruncated = tokenizer.with_truncation(None);
    untruncated.map_err(|error| error.to_string())?;
    tokenizer.with_padding(None);
    // A text that says [SEP] is a text, and not the end of itself.
    tokenizer.set_encode_special_tokens(true);
    Ok(tokenizer)
}

/// What is put before and after a text.
fn added(tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>), String> {
    if tokenizer.get_post_processor().is_none() {
        // As the classes of transformers do it, where the file is silent.
        let token = |name: &str| tokenizer.token_to_id(name);
        return match (token("[CLS]"), token("[SEP]")) {
            (Some(first), Some(last)) => Ok((vec![first], vec![last])),
            _ => Err("`post_processor` is missing, and there are no [CLS] and [SEP]".to_owned()),
        };
    }
    for probe in PROBES {
        let own = guarded(|| encode(tokenizer, probe, false))?;
        let whole = guarded(|| encode(tokenizer, probe, true))?;
        if own.is_empty() {
            continue;
        }
        let places = whole.windows(own.len());
        let found = places.enumerate().filter(|(_, place)| *place == own);
        return match found.map(|(start, _)| start).max() {
            Some(start) => Ok((whole[..start].to_vec(), whole[start + own.len()..].to_vec())),
            None => {
                Err("`post_processor` changes a text's tokens: it may only add some".to_owned())
            }
        };
    }
    Err("it has no tokens for letters, digits or dots".to_owned())
}

fn encode(tokenizer: &Tokenizer, text: &str, adds: bool) -> Result<Vec<u32>, String> {
    let encoding = tokenizer.encode_fast(text, adds);
    let encoding = encoding.map_err(|error| error.to_string())?;
    Ok(encoding.get_ids().to_vec())
}

/// The library takes some mistakes in a file for impossible. That is an error too, and not the end of a thread.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err("the tokenizer's parts do not fit together: the library gave up on them".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let error = guarded::<()>(|| panic!("impossible")).unwrap_err();
        assert!(error.starts_with("the tokenizer's parts"), "{error}");
    }
}

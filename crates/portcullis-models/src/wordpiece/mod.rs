//! BERT's tokenizer: clean, lower-case, split at spaces and punctuation, then the longest pieces first.
//!
//! Equal to Hugging Face's `tokenizers` for every character, but for one thing: a text that says `[SEP]` says
//! a bracket, three letters and a bracket. What separates texts is not for a text to write.

mod read;
mod vocabulary;

use std::iter;
use std::ops::ControlFlow;

use unicode_categories::UnicodeCategories;
use unicode_normalization::UnicodeNormalization;

pub(crate) use vocabulary::{Vocabulary, Word};

/// Splits texts into the numbers of known pieces.
#[derive(Debug, Clone)]
pub struct WordPiece {
    vocabulary: Vocabulary,
    /// The token of a word that no pieces make up.
    unknown: u32,
    /// A word of more characters is unknown.
    longest_word: usize,
    form: Form,
}

/// What is done to a text before it is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// Takes control characters out.
    pub(crate) clean: bool,
    /// Makes each Chinese character a word.
    pub(crate) split_chinese: bool,
    pub(crate) strip_accents: bool,
    pub(crate) lowercase: bool,
}

impl Form {
    /// As BERT's models without case have it.
    pub(crate) const UNCASED: Self = Self {
        clean: true,
        split_chinese: true,
        strip_accents: true,
        lowercase: true,
    };
}

impl WordPiece {
    /// How many bytes of a text are read. Nobody's meaning begins after so many, and accents without an end
    /// would otherwise be kept until they are put in order.
    pub const LONGEST_TEXT: usize = 64 * 1024;
    /// BERT's limit.
    pub(crate) const LONGEST_WORD: usize = 100;

    pub(crate) const fn new(
        vocabulary: Vocabulary,
        unknown: u32,
        longest_word: usize,
        form: Form,
    ) -> Self {
        Self {
            vocabulary,
            unknown,
            longest_word,
            form,
        }
    }

    /// The pieces' numbers, at most so many. Takes time linear in the text, of which it reads the first
    /// [`LONGEST_TEXT`](Self::LONGEST_TEXT) bytes.
    pub fn ids(&self, text: &str, most: usize) -> Vec<u32> {
        let text = &text[..text.floor_char_boundary(Self::LONGEST_TEXT)];
        let mut ids = Vec::with_capacity(most.min(text.len() / 4 + 1));
        if most > 0 {
            let _ = self.each(text, |id| {
                ids.push(id);
                if ids.len() == most {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        }
        ids
    }

    /// The number of the token of a word that no pieces make up.
    pub fn unknown(&self) -> u32 {
        self.unknown
    }

    /// A token's number.
    pub fn number(&self, token: &str) -> Option<u32> {
        self.vocabulary.number(token)
    }

    /// How many tokens there are.
    pub(crate) fn size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Gives the pieces' numbers one after the other, until it is told to stop.
    fn each(&self, text: &str, mut each: impl FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut words = Words {
            pieces: self,
            each: &mut each,
            word: Vec::with_capacity(64),
            characters: 0,
            found: Vec::with_capacity(16),
        };
        // No ASCII character takes part in normalisation, so the runs between them stand for themselves.
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.bytes().position(|byte| !byte.is_ascii());
            let (ascii, others) = rest.split_at(end.unwrap_or(rest.len()));
            words.ascii(ascii)?;
            let end = others.bytes().position(|byte| byte.is_ascii());
            let (others, next) = others.split_at(end.unwrap_or(others.len()));
            words.others(others)?;
            rest = next;
        }
        words.end()
    }
}

/// The word that is being read.
struct Words<'a, F> {
    pieces: &'a WordPiece,
    each: &'a mut F,
    word: Vec<u8>,
    characters: usize,
    found: Vec<u32>,
}

impl<F: FnMut(u32) -> ControlFlow<()>> Words<'_, F> {
    fn ascii(&mut self, run: &str) -> ControlFlow<()> {
        let form = self.pieces.form;
        for byte in run.bytes() {
            match byte {
                b'A'..=b'Z' if form.lowercase => self.push(&[byte | 0x20]),
                b'\t' | b'\n' | b'\r' | b' ' => self.end()?,
                // Vertical tab and form feed are spaces only where they have not been cleaned away.
                0..32 | 127 if form.clean => {}
                b'\x0b' | b'\x0c' => self.end()?,
                _ if byte.is_ascii_punctuation() => self.alone(&[byte])?,
                _ => self.push(&[byte]),
            }
        }
        ControlFlow::Continue(())
    }

    fn others(&mut self, run: &str) -> ControlFlow<()> {
        let form = self.pieces.form;
        let spaced = run
            .chars()
            .filter(|&c| !form.clean || !is_dropped(c))
            .flat_map(|c| {
                let space = (form.split_chinese && is_chinese(c)).then_some(' ');
                space.into_iter().chain(iter::once(c)).chain(space)
            });
        if form.strip_accents {
            let mut bare = spaced.nfd().filter(|c| !c.is_mark_nonspacing());
            bare.try_for_each(|c| self.other(c))
        } else {
            let mut spaced = spaced;
            spaced.try_for_each(|c| self.other(c))
        }
    }

    fn other(&mut self, c: char) -> ControlFlow<()> {
        if self.pieces.form.lowercase {
            c.to_lowercase().try_for_each(|c| self.character(c))
        } else {
            self.character(c)
        }
    }

    fn character(&mut self, c: char) -> ControlFlow<()> {
        let mut bytes = [0; 4];
        let encoded = c.encode_utf8(&mut bytes).as_bytes();
        if c.is_whitespace() {
            return self.end();
        }
        if c.is_ascii_punctuation() || c.is_punctuation() {
            return self.alone(encoded);
        }
        self.push(encoded);
        ControlFlow::Continue(())
    }

    /// A word of one character.
    fn alone(&mut self, character: &[u8]) -> ControlFlow<()> {
        self.end()?;
        self.push(character);
        self.end()
    }

    fn push(&mut self, character: &[u8]) {
        self.characters += 1;
        // What follows in a word that is unknown anyway is not kept.
        if self.characters <= self.pieces.longest_word {
            self.word.extend_from_slice(character);
        }
    }

    /// Takes the word apart.
    fn end(&mut self) -> ControlFlow<()> {
        if self.characters == 0 {
            return ControlFlow::Continue(());
        }
        let is_known = self.characters <= self.pieces.longest_word && self.take_apart();
        self.word.clear();
        self.characters = 0;
        if is_known {
            self.found.drain(..).try_for_each(&mut *self.each)
        } else {
            (self.each)(self.pieces.unknown)
        }
    }

    fn take_apart(&mut self) -> bool {
        self.found.clear();
        let mut start = 0;
        while start < self.word.len() {
            let rest = &self.word[start..];
            let Some((number, bytes)) = self.pieces.vocabulary.longest_prefix(rest, start > 0)
            else {
                return false;
            };
            self.found.push(number);
            start += bytes;
        }
        true
    }
}

fn is_dropped(c: char) -> bool {
    c == '\u{fffd}' || c.is_other()
}

/// The blocks that BERT's authors chose.
fn is_chinese(c: char) -> bool {
    matches!(c,
        '\u{4e00}'..='\u{9fff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}'
        | '\u{f900}'..='\u{faff}'
        | '\u{2f800}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKENS: [&str; 12] = [
        "[UNK]", "a", "ab", "##c", "##é", ".", "東", "##d", "e", "##x", "é", "A",
    ];

    fn pieces(form: Form) -> WordPiece {
        let vocabulary = Vocabulary::new(TOKENS.into_iter()).unwrap();
        WordPiece::new(vocabulary, 0, 5, form)
    }

    #[track_caller]
    fn check(form: Form, text: &str, expected: &[&str]) {
        let pieces = pieces(form);
        let ids = pieces.ids(text, usize::MAX);
        let tokens: Vec<_> = ids.iter().map(|&id| TOKENS[id as usize]).collect();
        assert_eq!(tokens, expected, "{text:?}");
    }

    #[test]
    fn words_are_made_of_the_longest_pieces_or_unknown() {
        check(
            Form::UNCASED,
            "abcd a.AB",
            &["ab", "##c", "##d", "a", ".", "ab"],
        );
        check(
            Form::UNCASED,
            "abz abccc abcccc",
            &["[UNK]", "ab", "##c", "##c", "##c", "[UNK]"],
        );
        check(Form::UNCASED, "a東\u{0}é\u{301}", &["a", "東", "e"]);
    }

    #[test]
    fn case_and_accents_stay_where_the_model_has_them() {
        let cased = Form {
            lowercase: false,
            strip_accents: false,
            ..Form::UNCASED
        };
        check(cased, "A é aé", &["A", "é", "a", "##é"]);
    }

    #[test]
    fn there_are_no_more_than_asked_for() {
        let pieces = pieces(Form::UNCASED);
        assert_eq!(pieces.ids("a a a", 2), [1, 1]);
        assert_eq!(pieces.ids("a a a", 0), [0; 0]);
    }

    proptest! {
        #[test]
        fn any_text_has_pieces_in_any_form(
            text in ".*", clean: bool, split_chinese: bool, strip_accents: bool, lowercase: bool,
        ) {
            let form = Form { clean, split_chinese, strip_accents, lowercase };
            let ids = pieces(form).ids(&text, usize::MAX);
            // A character can turn into three at most, and each gives at most one piece.
            prop_assert!(ids.len() <= 4 * text.chars().count());
            prop_assert!(ids.iter().all(|&id| (id as usize) < TOKENS.len()));
        }
    }
}

//! Characters that are another way to write plain ones, and characters that nobody sees.

use memchr::memmem;
use unicode_normalization::char::{decompose_canonical, decompose_compatible, is_combining_mark};

use super::map::Rewrite;
use super::skip;

/// The text with every character folded, if that changes it.
pub(super) fn fold(text: &str) -> Option<Rewrite<'_>> {
    fold_by(text, fold_char)
}

/// The same with what tags carry left out, if there are any: they may be there to divide words, and not to be read.
pub(super) fn fold_without_tags(text: &str) -> Option<Rewrite<'_>> {
    /// What the bytes of every tag begin with.
    const FIRST: [u8; 2] = [0xf3, 0xa0];
    let is_tag = |at: usize| {
        text[at..]
            .chars()
            .next()
            .is_some_and(|c| carried(c).is_some())
    };
    let has_tags = memmem::find_iter(text.as_bytes(), &FIRST).any(is_tag);
    let leave_out = |c| carried(c).map_or_else(|| fold_char(c), |_| Some(Folded::NOTHING));
    has_tags.then(|| fold_by(text, leave_out)).flatten()
}

fn fold_by(text: &str, fold_char: impl Fn(char) -> Option<Folded>) -> Option<Rewrite<'_>> {
    let mut rewrite = None;
    let mut at = 0;
    while let Some(offset) = skip::to_first(&text.as_bytes()[at..], may_fold) {
        at += offset;
        while text
            .as_bytes()
            .get(at)
            .is_some_and(|first| may_fold(*first))
        {
            let Some(c) = text[at..].chars().next() else {
                break;
            };
            let end = at + c.len_utf8();
            if let Some(folded) = fold_char(c) {
                rewrite
                    .get_or_insert_with(|| Rewrite::whole(text))
                    .replace(at..end, folded.as_str());
            }
            at = end;
        }
    }
    rewrite
}

/// Whether a character that begins so may be folded.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "with a way out in between, bytes are compared one by one"
)]
const fn may_fold(first: u8) -> bool {
    let control = (first < b'\t') | ((first > b'\r') & (first < b' ')) | (first == 0x7f);
    // Latin letters with common marks, Greek, Cyrillic, Arabic, the scripts of India, of China and of Korea begin otherwise.
    let first_of_two =
        (first == 0xc2) | ((first >= 0xc4) & (first <= 0xcd)) | ((first >= 0xd2) & (first <= 0xd8));
    let first_of_more = ((first >= 0xe1) & (first <= 0xe3)) | (first == 0xea) | (first >= 0xef);
    control | first_of_two | first_of_more
}

#[inline]
pub(super) fn is_plain_ascii(b: u8) -> bool {
    matches!(b, b'\t'..=b'\r' | b' '..=b'~')
}

/// Up to eight bytes.
struct Folded {
    bytes: [u8; 8],
    len: usize,
}

impl Folded {
    const NOTHING: Self = Self {
        bytes: [0; 8],
        len: 0,
    };

    fn of(c: char) -> Self {
        let mut folded = Self::NOTHING;
        folded.push(c);
        folded
    }

    fn push(&mut self, c: char) {
        if self.len + c.len_utf8() <= self.bytes.len() {
            self.len += c.encode_utf8(&mut self.bytes[self.len..]).len();
        }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// Letters of most languages: Latin, Greek, Cyrillic, Arabic, the scripts of India, and those of
/// China, Japan and Korea. They are never folded; the others are looked up.
#[inline]
fn is_ordinary(c: char) -> bool {
    matches!(c,
        '\u{c0}'..='\u{131}' | '\u{134}'..='\u{13e}' | '\u{141}'..='\u{148}'
        | '\u{14a}'..='\u{17e}' | '\u{370}'..='\u{482}' | '\u{48a}'..='\u{61b}'
        | '\u{61d}'..='\u{115e}' | '\u{1e00}'..='\u{1e99}' | '\u{1ea0}'..='\u{1eff}'
        | '\u{2013}'..='\u{201f}' | '\u{3001}'..='\u{3163}' | '\u{3400}'..='\u{a700}'
        | '\u{ac00}'..='\u{fa6d}')
}

/// What a character folds to, if not to itself.
fn fold_char(c: char) -> Option<Folded> {
    if is_ordinary(c) || is_kept(c) {
        return None;
    }
    match carried(c) {
        Some(plain) => Some(Folded::of(plain)),
        None if is_dropped(c) => Some(Folded::NOTHING),
        None => fold_visible(c),
    }
}

/// What a tag carries: ASCII that nobody sees. Variation selectors carry it too, by their number.
fn carried(c: char) -> Option<char> {
    match c {
        '\u{e0020}'..='\u{e007e}' => Some(low_byte(c, 0xe0000)),
        '\u{e0110}'..='\u{e016e}' => Some(low_byte(c, 0xe00f0)),
        _ => None,
    }
}

/// Characters with a compatibility form that ordinary text uses for themselves.
fn is_kept(c: char) -> bool {
    matches!(
        c,
        '\u{85}'
            | '¨'
            | '¯'
            | '´'
            | '¸'
            | '…'
            | '\u{2028}'
            | '\u{2029}'
            | '№'
            | '™'
            | '℠'
            | '！'
            | '（'
            | '）'
            | '，'
            | '：'
            | '；'
            | '？'
            | '～'
    )
}

/// Characters that are not seen, and marks that are only ever put on top of letters that are letters
/// without them. Vowel signs of the scripts that write vowels so are not among them.
fn is_dropped(c: char) -> bool {
    matches!(c,
        '\0'..='\x08' | '\x0e'..='\x1f' | '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}'
        | '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{61c}'
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{20d0}'..='\u{20ff}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn fold_visible(c: char) -> Option<Folded> {
    let plain = match c {
        '\u{ff01}'..='\u{ff5e}' => low_byte(c, 0xfee0),
        // Letters on dark discs and squares, and the letters of flags, have no other form.
        '\u{1f150}'..='\u{1f169}' => letter(c, 0x1f150),
        '\u{1f170}'..='\u{1f189}' => letter(c, 0x1f170),
        '\u{1f1e6}'..='\u{1f1ff}' => letter(c, 0x1f1e6),
        _ => match symbol(c) {
            Some(plain) => plain,
            None => return compatible(c),
        },
    };
    Some(Folded::of(plain))
}

/// Symbols that are one plain character to a reader.
fn symbol(c: char) -> Option<char> {
    Some(match c {
        'ᴀ' => 'a',
        'ʙ' | 'ᴃ' => 'b',
        'ᴄ' => 'c',
        'ᴅ' => 'd',
        'ᴇ' | '℮' => 'e',
        'ꜰ' => 'f',
        'ɢ' => 'g',
        'ʜ' => 'h',
        'ɪ' | 'ᵻ' => 'i',
        'ᴊ' => 'j',
        'ᴋ' => 'k',
        '\u{212a}' => 'K',
        'ʟ' | 'ᴌ' => 'l',
        'ᴍ' => 'm',
        'ɴ' => 'n',
        'ᴏ' => 'o',
        'ᴘ' => 'p',
        'ꞯ' => 'q',
        'ʀ' => 'r',
        'ꜱ' => 's',
        'ᴛ' => 't',
        'ᴜ' => 'u',
        'ᴠ' => 'v',
        'ᴡ' => 'w',
        'ʏ' => 'y',
        'ᴢ' => 'z',
        '\u{a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{2800}'
        | '\u{3000}' => ' ',
        '‐' | '‑' | '‒' | '−' | '⁃' | '˗' | '➖' => '-',
        '⁄' | '∕' | '⧸' | '╱' => '/',
        '⧵' | '∖' => '\\',
        '∶' | '꞉' | '˸' | 'ː' => ':',
        '․' | '꓿' => '.',
        '∗' | '⁎' => '*',
        '∣' | 'ǀ' => '|',
        'ǃ' => '!',
        'ˍ' => '_',
        _ => return None,
    })
}

/// The compatibility form, if it is ASCII, or a letter in a mathematical style. Other scripts keep
/// theirs: nothing is hidden by them.
fn compatible(c: char) -> Option<Folded> {
    let enclosed = matches!(c, '\u{2460}'..='\u{24ff}' | '\u{1f100}'..='\u{1f12f}');
    let styled = matches!(c, '\u{1d400}'..='\u{1d7ff}');
    let mut folded = Folded::NOTHING;
    let mut plain = !has_canonical(c);
    decompose_compatible(c, |part| {
        if is_combining_mark(part) || (enclosed && !part.is_alphanumeric()) {
            return;
        }
        plain &= part.is_ascii() || styled;
        folded.push(part);
    });
    (plain && folded.len > 0 && !folded.as_str().chars().eq([c])).then_some(folded)
}

/// Whether the character is a letter with marks in one.
fn has_canonical(c: char) -> bool {
    let mut same = false;
    decompose_canonical(c, |part| same |= part == c);
    !same
}

fn low_byte(c: char, base: u32) -> char {
    char::from((c as u32 - base) as u8)
}

fn letter(c: char, base: u32) -> char {
    char::from(b'A' + (c as u32 - base) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_folded_begins_with_a_byte_that_is_not_passed_over() {
        for c in '\0'..=char::MAX {
            let first = c.encode_utf8(&mut [0; 4]).as_bytes()[0];
            assert!(may_fold(first) || fold_char(c).is_none(), "{c:?}");
        }
    }
}

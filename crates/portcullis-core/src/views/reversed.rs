//! Text that is read from its end: turned upside down, or behind a right-to-left override.

use memchr::memmem;

use super::map::Rewrite;
use super::skip;

/// Letters of a line that exist only upside down, before the line is turned.
const MIN_TURNED: usize = 4;

const OVERRIDE: char = '\u{202e}';

/// The only turned letter that is not among the others.
const TURNED_I: char = 'ᴉ';

/// The text with its reversed stretches as they are read.
pub(super) fn reverse(text: &str, limit: usize) -> Option<Rewrite<'_>> {
    if !may_be_reversed(text.as_bytes()) {
        return None;
    }
    let mut rewrite = Rewrite::excerpt(text, limit);
    let mut found = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches(['\n', '\r']);
        if body
            .chars()
            .filter(|c| is_turned(*c))
            .take(MIN_TURNED)
            .count()
            == MIN_TURNED
        {
            append(&mut rewrite, body, start, turn);
            found = true;
        } else {
            let mut at = 0;
            while let Some(offset) = body[at..].find(OVERRIDE) {
                let from = at + offset + OVERRIDE.len_utf8();
                let len = body[from..].find(is_end);
                at = len.map_or(body.len(), |len| from + len);
                append(&mut rewrite, &body[from..at], start + from, |c| c);
                found = true;
            }
        }
        start += line.len();
    }
    found.then_some(rewrite)
}

/// Whether a text has the override, or may have letters that are turned. Nearly all have bytes enough that say no.
fn may_be_reversed(bytes: &[u8]) -> bool {
    let begins_turned = |b: u8| matches!(b, 0xc6..=0xca);
    let has = |c: char| memmem::find(bytes, c.encode_utf8(&mut [0; 4]).as_bytes()).is_some();
    skip::to_first(bytes, begins_turned).is_some() || has(TURNED_I) || has(OVERRIDE)
}

/// Appends a stretch of the source, last character first.
fn append(rewrite: &mut Rewrite<'_>, stretch: &str, start: usize, read: impl Fn(char) -> char) {
    rewrite.keep_to(start);
    for (at, c) in stretch.char_indices().rev() {
        let at = start + at;
        let read = read(c);
        rewrite.unit(at..at + c.len_utf8(), read.encode_utf8(&mut [0; 4]));
    }
    rewrite.skip_to(start + stretch.len());
}

fn is_end(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_turned(c: char) -> bool {
    // The dotless `ı` is a letter of Turkish.
    matches!(c, '\u{180}'..='\u{2af}' | TURNED_I) && turn(c) != c
}

/// The letter that a letter turned upside down is.
fn turn(c: char) -> char {
    match c {
        'ɐ' => 'a',
        'q' => 'b',
        'ɔ' => 'c',
        'p' => 'd',
        'ǝ' => 'e',
        'ɟ' => 'f',
        'ƃ' => 'g',
        'ɥ' => 'h',
        TURNED_I | 'ı' => 'i',
        'ɾ' => 'j',
        'ʞ' => 'k',
        'ʅ' => 'l',
        'ɯ' => 'm',
        'u' => 'n',
        'd' => 'p',
        'b' => 'q',
        'ɹ' => 'r',
        'ʇ' => 't',
        'n' => 'u',
        'ʌ' => 'v',
        'ʍ' => 'w',
        'ʎ' => 'y',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_with_the_override_or_a_turned_letter_is_looked_at() {
        for c in ('\0'..=char::MAX).filter(|c| *c == OVERRIDE || is_turned(*c)) {
            assert!(may_be_reversed(format!("so {c}").as_bytes()), "{c:?}");
        }
        assert!(!may_be_reversed(
            "naïve, “quoted” – привет, 中文".as_bytes()
        ));
    }
}

//! Words written with characters that stand for others: letters of another script, letters under
//! marks, digits and symbols.

use std::ops::Range;

use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use super::Disguise;
use super::map::Rewrite;
use super::skip;
use crate::scan::Features;

/// Places where a digit or symbol plainly stands for a letter, before a text is read so. Fewer are
/// names and numbers: `utf8`, `k8s`.
const MIN_LEET: usize = 3;

/// The longest word that is read with digits for letters. Longer ones are keys and hashes.
const MAX_LEET_WORD: usize = 24;

/// The most digits in a row that stand for letters.
const MAX_LEET_RUN: usize = 3;

/// From this length on, hexadecimal digits alone are a number.
const MIN_HEX: usize = 4;

/// Letters of a word under marks, with no vowel among the plain ones, for the marks to be a disguise.
/// Languages that have marks put them on fewer letters.
const MIN_MARKED: usize = 3;

/// How far from a `1` a text is read in more than one way: as far as signs of an attack add up, and more. Elsewhere the
/// readings are the same.
const NEAR_ONES: usize = 1 << 10;

/// The ways that a `1` can be read in, and so the most readings of a text.
pub(super) const READINGS: usize = 3;

/// The text with the letters that its words stand for, in every way that they can be read. Each has a limit of its own.
pub(super) fn plain(
    text: &str,
    features: Features,
    limits: [usize; READINGS],
) -> Vec<(Rewrite<'_>, Disguise)> {
    let [guess, as_i, as_l] = limits;
    let mut suspects = Vec::new();
    let mut places = 0;
    for span in odd_words(text) {
        let word = text[span.clone()].as_bytes();
        if !word.is_ascii() {
            if may_look_alike(word) {
                suspects.push(span);
            }
        } else if features.contains(Features::LEET) && is_leet_word(text, &span) {
            places += leet_places(word);
            suspects.push(span);
        }
    }
    let leet = places >= MIN_LEET;
    let first = read(text, &suspects, leet.then_some(Ones::Guess), guess);
    let mut readings: Vec<_> = first.into_iter().collect();
    if leet {
        let near = near_ones(text, &suspects);
        let others = [(Ones::I, as_i), (Ones::L, as_l)];
        for (ones, limit) in others.into_iter().filter(|_| !near.is_empty()) {
            readings.extend(read(text, &near, Some(ones), limit));
        }
    }
    readings
}

/// The words near one that can be read in more than one way.
fn near_ones(text: &str, words: &[Range<usize>]) -> Vec<Range<usize>> {
    let ambiguous = |span: &&Range<usize>| {
        let word = &text[(*span).clone()];
        word.is_ascii() && word.trim_end_matches('!').contains(['1', '!'])
    };
    let ones: Vec<&Range<usize>> = words.iter().filter(ambiguous).collect();
    let is_near = |span: &&Range<usize>| {
        let next = ones.partition_point(|one| one.end + NEAR_ONES < span.start);
        ones.get(next)
            .is_some_and(|one| one.start <= span.end + NEAR_ONES)
    };
    words.iter().filter(is_near).cloned().collect()
}

/// What a `1` or `!` stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ones {
    /// What English words have between such neighbours.
    Guess,
    I,
    L,
}

fn read<'a>(
    text: &'a str,
    suspects: &[Range<usize>],
    leet: Option<Ones>,
    limit: usize,
) -> Option<(Rewrite<'a>, Disguise)> {
    let mut rewrite = Rewrite::excerpt(text, limit);
    let mut disguise = None;
    for span in suspects {
        if rewrite.is_cut() {
            break;
        }
        let word = &text[span.clone()];
        if !word.is_ascii() {
            if replace_lookalikes(&mut rewrite, word, span.start) {
                disguise = disguise.or(Some(Disguise::Lookalikes));
            }
        } else if let Some(ones) = leet {
            disguise = Some(Disguise::Leet);
            replace_leet(&mut rewrite, word, span.start, ones);
        }
    }
    Some((rewrite, disguise?))
}

/// The words of a text, with the symbols that may stand for letters, that have anything in them that may stand for something else.
/// Most have not, and cost a look at their bytes.
fn odd_words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut rest = 0;
    std::iter::from_fn(move || {
        loop {
            let odd = rest + skip::to_first(&bytes[rest..], is_odd)?;
            let len = text[odd..].find(|c| !is_wordy(c));
            let end = len.map_or(text.len(), |len| odd + len);
            let before = text[rest..odd].char_indices().rfind(|(_, c)| !is_wordy(*c));
            let start = before.map_or(rest, |(at, c)| rest + at + c.len_utf8());
            if odd < end {
                rest = end;
                return Some(start..end);
            }
            rest = text.ceil_char_boundary(odd + 1);
        }
    })
}

/// Whether a byte has a [letter](leet) that it stands for, or begins a character that [may](hints) have one.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "with a way out in between, bytes are compared one by one"
)]
const fn is_odd(b: u8) -> bool {
    (b.is_ascii_digit() & (b != b'2'))
        | (b == b'@')
        | (b == b'$')
        | (b == b'!')
        | ((b >= 0xc3) & (b <= 0xd7))
        | (b == 0xe1)
        | (b == 0xe2)
        | (b == 0xea)
}

/// Outside ASCII this is generous: what is no letter has no lookalike either.
#[inline]
fn is_wordy(c: char) -> bool {
    match c {
        '\0'..='\x7f' => c.is_ascii_alphanumeric() || matches!(c, '@' | '$' | '!'),
        '\u{80}'..='\u{bf}' | '\u{2000}'..='\u{2bff}' | '\u{3000}'..='\u{303f}' | '\u{fe00}'.. => {
            false
        }
        _ => true,
    }
}

/// Replaces the letters of other scripts, if the word is not simply in another script, and marked
/// letters, if too many are. Whether it did.
fn replace_lookalikes(rewrite: &mut Rewrite<'_>, word: &str, at: usize) -> bool {
    let mut vowels = false;
    let mut scripts = 0u8;
    for c in word.chars() {
        scripts |= script(c);
        vowels |= matches!(c, 'a' | 'e' | 'i' | 'o' | 'u' | 'A' | 'E' | 'I' | 'O' | 'U');
    }
    let alike = scripts.count_ones() > 1;
    let marked = !vowels && word.chars().filter_map(unmarked).count() >= MIN_MARKED;
    if !alike && !marked {
        return false;
    }
    let mut changed = false;
    for (offset, c) in word.char_indices() {
        let plain = lookalike(c)
            .filter(|_| alike)
            .or_else(|| unmarked(c).filter(|_| marked));
        if let Some(plain) = plain {
            let at = at + offset;
            rewrite.replace(at..at + c.len_utf8(), plain.encode_utf8(&mut [0; 4]));
            changed = true;
        }
    }
    changed
}

/// Whether letters of a word may be replaced, as far as bytes tell: most words of other scripts are in one.
fn may_look_alike(word: &[u8]) -> bool {
    let hints = word.iter().fold(0, |all, b| all | HINTS[usize::from(*b)]);
    hints & MARKED != 0 || hints.count_ones() > 1
}

static HINTS: [u8; 256] = {
    let mut all = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        all[byte] = hints(byte as u8);
        byte += 1;
    }
    all
};

/// A letter may be one under marks.
const MARKED: u8 = 1 << 7;

/// The scripts of the characters that begin with a byte, and whether some are letters under marks.
const fn hints(first: u8) -> u8 {
    match first {
        b'A'..=b'Z' | b'a'..=b'z' => 1,
        0xcd..=0xcf => 1 << 1,
        0xd0..=0xd3 => 1 << 2,
        0xd4 => 1 << 2 | 1 << 3,
        0xd5 | 0xd6 => 1 << 3,
        0xc3 | 0xc5 => MARKED,
        0xc4 | 0xc6..=0xc9 => 1 << 5 | MARKED,
        0xca | 0xe2 => 1 << 5,
        0xe1 => 1 << 4 | 1 << 6 | MARKED,
        0xd7 | 0xea => 1 << 6,
        _ => 0,
    }
}

/// A bit for the script of a letter, if the script has letters that look like those of others.
fn script(c: char) -> u8 {
    match c {
        'A'..='Z' | 'a'..='z' => 1,
        '\u{370}'..='\u{3ff}' => 1 << 1,
        '\u{400}'..='\u{52f}' => 1 << 2,
        '\u{530}'..='\u{58f}' => 1 << 3,
        '\u{13a0}'..='\u{13ff}' => 1 << 4,
        // Letters that few languages write, among Latin ones.
        'ı' | 'ĸ' | '\u{180}'..='\u{2af}' | '\u{2c60}'..='\u{2c7f}' => 1 << 5,
        'ס' | 'ყ' | 'ჿ' | 'ꓐ' | 'ꙇ' | 'ꭇ' => 1 << 6,
        _ => 0,
    }
}

/// The ASCII letter without the marks of a Latin letter.
fn unmarked(c: char) -> Option<char> {
    if !matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}') {
        return None;
    }
    let mut base = None;
    decompose_canonical(c, |part| {
        if !is_combining_mark(part) {
            base = Some(part);
        }
    });
    base.filter(char::is_ascii_alphabetic)
}

/// The ASCII letter that a letter looks like. Letters that a language writes among ASCII ones, such as
/// `ø`, are not here; the dotless `ı` is, because it passes for an `i` everywhere else.
fn lookalike(c: char) -> Option<char> {
    if c.is_ascii() || script(c) == 0 {
        return None;
    }
    lower_lookalike(c).or_else(|| upper_lookalike(c))
}

fn lower_lookalike(c: char) -> Option<char> {
    Some(match c {
        'а' | 'α' | 'ɑ' | 'ⱥ' => 'a',
        'ь' | 'в' | 'β' | 'ƅ' | 'ɓ' | 'ƀ' => 'b',
        'с' | 'ϲ' | 'ƈ' | 'ȼ' | 'ҫ' => 'c',
        'ԁ' | 'ɗ' | 'ɖ' | 'ժ' | 'ԃ' => 'd',
        'е' | 'ε' | 'є' | 'ҽ' | 'ɛ' | 'ә' | 'ɘ' | 'э' => 'e',
        'ƒ' | 'ғ' | 'ք' => 'f',
        'ɡ' | 'ց' | 'ɠ' | 'ǥ' | 'ԍ' => 'g',
        'һ' | 'հ' | 'ћ' | 'ђ' | 'н' | 'ɦ' | 'ի' => 'h',
        'і' | 'ι' | 'ı' | 'ɩ' | 'ɨ' | 'ї' | 'ΐ' | 'ϊ' | 'ί' | 'ꙇ' => 'i',
        'ј' | 'ϳ' | 'ȷ' | 'ʝ' | 'յ' => 'j',
        'к' | 'κ' | 'ĸ' | 'ƙ' | 'қ' | 'ҝ' => 'k',
        'ӏ' | 'ɫ' | 'ɭ' | 'ƚ' | 'ւ' => 'l',
        'м' | 'ɱ' | 'ʍ' => 'm',
        'п' | 'ո' | 'η' | 'ή' | 'ɲ' | 'ɳ' | 'ռ' => 'n',
        'о' | 'ο' | 'օ' | 'σ' | 'ό' | 'ɵ' | 'ө' | 'ס' | 'ჿ' => 'o',
        'р' | 'ρ' | 'ƿ' | 'ϱ' => 'p',
        'ԛ' | 'գ' | 'զ' | 'ɋ' => 'q',
        'г' | 'ɾ' | 'ɼ' | 'ɽ' | 'ꭇ' | 'я' => 'r',
        'ѕ' | 'ʂ' | 'ƽ' => 's',
        'т' | 'τ' | 'ƭ' | 'ե' => 't',
        'υ' | 'ս' | 'ц' | 'ʋ' | 'ύ' | 'ʉ' => 'u',
        'ν' | 'ѵ' | 'ѷ' => 'v',
        'ԝ' | 'ω' | 'ш' | 'ѡ' | 'ա' | 'ɯ' | 'ώ' => 'w',
        'х' | 'χ' | 'ҳ' | 'ӽ' => 'x',
        'у' | 'γ' | 'ү' | 'ყ' | 'ў' | 'ɣ' | 'ƴ' => 'y',
        'ʐ' | 'ʑ' | 'ƶ' | 'ȥ' => 'z',
        _ => return None,
    })
}

fn upper_lookalike(c: char) -> Option<char> {
    Some(match c {
        'А' | 'Α' | 'Ꭺ' => 'A',
        'В' | 'Β' | 'Ᏼ' | 'ꓐ' => 'B',
        'С' | 'Ϲ' | 'Ꮯ' | 'Ҫ' => 'C',
        'Ꭰ' => 'D',
        'Е' | 'Ε' | 'Ꭼ' | 'Ё' | 'Є' => 'E',
        'Ϝ' | 'Ғ' => 'F',
        'Ԍ' | 'Ꮐ' | 'Ᏻ' => 'G',
        'Н' | 'Η' | 'Ꮋ' => 'H',
        'І' | 'Ι' | 'Ӏ' | 'Ї' | 'Ꮖ' => 'I',
        'Ј' | 'Ꭻ' | 'Ϳ' => 'J',
        'К' | 'Κ' | 'Ꮶ' => 'K',
        'Ꮮ' | 'Լ' => 'L',
        'М' | 'Μ' | 'Ꮇ' | 'Ϻ' => 'M',
        'Ν' => 'N',
        'О' | 'Ο' | 'Օ' => 'O',
        'Р' | 'Ρ' | 'Ꮲ' => 'P',
        'Ԛ' => 'Q',
        'Ꭱ' | 'Ꮢ' | 'Я' => 'R',
        'Ѕ' | 'Տ' | 'Ꮪ' => 'S',
        'Т' | 'Τ' | 'Ꭲ' => 'T',
        'Ս' => 'U',
        'Ѵ' | 'Ꮩ' => 'V',
        'Ԝ' | 'Ꮃ' | 'Ꮤ' => 'W',
        'Х' | 'Χ' => 'X',
        'У' | 'Υ' | 'Ү' | 'Ꭹ' => 'Y',
        'Ζ' | 'Ꮓ' => 'Z',
        _ => return None,
    })
}

/// How often a digit or symbol plainly stands for a letter: between letters, or at the start of a
/// word with three.
fn leet_places(word: &[u8]) -> usize {
    if word.len() >= MIN_HEX && word.iter().all(u8::is_ascii_hexdigit) {
        return 0;
    }
    let letters = word.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let mut after_letter = false;
    let mut places = 0;
    for (at, byte) in word.iter().enumerate() {
        let before_letter = word.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
        let starts = at == 0 && byte.is_ascii_digit() && letters >= 3;
        let stands = leet(*byte).is_some() && before_letter && (after_letter || starts);
        places += usize::from(stands);
        after_letter |= byte.is_ascii_alphabetic();
    }
    places
}

/// Whether a word can be one with digits for letters, and not a number, a name or an address.
fn is_leet_word(text: &str, span: &Range<usize>) -> bool {
    let word = text[span.clone()].as_bytes();
    if word.len() > MAX_LEET_WORD {
        return false;
    }
    let (mut letters, mut digits, mut run, mut stand) = (0, 0, 0, false);
    let (mut longest, mut hex, mut at_sign) = (0, true, false);
    for byte in word {
        letters += usize::from(byte.is_ascii_alphabetic());
        stand |= leet(*byte).is_some();
        hex &= byte.is_ascii_hexdigit();
        at_sign |= *byte == b'@';
        if byte.is_ascii_digit() {
            digits += 1;
            run += 1;
            longest = longest.max(run);
        } else {
            run = 0;
        }
    }
    let number =
        longest > MAX_LEET_RUN || digits > 2 * letters || (hex && word.len() >= 2 * MIN_HEX);
    let after = &text.as_bytes()[span.end..];
    let address = at_sign && matches!(after, [b'.', next, ..] if next.is_ascii_alphanumeric());
    letters > 0 && stand && !number && !address
}

fn replace_leet(rewrite: &mut Rewrite<'_>, word: &str, at: usize, ones: Ones) {
    let bytes = word.as_bytes();
    // An exclamation mark at the end is one.
    let end = word.trim_end_matches('!').len();
    for (offset, byte) in bytes[..end].iter().enumerate() {
        let Some(letter) = leet(*byte) else { continue };
        let letter = match (letter, ones) {
            ('i', Ones::Guess) => {
                let near = |at: Option<usize>| {
                    let byte = *bytes[..end].get(at?)?;
                    Some(leet(byte).unwrap_or(char::from(byte.to_ascii_lowercase())))
                };
                i_or_l(near(offset.checked_sub(1)), near(Some(offset + 1)))
            }
            ('i', Ones::L) => 'l',
            (letter, _) => letter,
        };
        let at = at + offset;
        rewrite.replace(at..at + 1, letter.encode_utf8(&mut [0; 4]));
    }
}

/// The letter that a digit or symbol stands for; `i` where it may be `l`.
fn leet(byte: u8) -> Option<char> {
    Some(match byte {
        b'0' => 'o',
        b'1' | b'!' => 'i',
        b'3' => 'e',
        b'4' | b'@' => 'a',
        b'5' | b'$' => 's',
        b'6' | b'9' => 'g',
        b'7' => 't',
        b'8' => 'b',
        _ => return None,
    })
}

/// Which of the two English words have between these letters. `i` stands for another of the same.
fn i_or_l(before: Option<char>, after: Option<char>) -> char {
    let vowel = |c: char| matches!(c, 'a' | 'e' | 'o' | 'u');
    let l = match (before, after) {
        // `a11`, `wi11`, `al1`
        (Some('i' | 'l'), _) | (Some('a' | 'e' | 'o' | 'u'), Some('i' | 'l')) => true,
        // `1ist`, `1et`; `1gnore`
        (None, Some(after)) => vowel(after) || after == 'i',
        // `unti1`, `reca1`
        (Some(before), None) => vowel(before),
        // `he1p`, `ru1es`; `aga1n`, `sa1d`
        (Some(before), Some(after)) if vowel(before) => {
            !matches!(before, 'a' | 'e') || !matches!(after, 'n' | 't' | 'd' | 'r' | 'm' | 's')
        }
        // `on1y`, `rep1y`
        (Some(_), Some('y')) => true,
        // `p1ease`, `inc1ude`; `prev1ous`, `act1on`
        (Some(before), Some(after)) if vowel(after) || after == 'i' => {
            matches!(before, 'p' | 'b' | 'c' | 'f' | 'g' | 'k')
        }
        _ => false,
    };
    if l { 'l' } else { 'i' }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_readings_of_a_one_are_made_where_there_is_one() {
        let filler = "Nothing to see here. ".repeat(500);
        let text = format!("b1rd h3re, p4ge{filler}y3sterd4y{filler}p1n");
        let readings = plain(&text, Features::of(&text), [usize::MAX; READINGS]);
        let texts: Vec<String> = readings
            .into_iter()
            .filter_map(|(rewrite, disguise)| rewrite.into_view(disguise, None))
            .map(|view| view.text().to_owned())
            .collect();
        let has = |part: &str| {
            texts
                .iter()
                .map(|text| text.contains(part))
                .collect::<Vec<_>>()
        };
        assert_eq!(has("here, page"), [true, true, true]);
        assert_eq!(has("yesterday"), [true, false, false]);
        assert_eq!(has("bird"), [true, true, false]);
        assert_eq!(has("blrd"), [false, false, true]);
        assert_eq!(has("pin"), [true, true, false]);
    }

    #[test]
    fn bytes_tell_of_every_letter_that_may_be_replaced() {
        for b in 0..=0x7f {
            assert_eq!(is_odd(b), leet(b).is_some(), "{b}");
        }
        for c in '\0'..=char::MAX {
            let first = c.encode_utf8(&mut [0; 4]).as_bytes()[0];
            let scripts = script(c);
            assert_eq!(scripts & !hints(first), 0, "{c:?}");
            assert!(unmarked(c).is_none() || hints(first) & MARKED != 0, "{c:?}");
            let odd = !c.is_ascii() && (scripts != 0 || unmarked(c).is_some());
            assert!(!odd || is_odd(first), "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn odd_words_are_those_with_anything_but_letters(text in "([a-z12@$!_ .éоǝקắ中–\u{2800}\n]|[a-z中 ]{30}){0,40}") {
            let mut words = Vec::new();
            let mut start = 0;
            for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
                if !is_wordy(c) {
                    words.push(start..at);
                    start = at + c.len_utf8();
                }
            }
            words.retain(|word| text[word.clone()].bytes().any(is_odd));
            prop_assert_eq!(odd_words(&text).collect::<Vec<_>>(), words);
        }
    }
}

//! What reads as a word or a name.

use super::NamedCheck;

pub(super) const CHECKS: &[NamedCheck] = &[("drawn-letters", drawn_letters)];

/// What numbers follow in the names of algorithms and protocols.
const NUMBERED: &[&str] = &[
    "sha", "rs", "hs", "es", "ps", "aes", "rsa", "utf", "base", "md", "x", "v", "h", "p", "iso",
    "ecdsa", "ed", "oauth", "argon", "pbkdf", "ipv", "web", "http", "s", "nl", "poly", "chacha",
];

/// What numbers stand behind within a name: `Uint8Array`, `PrivatePkcs8KeyDer`. Of one letter there is none, or any text
/// with digits could be a name.
const NUMBERED_WITHIN: &[&str] = &[
    "aes", "argon", "base", "big", "blake", "chacha", "curve", "ecdsa", "ed", "es", "float", "fts",
    "hmac", "hs", "http", "int", "ipv", "md", "oauth", "pbkdf", "pkcs", "poly", "rs", "rsa",
    "salsa", "sec", "sha", "sqlite", "uint", "utf", "web",
];

/// What is counted: `1280px`, `30s`, `256mb`.
const UNITS: &[&str] = &[
    "px", "em", "rem", "pt", "ms", "s", "m", "h", "d", "w", "b", "k", "kb", "mb", "gb", "tb", "xl",
    "xs", "kib", "mib", "gib", "hz", "khz", "mhz", "ghz", "bit", "fps", "x", "st", "nd", "rd",
    "th",
];

/// A word, a camel-cased name, a short number with or without its unit, or a word with a digit or two.
pub(super) fn is_wordish(part: &str) -> bool {
    if !part.is_ascii() {
        return !is_western_password(part);
    }
    if part.is_empty() {
        return true;
    }
    let word = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = part.len() - word.len();
    if word.is_empty() {
        return digits <= 4;
    }
    let lower = word.to_ascii_lowercase();
    if !word.bytes().all(|b| b.is_ascii_alphabetic()) {
        let unit = lower.trim_start_matches(|c: char| c.is_ascii_digit());
        let counted = digits == 0 && word.len() - unit.len() <= 4 && UNITS.contains(&unit);
        return counted || is_numbered_name(part);
    }
    if NUMBERED.contains(&lower.as_str()) {
        return true;
    }
    if digits > 2 {
        return is_numbered_name(part);
    }
    let upper = word.bytes().filter(u8::is_ascii_uppercase).count();
    if upper == 0 || upper == word.len() {
        return word.len() <= 4 || is_pronounceable(word);
    }
    let humps = humps(word);
    is_pronounceable(word) && (humps == 1 || humps * 3 <= word.len())
}

/// Words with numbers between and behind them that belong there: `Uint8Array`, `PBKDF2WithHmacSHA256`.
fn is_numbered_name(part: &str) -> bool {
    let mut numbers = part.split(|c: char| !c.is_ascii_digit());
    if !(part.bytes().all(|b| b.is_ascii_alphanumeric())
        && part.starts_with(|c: char| c.is_ascii_alphabetic())
        && part.bytes().any(|b| b.is_ascii_digit())
        && numbers.all(|digits| digits.len() <= 5))
    {
        return false;
    }
    let words: Vec<&str> = part.split(|c: char| c.is_ascii_digit()).collect();
    let (last, numbered) = words.split_last().unwrap_or((&"", &[]));
    let is_numbered = |word: &&str| {
        let name = last_hump(word);
        let before = &word[..word.len() - name.len()];
        let known = |word: &str| NUMBERED_WITHIN.contains(&word.to_ascii_lowercase().as_str());
        word.is_empty() || known(word) || known(name) && is_wordish(before)
    };
    numbered.iter().all(is_numbered) && is_wordish(last)
}

/// The last part of a camel-cased name: `Pkcs` of `PrivatePkcs`, `SHA` of `HmacSHA`.
fn last_hump(word: &str) -> &str {
    let upper = |b: &u8| b.is_ascii_uppercase();
    let rest = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let at = if rest.len() < word.len() {
        rest.len().saturating_sub(1)
    } else {
        word.bytes()
            .rposition(|b| !upper(&b))
            .map_or(0, |at| at + 1)
    };
    word.get(at..).unwrap_or(word)
}

/// Plain letters with a digit, and one or two that are not plain: `müller7x`.
fn is_western_password(part: &str) -> bool {
    let foreign = part.chars().filter(|c| !c.is_ascii()).count();
    let plain = part.chars().filter(char::is_ascii_alphabetic).count();
    let digit = part.bytes().any(|b| b.is_ascii_digit());
    digit
        && foreign <= 2
        && plain >= 4
        && part.chars().all(|c| c.is_alphanumeric() && c < '\u{250}')
}

/// The parts of a camel-cased name.
fn humps(word: &str) -> usize {
    let starts = word
        .as_bytes()
        .windows(2)
        .filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    1 + starts.count()
}

/// No more than five consonants in a row, and a vowel unless it is short.
pub(super) fn is_pronounceable(word: &str) -> bool {
    let is_vowel = |b: &u8| b"aeiouyAEIOUY".contains(b);
    let consonants = word
        .as_bytes()
        .split(is_vowel)
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0);
    consonants < 6 && (word.len() < 5 || word.bytes().any(|b| is_vowel(&b)))
}

/// Four groups of four letters of which one at least is no word. Google and Apple draw passwords for applications so, and
/// four short words in a row are written so, too.
fn drawn_letters(value: &str) -> bool {
    let is_vowel = |b: &u8| b"aeiouy".contains(b);
    let hard = |group: &str| {
        let mut runs = group.as_bytes().split(is_vowel).map(<[u8]>::len);
        runs.any(|run| run >= 3)
    };
    value.split([' ', '-']).any(hard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detectors::checks::table;

    #[test]
    fn names_may_have_numbers_within() {
        table(
            is_wordish,
            &[
                "Uint8Array",
                "PrivatePkcs8KeyDer",
                "PBKDF2WithHmacSHA256",
                "Curve25519SeedBin",
                "Base64UrlString",
                "Chacha20Poly1305",
                "Aes256Gcm",
                "utf8string",
                "nl80211",
                "4xl",
                "Db",
            ],
            &[
                "q7R2zL9vX1",
                "Tiger9House",
                "Summer2024Rocks",
                "hunter2xyz9",
                "Xk8ArrayQ2w",
                "8f14e45f",
                "sha256q7R2zL9vX1",
                "IqZbWpXk",
            ],
        );
    }

    #[test]
    fn the_last_hump_ends_a_name() {
        let cases = [
            ("PrivatePkcs", "Pkcs"),
            ("HmacSHA", "SHA"),
            ("uint", "uint"),
            ("SHA", "SHA"),
            ("Uint", "Uint"),
            ("", ""),
        ];
        for (word, hump) in cases {
            assert_eq!(last_hump(word), hump, "{word}");
        }
    }

    #[test]
    fn four_words_are_no_drawn_letters() {
        table(
            drawn_letters,
            &[
                "rkxq vbtn wplz hdfm",
                "qhzx-plmk-wert-mnbv",
                "have some tktz here",
            ],
            &["this must have more", "some-name-with-dash", ""],
        );
    }
}

//! Characters that nobody sees, where ordinary text has no use for them.

use std::cell::LazyCell;
use std::ops::Range;

/// The first stretch of a text that nobody sees and no language or emoji needs: zero-width and control
/// characters, direction controls, tag characters, runs of variation selectors.
pub fn hidden(text: &str) -> Option<Range<usize>> {
    if text.bytes().all(super::fold::is_plain_ascii) {
        return None;
    }
    let right_to_left = LazyCell::new(|| text.chars().any(is_right_to_left));
    let mut before = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == BLACK_FLAG {
            for _ in 0..flag_tags(&text[at + c.len_utf8()..]) {
                chars.next();
            }
        }
        let after = chars.peek().map(|(_, next)| *next);
        if is_invisible(c) && !is_needed(c, before, after, || *right_to_left) {
            let end = text[at..].find(|c| !is_invisible(c));
            return Some(at..end.map_or(text.len(), |len| at + len));
        }
        before = Some(c);
    }
    None
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\0'..='\x08' | '\x0e'..='\x1f' | '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{61c}'
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Whether an invisible character does what it was made for.
fn is_needed(
    c: char,
    before: Option<char>,
    after: Option<char>,
    right_to_left: impl FnOnce() -> bool,
) -> bool {
    let Some(before) = before else {
        // A byte order mark.
        return c == '\u{feff}';
    };
    let visible = |c: char| !is_invisible(c);
    match c {
        // Emoji, and letters of scripts that join.
        '\u{200c}' | '\u{200d}' => {
            (joins(before) || before == '\u{fe0f}') && after.is_none_or(visible)
        }
        // Where a line may break in scripts without blanks.
        '\u{200b}' => is_unspaced(before) && after.is_none_or(is_unspaced),
        '\u{200e}' | '\u{200f}' | '\u{61c}' => right_to_left(),
        // How a symbol looks. `1️⃣` is a digit, a selector and a mark.
        '\u{fe00}'..='\u{fe0f}' => {
            visible(before) && (!before.is_ascii() || after == Some('\u{20e3}'))
        }
        '\u{e0100}'..='\u{e01ef}' => is_ideograph(before),
        _ => false,
    }
}

fn joins(c: char) -> bool {
    c >= '\u{600}' && !matches!(c, '\u{1e00}'..='\u{206f}') && !is_invisible(c)
}

/// Thai, Lao, Myanmar, Khmer, and the scripts of China and Japan.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3000}'..='\u{3163}')
        || is_ideograph(c)
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// A letter of Hebrew, Arabic and their neighbours.
fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{61b}' | '\u{61d}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

/// The tags of a region make it the flag of that region.
const BLACK_FLAG: char = '\u{1f3f4}';

/// How many tag characters make a region's flag of the flag before them.
fn flag_tags(rest: &str) -> usize {
    let is_region = |c: &char| matches!(c, '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}');
    let len = rest.chars().take(7).take_while(is_region).count();
    let ended = rest.chars().nth(len) == Some('\u{e007f}');
    if ended && (3..=6).contains(&len) {
        len + 1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_text_hides_nothing() {
        for text in [
            "",
            "Reads a file.\n\tPaths must be absolute.\r\n",
            "Café, naïve, Straße, Łódź, Ελληνικά, Русский",
            "⚠️ Deletes for good. ❤️‍🔥 👨‍👩‍👧 🏳️‍🌈 👍🏽 1️⃣ #️⃣ ✔︎",
            "🏴󠁧󠁢󠁥󠁮󠁧󠁿 England",
            "می‌خواهم",
            "क्‍ष",
            "שלום\u{200f}!",
            "สวัสดี\u{200b}ครับ",
            "葛\u{e0100}城",
            "\u{feff}Reads a file.",
            "Zurück zum Anfang – „so“ … 5 °C",
            "e\u{301}",
        ] {
            assert_eq!(hidden(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_nobody_sees_is_found_where_it_stands() {
        for (text, found) in [
            ("Add.\u{e0049}\u{e0067}", "\u{e0049}\u{e0067}"),
            ("re\u{200b}ad", "\u{200b}"),
            ("a\u{200d}b", "\u{200d}"),
            ("\u{202e}txt.exe", "\u{202e}"),
            ("a\u{2066}b\u{2069}", "\u{2066}"),
            ("a\u{200f}b", "\u{200f}"),
            ("😀\u{fe01}\u{e0142}", "\u{e0142}"),
            ("😀\u{fe0f}\u{fe0e}\u{fe01}", "\u{fe0e}\u{fe01}"),
            ("a\u{fe0f}", "\u{fe0f}"),
            ("\x1b[8mhidden", "\x1b"),
            ("a\u{feff}b", "\u{feff}"),
            ("a\u{3164}b", "\u{3164}"),
            ("🏴\u{e0067}\u{e0062}", "\u{e0067}\u{e0062}"),
        ] {
            let range = hidden(text);
            assert_eq!(range.map(|range| &text[range]), Some(found), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_found_is_invisible(text in "[a-zא\u{200b}-\u{200f}\u{fe00}-\u{fe0f}😀🏴\u{e0061}\u{e007f}]{0,20}") {
            if let Some(range) = hidden(&text) {
                prop_assert!(!range.is_empty());
                prop_assert!(text[range].chars().all(is_invisible));
            }
        }
    }
}

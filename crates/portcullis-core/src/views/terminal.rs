//! Text as a terminal shows it.

use std::ops::Range;

use memchr::{memchr_iter, memchr3};

use super::map::Rewrite;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// The byte that every control character from U+0080 to U+009F begins with.
const C1: u8 = 0xc2;

/// The longest control sequence, in bytes between its beginning and its last.
const LONGEST: usize = 48;

/// The longest string for the terminal, such as a title.
const LONGEST_STRING: usize = 256;

/// The text without the codes for colours and the like, and with what backspaces take back taken back.
pub(super) fn erase(text: &str, limit: usize) -> Option<Rewrite<'_>> {
    if !may_erase(text.as_bytes()) {
        return None;
    }
    let mut rewrite = Rewrite::excerpt(text, limit);
    let mut done = 0;
    for part in shown(text) {
        if part.start > done {
            rewrite.replace(done..part.start, "");
        }
        done = part.end;
    }
    if done < text.len() {
        rewrite.replace(done..text.len(), "");
    }
    Some(rewrite)
}

/// Whether a text has anything that takes something away.
fn may_erase(bytes: &[u8]) -> bool {
    let opens_at = |at: usize| bytes.get(at + 1).is_some_and(|next| opens(*next));
    memchr3(ESCAPE, BACKSPACE, DELETE, bytes).is_some() || memchr_iter(C1, bytes).any(opens_at)
}

/// What is still there at the end.
fn shown(text: &str) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    let mut shown_from = 0;
    for (at, c) in text.char_indices() {
        if at < shown_from {
            continue;
        }
        if c.is_ascii() && is_backspace(c as u8) {
            kept.pop_if(|last| {
                last.end = text.floor_char_boundary(last.end - 1);
                last.start == last.end
            });
        } else if let Some(len) = code(&text.as_bytes()[at..]) {
            shown_from = at + len;
        } else {
            let end = at + c.len_utf8();
            match kept.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => kept.push(at..end),
            }
        }
    }
    kept
}

/// The length of the control sequence, control string or short escape (ECMA-48) that this begins with.
fn code(bytes: &[u8]) -> Option<usize> {
    let (first, rest) = introduced(bytes)?;
    let is_middle = |byte: &u8| match first {
        b'[' => (0x20..0x40).contains(byte),
        _ => (0x20..0x30).contains(byte),
    };
    match first {
        b']' | b'P' | b'X' | b'^' | b'_' => Some(string(rest)? + 2),
        b'[' | 0x20..0x30 => {
            let middle = rest
                .iter()
                .take(LONGEST)
                .take_while(|byte| is_middle(byte))
                .count();
            let last = rest.get(middle)?;
            (0x30..0x7f).contains(last).then_some(middle + 3)
        }
        0x30..0x7f => Some(2),
        _ => None,
    }
}

/// What an escape is followed by, and the rest. A control character from U+0080 on is the escape and that in one, and as long
/// in UTF-8.
fn introduced(bytes: &[u8]) -> Option<(u8, &[u8])> {
    match bytes {
        [ESCAPE, first, rest @ ..] => Some((*first, rest)),
        [C1, byte, rest @ ..] if opens(*byte) => Some((byte - 0x40, rest)),
        _ => None,
    }
}

/// Whether this second byte of a control character makes it begin a code: DCS, SOS, CSI, OSC, PM or APC. The others are one
/// character that is not seen, and folded away; U+0085 ends a line.
fn opens(byte: u8) -> bool {
    matches!(byte, 0x90 | 0x98 | 0x9b | 0x9d..=0x9f)
}

/// The length of a string for the terminal, up to and with BEL or ST. What begins another code breaks it off, so that no byte is
/// looked at for many.
fn string(rest: &[u8]) -> Option<usize> {
    let ends = |at: &usize| matches!(rest[*at..], [BELL | ESCAPE, ..] | [C1, 0x80..=0x9f, ..]);
    let end = (0..rest.len().min(LONGEST_STRING)).find(ends)?;
    match rest[end..] {
        [BELL, ..] => Some(end + 1),
        [ESCAPE, b'\\', ..] | [C1, 0x9c, ..] => Some(end + 2),
        _ => None,
    }
}

fn is_backspace(byte: u8) -> bool {
    matches!(byte, BACKSPACE | DELETE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn as_shown(text: &str) -> String {
        shown(text).into_iter().map(|part| &text[part]).collect()
    }

    #[test]
    fn codes_are_not_shown() {
        for (text, expected) in [
            ("a\x1b[1;31mb\x1b[0mc", "abc"),
            ("a\u{9b}1;31mb\u{9b}0mc", "abc"),
            ("a\x1b]0;title\x07b\x1b]8;;x\x1b\\c", "abc"),
            ("a\u{9d}0;title\x07b\u{9d}8;;x\u{9c}c", "abc"),
            (
                "a\u{90}1$r\u{9c}b\u{98}x\u{9c}c\u{9e}x\u{9c}d\u{9f}x\x1b\\e",
                "abcde",
            ),
            ("a\x1b]0;title\u{9c}b", "ab"),
            ("a\x1b(Bb\x1bcd", "abd"),
            ("ab\x08c\u{9b}Kd", "acd"),
            // Not ended, or broken off by another.
            ("a\u{9b}", "a\u{9b}"),
            ("a\u{9b}31\nb", "a\u{9b}31\nb"),
            ("a\u{9d}0;title", "a\u{9d}0;title"),
            ("a\u{9d}0;\u{9b}1mb\x07", "a\u{9d}0;b\x07"),
            ("a\u{9d}0;\u{85}b\x07", "a\u{9d}0;\u{85}b\x07"),
            // No codes.
            ("a\u{85}b\u{80}c\u{9c}d", "a\u{85}b\u{80}c\u{9c}d"),
            ("Àâ\u{a0}", "Àâ\u{a0}"),
        ] {
            assert_eq!(as_shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn codes_are_bounded() {
        for begin in ["\x1b[", "\u{9b}"] {
            let code = |len: usize| format!("{begin}{}m", " ".repeat(len));
            assert_eq!(as_shown(&code(LONGEST)), "");
            assert_eq!(as_shown(&code(LONGEST + 1)), code(LONGEST + 1));
        }
        for begin in ["\x1b]", "\u{9d}", "\x1bP", "\u{90}"] {
            for end in ["\x07", "\x1b\\", "\u{9c}"] {
                let code = |len: usize| format!("{begin}{}{end}", "x".repeat(len));
                assert_eq!(as_shown(&code(LONGEST_STRING - 1)), "");
                assert!(as_shown(&code(LONGEST_STRING)).len() > LONGEST_STRING);
            }
        }
    }

    proptest! {
        /// What is one character with eight bits is two with seven, and both are two bytes: the same places are shown.
        #[test]
        fn a_code_is_the_same_in_one_character_as_in_two(pieces in prop::collection::vec(select(vec![
            "\u{90}", "\u{98}", "\u{9b}", "\u{9d}", "\u{9e}", "\u{9f}", "\x1b", "\x07",
            "1;31m", "m", "0;title", "\\", "[", "]", " ", "a", "é", "\n", "\u{a0}", "x".repeat(50).leak(),
        ]), 0..30)) {
            let text = pieces.concat();
            let seven: String = text
                .chars()
                .flat_map(|c| match c {
                    '\u{90}'..='\u{9f}' => vec!['\x1b', char::from(c as u8 - 0x40)],
                    c => vec![c],
                })
                .collect();
            prop_assert_eq!(shown(&text), shown(&seven), "{:?}", text);
        }
    }
}

//! Writing the parts of RFC 8785: the order of names, strings and numbers.

use std::cmp::Ordering;

/// The order of member names: by UTF-16 code units, as RFC 8785 asks, which differs from the order of
/// `str` only where a character past U+FFFF meets one from U+E000 on.
pub(crate) fn compare_names(a: &str, b: &str) -> Ordering {
    // At the first bytes that differ both texts are at the same place of a character, so that moving
    // the two lead bytes of U+E000..=U+FFFF behind the others is enough.
    let rank = |byte: u8| {
        if matches!(byte, 0xEE | 0xEF) {
            u16::from(byte) + 0x10
        } else {
            u16::from(byte)
        }
    };
    let different = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    match different {
        Some((a, b)) => rank(a).cmp(&rank(b)),
        None => a.len().cmp(&b.len()),
    }
}

/// A string with its quotes.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    out.push(b'"');
    loop {
        let (plain, other) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = other.split_first() else {
            break;
        };
        rest = after;
        match short_escape(byte) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xF)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
    }
    out.push(b'"');
}

/// How many bytes from the start on need no escape. Eight at a time: most texts have none that does.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let mut plain = 0;
    for eight in bytes.as_chunks().0 {
        let word = u64::from_le_bytes(*eight);
        // The top bit of a byte is set where it is less than the one it is compared with; perhaps also above such a
        // byte, which is for the loop below to find out.
        let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word;
        let is_byte = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
        if (less(word, 0x20) | is_byte(b'"') | is_byte(b'\\')) & (ONES << 7) != 0 {
            break;
        }
        plain += 8;
    }
    let rest = bytes[plain..].iter();
    plain
        + rest
            .take_while(|byte| !matches!(byte, 0..0x20 | b'"' | b'\\'))
            .count()
}

/// A finite number, as ECMAScript prints it.
pub(crate) fn write_number(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(ryu_js::Buffer::new().format_finite(number).as_bytes());
}

/// The letter after the backslash, for what has one.
pub(super) fn short_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' => Some(byte),
        0x08 => Some(b'b'),
        0x09 => Some(b't'),
        0x0A => Some(b'n'),
        0x0C => Some(b'f'),
        0x0D => Some(b'r'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_are_in_the_order_of_their_utf_16(a: String, b in "[\u{e000}-\u{10ffff}a]{0,3}", c in "[\u{e000}-\u{10ffff}a]{0,3}") {
            for (x, y) in [(&a, &b), (&b, &c), (&c, &a)] {
                prop_assert_eq!(compare_names(x, y), x.encode_utf16().cmp(y.encode_utf16()));
            }
        }

        #[test]
        fn strings_and_numbers_are_the_canonicalizers(text: String, number in prop::num::f64::NORMAL | prop::num::f64::ZERO) {
            let mut out = Vec::new();
            write_string(&text, &mut out);
            prop_assert_eq!(&out, &serde_json_canonicalizer::to_vec(&text).unwrap());
            out.clear();
            write_number(number, &mut out);
            prop_assert_eq!(&out, &serde_json_canonicalizer::to_vec(&number).unwrap());
        }
    }
}

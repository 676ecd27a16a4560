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
    let bytes = text.as_bytes();
    let mut copied = 0;
    out.push(b'"');
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..at]);
        copied = at + 1;
        match short_escape(byte) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xF)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
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

//! Checks on what is inside a token: its checksum, its parts, the alphabet it is drawn from.

use super::NamedCheck;
use super::secrets::{base64, crc32};

pub(super) const CHECKS: &[NamedCheck] = &[
    ("key-line", key_line),
    ("wide-key-line", wide_key_line),
    ("not-sealed", not_sealed),
    ("crc32-hex", crc32_hex),
    ("jfrog-reference", jfrog_reference),
    ("private-der", private_der),
    ("private-pem", private_pem),
    ("random-numbers", random_numbers),
];

/// A full line of a PEM block or of an OpenSSH key.
pub(super) fn key_line(value: &str) -> bool {
    matches!(value.len(), 64 | 70) && is_of_a_key(value)
}

/// A line of a key that somebody set anew, in lines of another length: where those of mails end it is no sign of anything,
/// and what is longer than a line of code is no line. One without the two marks of base64 may be a name or a token.
fn wide_key_line(value: &str) -> bool {
    matches!(value.len(), 77..=128) && is_of_a_key(value) && value.contains(['+', '/'])
}

/// As random bytes give it: of every sort of character its share. A digest in hexadecimal, a path and a long name lack one
/// or the other.
fn is_of_a_key(value: &str) -> bool {
    let count = |is: fn(&u8) -> bool| value.bytes().filter(is).count();
    let len = value.len();
    let base64 = |b: &u8| b.is_ascii_alphanumeric() || b"+/".contains(b);
    let letters = |b: &u8| b.is_ascii_alphabetic() && !b.is_ascii_hexdigit();
    // The rarer of the two cases; with few digits there must be more of it, or a camel-cased name would do.
    let rarer = count(u8::is_ascii_uppercase).min(count(u8::is_ascii_lowercase));
    let share = match count(u8::is_ascii_digit) {
        0 => 7,
        digits if digits * 24 < len => 8,
        _ => 10,
    };
    count(base64) == len
        && count(letters) * 4 >= len
        && rarer * share >= len * 2
        && !is_encoded_text(value)
}

/// Base64 of something to read. Of the bytes of a key, more than half are no plain character.
fn is_encoded_text(value: &str) -> bool {
    let whole = value.len() - value.len() % 4;
    let plain = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    base64(&value[..whole]).is_some_and(|bytes| bytes.iter().all(plain))
}

/// Not what the controller of Sealed Secrets alone can read: in base64, the length of an RSA key's output in two bytes,
/// that output, and behind it what the key in it encrypts.
fn not_sealed(value: &str) -> bool {
    const KEYS: [usize; 3] = [256, 384, 512];
    let head = value.get(..4).and_then(base64).unwrap_or_default();
    let key = match head.as_slice() {
        [high, low, _] => usize::from(*high) << 8 | usize::from(*low),
        _ => return true,
    };
    !(KEYS.contains(&key) && value.len() / 4 * 3 > key)
}

/// The last eight characters are the CRC32 of those between the prefix and them, in hexadecimal.
fn crc32_hex(value: &str) -> bool {
    let body = value.split_once('_').map_or(value, |(_, body)| body);
    let at = body.len().saturating_sub(8);
    body.split_at_checked(at)
        .and_then(|(random, sum)| Some((random, u32::from_str_radix(sum, 16).ok()?)))
        .is_some_and(|(random, sum)| !random.is_empty() && crc32(random.as_bytes()) == sum)
}

/// In base64, `reftkn`, two numbers and something random.
fn jfrog_reference(value: &str) -> bool {
    let text = base64(value).and_then(|bytes| String::from_utf8(bytes).ok());
    text.is_some_and(|text| {
        let mut parts = text.split(':');
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        parts.next() == Some("reftkn")
            && parts.next().is_some_and(is_number)
            && parts.next().is_some_and(is_number)
            && parts.next().is_some_and(|random| random.len() >= 8)
    })
}

/// In base64, with or without line breaks, a key's DER: a sequence that begins with its version, and no certificate.
pub(super) fn private_der(value: &str) -> bool {
    let text = value.replace("\\n", "").replace("\\r", "");
    let text: String = text
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "+/=".contains(*c))
        .collect();
    let whole = text.len() - text.len() % 4;
    base64(&text[..whole]).is_some_and(|bytes| {
        let inside = match bytes.as_slice() {
            [0x30, 0x82, _, _, inside @ ..] | [0x30, 0x81, _, inside @ ..] => inside,
            [0x30, len, inside @ ..] if *len < 0x80 => inside,
            _ => return false,
        };
        matches!(inside, [0x02, 0x01, 0x00 | 0x01, ..])
    })
}

/// In base64, a private key's PEM with something between its lines of dashes.
fn private_pem(value: &str) -> bool {
    let whole = value.len() - value.len() % 4;
    let bytes = value.get(..whole).and_then(base64).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let body = text.split("PRIVATE KEY").nth(1).unwrap_or_default();
    let line = |line: &str| line.len() >= 32 && line.bytes().all(|b| b.is_ascii_graphic());
    body.lines().skip(1).any(line)
}

/// Bytes in decimal, most of them different, and no row of numbers that all go one way as a table of sizes does.
fn random_numbers(value: &str) -> bool {
    let numbers: Option<Vec<i16>> = value.split(',').map(|n| n.trim().parse().ok()).collect();
    numbers.is_some_and(|numbers| {
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let falls = numbers.windows(2).filter(|two| two[1] < two[0]).count();
        distinct.len() * 3 >= numbers.len() * 2
            && numbers.iter().all(|n| (-128..256).contains(n))
            && falls * 4 >= numbers.len()
            && falls * 4 <= numbers.len() * 3
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detectors::checks::table;

    #[test]
    fn a_key_line_has_every_sort_of_character() {
        table(
            key_line,
            &["b0kYXnXFRdDSgTBMlYjQFIDfXYQXGwpQ0Wlu6Nq4BAPq1C1BxFUi4sX1nKpTJ5eR"],
            &[
                "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "some/Path/To/SomeClass/That/Is/Long/Enough/To/Be/A/Line/Of/Base64",
                "ALLUPPERCASE0123456789ALLUPPERCASE0123456789ALLUPPERCASE01234567",
                "with spaces B0kYXnXFRdDSgTBMlYjQFIDfXYQXGwpQ0Wlu6Nq4BAPq1C1BxFUi",
                "b0kYXnXFRdDSgTBMlYjQFIDfXYQXGwpQ0Wlu6Nq4BAPq1C1BxFUi4sX1nKpTJ5eRb0kYXnXFRdDS",
            ],
        );
    }

    #[test]
    fn a_wide_line_has_a_mark_of_base64() {
        let line = "b0kYXnXFRdDSgTBMlYjQFIDfXYQXGwpQ0Wlu6Nq4BAPq1C1BxFUi4sX1nKpTJ5eR";
        let wide = |end: &str| format!("{line}{end}");
        assert!(wide_key_line(&wide("q7R2zL9vX1mPw3tYb6Nc+Kw9")));
        for other in ["q7R2zL9vX1mPw3tYb6NcxKw9", "q7R2zL9v+X1m", "q7R2", ""] {
            assert!(!wide_key_line(&wide(other)), "{other}");
        }
    }

    #[test]
    fn what_is_to_be_read_is_no_line_of_a_key() {
        // "The lines of a letter, as a mail program sends it. "
        let text = "VGhlIGxpbmVzIG9mIGEgbGV0dGVyLCBhcyBhIG1haWwgcHJvZ3JhbSBzZW5kcyBp";
        assert!(is_encoded_text(text) && !key_line(text));
        assert!(!is_encoded_text("RHtUVQcDMpg0TMkxpdzPaEMM1ZA7V0Fh"));
    }

    #[test]
    fn a_sealed_secret_begins_with_the_length_of_a_key() {
        let long = |start: &str| format!("{start}{}", "q7R2".repeat(200));
        for sealed in ["AgCF", "AQBo", "AYAx"] {
            assert!(!not_sealed(&long(sealed)), "{sealed}");
        }
        for other in ["AQIC", "q7R2", "Ag", ""] {
            assert!(not_sealed(&long(other)), "{other}");
        }
        // Too short to hold what it says.
        assert!(not_sealed("AgCFq7R2zL9vX1"));
    }

    /// Held against zlib's CRC32.
    #[test]
    fn a_checksum_in_hexadecimal_is_that_of_the_rest() {
        table(
            crc32_hex,
            &["cfk_123456789cbf43926"],
            &[
                "cfk_123456788cbf43926",
                "cfk_cbf43926",
                "short",
                "",
                "cfk_zzzzzzzzzzzz",
            ],
        );
    }

    #[test]
    fn a_reference_token_names_itself() {
        table(
            jfrog_reference,
            &["cmVmdGtuOjAxOjE3MzU2ODk2MDA6cTdSMnpMOXZYMXE3UjJ6TDl2WDE"],
            &["cmVmdGtuOmFiOmNkOmVm", "cTdSMnpMOXZYMQ", "!"],
        );
    }

    #[test]
    fn a_private_key_begins_with_its_version() {
        table(
            private_der,
            &["MIIEowIBAAKCAQEA", "MIIE\\nowIB\\nAAKC", "MHcCAQEEIA=="],
            &["MIIDXTCCAkWgAwIBAgIJ", "MFkwEwYHKoZIzj0CAQYI", "", "AAAA"],
        );
    }

    #[test]
    fn random_numbers_go_up_and_down() {
        table(
            random_numbers,
            &[
                "199, 115, 33, 140, 126, 200, 238, 153",
                "-12,99,-101,7,88,14,-3,55",
            ],
            &[
                "8, 16, 24, 32, 40, 48, 56, 64",
                "0,0,0,0,1,0",
                "300, 1, 299, 4",
                "a, b",
            ],
        );
    }

    #[test]
    fn a_private_pem_has_a_body() {
        let pem = |body: &str| {
            format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
        };
        let body = "q7R2zL9vX1q7R2zL9vX1q7R2zL9vX1q7R2zL9vX1";
        assert!(private_pem(&encode(&pem(body))));
        assert!(!private_pem(&encode(&pem("..."))));
        assert!(!private_pem("LS0tLS1CRUdJTg") && !private_pem("é"));
    }

    fn encode(text: &str) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bits = text
            .bytes()
            .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        let bits: Vec<u8> = bits.collect();
        let digit =
            |six: &[u8]| (0..6).fold(0, |sum, at| sum << 1 | six.get(at).copied().unwrap_or(0));
        bits.chunks(6)
            .map(|six| char::from(DIGITS[usize::from(digit(six))]))
            .collect()
    }
}

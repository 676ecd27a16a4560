//! Text written as numbers: escapes, which are decoded where they stand, and runs of base64 or
//! hexadecimal, which are decoded on their own.

use std::ops::Range;

use memchr::memchr3;

use super::map::Rewrite;
use crate::scan::next_stretch;

/// The shortest run that is tried as base64.
const MIN_BASE64: usize = 24;

/// What may stand after a run to fill it up, in characters.
const MAX_PADDING: usize = 2;

/// The shortest run that is tried as hexadecimal.
const MIN_HEX: usize = 32;

/// The shortest line after which base64 may go on in the next.
const MIN_LINE: usize = 60;

/// Characters of a run that are decoded to see whether the rest is worth it.
const SAMPLE: usize = 32;

/// How often the rest of a run is decoded in full, from different places.
const MAX_TRIES: usize = 4;

/// The share of decoded characters, in tenths, that must be printable.
const MIN_PRINTABLE: usize = 9;

/// Divides what was decoded from different runs, so that no match reaches from one to the next.
const BETWEEN_RUNS: &str = "\n\u{fffc}\n";

/// The text with its escapes decoded.
pub(super) fn unescape(text: &str, limit: usize) -> Option<Rewrite<'_>> {
    let mut rewrite = Rewrite::excerpt(text, limit);
    let mut found = false;
    let mut at = 0;
    while let Some(offset) = memchr3(b'%', b'&', b'\\', &text.as_bytes()[at..]) {
        let start = at + offset;
        at = start + 1;
        if let Some((c, len)) = escape(&text[start..]) {
            at = start + len;
            rewrite.replace(start..at, c.encode_utf8(&mut [0; 4]));
            found = true;
            if rewrite.is_cut() {
                break;
            }
        }
    }
    found.then_some(rewrite)
}

/// What the runs of the text decode to. Each is one unit: a part of it comes from the whole run.
pub(super) fn decode(text: &str, limit: usize) -> Option<Rewrite<'_>> {
    let mut rewrite = Rewrite::excerpt(text, limit);
    let mut end = None;
    let mut at = 0;
    while let Some(run) = next_run(text, at) {
        at = run.end;
        if run.len() < MIN_BASE64 {
            continue;
        }
        let mut found = |span: Range<usize>, decoded: &str| {
            if let Some(end) = end {
                rewrite.unit(end..span.start, BETWEEN_RUNS);
            }
            end = Some(span.end);
            rewrite.unit(span, decoded);
        };
        decode_parts(&text[run.clone()], |part, decoded| {
            found(run.start + part.start..run.start + part.end, decoded);
        });
    }
    end?;
    rewrite.skip_to(text.len());
    Some(rewrite)
}

/// Decodes a run, or what is left of it after a path or an identifier that leads up to it, or the
/// parts between the characters that such are written with.
fn decode_parts(run: &str, mut found: impl FnMut(Range<usize>, &str)) {
    let mut tries = MAX_TRIES;
    let mut start = 0;
    for part in run.split(['/', '-', '_', '+', '\n']) {
        let rest = &run[start..];
        if tries > 0 && rest.len() >= MIN_BASE64 && is_promising(rest) {
            tries -= 1;
            if let Some(decoded) = decode_run(rest) {
                return found(start..run.len(), &decoded);
            }
        }
        let end = start + part.len();
        if part.len() >= MIN_BASE64
            && is_promising(part)
            && let Some(decoded) = decode_run(part)
        {
            found(start..end, &decoded);
        }
        start = end + 1;
    }
}

/// The character that the text starts with an escape of, and the length of that.
fn escape(text: &str) -> Option<(char, usize)> {
    let rest = &text[1..];
    match text.as_bytes()[0] {
        b'%' if rest.starts_with(['u', 'U']) => unicode(&rest[1..], 4).map(|(c, n)| (c, n + 2)),
        b'%' => utf8(text, "%"),
        b'&' => entity(rest).map(|(c, n)| (c, n + 1)),
        _ if rest.starts_with("u{") || rest.starts_with("x{") => {
            let braced = &rest.as_bytes()[2..];
            let len = braced.iter().take(6).take_while(|b| b.is_ascii_hexdigit());
            let len = len.count();
            let closed = braced.get(len) == Some(&b'}');
            Some((hex(&rest[2..2 + len]).filter(|_| closed)?, len + 4))
        }
        _ if rest.starts_with('u') => surrogates(text),
        _ if rest.starts_with('U') => unicode(&rest[1..], 8).map(|(c, n)| (c, n + 2)),
        _ if rest.starts_with('x') => utf8(text, "\\x"),
        _ => octal(rest).map(|c| (c, 4)),
    }
}

/// A character from the escapes of its bytes.
fn utf8(text: &str, prefix: &str) -> Option<(char, usize)> {
    let mut bytes = [0; 4];
    let mut rest = text;
    for len in 1..=bytes.len() {
        rest = rest.strip_prefix(prefix)?;
        let digits = rest.get(..2).filter(|digits| is_hex(digits))?;
        bytes[len - 1] = u8::from_str_radix(digits, 16).ok()?;
        rest = &rest[2..];
        match std::str::from_utf8(&bytes[..len]) {
            Ok(decoded) => return Some((decoded.chars().next()?, text.len() - rest.len())),
            Err(error) if error.error_len().is_some() => return None,
            Err(_) => {}
        }
    }
    None
}

fn unicode(text: &str, digits: usize) -> Option<(char, usize)> {
    Some((hex(text.get(..digits)?)?, digits))
}

/// `\u` with four digits, or twice for a character that takes two.
fn surrogates(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16)
            .ok()
            .filter(|_| is_hex(digits))
    };
    let first = unit(text)?;
    let second = text.get(6..).and_then(unit);
    let mut decoded = char::decode_utf16([Some(first), second].into_iter().flatten());
    let c = decoded.next()?.ok()?;
    Some((c, if c.len_utf16() == 2 { 12 } else { 6 }))
}

fn octal(text: &str) -> Option<char> {
    let digits = text.get(..3)?;
    let octal = digits.bytes().all(|b| matches!(b, b'0'..=b'7'));
    let byte = u8::from_str_radix(digits, 8).ok().filter(|_| octal)?;
    byte.is_ascii().then(|| char::from(byte))
}

/// An entity, after its `&`.
fn entity(text: &str) -> Option<(char, usize)> {
    if let Some(number) = text.strip_prefix('#') {
        let (digits, radix) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16),
            None => (number, 10),
        };
        let len = digits
            .bytes()
            .take(8)
            .take_while(|b| char::from(*b).is_digit(radix))
            .count();
        let code = u32::from_str_radix(&digits[..len], radix).ok()?;
        let semicolon = usize::from(digits[len..].starts_with(';'));
        let before = text.len() - digits.len();
        return Some((char::from_u32(code)?, before + len + semicolon));
    }
    let name = text.bytes().take(10).take_while(u8::is_ascii_alphanumeric);
    let len = name.count();
    let (_, c) = ENTITIES.iter().find(|(name, _)| *name == &text[..len])?;
    text[len..].starts_with(';').then_some((*c, len + 1))
}

/// Names for characters that patterns ask for.
const ENTITIES: &[(&str, char)] = &[
    ("amp", '&'),
    ("apos", '\''),
    ("ast", '*'),
    ("bsol", '\\'),
    ("colon", ':'),
    ("comma", ','),
    ("commat", '@'),
    ("dollar", '$'),
    ("emsp", '\u{2003}'),
    ("ensp", '\u{2002}'),
    ("equals", '='),
    ("excl", '!'),
    ("gt", '>'),
    ("hyphen", '\u{2010}'),
    ("lowbar", '_'),
    ("lpar", '('),
    ("lsqb", '['),
    ("lt", '<'),
    ("nbsp", '\u{a0}'),
    ("NewLine", '\n'),
    ("num", '#'),
    ("percnt", '%'),
    ("period", '.'),
    ("plus", '+'),
    ("quest", '?'),
    ("quot", '"'),
    ("rpar", ')'),
    ("rsqb", ']'),
    ("semi", ';'),
    ("shy", '\u{ad}'),
    ("sol", '/'),
    ("Tab", '\t'),
    ("verbar", '|'),
    ("zwj", '\u{200d}'),
    ("zwnj", '\u{200c}'),
];

fn hex(digits: &str) -> Option<char> {
    let code = u32::from_str_radix(digits, 16).ok();
    char::from_u32(code.filter(|_| is_hex(digits))?)
}

/// Unlike parsing, this accepts no sign.
fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The next run of characters that base64 is written in, over the ends of long lines. Some that are
/// too short are passed over.
fn next_run(text: &str, at: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let start = next_stretch(bytes, at, MIN_BASE64 - MAX_PADDING, is_base64)?;
    let mut end = start;
    loop {
        let line = end;
        end += bytes[end..].iter().take_while(|b| is_base64(**b)).count();
        let next = match &bytes[end..] {
            [b'\n', b, ..] if is_base64(*b) => end + 1,
            [b'\r', b'\n', b, ..] if is_base64(*b) => end + 2,
            _ => break,
        };
        if end - line < MIN_LINE {
            break;
        }
        end = next;
    }
    let padding = bytes[end..]
        .iter()
        .take(MAX_PADDING)
        .take_while(|b| **b == b'=');
    Some(start..end + padding.count())
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'/' | b'_')
}

/// Whether the first few characters of a run encode text. No more of it is looked at, since each of its lines asks about
/// all that is left.
fn is_promising(run: &str) -> bool {
    let sample = &run[..run.len().min("0x".len() + SAMPLE)];
    let (decode, digits) = decoder(sample);
    // What begins with hexadecimal may go on as base64.
    encodes_text(digits.as_bytes(), decode)
        || digits.bytes().all(is_hex_or_blank) && encodes_text(sample.as_bytes(), from_base64)
}

/// Whether these characters encode the beginning of a text. Most that do not are known by the first few.
fn encodes_text(digits: &[u8], decode: Decoder) -> bool {
    const FEW: usize = 8;
    let is_text = |digits| begins_text(&decode(digits));
    digits.get(..FEW).is_none_or(is_text) && is_text(digits)
}

/// Whether it is text, or would be if it went on.
fn begins_text(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

/// The text that a run encodes, if it encodes text.
fn decode_run(run: &str) -> Option<String> {
    let (decode, run) = decoder(run);
    readable(decode(run.as_bytes()))
}

type Decoder = fn(&[u8]) -> Vec<u8>;

/// Hexadecimal, if the run can be that, and what is to be decoded.
fn decoder(run: &str) -> (Decoder, &str) {
    let digits = run.strip_prefix("0x").or_else(|| run.strip_prefix("0X"));
    let digits = digits.unwrap_or(run);
    if digits.len() >= MIN_HEX && digits.bytes().all(is_hex_or_blank) {
        (from_hex, digits)
    } else {
        (from_base64, run)
    }
}

fn is_hex_or_blank(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte.is_ascii_whitespace()
}

fn from_base64(run: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(run.len() / 4 * 3 + 3);
    let (mut bits, mut held) = (0u32, 0);
    let sextets = run.iter().map(|byte| SEXTETS[usize::from(*byte)]);
    for sextet in sextets.filter(|sextet| *sextet != NO_SEXTET) {
        bits = (bits << 6) | u32::from(sextet);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
        }
    }
    decoded
}

/// What stands for none.
const NO_SEXTET: u8 = u8::MAX;

/// The six bits that each byte stands for.
static SEXTETS: [u8; 256] = {
    let mut sextets = [NO_SEXTET; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        sextets[byte] = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => NO_SEXTET,
        };
        byte += 1;
    }
    sextets
};

fn from_hex(run: &[u8]) -> Vec<u8> {
    let digits = run.iter().filter_map(|b| char::from(*b).to_digit(16));
    let mut decoded = Vec::with_capacity(run.len() / 2);
    let mut high = None;
    for digit in digits {
        match high.take() {
            None => high = Some(digit),
            Some(high) => decoded.push((high << 4 | digit) as u8),
        }
    }
    decoded
}

/// The bytes as text, if a person could read it. Two-byte characters, low byte first, are taken for
/// what they are if all are ASCII.
fn readable(mut bytes: Vec<u8>) -> Option<String> {
    if bytes.len() > 1 && bytes.iter().skip(1).step_by(2).all(|b| *b == 0) {
        bytes.retain(|b| *b != 0);
    }
    // The run may end inside a character.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    let text = String::from_utf8(bytes).ok()?;
    let (mut all, mut printable, mut letters) = (0, 0, 0);
    for c in text.chars() {
        all += 1;
        printable += usize::from(!c.is_control() || c.is_whitespace());
        letters += usize::from(c.is_alphabetic());
    }
    (printable * 10 >= all * MIN_PRINTABLE && letters > 0).then_some(text)
}

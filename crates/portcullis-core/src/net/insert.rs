//! What a shell or a template puts into a text.

use std::ops::Range;

/// No insertion that is seen through is longer, so that a text takes linear time.
const LONGEST: usize = 256;

/// Nor has one more brackets inside each other, so that few searches meet the same byte.
const DEEPEST: i32 = 8;

/// The length of the insertion that a text starts with: `$(…)`, `${…}`, `#{…}`, `{…}`, `$NAME`, `` `…` ``.
pub(super) fn length(text: &str) -> Option<usize> {
    let bytes = &text.as_bytes()[..text.len().min(LONGEST)];
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match bytes {
        [b'$', b'(', ..] => closed(bytes, b'(', b')'),
        [b'$' | b'#' | b'{', b'{', ..] => closed(bytes, b'{', b'}'),
        [b'$', first, ..] if name(first) => {
            let rest = bytes[1..].iter();
            Some(1 + rest.take_while(|byte| name(byte)).count())
        }
        [b'{', ..] => {
            let plain = |byte: &u8| !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'');
            closed(bytes, b'{', b'}').filter(|end| bytes[..*end].iter().all(plain))
        }
        // A code span of Markdown ends with a blank or punctuation behind it.
        [b'`', ..] if begins_command(&text[1..]) => {
            let end = 2 + bytes[1..].iter().position(|byte| *byte == b'`')?;
            // Nothing but a sign stands between two of them.
            bytes[1..end].iter().find(|byte| name(byte))?;
            let next = bytes.get(end + 1).filter(|_| bytes.get(end) == Some(&b'.'));
            next.or(bytes.get(end)).filter(|byte| name(byte))?;
            Some(end)
        }
        _ => None,
    }
}

/// Whether a command may begin so: with a letter, a path, a variable or a bracket.
fn begins_command(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '~' | '$' | '(' | '{');
    // The dot alone ends a sentence.
    text.starts_with(first) || text.starts_with("./") || text.starts_with("../")
}

/// Past the bracket that closes the first one.
fn closed(bytes: &[u8], open: u8, close: u8) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in bytes.iter().enumerate() {
        depth += i32::from(*byte == open);
        depth -= i32::from(*byte == close);
        if depth > DEEPEST {
            return None;
        }
        if depth == 0 && *byte == close {
            return Some(at + 1);
        }
    }
    None
}

/// Every insertion. One that is not closed reaches to the end.
pub(super) fn each(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            at += text[at..].find(['$', '#', '{', '`'])?;
            let (start, rest) = (at, &text[at..]);
            let open = || rest.starts_with("$(") || rest.starts_with("${");
            match length(rest).or_else(|| open().then_some(rest.len())) {
                Some(length) => {
                    at += length;
                    return Some(start..at);
                }
                None => at += 1,
            }
        }
        None
    })
}

/// Where the last insertion ends.
pub(super) fn end(text: &str) -> Option<usize> {
    each(text).last().map(|insertion| insertion.end)
}

/// The text if nothing is put in.
pub(super) fn without(text: &str) -> String {
    let (mut rest, mut at) = (String::with_capacity(text.len()), 0);
    for insertion in each(text) {
        rest.push_str(&text[at..insertion.start]);
        at = insertion.end;
    }
    rest + &text[at..]
}

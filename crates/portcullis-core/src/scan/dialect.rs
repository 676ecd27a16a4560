//! How a pattern is written: Rust's `regex`, with Python's classes and Python's way to ignore case.

use regex_syntax::hir::{Capture, Class, ClassUnicodeRange, Hir, HirKind, Repetition};

use super::{PatternError, PatternSpec};

pub(super) fn parse(spec: &PatternSpec<'_>) -> Result<Hir, PatternError> {
    if has_extended_flag(spec.regex) {
        return Err(PatternError::Syntax(
            "the flag `x` is not taken: write the pattern without blanks and comments".to_owned(),
        ));
    }
    let hir = regex_syntax::ParserBuilder::new()
        .case_insensitive(spec.ignore_case)
        .nest_limit(64)
        .build()
        .parse(&with_python_classes(spec.regex))
        .map_err(|error| PatternError::Syntax(first_line(&error.to_string())))?;
    let hir = if spec.ignore_case {
        with_python_i(hir)
    } else {
        hir
    };
    Ok(if spec.unspaced {
        without_space(&hir)
    } else {
        hir
    })
}

/// The pattern for a text whose words run together.
fn without_space(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(without_space).collect();
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Hir::empty(),
        HirKind::Literal(literal) => {
            let space = |byte: &u8| byte.is_ascii_whitespace();
            let kept: Vec<u8> = literal.0.iter().copied().filter(|b| !space(b)).collect();
            Hir::literal(kept)
        }
        HirKind::Class(Class::Unicode(class)) => {
            let space = |range: &ClassUnicodeRange| {
                let (start, end) = (range.start(), range.end());
                (start..=end).all(|c| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
            };
            if class.iter().all(space) {
                return Hir::empty();
            }
            hir.clone()
        }
        HirKind::Class(_) => hir.clone(),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(without_space(&repetition.sub)),
            ..*repetition
        }),
        HirKind::Capture(capture) => Hir::capture(Capture {
            sub: Box::new(without_space(&capture.sub)),
            ..capture.clone()
        }),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
    }
}

/// A regular expression that takes no more than so many bytes.
pub(crate) fn compile(regex: &str, max_bytes: usize) -> Result<regex::Regex, PatternError> {
    regex::RegexBuilder::new(regex)
        .size_limit(max_bytes)
        .nest_limit(64)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => PatternError::TooLarge(limit),
            other => PatternError::Syntax(first_line(&other.to_string())),
        })
}

/// Whether `(?x)` is switched on anywhere. Comments could hold brackets, which the translation of
/// classes would take for the pattern's own.
fn has_extended_flag(regex: &str) -> bool {
    let mut escaped = false;
    regex.char_indices().any(|(at, c)| {
        let group = !escaped && regex[at..].starts_with("(?");
        escaped = c == '\\' && !escaped;
        let flags = || {
            regex[at + 2..]
                .chars()
                .take_while(char::is_ascii_alphabetic)
        };
        group && flags().any(|flag| flag == 'x')
    })
}

/// The pattern with Python's classes, in Rust's words. Python's `\s` takes the four information
/// separators, its `\w` takes `½` and leaves combining marks: a text must not slip past a pattern
/// that was written for Python. (Its `\b` differs alike and has no words in Rust; it stays as it is.)
fn with_python_classes(regex: &str) -> String {
    let mut out = String::with_capacity(regex.len());
    let mut in_class = 0usize;
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(class @ ('s' | 'S' | 'w' | 'W')) => {
                    let members = match class {
                        's' | 'S' => r"\s\x1c-\x1f",
                        _ => r"\p{L}\p{N}_",
                    };
                    match class {
                        'S' | 'W' => out.extend(["[^", members, "]"]),
                        _ if in_class > 0 => out.push_str(members),
                        _ => out.extend(["[", members, "]"]),
                    }
                }
                Some(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                }
                None => out.push('\\'),
            },
            '[' => {
                in_class += 1;
                out.push(c);
            }
            ']' => {
                in_class = in_class.saturating_sub(1);
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// To Python's `IGNORECASE`, `i` is also `ı` and `İ`; to Unicode they are letters of their own.
fn with_python_i(hir: Hir) -> Hir {
    let each = |parts: Vec<Hir>| parts.into_iter().map(with_python_i).collect();
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(mut class)) => {
            let has = |c: char| class.iter().any(|r| r.start() <= c && c <= r.end());
            if has('i') && has('I') {
                for c in ['\u{130}', '\u{131}'] {
                    class.push(ClassUnicodeRange::new(c, c));
                }
            }
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(class) => Hir::class(class),
        HirKind::Repetition(Repetition {
            min,
            max,
            greedy,
            sub,
        }) => Hir::repetition(Repetition {
            min,
            max,
            greedy,
            sub: Box::new(with_python_i(*sub)),
        }),
        HirKind::Capture(Capture { index, name, sub }) => Hir::capture(Capture {
            index,
            name,
            sub: Box::new(with_python_i(*sub)),
        }),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Empty => Hir::empty(),
    }
}

/// `regex` draws a picture under the pattern; its last line says what is wrong.
fn first_line(error: &str) -> String {
    error
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("error: "))
        .unwrap_or(error)
        .to_owned()
}

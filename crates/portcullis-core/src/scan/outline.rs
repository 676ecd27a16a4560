//! Expressions, written down.
//!
//! A policy has many outlines, and nobody asks them before a text comes. As trees they were most of what an idle server had
//! in use.
//!
//! Rejected: to print them as regular expressions and parse these. That takes a hundred milliseconds for the built-in
//! pack when the first text asks, and `(?:a+)?` is printed as `a+?`, which demands an `a`.

use std::sync::Arc;

use regex_syntax::hir::{
    Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look,
    Repetition,
};

const EMPTY: u8 = 0;
const LITERAL: u8 = 1;
const CLASS: u8 = 2;
const START: u8 = 3;
const END: u8 = 4;
const REPETITION: u8 = 5;
const LAZY_REPETITION: u8 = 6;
const CONCAT: u8 = 7;
const ALTERNATION: u8 = 8;
const CHARACTERS: u8 = 9;

/// No repetition has so many rounds.
const WITHOUT_END: u32 = u32::MAX;

/// An expression in which nothing but the beginning and the end of the text is looked for without being consumed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Outline(Arc<[u8]>);

impl Outline {
    /// None if it is something else.
    pub(super) fn of(hir: &Hir) -> Option<Self> {
        let mut written = Vec::new();
        write(hir, &mut written)?;
        Some(Self(written.into()))
    }

    pub(super) fn read(&self) -> Hir {
        // What was written can be read; nothing at all is no condition.
        read(&mut &*self.0).unwrap_or_else(Hir::empty)
    }
}

/// What a part is, what is to be known of it, and then its own parts.
fn write(hir: &Hir, out: &mut Vec<u8>) -> Option<()> {
    match hir.kind() {
        HirKind::Empty => out.push(EMPTY),
        HirKind::Literal(literal) => {
            out.push(LITERAL);
            write_number(u32::try_from(literal.0.len()).ok()?, out);
            out.extend_from_slice(&literal.0);
        }
        HirKind::Class(Class::Bytes(class)) => {
            out.push(CLASS);
            write_number(u32::try_from(class.ranges().len()).ok()?, out);
            out.extend(class.iter().flat_map(|range| [range.start(), range.end()]));
        }
        HirKind::Class(Class::Unicode(class)) => {
            out.push(CHARACTERS);
            write_number(u32::try_from(class.ranges().len()).ok()?, out);
            for range in class.iter() {
                write_number(u32::from(range.start()), out);
                write_number(u32::from(range.end()), out);
            }
        }
        HirKind::Look(Look::Start) => out.push(START),
        HirKind::Look(Look::End) => out.push(END),
        HirKind::Repetition(repetition) => {
            out.push(if repetition.greedy {
                REPETITION
            } else {
                LAZY_REPETITION
            });
            write_number(repetition.min, out);
            write_number(repetition.max.unwrap_or(WITHOUT_END), out);
            write(&repetition.sub, out)?;
        }
        HirKind::Concat(parts) => write_all(CONCAT, parts, out)?,
        HirKind::Alternation(parts) => write_all(ALTERNATION, parts, out)?,
        HirKind::Capture(capture) => write(&capture.sub, out)?,
        HirKind::Look(_) => return None,
    }
    Some(())
}

fn write_all(kind: u8, parts: &[Hir], out: &mut Vec<u8>) -> Option<()> {
    out.push(kind);
    write_number(u32::try_from(parts.len()).ok()?, out);
    parts.iter().try_for_each(|part| write(part, out))
}

fn write_number(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn read(rest: &mut &[u8]) -> Option<Hir> {
    let kind = *rest.split_off_first()?;
    Some(match kind {
        EMPTY => Hir::empty(),
        LITERAL => {
            let len = read_number(rest)?;
            Hir::literal(rest.split_off(..len as usize)?)
        }
        CLASS => {
            let len = read_number(rest)?;
            let (ranges, _) = rest.split_off(..2 * len as usize)?.as_chunks();
            let range = |[start, end]: &[u8; 2]| ClassBytesRange::new(*start, *end);
            Hir::class(Class::Bytes(ClassBytes::new(ranges.iter().map(range))))
        }
        CHARACTERS => {
            let len = read_number(rest)?;
            let mut character = || char::from_u32(read_number(rest)?);
            let mut range = |_| Some(ClassUnicodeRange::new(character()?, character()?));
            let ranges: Option<Vec<_>> = (0..len).map(&mut range).collect();
            Hir::class(Class::Unicode(ClassUnicode::new(ranges?)))
        }
        START => Hir::look(Look::Start),
        END => Hir::look(Look::End),
        REPETITION | LAZY_REPETITION => {
            let (min, max) = (read_number(rest)?, read_number(rest)?);
            Hir::repetition(Repetition {
                min,
                max: (max != WITHOUT_END).then_some(max),
                greedy: kind == REPETITION,
                sub: Box::new(read(rest)?),
            })
        }
        CONCAT => Hir::concat(read_all(rest)?),
        ALTERNATION => Hir::alternation(read_all(rest)?),
        _ => return None,
    })
}

fn read_all(rest: &mut &[u8]) -> Option<Vec<Hir>> {
    let len = read_number(rest)?;
    (0..len).map(|_| read(rest)).collect()
}

fn read_number(rest: &mut &[u8]) -> Option<u32> {
    let bytes = rest.split_off(..4)?;
    bytes.first_chunk().copied().map(u32::from_le_bytes)
}

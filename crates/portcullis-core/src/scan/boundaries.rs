//! Patterns with a Unicode word boundary are slow on text that is not ASCII, so there a text is first
//! searched for what matches wherever the pattern does, and has none.

use regex_syntax::hir::{Class, Hir, HirKind, Look, LookSet, Repetition};

/// The same without Unicode word boundaries, if it has one. Beside an ASCII letter an ASCII boundary stands wherever
/// a Unicode one does; elsewhere anything may stand.
pub(super) fn with_ascii_boundaries(hir: &Hir) -> Option<Hir> {
    hir.properties()
        .look_set()
        .contains_word_unicode()
        .then(|| ascii_boundaries(hir))
}

fn ascii_boundaries(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(ascii_boundaries).collect();
    match hir.kind() {
        HirKind::Look(look) if LookSet::singleton(*look).contains_word_unicode() => Hir::empty(),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => hir.clone(),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(ascii_boundaries(&repetition.sub)),
            ..*repetition
        }),
        HirKind::Capture(capture) => ascii_boundaries(&capture.sub),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
        HirKind::Concat(parts) => {
            let beside = |index: usize| {
                let before = index.checked_sub(1).map(|before| &parts[before]);
                before.is_some_and(|before| is_word_at(before, <[Hir]>::last))
                    || parts
                        .get(index + 1)
                        .is_some_and(|after| is_word_at(after, <[Hir]>::first))
            };
            let parts = parts
                .iter()
                .enumerate()
                .map(|(index, part)| match part.kind() {
                    HirKind::Look(Look::WordUnicode) if beside(index) => Hir::look(Look::WordAscii),
                    _ => ascii_boundaries(part),
                });
            Hir::concat(parts.collect())
        }
    }
}

/// Whether every match has an ASCII letter or digit at this end.
fn is_word_at(hir: &Hir, end: fn(&[Hir]) -> Option<&Hir>) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.iter().all(u8::is_ascii_alphanumeric),
        HirKind::Class(Class::Unicode(class)) => class.iter().all(|range| {
            range.end().is_ascii()
                && (range.start()..=range.end()).all(|c| c.is_ascii_alphanumeric())
        }),
        HirKind::Capture(capture) => is_word_at(&capture.sub, end),
        HirKind::Repetition(repetition) => repetition.min > 0 && is_word_at(&repetition.sub, end),
        HirKind::Concat(parts) => end(parts).is_some_and(|part| is_word_at(part, end)),
        HirKind::Alternation(parts) => parts.iter().all(|part| is_word_at(part, end)),
        HirKind::Class(Class::Bytes(_)) | HirKind::Empty | HirKind::Look(_) => false,
    }
}

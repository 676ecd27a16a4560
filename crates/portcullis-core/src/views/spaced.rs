//! Letters set apart: `i g n o r e`, `i.g.n.o.r.e`, `i-g-n-o-r-e`.

use std::ops::Range;

use super::map::Rewrite;

/// Single characters in a row that are letters set apart. Fewer are initials and lists.
const MIN_SINGLES: usize = 6;

/// The widest gap, in bytes, that still divides words.
const MAX_GAP: usize = 8;

/// The text with the letters of each stretch put together. A gap unlike the others becomes one blank.
pub(super) fn join(text: &str, limit: usize) -> Option<Rewrite<'_>> {
    let mut rewrite = Rewrite::excerpt(text, limit);
    let mut found = false;
    let mut gaps = Vec::new();
    let mut at = 0;
    while let Some(start) = next_single(text, at) {
        let end = stretch(text, start, &mut gaps);
        if gaps.len() + 1 >= MIN_SINGLES && is_spelling(&text[start..end]) {
            let usual = usual_gap(text, &gaps);
            for gap in &gaps {
                let divides = text[gap.clone()] != *usual;
                rewrite.replace(gap.clone(), if divides { " " } else { "" });
            }
            found = true;
        }
        at = end;
        if rewrite.is_cut() {
            break;
        }
    }
    found.then_some(rewrite)
}

/// Where the next word of one character starts, if the text goes on from the end of such a word or from the middle of a longer one.
fn next_single(text: &str, mut at: usize) -> Option<usize> {
    let mut after_word = text[..at]
        .chars()
        .next_back()
        .is_some_and(char::is_alphanumeric);
    // Where a word begins that has had one character so far.
    let mut single = None;
    for c in text[at..].chars() {
        let wordy = c.is_alphanumeric();
        if single.is_some() && !wordy {
            return single;
        }
        single = (wordy && !after_word).then_some(at);
        after_word = wordy;
        at += c.len_utf8();
    }
    single
}

/// The end of the single characters from here on, with the gaps between them.
fn stretch(text: &str, start: usize, gaps: &mut Vec<Range<usize>>) -> usize {
    gaps.clear();
    let mut end = start + char_len(text, start);
    let blank = text[end..].starts_with(' ');
    loop {
        let len = text[end..].find(|c| !is_separator(c, blank));
        let gap = end..end + len.unwrap_or(0);
        let next = char_len(text, gap.end);
        let single = gap.end + next;
        let fits = !gap.is_empty() && gap.len() <= MAX_GAP;
        if !fits || !is_single(text, gap.end..single, blank) {
            return end;
        }
        gaps.push(gap);
        end = single;
    }
}

/// Between blanks anything may be spelled out, `-` included; otherwise letters and digits.
fn is_single(text: &str, span: Range<usize>, blank: bool) -> bool {
    let mut chars = text[span.start..].chars();
    let Some(c) = chars.next() else {
        return false;
    };
    let wordy =
        c.is_alphanumeric() || (blank && !c.is_whitespace() && chars.as_str().starts_with(' '));
    wordy && !chars.next().is_some_and(char::is_alphanumeric)
}

fn is_separator(c: char, blank: bool) -> bool {
    if blank {
        c == ' '
    } else {
        matches!(c, ' ' | '.' | '-' | '_' | '*' | '|' | '/')
    }
}

/// Whether most of it are letters, not all the same: not a table of numbers or a ruler.
fn is_spelling(stretch: &str) -> bool {
    let letters = stretch.chars().filter(|c| c.is_alphabetic()).count();
    let singles = stretch.chars().filter(|c| c.is_alphanumeric()).count();
    let mut chars = stretch.chars().filter(|c| c.is_alphanumeric());
    let first = chars.next();
    letters * 2 >= singles && chars.any(|c| Some(c) != first)
}

/// The gap that most are like, by majority vote.
fn usual_gap<'a>(text: &'a str, gaps: &[Range<usize>]) -> &'a str {
    let mut usual = "";
    let mut votes = 0;
    for gap in gaps {
        let gap = &text[gap.clone()];
        if votes == 0 {
            usual = gap;
        }
        votes += if gap == usual { 1 } else { -1 };
    }
    usual
}

fn char_len(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(0, char::len_utf8)
}

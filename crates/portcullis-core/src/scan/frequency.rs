//! How often letters follow each other in ordinary text.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::literals::{Edge, WINDOW};

/// Stands for the edge of a word.
const EDGE: u8 = b'.';

/// What is not among the counted is rarer.
const LEAST: u32 = 8;

/// How often each window of letters is expected per million bytes; a window of three letters goes by
/// what may stand beside it.
static COUNTED: LazyLock<HashMap<[u8; WINDOW], u32>> = LazyLock::new(|| {
    let mut counted: HashMap<[u8; WINDOW], u32> = HashMap::new();
    let mut times = 0;
    for line in include_str!("windows.txt").lines() {
        match line.strip_prefix(' ') {
            None => times = line.parse().unwrap_or(0),
            Some(windows) => {
                for window in windows.split(' ') {
                    if let Ok(window @ [a, b, c, d]) = <[u8; WINDOW]>::try_from(window.as_bytes()) {
                        counted.insert(window, times);
                        *counted.entry([0, b, c, d]).or_default() += times;
                        *counted.entry([a, b, c, 0]).or_default() += times;
                    }
                }
            }
        }
    }
    counted
});

/// How often these bytes, in lower case, are expected per million bytes of text; 0 is any byte.
pub(super) fn of_window(window: [u8; WINDOW]) -> f64 {
    if let Some(times) = COUNTED.get(&window) {
        return f64::from(*times);
    }
    let known = window.iter().filter(|byte| **byte != 0);
    let product: f64 = known.map(|byte| of_byte(*byte)).product();
    (product * 1e6).min(f64::from(LEAST))
}

/// How often a literal is expected per million bytes, given how words end around it.
pub(super) fn of_literal(literal: &[u8], before: Edge, after: Edge) -> f64 {
    let edge = |edge: Edge| if edge == Edge::None { 0 } else { EDGE };
    let byte = |at: usize| match at.checked_sub(1) {
        None => edge(before),
        Some(at) => literal.get(at).copied().unwrap_or(edge(after)),
    };
    let windows = (0..=(literal.len() + 2).saturating_sub(WINDOW))
        .map(|at| of_window([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]));
    windows.fold(f64::INFINITY, f64::min)
}

/// The share of a byte, roughly; the exact values only break ties.
fn of_byte(byte: u8) -> f64 {
    const LETTERS: [u16; 26] = [
        640, 120, 220, 340, 1000, 180, 160, 480, 560, 12, 62, 320, 190, 560, 600, 150, 8, 480, 510,
        720, 220, 78, 190, 14, 160, 6,
    ];
    let per_ten_thousand = match byte {
        b'a'..=b'z' => LETTERS[usize::from(byte - b'a')],
        b' ' => 1700,
        b'0'..=b'9' => 30,
        b'\n' | b'.' | b',' | b'-' | b'"' => 90,
        0x80.. => 60,
        _ => 15,
    };
    f64::from(per_ten_thousand) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_words_are_more_common_than_others() {
        let word = |word: &str| of_literal(word.as_bytes(), Edge::Word, Edge::Word);
        let ordered = ["the", "with", "please", "ignore", "jailbreak"];
        assert!(
            ordered.windows(2).all(|pair| word(pair[0]) > word(pair[1])),
            "{:?}",
            ordered.map(word)
        );
        assert!(of_literal(b"not", Edge::None, Edge::None) >= word("not"));
        assert!(of_literal(b"sk-", Edge::None, Edge::None) < 100.0);
    }
}

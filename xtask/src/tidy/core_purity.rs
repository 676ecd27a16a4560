//! `portcullis-core` takes values and returns a verdict: the same input must judge alike on every
//! machine, so nothing in it may ask the machine anything.
//!
//! A search of the text, not of the resolved code: it stops the honest mistake at no cost, and a
//! reviewer stops the rest.

use super::{Finding, code_lines, has_word};

const CORE_SOURCE: &str = "crates/portcullis-core/src/";

const FORBIDDEN: &[&str] = &[
    "tokio",
    "std::fs",
    "std::net",
    "std::env",
    "SystemTime::now",
    "Instant::now",
    "rand::",
];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !path.starts_with(CORE_SOURCE) {
        return findings;
    }
    for (number, line) in code_lines(text).take_while(|(_, line)| !starts_tests(line)) {
        for word in FORBIDDEN.iter().filter(|word| has_word(line, word)) {
            let message = format!("`{word}` in portcullis-core: have the caller pass the value in");
            findings.push((number, message));
        }
    }
    findings
}

/// Test modules come last in a file, or are a file of their own under the inner attribute.
fn starts_tests(line: &str) -> bool {
    matches!(line.trim(), "#[cfg(test)]" | "#![cfg(test)]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/portcullis-core/src/clock.rs";

    #[test]
    fn every_forbidden_word_is_found_in_the_core_only() {
        for word in FORBIDDEN {
            let text = format!("fn a() {{\n    {word}();\n}}\n");
            let lines: Vec<usize> = check(PATH, &text).iter().map(|(line, _)| *line).collect();
            assert_eq!(lines, [2], "{word}");
            assert_eq!(
                check("crates/portcullis-runtime/src/clock.rs", &text),
                [],
                "{word}"
            );
            assert_eq!(
                check("crates/portcullis-core/tests/clock.rs", &text),
                [],
                "{word}"
            );
        }
    }

    #[test]
    fn comments_other_words_and_tests_pass() {
        let text = "// std::fs is the caller's\nuse operand::x;\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(check(PATH, text), []);
        assert_eq!(check(PATH, "#![cfg(test)]\nuse std::fs;\n"), []);
    }
}

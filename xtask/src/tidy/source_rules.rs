//! What no Rust file in the repository may hold or lack.

use super::{Finding, code_lines, has_word};

/// Files rarely pass 600 lines; past this many there is certainly a second idea inside.
const MOST_LINES: usize = 700;

/// Text that may not stand in code, and what to do instead. Each is cut in two, so that this file
/// passes its own check.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("todo!", "(", "finish it or leave it out"),
    ("unimplemented!", "(", "finish it or return an error"),
    ("dbg!", "(", "remove it"),
    ("use crate::*", ";", "import by name"),
    ("#[ignore", "]", "give the reason: #[ignore = \"..\"]"),
    ("#[allow", "(", "expect it instead, with a reason"),
    ("#![allow", "(", "expect it instead, with a reason"),
];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        let message = format!("{lines} lines, over {MOST_LINES}: split it by idea");
        findings.push((MOST_LINES + 1, message));
    }
    for (start, end, instead) in FORBIDDEN {
        let forbidden = format!("{start}{end}");
        let places = code_lines(text).filter(|(_, line)| has_word(line, &forbidden));
        findings.extend(places.map(|(number, _)| (number, format!("`{forbidden}`: {instead}"))));
    }
    if is_crate_root(path) && !text.trim_start().starts_with("//!") {
        let message = "a crate opens with `//!`: what it is, why, and where to start";
        findings.push((1, message.to_owned()));
    }
    findings
}

fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_seven_hundred_lines_and_no_more() {
        assert_eq!(check("a.rs", &"\n".repeat(700)), []);
        let found = check("a.rs", &"\n".repeat(701));
        assert_eq!(
            found,
            [(701, "701 lines, over 700: split it by idea".to_owned())]
        );
    }

    #[test]
    fn every_forbidden_text_is_found_in_code_and_passes_in_comments() {
        for (start, end, instead) in FORBIDDEN {
            let forbidden = format!("{start}{end}");
            let found = check("a.rs", &format!("fn a() {{}}\n    {forbidden}\n"));
            assert_eq!(found, [(2, format!("`{forbidden}`: {instead}"))]);
            assert_eq!(
                check("a.rs", &format!("    // not {forbidden}\n")),
                [],
                "{forbidden}"
            );
        }
    }

    #[test]
    fn attributes_with_a_reason_pass() {
        let text = "#[ignore = \"needs a model\"]\n#[expect(dead_code, reason = \"soon\")]\n";
        assert_eq!(check("a.rs", text), []);
    }

    #[test]
    fn crate_roots_open_with_their_guide() {
        assert_eq!(check("crates/a/src/lib.rs", "\n//! A.\nmod b;\n"), []);
        assert_eq!(check("crates/a/src/b.rs", "fn b() {}\n"), []);
        assert_eq!(check("crates/a/src/main.rs", "fn main() {}\n").len(), 1);
    }
}

//! Reference pages made from the code, so that they cannot rot.

use std::fmt::Write;

use crate::error_code::ErrorCode;
use crate::rules::BUILT_IN;

const HEADER: &str = "<!-- Made by `cargo xtask docs` from the code. Do not edit. -->\n\n";

/// `docs/rules.md`: every built-in rule.
pub fn rules_page() -> String {
    let mut page = format!("{HEADER}# Built-in rules\n\n");
    page.push_str("What `portcullis rule explain ID` prints. ");
    page.push_str("[The guide](guide.md) shows how to put them together in a policy pack.\n");
    for spec in BUILT_IN {
        let events = (spec.events)().names().join("`, `");
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\nVersion {}, {}. Judges `{events}` by default.\n\n{}",
            spec.id,
            spec.version,
            spec.cost.as_str(),
            spec.page().replace("\n## ", "\n### "),
        );
    }
    page
}

/// `docs/error-codes.md`: every code a STOP can carry.
pub fn error_codes_page() -> String {
    let mut page = format!("{HEADER}# Error codes\n\n");
    page.push_str(
        "The `stop.error_code` of a decision. The list is closed and a code is never reused. ",
    );
    page.push_str("Retryable: the same step, corrected or sent later, can succeed.\n\n");
    page.push_str("| code | meaning | retryable |\n|---|---|---|\n");
    for code in ErrorCode::ALL {
        let meaning = code.meaning().trim().replace('\n', "");
        let retryable = if code.retryable() { "yes" } else { "no" };
        let _ = writeln!(page, "| `{code}` | {meaning} | {retryable} |");
    }
    page
}

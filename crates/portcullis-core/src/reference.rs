//! Reference pages made from the code, so that they cannot rot.

use std::fmt::Write;

use crate::detectors::{self, Entry, Family, Kind};
use crate::error_code::ErrorCode;
use crate::rules::{BUILT_IN, KNOWN_DEEP, RuleSpec};

const HEADER: &str = "<!-- Made by `cargo xtask docs` from the code. Do not edit. -->\n\n";

/// `docs/rules.md`: every built-in rule.
pub fn rules_page() -> String {
    let mut page = format!("{HEADER}# Built-in rules\n\n");
    page.push_str("What `portcullis rule explain ID` prints. ");
    page.push_str("[The guide](guide.md) shows how to put them together in a policy pack.\n");
    for spec in BUILT_IN {
        rule_section(spec, &mut page);
    }
    for spec in KNOWN_DEEP {
        rule_section(spec, &mut page);
    }
    page
}

fn rule_section<S>(spec: &RuleSpec<S>, page: &mut String) {
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

/// `docs/detectors.md`: what every built-in family looks for.
pub fn detectors_page() -> String {
    // A family that cannot be read is a failed test, and has nothing to show here.
    let families: Vec<(Kind, Family)> = detectors::all()
        .filter_map(|(kind, family)| Some((kind, family.ok()?)))
        .collect();
    let of_kind = |kind| families.iter().filter(move |(known, _)| *known == kind);
    let mut page = format!("{HEADER}# Detectors\n\n");
    page.push_str("What the pattern rules and `portcullis scan` look for. ");
    page.push_str(
        "`portcullis rule explain ID` prints an entry with its pattern and examples.\n\n",
    );
    page.push_str("| kind | families | entries |\n|---|---|---|\n");
    for kind in Kind::ALL {
        let names: Vec<&str> = of_kind(kind).map(|(_, family)| &*family.name).collect();
        let entries: usize = of_kind(kind).map(|(_, family)| family.entries.len()).sum();
        if entries > 0 {
            let (name, names) = (kind.as_str(), names.join(", "));
            let _ = writeln!(page, "| [{name}](#{name}) | {names} | {entries} |");
        }
    }
    for kind in Kind::ALL {
        if of_kind(kind).next().is_some() {
            let _ = write!(page, "\n## {}\n", kind.as_str());
        }
        for (_, family) in of_kind(kind) {
            family_section(kind, family, &mut page);
        }
    }
    page
}

fn family_section(kind: Kind, family: &Family, page: &mut String) {
    let _ = write!(
        page,
        "\n### {}/{}\n\n{} {} entries.\n\n| id | {} | {} | severity | checks |\n|---|---|---|---|---|\n",
        kind.as_str(),
        family.name,
        family.about.trim(),
        family.entries.len(),
        kind.meaning_key(),
        kind.origin_key(),
    );
    for entry in &family.entries {
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} | {} | {} |",
            entry.id,
            entry.meaning.name(),
            entry.origin.as_deref().unwrap_or("–").replace('|', "\\|"),
            entry.severity.as_str(),
            conditions(entry),
        );
    }
}

/// What must hold besides the pattern.
fn conditions(entry: &Entry) -> String {
    let weight = match entry.meaning {
        detectors::Meaning::Attack { weight, .. } if weight < 1.0 => {
            Some(format!("a sign, weight {weight}"))
        }
        _ => None,
    };
    let requires = entry.pattern.requires.map(|one| one.as_str().to_owned());
    let checks = entry.pattern.checks.iter().map(ToString::to_string);
    let all: Vec<String> = weight.into_iter().chain(requires).chain(checks).collect();
    if all.is_empty() {
        "–".to_owned()
    } else {
        all.join(", ")
    }
}

//! From a text to the terms that it is found by.

/// The longest term, in bytes. What is longer is data, not a word.
const MAX_TERM_BYTES: usize = 64;

/// Words that say nothing about what a text is about.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "do", "does",
    "for", "from", "had", "has", "have", "if", "in", "into", "is", "it", "its", "may", "no", "not",
    "of", "on", "or", "s", "such", "t", "than", "that", "the", "their", "then", "there", "these",
    "they", "this", "to", "was", "were", "when", "which", "will", "with", "would",
];

/// Hands over the terms of a text in their order: runs of letters and digits in lower case, without
/// English endings and the most common words. `auth-service` is two terms, `v2.1` as well. Where words are written without spaces
/// between them, every character is a term.
pub(super) fn terms(text: &str, mut each: impl FnMut(&str)) {
    let mut term = String::new();
    let mut flush = |term: &mut String| {
        if !term.is_empty() && !STOP_WORDS.contains(&term.as_str()) {
            stem(term);
            each(term);
        }
        term.clear();
    };
    for c in text.chars() {
        if !c.is_alphanumeric() {
            // An apostrophe's `s` is an ending like any other.
            flush(&mut term);
            continue;
        }
        if is_spaceless(c) {
            flush(&mut term);
            term.push(c);
            flush(&mut term);
            continue;
        }
        for lower in c.to_lowercase() {
            if term.len() + lower.len_utf8() <= MAX_TERM_BYTES {
                term.push(lower);
            }
        }
    }
    flush(&mut term);
}

/// Kana and Han.
fn is_spaceless(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Takes English endings off, so that `caching`, `cached` and `caches` are the same term. Much less than
/// Porter does: it only has to be the same for the query and for what is found.
fn stem(term: &mut String) {
    if term.len() < 4 || !term.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return;
    }
    if term.ends_with("ies") && term.len() > 4 || term.ends_with("sses") {
        term.truncate(term.len() - 2);
    } else if term.ends_with('s') && !["ss", "us", "is"].iter().any(|end| term.ends_with(end)) {
        term.truncate(term.len() - 1);
    }
    for ending in ["ing", "ed", "ment", "ly", "ion"] {
        let Some(rest) = term.strip_suffix(ending) else {
            continue;
        };
        let fits = match ending {
            "ing" | "ed" => rest.len() >= 2 && rest.bytes().any(is_vowel),
            "ion" => rest.len() >= 4 && rest.ends_with(['s', 't']),
            _ => rest.len() >= 4,
        };
        if fits {
            let doubled =
                matches!(rest.as_bytes(), [.., a, b] if a == b && !b"aeioulsz".contains(a));
            let length = rest.len() - usize::from(doubled);
            term.truncate(length);
            break;
        }
    }
    if term.len() > 3 && term.ends_with('e') {
        term.truncate(term.len() - 1);
    } else if term.len() > 3 && term.ends_with('y') {
        term.truncate(term.len() - 1);
        term.push('i');
    }
}

fn is_vowel(byte: u8) -> bool {
    b"aeiouy".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        terms(text, |term| found.push(term.to_owned()));
        found
    }

    #[test]
    fn identifiers_are_found_by_their_parts() {
        assert_eq!(
            of("PR-42: auth-service v2.1"),
            ["pr", "42", "auth", "servic", "v2", "1"]
        );
        assert_eq!(of("ÄRGER_с_Кэшем"), ["ärger", "с", "кэшем"]);
        assert_eq!(of("部署 deploy"), ["部", "署", "deploi"]);
    }

    #[test]
    fn forms_of_a_word_are_one_term() {
        for forms in [
            &["cache", "caches", "cached", "caching"][..],
            &[
                "deploy",
                "deploys",
                "deployed",
                "deploying",
                "deployment",
                "deployments",
            ],
            &[
                "migrate",
                "migrates",
                "migrated",
                "migrating",
                "migration",
                "migrations",
            ],
            &["query", "queries", "queried", "querying"],
            &["stop", "stops", "stopped", "stopping"],
            &["class", "classes"],
            &["manage", "management"],
            &["quick", "quickly"],
        ] {
            for form in forms {
                assert_eq!(of(form), of(forms[0]), "{form}");
            }
        }
        for (one, other) in [
            ("status", "stat"),
            ("ring", "r"),
            ("process", "proces"),
            ("red", "r"),
        ] {
            assert_ne!(of(one), of(other));
        }
    }

    #[test]
    fn long_terms_are_cut() {
        let long = "x".repeat(1_000);
        assert_eq!(
            of(&format!("{long} y")),
            ["x".repeat(MAX_TERM_BYTES), "y".to_owned()]
        );
        assert_eq!(of(&"ä".repeat(100))[0].len(), MAX_TERM_BYTES);
    }

    #[test]
    fn what_has_no_words_has_no_terms() {
        assert_eq!(of(""), [""; 0]);
        assert_eq!(of(" \u{0}\u{7f} — 🦀🦀 …"), [""; 0]);
    }
}

//! Covering tokens and other secrets in the text of a configuration.
//!
//! A report quotes the lines it is about, and ends up in logs. What is wrong may be just how a token is
//! written down, so this goes by the look of the text, not by what could be read of it, and rather covers
//! too much than too little.

/// Words that stay legible where they are keys.
const KEYS: &[&str] = &[
    "auth",
    "enabled",
    "tokens",
    "agent",
    "token",
    "callbacks",
    "queue",
    "targets",
    "url",
    "kind",
    "secret",
    "when",
    "timeout_seconds",
    "attempts",
    "retry_seconds",
    "operators",
    "roles",
    "webhook",
    "alerts",
    "deduplicate_seconds",
    "per_minute",
    "sinks",
    "address",
    "facility",
    "app_name",
    "deep",
    "redis",
    "sidecar",
    "name",
    "max_queued",
    "max_in_flight",
    "evaluation_seconds",
    "server_name",
    "connect_timeout_seconds",
    "keep_alive_seconds",
    "ca",
    "certificate",
    "key",
    "embedder",
    "folder",
    "model",
    "api_key",
    "dimension",
];

/// How a key begins that announces tokens and other secrets. Addresses of webhooks and of models are among
/// them: who knows one may post to it, and some have a key in them; a Redis's has its password.
const ANNOUNCING: &[&str] = &[
    "auth", "tok", "secr", "callb", "alert", "emb", "api", "deep", "redis", "sidec", "webh",
];

/// Where covering ends: anything else at the margin may be what is left of a key.
const SECTIONS: &[&str] = &[
    "server:",
    "agent:",
    "policy:",
    "rate_limits:",
    "evidence:",
    "memory:",
    "approvals:",
    "telemetry:",
];

/// The text with everything covered from a key like `auth` or `secret` up to the next section, character by
/// character, so that places stay true. Keys and the names of variables stay.
pub(super) fn cover(text: &str) -> String {
    let mut covered = String::with_capacity(text.len());
    let mut covering = false;
    for line in text.split_inclusive(['\n', '\r']) {
        covering &= !SECTIONS.iter().any(|section| line.starts_with(section));
        let from = if covering { Some(0) } else { opening(line) };
        let (legible, secret) = line.split_at(from.unwrap_or(line.len()));
        covered.push_str(legible);
        cover_line(secret, &mut covered);
        covering = from.is_some();
    }
    covered
}

/// Where a key begins that announces a secret.
fn opening(line: &str) -> Option<usize> {
    words(line).find_map(|(at, word)| {
        let lower = word.to_ascii_lowercase();
        let announces = ANNOUNCING.iter().any(|start| lower.starts_with(start));
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        (announces && (is_key(after) || before.contains('?'))).then_some(at)
    })
}

fn cover_line(line: &str, covered: &mut String) {
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let kept = kept(rest, covered);
        if kept > 0 {
            covered.push_str(&rest[..kept]);
            rest = &rest[kept..];
            continue;
        }
        let legible = first.is_whitespace() || "-{}[]:,\"'?#".contains(first);
        covered.push(if legible { first } else { '*' });
        rest = &rest[first.len_utf8()..];
    }
}

/// How much of the beginning stays: a key of ours, or a variable's name.
fn kept(rest: &str, before: &str) -> usize {
    if let Some(after) = rest.strip_prefix("${")
        && let Some((name, _)) = after.split_once('}')
        && super::variables::is_name(name)
    {
        return name.len() + 3;
    }
    let starts = !before.ends_with(|c: char| is_word(c) || c == '*');
    let key = KEYS.iter().find(|key| {
        let after = rest.strip_prefix(**key);
        starts && after.is_some_and(is_key)
    });
    key.map_or(0, |key| key.len())
}

/// Whether what follows a word makes it a key. A token has no blanks, so `: ` is not part of one.
fn is_key(after: &str) -> bool {
    let after = after.trim_start_matches(['"', '\'']);
    let value = after.trim_start_matches(' ').strip_prefix(':');
    value.is_some_and(|value| value.is_empty() || value.starts_with([' ', '\t', '\r', '\n']))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words of a line, and where they begin.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let word = |part: &str| part.trim_end_matches(|c| !is_word(c)).len();
    let mut at = 0;
    line.split_inclusive(|c| !is_word(c))
        .filter_map(move |part| {
            let begin = at;
            at += part.len();
            let length = word(part);
            (length > 0).then(|| (begin, &part[..length]))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_covered_and_the_rest_stays() {
        for (text, expected) in [
            ("server:\n  port: 1\n", "server:\n  port: 1\n"),
            ("agent: {name: author}\n", "agent: {name: author}\n"),
            (
                "auth:\n  tokens:\n    - agent: \"a\"\n      token: \"s3cr3t\"\nserver:\n  port: 1\n",
                "auth:\n  tokens:\n    - agent: \"*\"\n      token: \"******\"\nserver:\n  port: 1\n",
            ),
            (
                "auth:\n  tokens: [{token: \"${NAME}\"}]\n",
                "auth:\n  tokens: [{token: \"${NAME}\"}]\n",
            ),
            (
                "{\"server\": 1, \"auth\": \"s\"}",
                "{\"server\": 1, \"auth\": \"*\"}",
            ),
            ("x:\n  token : s\n", "x:\n  token : *\n"),
            (
                "callbacks:\n  queue: 9\n  targets:\n    - url: https://s\n      secret: s\n",
                "callbacks:\n  queue: *\n  targets:\n    - url: *****:***\n      secret: *\n",
            ),
            (
                "alerts:\n  per_minute: 9\n  sinks:\n    - {kind: webhook, url: https://s, secret: s}\n",
                "alerts:\n  per_minute: *\n  sinks:\n    - {kind: *******, url: *****:***, secret: *}\n",
            ),
            (
                "memory:\n  path: m.db\n  embedder: {url: u, model: m, api_key: s}\nagent: {name: a}\n",
                "memory:\n  path: m.db\n  embedder: {url: *, model: *, api_key: *}\nagent: {name: a}\n",
            ),
            ("memory: {api_key: s}\n", "memory: {api_key: *}\n"),
            ("x: {secrets: [s]}\n", "x: {*******: [*]}\n"),
            ("auth:\n  tokn:\n    s\n", "auth:\n  ****:\n    *\n"),
            ("? token\n: s\n", "? *****\n: *\n"),
        ] {
            assert_eq!(cover(text), expected);
        }
    }

    proptest! {
        /// Every place in the covered text is that place in the text.
        #[test]
        fn covering_keeps_places(text in "(auth:|token|\\PC|[\\n\\r :{}\"'$-]){0,40}") {
            let covered = cover(&text);
            prop_assert_eq!(covered.chars().count(), text.chars().count());
            for (before, after) in text.chars().zip(covered.chars()) {
                prop_assert!(before == after || after == '*');
            }
        }
    }
}

//! Values that were taken out of a run, and the tokens that stand for them.
//!
//! Kept in memory only, per run, and bounded: when a run or the vault is full, a value is redacted for
//! good instead, and when too many runs have values, those of the oldest are forgotten.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use portcullis_core::{Decision, Event, redacted_value};

use crate::run_map::RunMap;

/// What one run may have in the vault.
const MAX_BYTES_PER_RUN: usize = 1 << 20;

/// The longest a token can be. Longer kinds of values are redacted for good.
pub(crate) const MAX_TOKEN_BYTES: usize = 64;

pub(crate) struct Vault(RunMap<Values>);

#[derive(Default)]
struct Values {
    bytes: usize,
    by_token: HashMap<String, String>,
    by_value: HashMap<(String, String), String>,
    /// How many of each kind there are.
    counts: HashMap<String, usize>,
}

impl Vault {
    pub(crate) fn new(max_runs: usize) -> Self {
        Self(RunMap::new(max_runs))
    }

    /// The token for a value: the same for the same value throughout a run.
    pub(crate) fn token(&self, run_id: &str, entity: &str, value: &str) -> Option<String> {
        self.0.update(run_id, |values| values.token(entity, value))
    }

    /// The text with the run's values in the place of their tokens.
    pub(crate) fn restore<'t>(&self, run_id: &str, text: &'t str) -> Cow<'t, str> {
        if !text.contains('[') {
            return Cow::Borrowed(text);
        }
        let restored = self.0.read(run_id, |values| values.restore(text));
        restored.unwrap_or(Cow::Borrowed(text))
    }

    /// Puts the values that a decision wants restorable into the vault, and their tokens into it.
    pub(crate) fn keep(&self, run_id: &str, event: &Event, decision: &mut Decision) {
        for spec in decision
            .redactions
            .iter_mut()
            .filter(|spec| spec.restorable)
        {
            let entity = spec.entity_type.as_deref().unwrap_or("VALUE");
            let value = redacted_value(event, spec);
            let token = value.and_then(|value| self.token(run_id, entity, &value));
            if let Some(token) = token {
                spec.replacement = token.into();
            }
        }
    }
}

impl Values {
    fn token(&mut self, entity: &str, value: &str) -> Option<String> {
        let key = (entity.to_owned(), value.to_owned());
        if let Some(known) = self.by_value.get(&key) {
            return Some(known.clone());
        }
        let number = self.counts.get(entity).copied().unwrap_or(0) + 1;
        let token = format!("[{entity}_{number}]");
        let bytes = 2 * (token.len() + value.len()) + entity.len();
        if self.bytes + bytes > MAX_BYTES_PER_RUN || token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        self.bytes += bytes;
        self.counts.insert(entity.to_owned(), number);
        self.by_token.insert(token.clone(), value.to_owned());
        self.by_value.insert(key, token.clone());
        Some(token)
    }

    fn restore<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = String::new();
        let mut copied = 0;
        for (open, _) in text.match_indices('[') {
            let Some(len) = text[open..].find(']') else {
                break;
            };
            let token = open..=open + len;
            if let Some(value) = self.by_token.get(&text[token]) {
                out.push_str(&text[copied..open]);
                out.push_str(value);
                copied = open + len + 1;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[copied..]);
        Cow::Owned(out)
    }
}

/// Never the values.
impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_in_its_own_run_only() {
        let vault = Vault::new(10);
        let token = vault.token("a", "EMAIL", "jane@x.org").unwrap();
        assert_eq!(token, "[EMAIL_1]");
        assert_eq!(vault.token("a", "EMAIL", "jane@x.org"), Some(token));
        assert_eq!(vault.token("a", "EMAIL", "joe@x.org").unwrap(), "[EMAIL_2]");
        assert_eq!(vault.token("b", "EMAIL", "eve@x.org").unwrap(), "[EMAIL_1]");
        let text = "[x [EMAIL_1] and [EMAIL_2], not [EMAIL_3] or [";
        assert_eq!(
            vault.restore("a", text),
            "[x jane@x.org and joe@x.org, not [EMAIL_3] or ["
        );
        assert_eq!(vault.restore("c", text), text);
        assert!(!format!("{vault:?}").contains("jane"));
    }

    #[test]
    fn a_full_vault_forgets_the_oldest_run_and_refuses_more_of_one() {
        let vault = Vault::new(2);
        for run in ["a", "b", "c"] {
            vault.token(run, "X", "value").unwrap();
        }
        assert_eq!(vault.restore("a", "[X_1]"), "[X_1]");
        assert_eq!(vault.restore("b", "[X_1]"), "value");
        assert_eq!(vault.token("b", "X", &"v".repeat(MAX_BYTES_PER_RUN)), None);
        assert_eq!(vault.token("b", &"X".repeat(80), "v"), None);
    }
}

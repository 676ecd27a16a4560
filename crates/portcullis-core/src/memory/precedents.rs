//! What came of similar decisions, and what to make of it.

use serde::Serialize;

use super::decision::Outcome;
use super::search::Summary;
use crate::guardrails::Verdict;

/// How many similar decisions are looked up for an action (F004).
pub const PRECEDENTS: usize = 5;

/// From how far a decision is no precedent. Beyond, two texts share little more than the language.
pub const UNRELATED: f64 = 0.75;

/// The most that an answer suggests, and how many of them precedents may make (F004).
const MAX_SUGGESTIONS: usize = 5;
const MAX_FROM_PRECEDENTS: usize = 3;

/// The most characters of a lesson that a suggestion repeats.
const MAX_LESSON_CHARS: usize = 240;

/// Decisions like an action, the nearest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Precedents(Vec<Summary>);

impl Precedents {
    /// Those of what was found that have to do with the action.
    pub fn among(found: impl IntoIterator<Item = Summary>) -> Self {
        let near = |one: &Summary| one.distance.is_some_and(|distance| distance < UNRELATED);
        Self(found.into_iter().filter(near).collect())
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Summary] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many turned out so.
    pub fn count(&self, outcome: Outcome) -> usize {
        let with = |one: &&Summary| one.outcome == Some(outcome);
        self.0.iter().filter(with).count()
    }

    /// How near the nearest is; 1 if there is none.
    pub fn nearest(&self) -> f64 {
        nearest(self.0.iter())
    }

    /// How near the nearest is that turned out so; 1 if none did.
    pub fn nearest_with(&self, outcome: Outcome) -> f64 {
        nearest(self.0.iter().filter(|one| one.outcome == Some(outcome)))
    }
}

fn nearest<'s>(summaries: impl Iterator<Item = &'s Summary>) -> f64 {
    let distances = summaries.filter_map(|one| one.distance);
    distances.fold(1.0, f64::min)
}

/// What to do, or to do instead, each once: what was learned from similar decisions, then what would
/// lift a block or a warning.
pub fn suggestions(precedents: &Precedents, verdict: &Verdict) -> Vec<String> {
    let mut suggestions: Vec<String> = Vec::new();
    let mut add = |suggestion: String| {
        if suggestions.len() < MAX_SUGGESTIONS && !suggestions.contains(&suggestion) {
            suggestions.push(suggestion);
        }
    };
    let telling = precedents.0.iter().filter_map(lesson);
    telling.take(MAX_FROM_PRECEDENTS).for_each(&mut add);
    let violated = verdict.violations.iter().chain(&verdict.warnings);
    let instead = violated.filter_map(|violation| violation.suggestion.clone());
    instead.for_each(&mut add);
    suggestions
}

/// What a decision teaches, if it is known how it turned out.
fn lesson(precedent: &Summary) -> Option<String> {
    let title = &precedent.title;
    let told = match precedent.outcome? {
        Outcome::Success => format!("Similar action succeeded: {title}"),
        Outcome::Partial => format!("Similar action had issues: {title}"),
        Outcome::Failure => format!("Warning: Similar action failed: {title}"),
        Outcome::Abandoned => format!("Similar action was abandoned: {title}"),
    };
    let Some(notes) = &precedent.notes else {
        return Some(told);
    };
    let notes = notes.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match notes.char_indices().nth(MAX_LESSON_CHARS) {
        None => format!("{told} ({notes})"),
        Some((end, _)) => format!("{told} ({}…)", notes[..end].trim_end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guardrails::{Severity, Stakes, Violation};
    use crate::memory::Status;

    fn summary(title: &str, outcome: Option<Outcome>, distance: f32) -> Summary {
        Summary {
            id: title.to_owned(),
            title: title.to_owned(),
            category: None,
            confidence: None,
            stakes: Stakes::Medium,
            status: Status::Reviewed,
            outcome,
            date: jiff::Timestamp::UNIX_EPOCH,
            distance: None,
            notes: None,
            reasons: None,
        }
        .at(distance)
    }

    fn verdict(suggestions: &[&str]) -> Verdict {
        let warning = |text: &&str| Violation {
            guardrail_id: "g".to_owned(),
            name: "g".to_owned(),
            message: "m".to_owned(),
            severity: Severity::Warn,
            suggestion: Some((*text).to_owned()),
        };
        Verdict {
            allowed: true,
            violations: Vec::new(),
            warnings: suggestions.iter().map(warning).collect(),
            logged: Vec::new(),
            evaluated: 1,
        }
    }

    #[test]
    fn what_is_far_away_is_no_precedent() {
        let found = [
            summary("near", Some(Outcome::Failure), 0.2),
            summary("far", None, 0.9),
        ];
        let precedents = Precedents::among(found);
        assert_eq!(precedents.as_slice().len(), 1);
        assert_eq!(precedents.nearest(), 0.2);
        assert_eq!(precedents.nearest_with(Outcome::Success), 1.0);
        assert_eq!(Precedents::default().nearest(), 1.0);
    }

    #[test]
    fn each_outcome_is_told_in_its_own_words() {
        let told: Vec<String> = Outcome::ALL
            .into_iter()
            .filter_map(|outcome| lesson(&summary("T", Some(outcome), 0.1)))
            .collect();
        assert_eq!(
            told,
            [
                "Similar action succeeded: T",
                "Similar action had issues: T",
                "Warning: Similar action failed: T",
                "Similar action was abandoned: T",
            ]
        );
        assert_eq!(lesson(&summary("T", None, 0.1)), None);
    }

    #[test]
    fn a_lesson_is_one_line_and_has_an_end() {
        let mut precedent = summary("T", Some(Outcome::Success), 0.1);
        precedent.notes = Some("keep\n  the pool small".to_owned());
        let told = lesson(&precedent);
        assert_eq!(
            told.as_deref(),
            Some("Similar action succeeded: T (keep the pool small)")
        );
        precedent.notes = Some("é".repeat(1000));
        let told = lesson(&precedent).unwrap_or_default();
        assert!(
            told.ends_with("é…)") && told.chars().count() < 300,
            "{told}"
        );
    }

    #[test]
    fn at_most_five_suggestions_and_none_twice() {
        let found = ["a", "b", "c", "d"].map(|title| summary(title, Some(Outcome::Success), 0.1));
        let precedents = Precedents::among(found);
        let all = suggestions(&precedents, &verdict(&["x", "x", "y", "z"]));
        assert_eq!(
            all,
            [
                "Similar action succeeded: a",
                "Similar action succeeded: b",
                "Similar action succeeded: c",
                "x",
                "y",
            ]
        );
    }
}

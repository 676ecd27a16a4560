//! What every classifier of texts has in common, whatever it is made of.

use serde::Serialize;

/// Tells texts apart: attacks from harmless ones, or whatever its labels say.
pub trait TextClassifier: Send + Sync {
    /// Which model, and which version of it.
    fn name(&self) -> &str;

    /// What it tells apart. Scores come in this order.
    fn labels(&self) -> &[String];

    /// Whether a text has exactly one label, so that its scores add up to one.
    fn is_exclusive(&self) -> bool {
        true
    }

    /// The score from which on a text counts, where the model's makers have fixed one.
    fn threshold(&self) -> Option<f32> {
        None
    }

    /// Judges each text, in their order. Runs on the thread that calls it, for as long as it takes.
    fn classify(&self, samples: &[Sample<'_>]) -> Result<Vec<Scores>, ClassifyError>;
}

/// A text to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'t> {
    /// The text.
    pub text: &'t str,
    /// How it came.
    pub channel: Channel,
}

/// How a text came to the agent. The same sentence is a request from the one and an attack from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// From the user, who may give orders.
    User,
    /// From a tool: data, in which an order is an injection.
    Tool,
}

/// What a classifier makes of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// For each part of the text that was judged by itself: one from 0 to 1 for each label. None if there was nothing to
    /// judge.
    pub windows: Vec<Vec<f32>>,
    /// Whether all of the text was read. What comes after the model's last window is not.
    pub complete: bool,
}

impl Scores {
    /// Whether each window has a probability for each of so many labels.
    pub fn is_sound(&self, labels: usize) -> bool {
        let is_sound = |window: &Vec<f32>| {
            // What is no number is in no range.
            window.len() == labels && window.iter().all(|value| (0.0..=1.0).contains(value))
        };
        self.windows.iter().all(is_sound)
    }
}

/// Why texts were not judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{model} does not judge: {why}")]
pub struct ClassifyError {
    /// The model's name.
    pub model: String,
    /// What is wrong, and what to do about it.
    pub why: String,
}

/// The labels that count as a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoughtLabels {
    indices: Vec<usize>,
    exclusive: bool,
}

/// Names under which models file harmless text, in lower case.
const HARMLESS: [&str; 10] = [
    "benign",
    "safe",
    "harmless",
    "legit",
    "legitimate",
    "normal",
    "negative",
    "no_injection",
    "not_injection",
    "in_scope",
];

/// Whether a label is a known name for harmless text.
pub fn is_harmless(label: &str) -> bool {
    HARMLESS.contains(&label.to_lowercase().as_str())
}

impl SoughtLabels {
    /// The labels of these names; with none, all that are not known names for harmless text.
    pub fn of(classifier: &dyn TextClassifier, names: &[String]) -> Result<Self, LabelError> {
        let labels = classifier.labels();
        let indices: Vec<usize> = if names.is_empty() {
            let has_harmless = labels.iter().any(|label| is_harmless(label));
            let harmful = labels.iter().enumerate();
            let harmful = harmful.filter(|(_, label)| has_harmless && !is_harmless(label));
            harmful.map(|(index, _)| index).collect()
        } else {
            let place = |name: &String| labels.iter().position(|label| label == name);
            let found = names.iter().map(|name| {
                place(name).ok_or_else(|| LabelError::Unknown {
                    name: name.clone(),
                    labels: labels.join(", "),
                })
            });
            let mut found = found.collect::<Result<Vec<usize>, _>>()?;
            // Named twice, it does not count twice.
            found.sort_unstable();
            found.dedup();
            found
        };
        if indices.len() == labels.len() && labels.len() > 1 && classifier.is_exclusive() {
            let labels = labels.join(", ");
            return Err(LabelError::All { labels });
        }
        if indices.is_empty() {
            let labels = labels.join(", ");
            return Err(LabelError::Unclear { labels });
        }
        Ok(Self {
            indices,
            exclusive: classifier.is_exclusive(),
        })
    }

    /// How likely it is that one of them holds, in the window where that is likeliest.
    pub fn score(&self, scores: &Scores) -> f32 {
        self.worst(scores).0
    }

    /// The likeliest of them in that window, by its place among the labels.
    pub fn likeliest(&self, scores: &Scores) -> usize {
        self.worst(scores).1
    }

    fn worst(&self, scores: &Scores) -> (f32, usize) {
        let first = self.indices.first().copied().unwrap_or_default();
        let windows = scores.windows.iter().map(|window| self.judge(window));
        windows.fold(
            (0.0, first),
            |worst, one| {
                if one.0 > worst.0 { one } else { worst }
            },
        )
    }

    fn judge(&self, window: &[f32]) -> (f32, usize) {
        let value = |index: usize| window.get(index).copied().unwrap_or_default();
        let sought = self.indices.iter().map(|&index| (value(index), index));
        let best = |best: (f32, usize), one: (f32, usize)| if one.0 > best.0 { one } else { best };
        let (largest, label) = sought.clone().reduce(best).unwrap_or_default();
        if self.exclusive {
            let sum: f32 = sought.map(|(value, _)| value).sum();
            (sum.clamp(0.0, 1.0), label)
        } else {
            (largest, label)
        }
    }
}

/// Why it is not known which labels count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The model has no such label.
    #[error("the model has no label `{name}`: it has {labels}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        labels: String,
    },
    /// Every text has one of them.
    #[error("every text has one of the labels {labels}: name those that are to be found")]
    All {
        /// What there is.
        labels: String,
    },
    /// None of the model's labels is known to be a harmless one, or all are.
    #[error(
        "which of the model's labels count is not clear from their names ({labels}): name them in `labels`"
    )]
    Unclear {
        /// What there is.
        labels: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<String>, bool);

    impl TextClassifier for Fixed {
        fn name(&self) -> &'static str {
            "fixed"
        }

        fn labels(&self) -> &[String] {
            &self.0
        }

        fn is_exclusive(&self) -> bool {
            self.1
        }

        fn classify(&self, _: &[Sample<'_>]) -> Result<Vec<Scores>, ClassifyError> {
            Ok(Vec::new())
        }
    }

    fn fixed(labels: &[&str], exclusive: bool) -> Fixed {
        Fixed(labels.iter().map(ToString::to_string).collect(), exclusive)
    }

    fn scores(values: &[f32]) -> Scores {
        Scores {
            windows: vec![values.to_vec()],
            complete: true,
        }
    }

    #[test]
    fn all_but_the_harmless_count_unless_labels_are_named() {
        let model = fixed(&["SAFE", "jailbreak", "injection"], true);
        let all = SoughtLabels::of(&model, &[]).unwrap();
        let given = scores(&[0.5, 0.2, 0.3]);
        assert_eq!((all.score(&given), all.likeliest(&given)), (0.5, 2));
        let one = SoughtLabels::of(&model, &["jailbreak".to_owned()]).unwrap();
        assert_eq!((one.score(&given), one.likeliest(&given)), (0.2, 1));
    }

    #[test]
    fn the_window_with_the_most_of_what_is_sought_speaks() {
        let model = fixed(&["safe", "jailbreak", "injection"], true);
        let quiet = SoughtLabels::of(&model, &["injection".to_owned()]).unwrap();
        let given = Scores {
            windows: vec![
                vec![0.1, 0.9, 0.0],
                vec![0.4, 0.0, 0.6],
                vec![1.0, 0.0, 0.0],
            ],
            complete: true,
        };
        assert_eq!((quiet.score(&given), quiet.likeliest(&given)), (0.6, 2));
        let nothing = Scores {
            windows: Vec::new(),
            complete: true,
        };
        assert_eq!(quiet.score(&nothing), 0.0);
    }

    #[test]
    fn a_label_counts_once_and_not_all_can_count() {
        let model = fixed(&["safe", "bad"], true);
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let twice = SoughtLabels::of(&model, &names(&["bad", "bad"])).unwrap();
        assert_eq!(twice.score(&scores(&[0.6, 0.4])), 0.4);
        insta::assert_snapshot!(
            SoughtLabels::of(&model, &names(&["bad", "safe"])).unwrap_err(),
            @"every text has one of the labels safe, bad: name those that are to be found"
        );
    }

    #[test]
    fn scores_that_are_no_probabilities_are_not_sound() {
        assert!(scores(&[0.0, 1.0]).is_sound(2));
        for wrong in [&[0.5][..], &[0.5, f32::NAN], &[0.5, 1.5], &[-0.1, 0.5]] {
            assert!(!scores(wrong).is_sound(2), "{wrong:?}");
        }
    }

    #[test]
    fn labels_that_do_not_exclude_each_other_do_not_add_up() {
        let model = fixed(&["benign", "toxic", "insult"], false);
        let sought = SoughtLabels::of(&model, &[]).unwrap();
        assert_eq!(sought.score(&scores(&[0.1, 0.7, 0.6])), 0.7);
    }

    #[test]
    fn unclear_and_unknown_labels_are_refused() {
        let model = fixed(&["A", "B"], true);
        insta::assert_snapshot!(
            SoughtLabels::of(&model, &[]).unwrap_err(),
            @"which of the model's labels count is not clear from their names (A, B): name them in `labels`"
        );
        insta::assert_snapshot!(
            SoughtLabels::of(&model, &["C".to_owned()]).unwrap_err(),
            @"the model has no label `C`: it has A, B"
        );
        assert!(SoughtLabels::of(&fixed(&["safe"], true), &[]).is_err());
    }
}

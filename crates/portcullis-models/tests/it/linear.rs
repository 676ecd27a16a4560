//! Training, keeping and reading linear classifiers.

use std::path::Path;
use std::sync::Arc;

use portcullis_core::classifier::{Channel, Sample, SoughtLabels, TextClassifier};
use portcullis_core::memory::{EmbedError, Embedder};
use portcullis_models::{
    BuiltIn, Example, LinearClassifier, Sections, TrainError, TrainOptions, Trained, train,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const IN: [&str; 12] = [
    "Show me revenue by region for the last quarter",
    "Plot monthly active users as a line chart",
    "What was churn in May?",
    "Compare conversion rates of the two campaigns",
    "Which product had the highest margin?",
    "Break down sales by channel",
    "How many orders did we get yesterday?",
    "Export the retention table as CSV",
    "Average order value since January",
    "Draw a bar chart of support tickets per week",
    "What is the trend of weekly sign-ups?",
    "Summarise the key metrics of this dashboard",
];
const OUT: [&str; 12] = [
    "How is the weather tomorrow?",
    "Write me a poem about the sea",
    "Who won the football match last night?",
    "Give me a recipe for pancakes",
    "Translate good morning into Japanese",
    "Tell me a joke about cats",
    "What should I wear to a wedding?",
    "Recommend a film for tonight",
    "How do I fix a leaking tap?",
    "Plan a weekend in Lisbon",
    "What is the capital of Mongolia?",
    "Help my son with his history homework",
];

fn examples() -> Vec<Example> {
    let label = |label: &'static str| {
        move |text: &&str| Example {
            text: (*text).to_owned(),
            label: label.to_owned(),
        }
    };
    let inside = IN.iter().map(label("in_scope"));
    inside
        .chain(OUT.iter().map(label("out_of_scope")))
        .collect()
}

fn options() -> TrainOptions {
    TrainOptions {
        name: "scope".into(),
        created: "2026-11-16".into(),
        folds: 4,
        ..TrainOptions::default()
    }
}

fn trained(examples: &[Example], options: &TrainOptions) -> Result<Trained, TrainError> {
    train(examples, Arc::new(BuiltIn::new()), options, &|_, _| {})
}

fn read(bytes: &[u8]) -> Result<LinearClassifier, String> {
    let read =
        LinearClassifier::from_bytes(Path::new("scope.json"), bytes, Arc::new(BuiltIn::new()));
    read.map_err(|error| error.to_string())
}

fn score(classifier: &LinearClassifier, text: &str) -> f32 {
    let sample = Sample {
        text,
        channel: Channel::User,
    };
    let scores = classifier.classify(&[sample]).unwrap();
    let sought = SoughtLabels::of(classifier, classifier.positive()).unwrap();
    sought.score(&scores[0])
}

#[test]
fn a_few_dozen_examples_are_enough_to_tell_texts_apart() {
    let done = trained(&examples(), &options()).unwrap();
    assert!(done.cross_validation.auc > 0.9, "{done:?}");
    let classifier = done.classifier;
    assert_eq!(classifier.labels(), ["in_scope", "out_of_scope"]);
    assert_eq!(classifier.positive(), ["out_of_scope"]);
    assert!(
        classifier.name().starts_with("scope/"),
        "{}",
        classifier.name()
    );
    let threshold = classifier.threshold().unwrap();
    assert!(score(&classifier, "Chart revenue per country") < threshold);
    assert!(score(&classifier, "Sing me a lullaby") >= threshold);
    assert_eq!(done.out_of_fold.len(), 24);
}

#[test]
fn what_is_kept_is_what_was_trained() {
    let done = trained(&examples(), &options()).unwrap();
    let text = done.classifier.to_json();
    let again = read(text.as_bytes()).unwrap();
    assert_eq!(again.to_json(), text);
    assert_eq!(again.name(), done.classifier.name());
    assert_eq!(again.threshold(), done.classifier.threshold());
    assert_eq!(again.cross_validation(), &done.cross_validation);
    for text in ["", "revenue", "weather", "\u{0}\u{fffd}"] {
        let (a, b) = (score(&again, text), score(&done.classifier, text));
        assert_eq!(a, b, "{text}");
        assert!((0.0..=1.0).contains(&a));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scope.json");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(LinearClassifier::load(&path).unwrap().to_json(), text);
}

#[test]
fn neither_the_order_nor_repetition_of_examples_makes_a_difference() {
    let mut other = examples();
    other.reverse();
    other.push(other[3].clone());
    let (a, b) = (
        trained(&examples(), &options()).unwrap(),
        trained(&other, &options()).unwrap(),
    );
    assert_eq!(a.classifier.to_json(), b.classifier.to_json());
    assert_eq!((a.repeated, b.repeated), (0, 1));
}

#[test]
fn the_day_makes_no_difference_to_the_name() {
    let on = |created: &str| {
        let options = TrainOptions {
            created: created.into(),
            ..options()
        };
        trained(&examples(), &options).unwrap().classifier
    };
    let (a, b) = (on("2026-11-16"), on("2026-11-17"));
    assert_eq!(a.name(), b.name());
    assert_eq!(a.to_json().replace("11-16", "11-17"), b.to_json());
}

#[test]
fn three_labels_are_told_apart_too() {
    let sums = [
        "add 1 and 2",
        "what is 3 times 4",
        "divide ten by two",
        "subtract seven from 9",
    ];
    let mut examples = examples();
    examples.extend(sums.map(|text| Example {
        text: text.into(),
        label: "sums".into(),
    }));
    let done = trained(&examples, &options()).unwrap();
    assert_eq!(done.classifier.positive(), ["out_of_scope", "sums"]);
    let sample = Sample {
        text: "add 5 and 6",
        channel: Channel::Tool,
    };
    let scores = done.classifier.classify(&[sample]).unwrap();
    assert_eq!(scores[0].windows[0].len(), 3);
    assert!((scores[0].windows[0].iter().sum::<f32>() - 1.0).abs() < 1e-5);
    assert!(read(done.classifier.to_json().as_bytes()).is_ok());
}

#[test]
fn a_rate_of_false_positives_sets_the_threshold() {
    for most in [0.0, 0.1, 0.5, 1.0] {
        let options = TrainOptions {
            max_false_positive_rate: Some(most),
            ..options()
        };
        let done = trained(&examples(), &options).unwrap();
        assert!(done.cross_validation.false_positives.share() <= most);
        assert!(done.classifier.threshold_from().contains("false positives"));
    }
}

#[test]
fn sections_are_judged_by_themselves() {
    let sections = Sections {
        read: vec!["USER".into(), "LAST_ASSISTANT".into()],
        skipped: vec!["AVAILABLE_TOOLS".into()],
    };
    let with = |user: &str, last: &str, tools: &str| {
        format!("[USER] {user}\n[LAST_ASSISTANT] {last}\n[AVAILABLE_TOOLS] {tools}")
    };
    let mut all = Vec::new();
    for (index, example) in examples().into_iter().enumerate() {
        // Every text stands as an answer before the other kind, too.
        let (last, mine) = (
            IN[index % 12],
            if index < 12 { "" } else { IN[(index + 5) % 12] },
        );
        all.push(Example {
            text: with(&example.text, mine, "query"),
            label: example.label.clone(),
        });
        all.push(Example {
            text: with(&example.text, last, "query"),
            label: example.label,
        });
    }
    let options = TrainOptions {
        sections,
        ..options()
    };
    let done = trained(&all, &options).unwrap();
    let threshold = done.classifier.threshold().unwrap();
    let weather = score(
        &done.classifier,
        &with("Will it rain today?", "Revenue grew by 4 %.", "query"),
    );
    assert!(weather >= threshold, "{weather} {threshold}");
    let revenue = with("Chart revenue per region", "Revenue grew by 4 %.", "query");
    assert!(score(&done.classifier, &revenue) < threshold);
    // What is skipped makes no difference.
    let other = with(
        "Chart revenue per region",
        "Revenue grew by 4 %.",
        "rain, weather",
    );
    assert_eq!(
        score(&done.classifier, &revenue),
        score(&done.classifier, &other)
    );
}

#[test]
fn bad_examples_and_options_are_refused_with_a_fix() {
    let example = |text: &str, label: &str| Example {
        text: text.into(),
        label: label.into(),
    };
    let plain = TrainOptions::default;
    let cases: Vec<(Vec<Example>, TrainOptions, &str)> = vec![
        (vec![], plain(), "two labels at least"),
        (vec![example("a", "x")], plain(), "and the examples have x"),
        (
            vec![example("a", "in_scope"), example("b", "out")],
            plain(),
            "`in_scope` has 1 different example(s), and 5 folds",
        ),
        (
            vec![example(" ", "x")],
            plain(),
            "example 1 has an empty text",
        ),
        (
            vec![example("a", "")],
            plain(),
            "example 1 has an empty label",
        ),
        (
            vec![example("a", "x"), example("a", "y")],
            plain(),
            "examples 1 and 2 are the same text, once as `x` and once as `y`",
        ),
        (
            examples(),
            TrainOptions {
                folds: 1,
                ..plain()
            },
            "`folds` is 1: expected 2 to 20",
        ),
        (
            examples(),
            TrainOptions {
                folds: 13,
                ..plain()
            },
            "take fewer folds",
        ),
        (
            examples(),
            TrainOptions {
                positive: vec!["no".into()],
                ..plain()
            },
            "no example has the label `no`: they have in_scope, out_of_scope",
        ),
        (
            examples(),
            TrainOptions {
                positive: vec!["in_scope".into(), "out_of_scope".into()],
                ..plain()
            },
            "is not clear (in_scope, out_of_scope): name one or more in `positive`, but not all",
        ),
        (
            examples(),
            TrainOptions {
                max_false_positive_rate: Some(1.5),
                ..plain()
            },
            "from 0 to 1",
        ),
        (
            examples(),
            TrainOptions {
                sections: Sections {
                    read: vec!["a b".into()],
                    skipped: vec![],
                },
                ..plain()
            },
            "no name of a section",
        ),
    ];
    for (examples, options, expected) in cases {
        let error = trained(&examples, &options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut unclear = examples();
    for one in &mut unclear {
        one.label = format!("{}!", one.label);
    }
    let error = trained(&unclear, &options()).unwrap_err().to_string();
    assert!(
        error.contains("which labels are to be found is not clear (in_scope!, out_of_scope!)"),
        "{error}"
    );
}

/// A change to a good file, and what is said about it.
#[test]
fn bad_files_are_refused_with_their_field() {
    type Change = fn(&mut Value);
    let good = trained(&examples(), &options())
        .unwrap()
        .classifier
        .to_json();
    let cases: &[(Change, &str)] = &[
        (
            |file| file["schema"] = json!("x"),
            "`schema` is x, not portcullis/linear-classifier",
        ),
        (
            |file| file["version"] = json!(2),
            "`version` is 2, and this build reads 1",
        ),
        (
            |file| drop(file.as_object_mut().unwrap().remove("version")),
            "`version` is missing",
        ),
        (|file| file["more"] = json!(1), "unknown field `more`"),
        (
            |file| drop(file.as_object_mut().unwrap().remove("bias")),
            "missing field `bias`",
        ),
        (
            |file| file["embedder"]["name"] = json!("other/1"),
            "`embedder.name` is `other/1`, but the embedder in use is `potion-base-8m-int8/1`",
        ),
        (
            |file| file["labels"] = json!(["a"]),
            "`labels` has fewer than two",
        ),
        (
            |file| file["labels"] = json!(["a", "a"]),
            "`labels` has `a` twice",
        ),
        (
            |file| file["labels"] = json!(["in_scope", "out_of_scope", "c"]),
            "rows of `weights`: 1; expected 3",
        ),
        (
            |file| file["positive"] = json!(["b"]),
            "`positive` has `b`, which is none of in_scope, out_of_scope",
        ),
        (
            |file| file["positive"] = json!([]),
            "`positive` must name some",
        ),
        (
            |file| file["threshold"] = json!(1.5),
            "`threshold` is 1.5, not from 0 to 1",
        ),
        (
            |file| file["bias"] = json!([0, 0]),
            "numbers in `bias`: 2; expected 1",
        ),
        (
            |file| file["bias"] = json!([1e39]),
            "`bias[0]`: number out of range",
        ),
        (
            |file| file["weights"][0][7] = json!(1e39),
            "`weights[0][7]`: number out of range",
        ),
        (
            |file| file["weights"] = json!([[1.0]]),
            "numbers in `weights[0]`: 1; expected 256",
        ),
        (
            |file| file["weights"] = json!([null]),
            "`weights[0]`: invalid type: null",
        ),
        (
            |file| file["sections"]["read"] = json!(["A", "B"]),
            "expected 512",
        ),
        (
            |file| file["sections"]["read"] = json!(["a"]),
            "`sections`: `a` is no name",
        ),
        (|file| *file = json!([1]), "scope.json: "),
    ];
    for (change, expected) in cases {
        let mut file: Value = serde_json::from_str(&good).unwrap();
        change(&mut file);
        let error = read(file.to_string().as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let mut file: Value = serde_json::from_str(&good).unwrap();
    file["embedder"]["dimension"] = json!(8);
    file["weights"] = json!([[0, 0, 0, 0, 0, 0, 0, 0]]);
    let error = read(file.to_string().as_bytes()).unwrap_err();
    assert!(
        error.contains("`embedder.dimension` is 8, but `potion-base-8m-int8/1` has 256"),
        "{error}"
    );
    assert!(read(&good.as_bytes()[..good.len() / 2]).is_err());
    assert!(LinearClassifier::load(Path::new("not-there.json")).is_err());
}

/// Says one thing and does another.
struct Broken(Vec<Vec<f32>>);

impl Embedder for Broken {
    fn name(&self) -> &'static str {
        "potion-base-8m-int8/1"
    }

    fn dimension(&self) -> usize {
        256
    }

    fn reads_all(&self, text: &str) -> bool {
        text.len() <= 10
    }

    fn embed(&self, _: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(self.0.clone())
    }
}

#[test]
fn what_the_embedder_cuts_off_is_not_judged() {
    let good = trained(&examples(), &options())
        .unwrap()
        .classifier
        .to_json();
    let embedder = Arc::new(Broken(vec![vec![0.0; 256]]));
    let read = LinearClassifier::from_bytes(Path::new("a"), good.as_bytes(), embedder).unwrap();
    for (text, complete) in [("ten bytes!", true), ("eleven byte", false)] {
        let sample = Sample {
            text,
            channel: Channel::User,
        };
        assert_eq!(read.classify(&[sample]).unwrap()[0].complete, complete);
    }
}

#[test]
fn an_embedder_that_answers_nonsense_is_an_error() {
    let good = trained(&examples(), &options())
        .unwrap()
        .classifier
        .to_json();
    let sample = Sample {
        text: "a",
        channel: Channel::User,
    };
    for vectors in [vec![], vec![vec![0.0; 3]], vec![vec![f32::NAN; 256]]] {
        let embedder = Arc::new(Broken(vectors));
        let read = LinearClassifier::from_bytes(Path::new("a"), good.as_bytes(), embedder);
        assert!(read.unwrap().classify(&[sample]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A file that is damaged anywhere is a classifier or an error.
    #[test]
    fn damaged_files_are_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        static GOOD: std::sync::LazyLock<String> =
            std::sync::LazyLock::new(|| trained(&examples(), &options()).unwrap().classifier.to_json());
        let mut bytes = GOOD.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(classifier) = read(&bytes) {
            prop_assert!((0.0..=1.0).contains(&score(&classifier, "revenue")));
        }
    }
}

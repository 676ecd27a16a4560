//! Classifiers held to `transformers`, by what `scripts/classifier_fixtures.py` wrote.

use std::path::{Path, PathBuf};

use portcullis_core::classifier::{Channel, Sample, Scores, TextClassifier};
use portcullis_models::hf::{Options, SequenceClassifier};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

/// As the script cuts texts.
const OPTIONS: Options = Options {
    window: 512,
    overlap: 6,
    max_windows: 8,
    batch: 256,
    max_memory: 1 << 20,
};

/// Every folder, with its tokenizer.
const FOLDERS: [(&str, &str); 14] = [
    ("bert", "wordpiece"),
    ("bert-multi-label", "wordpiece"),
    ("bert-one-label-f16", "wordpiece"),
    ("deberta-v3", "unigram"),
    ("deberta-v2-conv", "unigram"),
    ("deberta-conv-groups-one-layer", "unigram"),
    ("deberta-own-projections", "unigram"),
    ("deberta-c2p-biased", "unigram"),
    ("deberta-p2c-near", "unigram"),
    ("deberta-absolute", "unigram"),
    ("deberta-narrow-embeddings", "unigram"),
    ("deberta-bf16", "unigram"),
    ("modernbert", "bpe"),
    ("modernbert-mean-biased", "bpe"),
];

#[derive(Deserialize)]
struct Case {
    text: String,
    complete: bool,
    windows: Vec<Vec<u32>>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hf")
}

fn json<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(fixtures().join(name)).unwrap()).unwrap()
}

fn load(name: &str, options: Options) -> SequenceClassifier {
    SequenceClassifier::load(&fixtures().join(name), options).unwrap()
}

fn texts(tokenizer: &str) -> Vec<Case> {
    json(&format!("texts-{tokenizer}.json"))
}

fn classify(model: &SequenceClassifier, texts: &[&str]) -> Vec<Scores> {
    let sample = |text| Sample {
        text,
        channel: Channel::Tool,
    };
    let samples: Vec<Sample<'_>> = texts.iter().copied().map(sample).collect();
    model.classify(&samples).unwrap()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[track_caller]
fn check_logits(model: &SequenceClassifier, name: &str, tokenizer: &str) {
    let texts = texts(tokenizer);
    let expected: Vec<Vec<Vec<f32>>> = json(&format!("{name}/logits.json"));
    assert_eq!(texts.len(), expected.len());
    let all: Vec<&str> = texts.iter().map(|text| text.text.as_str()).collect();
    let found = model.logits(&all).unwrap();
    let mut worst = 0.0_f32;
    for ((text, expected), found) in texts.iter().zip(&expected).zip(&found) {
        let tokens = model.tokens(&text.text).unwrap();
        assert_eq!(
            tokens,
            (text.windows.clone(), text.complete),
            "{name}: {:?}",
            text.text
        );
        assert_eq!(found.len(), expected.len(), "{name}: {:?}", text.text);
        for (found, expected) in found.iter().zip(expected) {
            let distance = distance(found, expected);
            assert!(
                distance < 1e-4,
                "{name}: {:?}\n{found:?}\n{expected:?}",
                text.text
            );
            worst = worst.max(distance);
        }
    }
    println!("{name}: the largest difference is {worst:e}");
}

#[test]
fn every_family_gives_the_logits_of_transformers() {
    for (name, tokenizer) in FOLDERS {
        check_logits(&load(name, OPTIONS), name, tokenizer);
    }
}

#[test]
fn every_folder_is_held_to_its_logits() {
    let entries = std::fs::read_dir(fixtures())
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().unwrap().is_dir());
    let mut found: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut expected = FOLDERS.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn labels_and_scores_are_those_of_the_configuration() {
    for (name, labels, is_exclusive) in [
        ("bert", "SAFE INJECTION", true),
        ("bert-multi-label", "toxic insult threat", false),
        ("bert-one-label-f16", "risk", false),
        ("deberta-v3", "BENIGN INJECTION JAILBREAK", true),
    ] {
        let model = load(name, OPTIONS);
        assert_eq!(model.labels().join(" "), labels);
        assert_eq!(model.is_exclusive(), is_exclusive, "{name}");
        assert_eq!(model.threshold(), None);
        let family = if name.starts_with("bert") {
            "bert-"
        } else {
            "deberta-v2-"
        };
        assert!(model.name().starts_with(family), "{}", model.name());
        let text = "Hello world!";
        let logits = &model.logits(&[text]).unwrap()[0][0];
        let scores = &classify(&model, &[text])[0].windows[0];
        let powers: Vec<f32> = logits.iter().map(|logit| logit.exp()).collect();
        let expected: Vec<f32> = if is_exclusive {
            let sum: f32 = powers.iter().sum();
            powers.iter().map(|power| power / sum).collect()
        } else {
            powers.iter().map(|power| power / (1.0 + power)).collect()
        };
        assert!(distance(scores, &expected) < 1e-6, "{name}");
    }
}

#[test]
fn each_window_has_scores_of_its_own() {
    let text = "every word of a long text is read in some window, ".repeat(3);
    for name in ["deberta-v3", "bert-multi-label"] {
        let model = load(name, OPTIONS);
        let logits = &model.logits(&[&text]).unwrap()[0];
        assert!(logits.len() > 2);
        let scores = &classify(&model, &[&text])[0].windows;
        assert_eq!(scores.len(), logits.len());
        for (logits, scores) in logits.iter().zip(scores) {
            let powers: Vec<f32> = logits.iter().map(|logit| logit.exp()).collect();
            let sum: f32 = powers.iter().sum();
            for (power, score) in powers.iter().zip(scores) {
                let others = if model.is_exclusive() {
                    sum
                } else {
                    1.0 + power
                };
                assert!((score - power / others).abs() < 1e-5, "{name}");
            }
        }
    }
}

#[test]
fn what_no_window_has_room_for_is_told() {
    let text = "hello world ".repeat(50);
    let options = |max_windows| Options {
        max_windows,
        ..OPTIONS
    };
    for (max_windows, windows, complete) in [(1, 1, false), (2, 2, false), (8, 3, true)] {
        let model = load("bert", options(max_windows));
        assert_eq!(model.logits(&[&text]).unwrap()[0].len(), windows);
        assert_eq!(classify(&model, &[&text])[0].complete, complete);
    }
    // Long texts are not read to their end, unless what they begin with has no tokens.
    let model = load("bert", OPTIONS);
    let long = "hello ".repeat(100_000);
    let hidden = format!("{}hello", " ".repeat(100_000));
    let found = classify(&model, &[&long, &hidden]);
    assert_eq!([found[0].complete, found[1].complete], [false, true]);
    assert_eq!(
        model.tokens(&hidden).unwrap().0,
        model.tokens("hello").unwrap().0
    );
}

/// What is done to a folder before it is loaded.
enum Change {
    Config(&'static str, Value),
    WithoutConfig(&'static str),
    Text(&'static str, fn(String) -> String),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Truncate(&'static str, usize),
    Take(&'static str, &'static str),
}

fn changed(name: &str, change: &Change) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(fixtures().join(name).join(file), folder.path().join(file)).unwrap();
    }
    let path = |file: &str| folder.path().join(file);
    let config = || -> Value {
        serde_json::from_slice(&std::fs::read(path("config.json")).unwrap()).unwrap()
    };
    let write = |config: Value| std::fs::write(path("config.json"), config.to_string()).unwrap();
    match change {
        Change::Config(field, value) => {
            let mut config = config();
            config[*field] = value.clone();
            write(config);
        }
        Change::WithoutConfig(field) => {
            let mut config = config();
            config.as_object_mut().unwrap().remove(*field);
            write(config);
        }
        Change::Text(file, change) => {
            let text = std::fs::read_to_string(path(file)).unwrap();
            let new = change(text.clone());
            assert_ne!(new, text);
            std::fs::write(path(file), new).unwrap();
        }
        Change::Remove(file) => std::fs::remove_file(path(file)).unwrap(),
        Change::Rename(from, to) => std::fs::rename(path(from), path(to)).unwrap(),
        Change::Truncate(file, size) => {
            let bytes = std::fs::read(path(file)).unwrap();
            std::fs::write(path(file), &bytes[..*size]).unwrap();
        }
        Change::Take(file, other) => {
            std::fs::copy(fixtures().join(other).join(file), path(file)).unwrap();
        }
    }
    folder
}

#[test]
fn what_is_missing_or_does_not_fit_is_named() {
    use Change::{Config, Remove, Rename, Take, Text, Truncate};
    for (name, change, expected) in [
        (
            "bert",
            Remove("config.json"),
            "cannot read /config.json: No such file or directory (os error 2)",
        ),
        (
            "bert",
            Remove("tokenizer.json"),
            "cannot read /tokenizer.json: No such file or directory (os error 2)",
        ),
        (
            "bert",
            Remove("model.safetensors"),
            "/model.safetensors: is missing: it has the model's weights",
        ),
        (
            "bert",
            Rename("model.safetensors", "model.safetensors.index.json"),
            "/model.safetensors: is missing, and its parts are not read: load the model with transformers and write it \
             as one file, with `model.save_pretrained(FOLDER, max_shard_size=\"100GB\")`",
        ),
        (
            "bert",
            Rename("model.safetensors", "pytorch_model.bin"),
            "/model.safetensors: is missing, and `pytorch_model.bin` is not read: load the model with transformers and \
             write it with `model.save_pretrained(FOLDER)`",
        ),
        (
            "bert",
            Truncate("config.json", 20),
            "/config.json: EOF while parsing a string at line 2 column 18",
        ),
        (
            "bert",
            Truncate("tokenizer.json", 20),
            "/tokenizer.json: EOF while parsing a string at line 1 column 20",
        ),
        (
            "bert",
            Truncate("model.safetensors", 5),
            "/model.safetensors: header too small",
        ),
        (
            "bert",
            Truncate("model.safetensors", 9000),
            "/model.safetensors: incomplete metadata, file not fully covered",
        ),
        (
            "bert",
            Config("intermediate_size", json!(13)),
            "/model.safetensors: `bert.encoder.layer.0.intermediate.dense.weight` is F32 of [12, 8]: it must be F32 of \
             [13, 8]",
        ),
        (
            "bert-one-label-f16",
            Config("intermediate_size", json!(13)),
            "/model.safetensors: `bert.encoder.layer.0.intermediate.dense.weight` is F16 of [12, 8]: it must be F16 of \
             [13, 8]",
        ),
        (
            "deberta-v3",
            Config("num_hidden_layers", json!(3)),
            "/model.safetensors: `deberta.encoder.layer.2.attention.self.query_proj.weight` is missing: it must be F32 \
             of [8, 8]",
        ),
        (
            "deberta-v3",
            Config("position_buckets", json!(16)),
            "/model.safetensors: `deberta.encoder.rel_embeddings.weight` is F32 of [24, 8]: it must be F32 of [32, 8]",
        ),
        (
            "deberta-v3",
            Config("share_att_key", json!(false)),
            "/model.safetensors: `deberta.encoder.layer.0.attention.self.pos_key_proj.weight` is missing: it must be F32 \
             of [8, 8]",
        ),
        (
            "modernbert",
            Config("mlp_bias", json!(true)),
            "/model.safetensors: `model.layers.0.mlp.Wi.bias` is missing: it must be F32 of [24]",
        ),
        (
            "deberta-v3",
            Take("model.safetensors", "bert"),
            "/config.json: `id2label` has 3 labels, but `classifier.weight` has 2 rows",
        ),
        (
            "modernbert",
            Take("model.safetensors", "bert"),
            "/model.safetensors: `model.layers.0.attn.Wqkv.weight` is missing: it must be F32 of [24, 8]",
        ),
        (
            "bert",
            Config("id2label", json!({"0": "a", "1": "b", "2": "c"})),
            "/config.json: `id2label` has 3 labels, but `classifier.weight` has 2 rows",
        ),
        (
            "bert",
            Config("id2label", json!({"0": "a", "5": "b"})),
            "/config.json: `id2label` has `5`: its numbers must be 0 to 1, without gaps",
        ),
        (
            "bert",
            Take("tokenizer.json", "modernbert"),
            "/tokenizer.json: the largest token is 268, but the model's `vocab_size` is 80: it is another model's \
             tokenizer",
        ),
        (
            "bert",
            Text("tokenizer.json", |text| {
                text.replace("\"ids\":[2]", "\"ids\":[99]")
            }),
            "/tokenizer.json: the tokenizer says token 99, but the model has 80",
        ),
        (
            "bert",
            Text("tokenizer.json", |text| {
                text.replace(
                    "\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},",
                    "\"single\":[",
                )
            }),
            "/tokenizer.json: `post_processor` puts no token such as [CLS] before a text: the model looks at it",
        ),
        (
            "bert",
            Config("model_type", json!("roberta")),
            "/config.json: `model_type` is `roberta`: only `bert`, `deberta-v2` and `modernbert` are understood",
        ),
        (
            "bert",
            Config("problem_type", json!("regression")),
            "/config.json: `problem_type` is `regression`: only `single_label_classification` and \
             `multi_label_classification` are understood",
        ),
        (
            "bert",
            Config("max_position_embeddings", json!(2)),
            "/config.json: `max_position_embeddings` leaves no room for a text",
        ),
        (
            "deberta-v3",
            Config("pos_att_type", json!("c2p|p2p")),
            "/config.json: `pos_att_type` has `p2p`: only `c2p` and `p2c` are understood",
        ),
        (
            "deberta-v3",
            Config("hidden_act", json!("gelu_new")),
            "/config.json: `hidden_act` is `gelu_new`: only `gelu`, `relu` and `tanh` are understood",
        ),
        (
            "deberta-v3",
            Config("max_position_embeddings", json!(2)),
            "/config.json: a window of 2 tokens has no room for a text beside 2 that the model adds",
        ),
        (
            "deberta-v2-conv",
            Config("conv_kernel_size", json!(4)),
            "/config.json: `conv_kernel_size` is 4: it must be odd",
        ),
        (
            "modernbert",
            Config("classifier_pooling", json!("last")),
            "/config.json: `classifier_pooling` is `last`: only `cls` and `mean` are understood",
        ),
        (
            "modernbert",
            Config("layer_types", json!(["full_attention"])),
            "/config.json: `layer_types` has 1 layers, but `num_hidden_layers` is 4",
        ),
        (
            "modernbert",
            Config(
                "rope_parameters",
                json!({"full_attention": {"rope_type": "yarn"}}),
            ),
            "/config.json: `rope_parameters.full_attention.rope_type` is `yarn`: only `default` is understood",
        ),
        (
            "modernbert",
            Config("num_attention_heads", json!(8)),
            "/config.json: `hidden_size` is 8, which leaves 8 `num_attention_heads` an odd size",
        ),
    ] {
        let folder = changed(name, &change);
        let error = SequenceClassifier::load(folder.path(), OPTIONS).unwrap_err();
        let error = error
            .to_string()
            .replace(&folder.path().display().to_string(), "");
        assert_eq!(error, expected, "{name}");
    }
}

#[test]
fn a_model_that_takes_too_much_memory_is_refused() {
    let options = |max_memory| Options {
        max_memory,
        ..OPTIONS
    };
    let folder = fixtures().join("bert-one-label-f16");
    let error = SequenceClassifier::load(&folder, options(5_000)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.ends_with("model.safetensors: more than 5000 bytes"),
        "{error}"
    );
    // In the file two bytes a number, as F32 four.
    let read = |file: &str| std::fs::read(folder.join(file)).unwrap();
    let files = ["config.json", "tokenizer.json", "model.safetensors"].map(read);
    let [config, tokenizer, weights] = &files;
    let from_bytes = |most| {
        let model = SequenceClassifier::from_bytes(config, tokenizer, weights, options(most));
        model.map_err(|error| error.to_string())
    };
    assert_eq!(
        from_bytes(8_547).unwrap_err(),
        "model.safetensors: out of memory: the weights take 8548 bytes as F32, and `max_memory` is 8547"
    );
    assert!(from_bytes(8_548).is_ok());
}

#[test]
fn older_configurations_mean_the_same() {
    let folder = changed("modernbert", &Change::WithoutConfig("layer_types"));
    let path = folder.path().join("config.json");
    let text = std::fs::read(&path).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    config.as_object_mut().unwrap().remove("rope_parameters");
    config["global_attn_every_n_layers"] = json!(3);
    config["global_rope_theta"] = json!(160_000.0);
    config["local_rope_theta"] = json!(10_000.0);
    std::fs::write(&path, config.to_string()).unwrap();
    let model = SequenceClassifier::load(folder.path(), OPTIONS).unwrap();
    check_logits(&model, "modernbert", "bpe");

    let change = Change::Config("pos_att_type", json!("P2C|c2p"));
    let folder = changed("deberta-v3", &change);
    let model = SequenceClassifier::load(folder.path(), OPTIONS).unwrap();
    check_logits(&model, "deberta-v3", "unigram");

    // What transformers leaves out of a file because it is its own default.
    let folder = changed("bert", &Change::WithoutConfig("id2label"));
    let model = SequenceClassifier::load(folder.path(), OPTIONS).unwrap();
    assert_eq!(model.labels(), ["LABEL_0", "LABEL_1"]);
    let change = Change::Text("tokenizer.json", |text| {
        let mut tokenizer: Value = serde_json::from_str(&text).unwrap();
        tokenizer["post_processor"] = Value::Null;
        tokenizer.to_string()
    });
    let folder = changed("bert", &change);
    let model = SequenceClassifier::load(folder.path(), OPTIONS).unwrap();
    check_logits(&model, "bert", "wordpiece");
}

#[test]
fn bytes_and_folders_make_the_same_model() {
    let read = |file: &str| std::fs::read(fixtures().join("deberta-v3").join(file)).unwrap();
    let model = SequenceClassifier::from_bytes(
        &read("config.json"),
        &read("tokenizer.json"),
        &read("model.safetensors"),
        OPTIONS,
    )
    .unwrap();
    assert_eq!(model.name(), load("deberta-v3", OPTIONS).name());
    check_logits(&model, "deberta-v3", "unigram");
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".*",
        "[a-z ]{0,400}",
        "(the |hello |\\[SEP\\]|🚀|東|\u{200b}|\\PC){0,60}",
        any::<Vec<char>>().prop_map(String::from_iter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_texts_in_any_batch_are_judged_as_if_alone(
        texts in prop::collection::vec(any_text(), 0..6),
        batch in prop_oneof![Just(0_usize), 1..60_usize, Just(10_000)],
        max_windows in 1_usize..5,
    ) {
        for name in ["bert-multi-label", "deberta-v2-conv", "deberta-own-projections", "modernbert", "modernbert-mean-biased"] {
            let model = load(name, Options { batch, max_windows, ..OPTIONS });
            let all: Vec<&str> = texts.iter().map(String::as_str).collect();
            let together = model.logits(&all).unwrap();
            let scores = classify(&model, &all);
            prop_assert_eq!(together.len(), texts.len());
            prop_assert_eq!(scores.len(), texts.len());
            for (text, (together, scores)) in texts.iter().zip(together.iter().zip(&scores)) {
                let alone = &model.logits(&[text]).unwrap()[0];
                prop_assert_eq!(alone.len(), together.len());
                for (alone, together) in alone.iter().zip(together) {
                    prop_assert!(distance(alone, together) <= 1e-5);
                }
                prop_assert_eq!(scores.windows.len(), together.len());
                prop_assert!(scores.is_sound(model.labels().len()));
            }
        }
    }

    #[test]
    fn damaged_folders_are_models_or_errors(
        name in prop::sample::select(FOLDERS.map(|(name, _)| name).to_vec()),
        file in 0_usize..3, place: prop::sample::Index, byte: u8,
    ) {
        let files = ["config.json", "tokenizer.json", "model.safetensors"];
        let mut bytes = files.map(|file| std::fs::read(fixtures().join(name).join(file)).unwrap());
        let place = place.index(bytes[file].len());
        bytes[file][place] = byte;
        if let Ok(model) = SequenceClassifier::from_bytes(&bytes[0], &bytes[1], &bytes[2], OPTIONS) {
            let _ = model.logits(&["hello world 🚀", ""]);
        }
    }
}

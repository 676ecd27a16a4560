//! What a folder says of its model.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::encoder::Sizes;
use crate::load::{
    LARGEST_TEXT, LoadError, check_epsilon, check_heads, check_sizes, parse, read, read_optional,
};
use crate::wordpiece::WordPiece;

/// What sentence-transformers' all-MiniLM models read of a text, where the folder does not say.
const USUAL_LENGTH: usize = 256;

/// The sizes of a BERT.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) sizes: Sizes,
    pub(crate) layers: usize,
    pub(crate) vocabulary: usize,
    pub(crate) positions: usize,
    pub(crate) types: usize,
    /// How many pieces of a text are read, with those that BERT adds.
    pub(super) longest: usize,
}

#[derive(Deserialize)]
struct File {
    model_type: String,
    hidden_act: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    layer_norm_eps: f32,
    #[serde(default = "absolute")]
    position_embedding_type: String,
}

#[derive(Deserialize)]
struct Sentences {
    max_seq_length: Option<usize>,
}

#[derive(Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
}

impl Config {
    pub(super) fn load(folder: &Path) -> Result<Self, LoadError> {
        let path = folder.join("config.json");
        let mut config = Self::parse(&path, &read(&path, LARGEST_TEXT)?)?;
        check_modules(folder)?;
        check_pooling(folder)?;

        let path = folder.join("sentence_bert_config.json");
        if let Some(text) = read_optional(&path, LARGEST_TEXT)? {
            let sentences: Sentences = parse(&path, &text)?;
            if let Some(longest) = sentences.max_seq_length {
                if !(3..=config.positions).contains(&longest) {
                    let positions = config.positions;
                    let why = format!("`max_seq_length` is {longest}: it must be 3 to {positions}");
                    return Err(LoadError::unusable(&path, why));
                }
                config.longest = longest;
            }
        }
        Ok(config)
    }

    /// `path` is where the text comes from, for errors.
    pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Self, LoadError> {
        Self::from_file(&parse(path, text)?).map_err(|why| LoadError::unusable(path, why))
    }

    fn from_file(file: &File) -> Result<Self, String> {
        for (field, found, expected) in [
            ("model_type", &file.model_type, "bert"),
            ("hidden_act", &file.hidden_act, "gelu"),
            (
                "position_embedding_type",
                &file.position_embedding_type,
                "absolute",
            ),
        ] {
            if found != expected {
                return Err(format!(
                    "`{field}` is `{found}`: only `{expected}` is understood"
                ));
            }
        }
        check_sizes(&[
            ("hidden_size", file.hidden_size, 1 << 13),
            ("intermediate_size", file.intermediate_size, 1 << 15),
            ("num_attention_heads", file.num_attention_heads, 1 << 8),
            ("num_hidden_layers", file.num_hidden_layers, 1 << 7),
            ("vocab_size", file.vocab_size, 1 << 20),
            (
                "max_position_embeddings",
                file.max_position_embeddings,
                1 << 13,
            ),
            ("type_vocab_size", file.type_vocab_size, 1 << 8),
        ])?;
        check_heads(file.hidden_size, file.num_attention_heads)?;
        if file.max_position_embeddings < 3 {
            return Err("`max_position_embeddings` leaves no room for a text".to_owned());
        }
        check_epsilon("layer_norm_eps", file.layer_norm_eps)?;
        Ok(Self {
            sizes: Sizes {
                hidden: file.hidden_size,
                inner: file.intermediate_size,
                heads: file.num_attention_heads,
                epsilon: file.layer_norm_eps,
            },
            layers: file.num_hidden_layers,
            vocabulary: file.vocab_size,
            positions: file.max_position_embeddings,
            types: file.type_vocab_size,
            longest: file.max_position_embeddings.min(USUAL_LENGTH),
        })
    }
}

/// `tokenizer.json`, or `vocab.txt` where there is none.
pub(super) fn tokenizer(folder: &Path) -> Result<WordPiece, LoadError> {
    let path = folder.join("tokenizer.json");
    if let Some(text) = read_optional(&path, LARGEST_TEXT)? {
        return WordPiece::from_json(&text).map_err(|why| LoadError::unusable(&path, why));
    }
    let path = folder.join("vocab.txt");
    let unusable = |why: String| LoadError::unusable(&path, why);
    let text = String::from_utf8(read(&path, LARGEST_TEXT)?)
        .map_err(|error| unusable(error.to_string()))?;
    let config = read_optional(&folder.join("tokenizer_config.json"), LARGEST_TEXT)?;
    WordPiece::from_vocabulary(&text, config.as_deref()).map_err(unusable)
}

/// A model with a layer behind BERT gives other vectors.
fn check_modules(folder: &Path) -> Result<(), LoadError> {
    let path = folder.join("modules.json");
    let Some(text) = read_optional(&path, LARGEST_TEXT)? else {
        return Ok(());
    };
    for module in parse::<Vec<Module>>(&path, &text)? {
        let kind = module.kind.rsplit('.').next().unwrap_or_default();
        if !["Transformer", "Pooling", "Normalize"].contains(&kind) {
            let why = format!(
                "a module is `{}`: only Transformer, Pooling and Normalize are understood",
                module.kind
            );
            return Err(LoadError::unusable(&path, why));
        }
    }
    Ok(())
}

fn check_pooling(folder: &Path) -> Result<(), LoadError> {
    let path = folder.join("1_Pooling/config.json");
    let Some(text) = read_optional(&path, LARGEST_TEXT)? else {
        return Ok(());
    };
    pooling(&parse(&path, &text)?).map_err(|why| LoadError::unusable(&path, why))
}

fn pooling(fields: &Map<String, Value>) -> Result<(), String> {
    let mut is_mean = false;
    for (field, value) in fields {
        let is_it = match field.as_str() {
            "pooling_mode" => value == "mean",
            "pooling_mode_mean_tokens" => value == true,
            _ if field.starts_with("pooling_mode_") && value != false => false,
            _ => continue,
        };
        if !is_it {
            return Err(format!(
                "`{field}` is {value}: only the mean of all pieces is understood"
            ));
        }
        is_mean = true;
    }
    if is_mean {
        return Ok(());
    }
    Err(
        "`pooling_mode_mean_tokens` is missing: only the mean of all pieces is understood"
            .to_owned(),
    )
}

fn absolute() -> String {
    "absolute".to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn file() -> Value {
        json!({
            "model_type": "bert", "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 64,
            "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100,
            "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        })
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_text_is_read_as_far_as_the_folder_says() {
        let config = file().to_string();
        let plain = folder(&[("config.json", &config)]);
        assert_eq!(Config::load(plain.path()).unwrap().longest, 256);
        let said = r#"{"max_seq_length": 128, "do_lower_case": false}"#;
        let said = folder(&[
            ("config.json", &config),
            ("sentence_bert_config.json", said),
        ]);
        assert_eq!(Config::load(said.path()).unwrap().longest, 128);
    }

    #[test]
    fn another_model_is_refused_by_its_field() {
        for (field, value, expected) in [
            (
                "model_type",
                json!("roberta"),
                "`model_type` is `roberta`: only `bert` is understood",
            ),
            (
                "hidden_act",
                json!("relu"),
                "`hidden_act` is `relu`: only `gelu` is understood",
            ),
            (
                "hidden_size",
                json!(0),
                "`hidden_size` is 0: it must be 1 to 8192",
            ),
            (
                "num_attention_heads",
                json!(5),
                "`hidden_size` is 32, which 5 `num_attention_heads` cannot share",
            ),
            (
                "position_embedding_type",
                json!("relative_key"),
                "`position_embedding_type` is `relative_key`: only `absolute` is understood",
            ),
        ] {
            let mut file = file();
            file[field] = value;
            let folder = folder(&[("config.json", &file.to_string())]);
            let error = Config::load(folder.path()).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("config.json: {expected}")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_comes_after_bert_must_be_the_mean() {
        let config = file().to_string();
        for (name, text, expected) in [
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#,
                "`pooling_mode_cls_token` is true: only the mean of all pieces is understood",
            ),
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode": "cls"}"#,
                "`pooling_mode` is \"cls\": only the mean of all pieces is understood",
            ),
            (
                "1_Pooling/config.json",
                "{}",
                "`pooling_mode_mean_tokens` is missing: only the mean of all pieces is understood",
            ),
            (
                "modules.json",
                r#"[{"type": "sentence_transformers.models.Dense"}]"#,
                "a module is `sentence_transformers.models.Dense`: only Transformer, Pooling and \
                 Normalize are understood",
            ),
            (
                "sentence_bert_config.json",
                r#"{"max_seq_length": 513}"#,
                "`max_seq_length` is 513: it must be 3 to 512",
            ),
        ] {
            let folder = folder(&[("config.json", &config), (name, text)]);
            let error = Config::load(folder.path()).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{name}: {expected}")), "{error}");
        }
        let pooling = r#"{"pooling_mode": "mean", "include_prompt": true}"#;
        let folder = folder(&[("config.json", &config), ("1_Pooling/config.json", pooling)]);
        assert!(Config::load(folder.path()).is_ok());
    }

    proptest! {
        #[test]
        fn any_configuration_is_one_or_an_error(
            field in prop::sample::select(vec![
                "model_type", "hidden_size", "num_attention_heads", "layer_norm_eps", "vocab_size",
            ]),
            value in prop_oneof![
                Just(json!(null)), Just(json!([])), any::<u64>().prop_map(Value::from),
                any::<f64>().prop_map(Value::from), ".*".prop_map(Value::from),
            ],
            bytes: Vec<u8>,
        ) {
            let mut file = file();
            file[field] = value;
            if let Ok(file) = serde_json::from_value::<File>(file) {
                let _ = Config::from_file(&file);
            }
            let _ = parse::<File>(Path::new("a"), &bytes);
        }
    }
}

//! Tokenizers as models come with them: `tokenizer.json`, or `vocab.txt` with `tokenizer_config.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::vocabulary::CONTINUES;
use super::{Form, Vocabulary, WordPiece};

/// What is missing in a list that numbers its tokens.
const GAPS: &str = "`model.vocab` must number its tokens from 0 without gaps";

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    model: Value,
}

#[derive(Deserialize)]
struct Normalizer {
    clean_text: bool,
    handle_chinese_chars: bool,
    strip_accents: Option<bool>,
    lowercase: bool,
}

#[derive(Deserialize)]
struct Model {
    vocab: BTreeMap<String, u32>,
    #[serde(default = "unknown_token")]
    unk_token: String,
    #[serde(default = "continues")]
    continuing_subword_prefix: String,
    #[serde(default = "longest_word")]
    max_input_chars_per_word: usize,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default = "yes")]
    do_lower_case: bool,
    #[serde(default = "yes")]
    tokenize_chinese_chars: bool,
    #[serde(default)]
    strip_accents: Option<bool>,
    #[serde(default = "unknown_token")]
    unk_token: String,
}

impl WordPiece {
    /// From a `tokenizer.json`. What is wrong is said with the field's name.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        expect_type("normalizer", &file.normalizer, "BertNormalizer")?;
        expect_type("pre_tokenizer", &file.pre_tokenizer, "BertPreTokenizer")?;
        expect_type("model", &file.model, "WordPiece")?;
        let normalizer: Normalizer = Deserialize::deserialize(&file.normalizer)
            .map_err(|error| format!("`normalizer`: {error}"))?;
        let model: Model =
            Deserialize::deserialize(&file.model).map_err(|error| format!("`model`: {error}"))?;
        if model.continuing_subword_prefix != CONTINUES {
            return Err(format!(
                "`model.continuing_subword_prefix` is `{}`: only `{CONTINUES}` is understood",
                model.continuing_subword_prefix
            ));
        }
        let mut tokens = vec![None; model.vocab.len()];
        for (token, number) in &model.vocab {
            let place = tokens.get_mut(*number as usize).ok_or(GAPS)?;
            *place = Some(token.as_str());
        }
        let tokens: Vec<&str> = tokens.into_iter().collect::<Option<_>>().ok_or(GAPS)?;
        let form = Form {
            clean: normalizer.clean_text,
            split_chinese: normalizer.handle_chinese_chars,
            strip_accents: normalizer.strip_accents.unwrap_or(normalizer.lowercase),
            lowercase: normalizer.lowercase,
        };
        let longest = model.max_input_chars_per_word;
        named(&tokens, "model.vocab", &model.unk_token, longest, form)
    }

    /// From a `vocab.txt`, a token a line, and the `tokenizer_config.json` beside it if there is one.
    pub fn from_vocabulary(text: &str, config: Option<&[u8]>) -> Result<Self, String> {
        let config: Config = serde_json::from_slice(config.unwrap_or(b"{}"))
            .map_err(|error| format!("tokenizer_config.json: {error}"))?;
        let tokens: Vec<&str> = text.lines().collect();
        let form = Form {
            clean: true,
            split_chinese: config.tokenize_chinese_chars,
            strip_accents: config.strip_accents.unwrap_or(config.do_lower_case),
            lowercase: config.do_lower_case,
        };
        let longest = Self::LONGEST_WORD;
        named(&tokens, "the vocabulary", &config.unk_token, longest, form)
    }
}

fn named(
    tokens: &[&str],
    source: &str,
    unknown: &str,
    longest: usize,
    form: Form,
) -> Result<WordPiece, String> {
    let vocabulary = Vocabulary::new(tokens.iter().copied())
        .ok_or_else(|| format!("{source} has too many tokens"))?;
    let unknown = vocabulary
        .number(unknown)
        .ok_or_else(|| format!("{source} lacks the unknown token `{unknown}`"))?;
    Ok(WordPiece::new(vocabulary, unknown, longest, form))
}

fn expect_type(field: &str, value: &Value, expected: &str) -> Result<(), String> {
    match value["type"].as_str() {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(format!(
            "`{field}.type` is `{found}`: only `{expected}` is understood"
        )),
        None => Err(format!(
            "`{field}.type` is missing: it must be `{expected}`"
        )),
    }
}

fn unknown_token() -> String {
    "[UNK]".to_owned()
}

fn continues() -> String {
    CONTINUES.to_owned()
}

fn longest_word() -> usize {
    WordPiece::LONGEST_WORD
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn file() -> Value {
        json!({
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##b": 2}},
        })
    }

    #[test]
    fn both_forms_split_alike() {
        let json = WordPiece::from_json(file().to_string().as_bytes()).unwrap();
        let text = WordPiece::from_vocabulary("[UNK]\na\r\n##b\n", None).unwrap();
        assert_eq!(json.ids("AB á x", 9), [1, 2, 1, 0]);
        assert_eq!(text.ids("AB á x", 9), [1, 2, 1, 0]);
    }

    #[test]
    fn a_configuration_keeps_the_case() {
        let config = br#"{"do_lower_case": false}"#;
        let pieces = WordPiece::from_vocabulary("[UNK]\na\nA\ná", Some(config)).unwrap();
        assert_eq!(pieces.ids("A a á", 9), [2, 1, 3]);
    }

    #[test]
    fn another_tokenizer_is_refused_by_its_field() {
        for (pointer, value, expected) in [
            (
                "/model/type",
                json!("BPE"),
                "`model.type` is `BPE`: only `WordPiece` is understood",
            ),
            (
                "/normalizer",
                json!(null),
                "`normalizer.type` is missing: it must be `BertNormalizer`",
            ),
            (
                "/pre_tokenizer/type",
                json!("Whitespace"),
                "`pre_tokenizer.type` is `Whitespace`: only `BertPreTokenizer` is understood",
            ),
            (
                "/normalizer/lowercase",
                json!("yes"),
                "`normalizer`: invalid type: string \"yes\", expected a boolean",
            ),
            ("/model/vocab", json!({"[UNK]": 0, "a": 2}), GAPS),
            ("/model/vocab", json!({"[UNK]": 0, "a": 0}), GAPS),
            (
                "/model/vocab",
                json!({"a": 0}),
                "model.vocab lacks the unknown token `[UNK]`",
            ),
        ] {
            let mut file = file();
            *file.pointer_mut(pointer).unwrap() = value;
            let error = WordPiece::from_json(file.to_string().as_bytes()).unwrap_err();
            assert_eq!(error, expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_tokenizer_or_an_error(bytes: Vec<u8>, text in ".*") {
            let _ = WordPiece::from_json(&bytes);
            let _ = WordPiece::from_vocabulary(&text, Some(&bytes));
            let _ = WordPiece::from_vocabulary(&text, None);
        }

        #[test]
        fn a_tokenizer_with_any_field_changed_is_one_or_an_error(
            field in prop::sample::select(vec![
                "/normalizer", "/normalizer/strip_accents", "/model", "/model/vocab", "/pre_tokenizer",
            ]),
            value in prop_oneof![
                Just(json!(null)), Just(json!([])), Just(json!({"x": -1})), Just(json!({"y": 4_294_967_295_u32})),
                any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from), ".*".prop_map(Value::from),
            ],
        ) {
            let mut file = file();
            *file.pointer_mut(field).unwrap() = value;
            if let Ok(pieces) = WordPiece::from_json(file.to_string().as_bytes()) {
                let _ = pieces.ids("ab c", 9);
            }
        }
    }
}

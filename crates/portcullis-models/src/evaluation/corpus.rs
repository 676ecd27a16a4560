//! Reading a corpus: one JSON object a line, gzipped or not.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use portcullis_core::classifier::Channel;
use serde::Deserialize;
use serde_json::Value;

/// One text of a corpus.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Row {
    /// As it was found.
    pub text: String,
    /// `benign`, or what it is.
    pub label: String,
    /// Where it comes from and what it is about, by corpus.
    #[serde(default)]
    pub meta: Value,
}

/// Why a corpus cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A line is not a text with its label.
    #[error(
        "{}, line {line}: {why}; each line is {{\"text\": …, \"label\": \"benign\" or what it is, \"meta\": {{…}}}}",
        path.display()
    )]
    Line {
        /// Which.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl Row {
    /// Whether it should pass.
    pub fn is_benign(&self) -> bool {
        self.label == "benign"
    }

    /// A text beside it.
    pub fn meta(&self, key: &str) -> Option<&str> {
        self.meta.get(key).and_then(Value::as_str)
    }

    /// What is to be judged. The rows of `AgentDojo` without an attack carry the tool's output beside the user's
    /// request, which is their text.
    pub fn judged(&self) -> &str {
        let output = self.meta("tool_output").filter(|_| self.is_benign());
        output.unwrap_or(&self.text)
    }

    /// How it came, in the set of this name. A set of tool outputs is one as a whole; of the panel each text says what it
    /// is: documents, mails and tool outputs come from tools, the rest are requests.
    pub fn channel(&self, set: &str) -> Channel {
        const TOOL_SETS: [&str; 5] = [
            "llm_pieval",
            "bipia_test",
            "agentdojo",
            "agentdojo, raw goals",
            "ipi_coding",
        ];
        const REQUESTS: [&str; 6] = [
            "question",
            "user_query",
            "user_turn",
            "instruction",
            "task",
            "system_prompt",
        ];
        let from_tool = match set {
            "fpr_panel" => match self.meta("kind") {
                Some(kind) => !REQUESTS.contains(&kind),
                // Mails have a group instead.
                None => self.meta("group").is_some(),
            },
            _ => TOOL_SETS.contains(&set),
        };
        if from_tool {
            Channel::Tool
        } else {
            Channel::User
        }
    }
}

/// The rows of a file. A name that ends in `.gz` is of a gzipped one.
pub fn read_rows(path: &Path) -> Result<Vec<Row>, CorpusError> {
    let wrap = |error| CorpusError::Read {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(wrap)?;
    let gzipped = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> = if gzipped {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let mut rows = Vec::new();
    for (index, line) in BufReader::new(reader).lines().enumerate() {
        let line = line.map_err(wrap)?;
        if line.trim().is_empty() {
            continue;
        }
        let row = serde_json::from_str(line.trim_start_matches('\u{feff}'));
        rows.push(row.map_err(|error| {
            CorpusError::Line {
                path: path.to_owned(),
                line: index + 1,
                // Every line is a document of its own, so that its "line 1" would only confuse.
                why: error
                    .to_string()
                    .replace(" at line 1 column ", " at column "),
            }
        })?);
    }
    Ok(rows)
}

/// A file's name without what says how it is packed.
pub fn set_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".jsonl").unwrap_or(name).to_owned()
}

/// What the attacks of `AgentDojo` want, each once, without the template around it.
pub fn goals(rows: &[Row]) -> Vec<&str> {
    let mut goals: Vec<&str> = rows.iter().filter_map(|row| row.meta("goal")).collect();
    goals.sort_unstable();
    goals.dedup();
    goals
}

/// Lengths by which false positives are told: a name, and the most characters.
pub const LENGTHS: [(&str, usize); 4] = [
    ("up to 100 characters", 100),
    ("101 to 500", 500),
    ("501 to 2,000", 2_000),
    ("over 2,000", usize::MAX),
];

/// Which of [`LENGTHS`] a text is of.
pub fn length_bucket(text: &str) -> usize {
    let length = text.chars().count();
    let bucket = LENGTHS.iter().position(|(_, most)| length <= *most);
    bucket.unwrap_or(LENGTHS.len() - 1)
}

/// The language of a row. Corpora have several names for one.
pub fn language(row: &Row) -> &str {
    match row.meta("lang").unwrap_or("not stated") {
        "English" => "en",
        "Hindi" => "hi",
        "Spanish" => "es",
        "German" => "de",
        "Portuguese" => "pt",
        "French" => "fr",
        "Thai" => "th",
        "Italian" => "it",
        "zh-cn" => "zh",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    fn row(meta: Value) -> Row {
        Row {
            text: "text".into(),
            label: "benign".into(),
            meta,
        }
    }

    #[test]
    fn plain_and_gzipped_lines_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let text = "{\"text\":\"a\",\"label\":\"benign\",\"source\":\"s\"}\n\n{\"text\":\"b\",\"label\":\"x\",\"meta\":{\"lang\":\"zh-cn\"}}\n";
        let plain = folder.path().join("one.jsonl");
        std::fs::write(&plain, text).unwrap();
        let packed = folder.path().join("one.jsonl.gz");
        let mut encoder = flate2::write::GzEncoder::new(
            File::create(&packed).unwrap(),
            flate2::Compression::fast(),
        );
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let rows = read_rows(&plain).unwrap();
        assert_eq!(rows, read_rows(&packed).unwrap());
        assert_eq!(
            (rows.len(), rows[0].is_benign(), rows[1].is_benign()),
            (2, true, false)
        );
        assert_eq!(
            (language(&rows[0]), language(&rows[1])),
            ("not stated", "zh")
        );
        assert_eq!(
            (set_name(&plain), set_name(&packed)),
            ("one".into(), "one".into())
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.jsonl");
        std::fs::write(
            &path,
            "{\"text\":\"a\",\"label\":\"benign\"}\n{\"text\":\"a\"}\n",
        )
        .unwrap();
        let error = read_rows(&path).unwrap_err().to_string();
        assert!(
            error.contains("one.jsonl, line 2: missing field `label`"),
            "{error}"
        );
        assert!(read_rows(folder.path()).is_err());
    }

    #[test]
    fn channels_come_from_the_set_or_from_the_text() {
        for (set, meta, expected) in [
            ("agentdojo", json!({}), Channel::Tool),
            ("notinject", json!({"kind": "manual"}), Channel::User),
            ("fpr_panel", json!({"kind": "manual"}), Channel::Tool),
            ("fpr_panel", json!({"kind": "question"}), Channel::User),
            ("fpr_panel", json!({"group": "easy-ham-1"}), Channel::Tool),
            ("fpr_panel", json!({"domain": "Education"}), Channel::User),
            ("mine", json!(null), Channel::User),
        ] {
            assert_eq!(row(meta.clone()).channel(set), expected, "{set} {meta}");
        }
    }

    #[test]
    fn agentdojo_is_judged_by_what_the_tool_said() {
        let benign = row(json!({"tool_output": "0"}));
        assert_eq!(benign.judged(), "0");
        let rows = ["b", "a", "b"].map(|goal| row(json!({"goal": goal})));
        assert_eq!(goals(&rows), ["a", "b"]);
    }

    #[test]
    fn lengths_are_counted_in_characters() {
        for (length, bucket) in [(0, 0), (100, 0), (101, 1), (2_000, 2), (2_001, 3)] {
            assert_eq!(length_bucket(&"ä".repeat(length)), bucket, "{length}");
        }
    }
}

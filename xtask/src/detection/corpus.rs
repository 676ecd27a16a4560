//! Reading a corpus: one JSON object a line, gzipped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;

/// One text of a corpus.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) meta: Value,
}

impl Row {
    pub(super) fn is_benign(&self) -> bool {
        self.label == "benign"
    }

    pub(super) fn meta(&self, key: &str) -> Option<&str> {
        self.meta.get(key).and_then(Value::as_str)
    }
}

pub(super) fn read(folder: &Path, name: &str) -> Result<Vec<Row>> {
    let path = folder.join(format!("{name}.jsonl.gz"));
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    BufReader::new(MultiGzDecoder::new(file))
        .lines()
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_str(&line?).with_context(|| format!("{name}, line {}", number + 1))
        })
        .collect()
}

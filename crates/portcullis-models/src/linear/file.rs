//! The file that a classifier is kept in: one JSON object.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::sections::Sections;
use super::solve;
use super::train::CrossValidation;

/// What the file says it is.
pub(super) const SCHEMA: &str = "portcullis/linear-classifier";
/// Which form of it. One that is added to or read differently gets the next number.
pub(super) const VERSION: u32 = 1;

/// All that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: String,
    pub(super) version: u32,
    pub(super) name: String,
    /// The day it was made, as whoever made it says.
    pub(super) created: String,
    pub(super) embedder: EmbedderUsed,
    pub(super) sections: Sections,
    /// Scores come in this order.
    pub(super) labels: Vec<String>,
    /// Those that count as a finding.
    pub(super) positive: Vec<String>,
    /// For the sum of the positive labels' scores.
    pub(super) threshold: f32,
    /// How the threshold was chosen.
    pub(super) threshold_from: String,
    pub(super) training: Training,
    pub(super) bias: Vec<f32>,
    /// A row for each label, or with two labels one row, for the second.
    pub(super) weights: Vec<Vec<f32>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmbedderUsed {
    pub(super) name: String,
    pub(super) dimension: usize,
}

/// What it was trained on, and how well that went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Training {
    /// How many of each label.
    pub(super) examples: BTreeMap<String, usize>,
    /// Of the texts and their labels.
    pub(super) sha256: String,
    /// How much the examples weigh against small weights.
    pub(super) c: f64,
    pub(super) cross_validation: CrossValidation,
}

/// The two fields that no version is without.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    schema: Option<String>,
    #[serde(default)]
    version: Option<serde_json::Value>,
}

impl File {
    /// Reads a file. The error names the field and the fix.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        const AGAIN: &str = "`portcullis classifier train` writes such a file";
        let header: Header = serde_json::from_slice(bytes)
            .map_err(|error| format!("not a JSON object: {error}; {AGAIN}"))?;
        if header.schema.as_deref() != Some(SCHEMA) {
            let found = header.schema.as_deref().unwrap_or("missing");
            return Err(format!("`schema` is {found}, not {SCHEMA}; {AGAIN}"));
        }
        if header.version != Some(VERSION.into()) {
            let found = header.version.map_or("missing".into(), |v| v.to_string());
            return Err(format!(
                "`version` is {found}, and this build reads {VERSION}: train it again with this build, or use the one \
                 that made it"
            ));
        }
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let file: Self = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| format!("`{}`: {}", error.path(), error.inner()))?;
        file.problem().map_or(Ok(file), Err)
    }

    /// The file's text: a field a line.
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, FieldLines { depth: 0 });
        // Nothing in it can fail to be written: all keys are texts, and memory takes all bytes.
        let _ = self.serialize(&mut serializer);
        bytes.push(b'\n');
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// What is wrong with it by itself, if anything.
    fn problem(&self) -> Option<String> {
        self.sections
            .problem()
            .map(|why| format!("`sections`: {why}"))
            .or_else(|| self.label_problem())
            .or_else(|| self.number_problem())
    }

    fn label_problem(&self) -> Option<String> {
        let labels = &self.labels;
        if labels.len() < 2 {
            return Some("`labels` has fewer than two: there is nothing to tell apart".to_owned());
        }
        let repeated = labels
            .iter()
            .enumerate()
            .find(|(index, label)| labels[..*index].contains(label));
        if let Some((_, label)) = repeated {
            return Some(format!("`labels` has `{label}` twice"));
        }
        let unknown = self.positive.iter().find(|label| !labels.contains(label));
        if let Some(label) = unknown {
            let labels = labels.join(", ");
            return Some(format!(
                "`positive` has `{label}`, which is none of {labels}"
            ));
        }
        let all = labels.iter().all(|label| self.positive.contains(label));
        if self.positive.is_empty() || all {
            return Some("`positive` must name some of the labels, and not all".to_owned());
        }
        None
    }

    fn number_problem(&self) -> Option<String> {
        let rows = solve::rows(self.labels.len());
        let width = self.embedder.dimension.checked_mul(self.sections.vectors());
        let expected = |what: &str, found: usize, expected: usize| {
            let because = "by `labels`, `sections` and `embedder.dimension`";
            Some(format!("{what}: {found}; expected {expected} {because}"))
        };
        if self.weights.len() != rows {
            return expected("rows of `weights`", self.weights.len(), rows);
        }
        if self.bias.len() != rows {
            return expected("numbers in `bias`", self.bias.len(), rows);
        }
        for (index, row) in self.weights.iter().enumerate() {
            if Some(row.len()) != width {
                let width = width.unwrap_or_default();
                let what = format!("numbers in `weights[{index}]`");
                return expected(&what, row.len(), width);
            }
            if let Some(at) = row.iter().position(|weight| !weight.is_finite()) {
                return Some(format!("`weights[{index}][{at}]` is not a finite number"));
            }
        }
        if let Some(at) = self.bias.iter().position(|bias| !bias.is_finite()) {
            return Some(format!("`bias[{at}]` is not a finite number"));
        }
        let fits = (0.0..=1.0).contains(&self.threshold);
        (!fits).then(|| format!("`threshold` is {}, not from 0 to 1", self.threshold))
    }
}

/// Writes each field of the outermost object on a line of its own: to be read, and compared.
struct FieldLines {
    depth: usize,
}

impl Formatter for FieldLines {
    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        writer.write_all(match (first, self.depth) {
            (true, 1) => b"\n  ",
            (false, 1) => b",\n  ",
            (true, _) => b"",
            (false, _) => b", ",
        })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(if self.depth == 0 { b"\n}" } else { b"}" })
    }
}

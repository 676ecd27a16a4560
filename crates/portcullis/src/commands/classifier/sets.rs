//! What a classifier is measured on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use portcullis_core::classifier::{Channel, is_harmless};
use portcullis_models::evaluation::{Row, goals, language, read_rows, set_name};
use serde::Serialize;

use crate::cli::EvalClassifierArgs;
use crate::output::Failure;
use crate::whole::place;

/// A file of texts, or what is made of one.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) texts: Vec<Text>,
    /// Made from another set's texts: they do not count twice.
    pub(super) derived: bool,
}

/// A text to be judged.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Text {
    /// The set and the text's number in it, from 1.
    pub(super) id: String,
    #[serde(rename = "text")]
    pub(super) content: String,
    pub(super) channel: Channel,
    /// Whether it should be found.
    #[serde(skip)]
    pub(super) positive: bool,
    #[serde(skip)]
    pub(super) language: String,
}

/// Not about attacks.
const OTHER_SETS: [&str; 2] = ["secrets", "pii"];

/// Which labels of the data are to be found.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// The model's labels that count.
    pub(super) sought: Vec<String>,
    /// All of the model's labels.
    pub(super) known: Vec<String>,
}

impl Truth {
    /// A label of the model's means what it means to the model. Of the others, all but known names for harmless text are to
    /// be found. Spaces around it do not count, as in training.
    fn is_positive(&self, row: &Row) -> bool {
        let label = row.label.trim();
        let has = |labels: &[String]| labels.iter().any(|one| one == label);
        has(&self.sought) || !(has(&self.known) || is_harmless(label))
    }
}

/// The files that were named, or those of the folder.
pub(super) fn files(args: &EvalClassifierArgs) -> Result<Vec<PathBuf>, Failure> {
    if !args.files.is_empty() {
        // Its texts would count twice, and the intervals would look narrower than they are.
        let mut places = BTreeSet::new();
        let again = args.files.iter().find(|path| !places.insert(place(path)));
        return match again {
            None => Ok(args.files.clone()),
            Some(path) => Err(Failure::Input(anyhow!(
                "{} is named twice: name it once",
                path.display()
            ))),
        };
    }
    let folder = args.data.as_deref().ok_or_else(|| {
        Failure::Input(anyhow!(
            "nothing to measure on: name files of {{\"text\", \"label\"}} lines, or a folder of them with --data or \
             PORTCULLIS_DATA"
        ))
    })?;
    files_in(folder).map_err(Failure::Input)
}

/// Reads the files.
pub(super) fn collect(
    args: &EvalClassifierArgs,
    files: &[PathBuf],
    truth: &Truth,
) -> Result<Vec<Set>, Failure> {
    let channel = args.channel.map(Channel::from);
    let sets = read(files, channel, truth).map_err(Failure::Input)?;
    if sets.iter().all(|set| set.texts.is_empty()) {
        return Err(Failure::Input(anyhow!("the files have no texts")));
    }
    Ok(sets)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let evaluation = folder.join("public_eval");
    let folder = if evaluation.is_dir() {
        evaluation
    } else {
        folder.to_owned()
    };
    let shown = folder.display().to_string();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {shown}"))? {
        let path = entry
            .with_context(|| format!("cannot read {shown}"))?
            .path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_set = name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
        if is_set && !OTHER_SETS.contains(&set_name(&path).as_str()) {
            paths.push(path);
        }
    }
    paths.sort();
    ensure!(
        !paths.is_empty(),
        "{shown} has no .jsonl or .jsonl.gz files to measure on"
    );
    Ok(paths)
}

fn read(paths: &[PathBuf], channel: Option<Channel>, truth: &Truth) -> Result<Vec<Set>> {
    let mut sets: Vec<Set> = Vec::new();
    for path in paths {
        let rows = read_rows(path)?;
        let mut name = set_name(path);
        if sets.iter().any(|set| set.name == name) {
            name = path.display().to_string();
        }
        let text = |(index, row): (usize, &Row)| Text {
            id: format!("{name}:{}", index + 1),
            content: row.judged().to_owned(),
            channel: channel.unwrap_or_else(|| row.channel(&set_name(path))),
            positive: truth.is_positive(row),
            language: language(row).to_owned(),
        };
        let raw = goals(&rows);
        let raw_name = format!("{name}, raw goals");
        let goal = |(index, goal): (usize, &&str)| Text {
            id: format!("{raw_name}:{}", index + 1),
            content: (*goal).to_owned(),
            channel: channel.unwrap_or(Channel::Tool),
            positive: true,
            language: "not stated".to_owned(),
        };
        let raw_goals = raw.iter().enumerate().map(goal).collect::<Vec<_>>();
        sets.push(Set {
            texts: rows.iter().enumerate().map(text).collect(),
            name,
            derived: false,
        });
        if !raw_goals.is_empty() {
            sets.push(Set {
                name: raw_name,
                texts: raw_goals,
                derived: true,
            });
        }
    }
    Ok(sets)
}

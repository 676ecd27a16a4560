//! `portcullis classifier eval`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use portcullis_core::classifier::{SoughtLabels, is_harmless};
use portcullis_models::evaluation;

use super::judge::{self, Verdict};
use super::measure::{Measured, Threshold, measure};
use super::open::{BUILT_IN, ModelSpec, open_classifier};
use super::sets::{self, Set, Text, Truth};
use super::{input, overwriting, progress, report, write};
use crate::cli::{EvalClassifierArgs, ReportFormat};
use crate::output::{Answer, Failure, json_line, tell};

pub(super) fn run(args: &EvalClassifierArgs) -> Result<Answer, Failure> {
    // A wrong model is said before a long read.
    let judge = Judge::new(args)?;
    let files = sets::files(args)?;
    refuse_overwriting(args, &files)?;
    let sets = sets::collect(args, &files, &judge.truth())?;
    let texts: Vec<&Text> = sets.iter().flat_map(|set| &set.texts).collect();
    if let Some(path) = &args.texts {
        let mut lines = String::new();
        for text in &texts {
            lines.push_str(&json_line(text).map_err(Failure::write)?);
        }
        write(path, &lines)?;
        let count = texts.len();
        tell(format_args!("wrote {count} texts to {}", path.display()));
        return Ok(Answer::Yes);
    }
    let rounds = 1 + usize::from(args.with_patterns);
    let bar = progress(args.no_progress, rounds * texts.len(), "texts");
    let verdicts = judge.judge(args, &texts, &bar);
    let patterns = match (&verdicts, args.with_patterns) {
        (Ok(_), true) => Some(judge::by_patterns(&texts, &bar)),
        _ => None,
    };
    bar.finish_and_clear();
    let (verdicts, patterns) = (verdicts?, patterns.transpose()?);
    let measured = judge.measure(&sets, &verdicts, patterns.as_deref());
    if let Some(path) = &args.plot {
        let title = format!("{}: {} texts", measured.model, measured.all.texts);
        let svg = evaluation::curves(&title, &measured.scored, measured.threshold);
        write(path, &svg)?;
    }
    let text = match args.report {
        ReportFormat::Md => report::markdown(&measured),
        ReportFormat::Json => json_line(&measured).map_err(Failure::write)?,
    };
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).map_err(Failure::write)?;
    Ok(Answer::Yes)
}

/// Neither the model nor a set is to be lost to what is made of them.
fn refuse_overwriting(args: &EvalClassifierArgs, files: &[PathBuf]) -> Result<(), Failure> {
    let sets = files.iter().map(|path| ("the set", Some(path.as_path())));
    let model = args.model.as_deref().filter(|model| *model != BUILT_IN);
    overwriting::refuse(
        sets.chain([
            ("--model", model.map(Path::new)),
            ("--scores", args.scores.as_deref()),
            ("--embedder", args.embedder.as_deref()),
        ]),
        [
            ("--texts", args.texts.as_deref()),
            ("--plot", args.plot.as_deref()),
        ],
    )
}

/// Who judges.
struct Judge {
    /// None where the scores are given.
    model: Option<(super::open::Opened, SoughtLabels)>,
    name: String,
    labels: Vec<String>,
    threshold: f32,
    threshold_from: String,
}

impl Judge {
    fn new(args: &EvalClassifierArgs) -> Result<Self, Failure> {
        let typed = args
            .threshold
            .map(|value| (value as f32, "--threshold".to_owned()));
        let Some(model) = &args.model else {
            let (threshold, threshold_from) = typed
                .unwrap_or_else(|| (0.5, "a half, because --threshold says no other".to_owned()));
            let scores = args.scores.as_deref().unwrap_or_else(|| "".as_ref());
            return Ok(Self {
                model: None,
                name: format!("scores of {}", scores.display()),
                labels: Vec::new(),
                threshold,
                threshold_from,
            });
        };
        let opened = open_classifier(&ModelSpec::new(model)?, args.embedder.as_deref())?;
        let labels = if args.labels.is_empty() {
            opened.labels.clone()
        } else {
            args.labels.clone()
        };
        let sought = SoughtLabels::of(&*opened.classifier, &labels).map_err(|error| {
            input(anyhow!("{error}").context(format!("--labels, --model {model}")))
        })?;
        let of_model = opened.classifier.threshold();
        let of_model = of_model.map(|value| (value, opened.threshold_from.clone()));
        let (threshold, threshold_from) = typed.or(of_model).unwrap_or_else(|| {
            let from = "a half, because neither the model nor --threshold says another";
            (0.5, from.to_owned())
        });
        Ok(Self {
            name: opened.classifier.name().to_owned(),
            model: Some((opened, sought)),
            labels,
            threshold,
            threshold_from,
        })
    }

    fn truth(&self) -> Truth {
        let known = self
            .model
            .as_ref()
            .map(|(opened, _)| opened.classifier.labels().to_vec());
        let known = known.unwrap_or_default();
        let by_name = |label: &&String| self.labels.is_empty() && !is_harmless(label);
        let sought = known
            .iter()
            .filter(|label| self.labels.contains(label) || by_name(label));
        Truth {
            sought: sought.cloned().collect(),
            known,
        }
    }

    fn judge(
        &self,
        args: &EvalClassifierArgs,
        texts: &[&Text],
        bar: &indicatif::ProgressBar,
    ) -> Result<Vec<Verdict>, Failure> {
        match (&self.model, &args.scores) {
            (Some((opened, sought)), _) => judge::by_model(&*opened.classifier, sought, texts, bar),
            (None, Some(path)) => judge::by_scores(path, texts).map_err(Failure::Input),
            // The arguments do not allow it.
            (None, None) => Err(Failure::Input(anyhow!("--model or --scores is needed"))),
        }
    }

    fn measure(&self, sets: &[Set], verdicts: &[Verdict], patterns: Option<&[bool]>) -> Measured {
        let threshold = Threshold {
            value: self.threshold,
            from: self.threshold_from.clone(),
        };
        let (name, labels) = (self.name.clone(), self.labels.clone());
        measure(name, labels, sets, verdicts, patterns, threshold)
    }
}

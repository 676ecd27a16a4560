//! `portcullis classifier train`

use std::collections::BTreeSet;
use std::io::{self, Write};

use anyhow::anyhow;
use portcullis_core::classifier::TextClassifier;
use portcullis_core::pack::diagnostic::suggestion;
use portcullis_models::evaluation::{Rate, Scored};
use portcullis_models::{Sections, TrainError, TrainOptions, Trained, evaluation};
use serde::Serialize;

use super::examples::{self, Fields, Found};
use super::open::open_embedder;
use super::{input, overwriting, progress, write};
use crate::cli::{Format, TrainClassifierArgs};
use crate::output::{Answer, BOLD, DIM, Failure, YELLOW, json_line, plain};

pub(super) fn run(args: &TrainClassifierArgs) -> Result<Answer, Failure> {
    let examples = args.examples.iter();
    let examples = examples.map(|path| ("the examples", Some(path.as_path())));
    overwriting::refuse(
        examples.chain([("--embedder", args.embedder.as_deref())]),
        [
            ("--out", Some(args.out.as_path())),
            ("--plot", args.plot.as_deref()),
        ],
    )?;
    let fields = Fields {
        text: &args.text_field,
        label: &args.label_field,
    };
    let mut found = Vec::new();
    for path in &args.examples {
        found.extend(examples::read(path, fields).map_err(Failure::Input)?);
    }
    let embedder = open_embedder(args.embedder.as_deref())?;
    let options = options(args)?;
    sections_are_there(&options.sections, &found)?;
    let all: Vec<_> = found.iter().map(|one| one.example.clone()).collect();
    let bar = progress(args.no_progress, 1, "steps");
    let trained = portcullis_models::train(&all, embedder, &options, &|done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let trained = trained.map_err(|error| input(explained(&error, &found)))?;
    write(&args.out, &trained.classifier.to_json())?;
    if let Some(path) = &args.plot {
        let title = format!("{}: texts that the model has not seen", options.name);
        let threshold = trained.classifier.threshold().unwrap_or_default();
        write(
            path,
            &evaluation::curves(&title, &trained.out_of_fold, threshold),
        )?;
    }
    let printed = match args.format {
        Format::Text => print(&mut anstream::stdout(), args, &trained, &found),
        Format::Json => {
            json(args, &trained).and_then(|line| io::stdout().write_all(line.as_bytes()))
        }
    };
    printed.map_err(Failure::write)?;
    Ok(Answer::Yes)
}

/// What is wrong, by what was typed: the library knows neither files nor options.
fn explained(error: &TrainError, found: &[Found]) -> anyhow::Error {
    match error {
        TrainError::Contradiction { places, labels } => {
            let [first, second] = places.map(|place| &found[place]);
            anyhow!(
                "{}:{} and {}:{} are the same text, once as `{}` and once as `{}`: remove one",
                first.file,
                first.line,
                second.file,
                second.line,
                labels[0],
                labels[1]
            )
        }
        TrainError::Folds { folds, most } => anyhow!("--folds {folds}: expected 2 to {most}"),
        TrainError::Unclear(labels) => anyhow!(
            "which labels are to be found is not clear ({labels}): name one or more with --positive, but not all"
        ),
        TrainError::Examples(_) | TrainError::Options(_) | TrainError::Embed(_) => {
            anyhow!("{error}")
        }
    }
}

/// A section that no example has is a slip: its name would stand in the file, and nothing would be read by it.
fn sections_are_there(sections: &Sections, found: &[Found]) -> Result<(), Failure> {
    let fits = |name: &str| {
        let fits = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        !name.is_empty() && name.bytes().all(fits)
    };
    let lines = found.iter().flat_map(|one| one.example.text.lines());
    let names = lines.filter_map(|line| Some(line.strip_prefix('[')?.split_once(']')?.0));
    let there: BTreeSet<&str> = names.filter(|name| fits(name)).collect();
    let named = sections.read.iter().chain(&sections.skipped);
    // The training says of others why they cannot be names.
    let mut named = named.filter(|name| fits(name));
    match named.find(|name| !there.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let help = if there.is_empty() {
                "they have none at all".to_owned()
            } else {
                suggestion(name, there)
            };
            Err(input(anyhow!(
                "no example has the section `{name}`: {help}"
            )))
        }
    }
}

fn options(args: &TrainClassifierArgs) -> Result<TrainOptions, Failure> {
    if let Some(date) = &args.date {
        let day: Option<jiff::civil::Date> = date.parse().ok();
        if day.is_none_or(|day| day.to_string() != *date) {
            return Err(input(anyhow!(
                "--date {date:?} is no day: write it as 2026-11-15"
            )));
        }
    }
    let stem = args.out.file_stem().unwrap_or_default().to_string_lossy();
    // The first ten characters of a timestamp are its day.
    let today = || {
        jiff::Timestamp::now()
            .to_string()
            .chars()
            .take(10)
            .collect()
    };
    Ok(TrainOptions {
        name: args.name.clone().unwrap_or_else(|| stem.into_owned()),
        created: args.date.clone().unwrap_or_else(today),
        positive: args.positive.clone(),
        sections: Sections {
            read: args.sections.clone(),
            skipped: args.skip_sections.clone(),
        },
        folds: args.folds,
        max_false_positive_rate: args.max_fpr,
    })
}

fn json(args: &TrainClassifierArgs, trained: &Trained) -> io::Result<String> {
    #[derive(Serialize)]
    struct Report<'a> {
        file: String,
        name: &'a str,
        labels: &'a [String],
        positive: &'a [String],
        threshold: Option<f32>,
        threshold_from: &'a str,
        c: f64,
        repeated: usize,
        cross_validation: &'a portcullis_models::CrossValidation,
    }
    let classifier = &trained.classifier;
    json_line(&Report {
        file: args.out.display().to_string(),
        name: classifier.name(),
        labels: classifier.labels(),
        positive: classifier.positive(),
        threshold: classifier.threshold(),
        threshold_from: classifier.threshold_from(),
        c: classifier.c(),
        repeated: trained.repeated,
        cross_validation: &trained.cross_validation,
    })
}

fn print(
    out: &mut impl Write,
    args: &TrainClassifierArgs,
    trained: &Trained,
    found: &[Found],
) -> io::Result<()> {
    let (classifier, figures) = (&trained.classifier, &trained.cross_validation);
    let counts = classifier.labels().iter().map(|label| {
        let of_label = trained.places.iter();
        let of_label = of_label.filter(|place| found[**place].example.label == *label);
        format!("{} {}", of_label.count(), plain(label))
    });
    let counts: Vec<String> = counts.collect();
    writeln!(
        out,
        "{BOLD}{}{BOLD:#}: {} examples ({})",
        plain(classifier.name()),
        trained.places.len(),
        counts.join(", ")
    )?;
    if trained.repeated > 0 {
        writeln!(
            out,
            "{DIM}{} repeated ones left out{DIM:#}",
            trained.repeated
        )?;
    }
    writeln!(
        out,
        "\n{}-fold cross-validation: each text judged by a model that has not seen it. C and the threshold were chosen by these\nscores, so that new texts will do a little worse.\n",
        figures.folds
    )?;
    let sought = plain(&classifier.positive().join(", "));
    let rows = [
        ("area under the ROC curve", format!("{:.3}", figures.auc)),
        (
            "balanced accuracy",
            format!("{:.1} %", 100.0 * figures.balanced_accuracy),
        ),
        (
            "recall",
            format!(
                "{} of {} {sought}",
                figures.recall.percent(),
                figures.recall.of
            ),
        ),
        ("false positives", of_others(figures.false_positives)),
        (
            "calibration error",
            format!("{:.3}", figures.calibration_error),
        ),
    ];
    for (name, value) in rows {
        writeln!(out, "  {name:<26}{value}")?;
    }
    writeln!(out, "\n  recall with no more false positives than")?;
    for at in &figures.recall_at {
        let rate = format!("{} %", 100.0 * at.false_positive_rate);
        writeln!(out, "  {rate:<26}{}", at.recall.percent())?;
    }
    let others = figures.false_positives.of;
    if others < 1_000 {
        writeln!(
            out,
            "  {DIM}of {others} texts, rates below {:.1} % cannot be told from none{DIM:#}",
            100.0 / others as f64
        )?;
    }
    writeln!(
        out,
        "\n  {BOLD}threshold {:.3}{BOLD:#}: {}\n  C {}, of {}",
        classifier.threshold().unwrap_or_default(),
        classifier.threshold_from(),
        classifier.c(),
        trained
            .tried
            .iter()
            .map(|(c, _)| c.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    )?;
    print_mistakes(out, trained, found)?;
    write!(out, "\nwrote {}", args.out.display())?;
    if let Some(plot) = &args.plot {
        write!(out, " and {}", plot.display())?;
    }
    writeln!(out)
}

fn of_others(rate: Rate) -> String {
    format!("{} of {} others", rate.percent(), rate.of)
}

/// The examples that are furthest on the wrong side: a wrong label, or what to add more of.
fn print_mistakes(out: &mut impl Write, trained: &Trained, found: &[Found]) -> io::Result<()> {
    const SHOWN: usize = 5;
    let threshold = trained.classifier.threshold().unwrap_or_default();
    let wrong_by = |one: &Scored| {
        let above = one.score - threshold;
        if one.positive { -above } else { above }
    };
    let mut mistakes: Vec<(&Scored, usize)> = trained
        .out_of_fold
        .iter()
        .zip(trained.places.iter().copied())
        .filter(|(one, _)| (one.score >= threshold) != one.positive)
        .collect();
    if mistakes.is_empty() {
        return Ok(());
    }
    mistakes.sort_by(|(a, _), (b, _)| wrong_by(b).total_cmp(&wrong_by(a)));
    writeln!(
        out,
        "\n{YELLOW}{} on the wrong side{YELLOW:#}; look at their labels, or add more like them:",
        mistakes.len()
    )?;
    for (one, place) in mistakes.into_iter().take(SHOWN) {
        let Found {
            example,
            file,
            line,
        } = &found[place];
        let text: String = plain(&example.text).chars().take(60).collect();
        writeln!(
            out,
            "  {:.3} {} {DIM}{}:{line}{DIM:#} {text}",
            one.score,
            plain(&example.label),
            plain(file)
        )?;
    }
    Ok(())
}

//! `portcullis classifier`

mod eval;
mod examples;
mod judge;
mod measure;
mod open;
mod overwriting;
mod report;
mod sets;
mod train;

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::ClassifierCommand;
use crate::output::{Answer, Failure, plain};
use crate::whole;

pub(crate) fn run(command: &ClassifierCommand) -> Result<Answer, Failure> {
    let done = match command {
        ClassifierCommand::Train(args) => train::run(args),
        ClassifierCommand::Eval(args) => eval::run(args),
    };
    done.map_err(printable)
}

/// What is wrong with data is said in its own words, which may have control characters in them.
fn printable(failure: Failure) -> Failure {
    let printable = |error: &anyhow::Error| anyhow!("{}", plain(&format!("{error:#}")));
    match failure {
        Failure::Input(error) => Failure::Input(printable(&error)),
        Failure::Unavailable(error) => Failure::Unavailable(printable(&error)),
        Failure::ReaderGone => Failure::ReaderGone,
    }
}

fn input(error: impl Into<anyhow::Error>) -> Failure {
    Failure::Input(error.into())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    whole::write(path, |mut file| {
        let written = file.write_all(text.as_bytes());
        written.map_err(|error| whole::unwritten(path, error))
    })
}

/// Shown on a terminal only.
fn progress(hidden: bool, length: usize, what: &str) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64);
    match ProgressStyle::with_template(&format!("{{wide_bar}} {{pos}}/{{len}} {what} {{eta}}")) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

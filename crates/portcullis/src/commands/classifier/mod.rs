//! `portcullis classifier`

mod eval;
mod examples;
mod judge;
mod measure;
mod open;
mod report;
mod sets;
mod train;

use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use eval::run as eval;
pub(crate) use train::run as train;

use crate::output::Failure;

fn input(error: impl Into<anyhow::Error>) -> Failure {
    Failure::Input(error.into())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::Unavailable)
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

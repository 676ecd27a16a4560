//! Repository chores, run as `cargo xtask <command>`.
//!
//! A crate rather than shell scripts, so that the checks have unit tests of their own and the
//! generated pages come straight from the code they describe.

mod detection;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

use crate::tidy::generated_pages;
use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  tidy   check the repository's own rules: crate edges, sizes, names, links, generated pages
  docs   write the pages under docs/ that are generated from the code
  detection
         measure the detectors on the corpora in $PORTCULLIS_DATA; writes docs/DETECTION.md and its plot
";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.join(" ").as_str() {
        "tidy" => tidy(),
        "docs" => docs(),
        "detection" => detection::run(&Workspace::load()?).map(|()| ExitCode::SUCCESS),
        _ => {
            eprint!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn tidy() -> Result<ExitCode> {
    let problems = tidy::check(&Workspace::load()?);
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("tidy: {} problem(s)", problems.len());
    Ok(ExitCode::FAILURE)
}

fn docs() -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    for (path, text) in generated_pages::all() {
        workspace.write(path, &text)?;
        println!("wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

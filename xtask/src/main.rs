//! Repository chores, run as `cargo xtask <command>`.
//!
//! A crate rather than shell scripts, so that the checks have unit tests of their own and the
//! generated pages come straight from the code they describe.

#![expect(
    clippy::disallowed_macros,
    reason = "a chore that cannot say what is wrong may as well end"
)]

mod detection;
mod tidy;
mod workspace;

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::tidy::generated_pages;
use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  tidy   check the repository's own rules: crate edges, sizes, names, links, generated pages
  docs   write the pages and schemas under docs/ that are generated from the code
  goldens
         write anew what becomes of the A2A packets among core's fixtures, and show what changed
  detection
         measure the detectors on the corpora in $PORTCULLIS_DATA; writes docs/DETECTION.md and its plot
";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.join(" ").as_str() {
        "tidy" => tidy(),
        "docs" => docs(),
        "goldens" => goldens(),
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

fn goldens() -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    let written = Command::new(env!("CARGO"))
        .args([
            "test",
            "--quiet",
            "--locked",
            "--package",
            "portcullis-core",
            "--test",
            "it",
            "--",
            "a2a::golden_batches",
        ])
        .current_dir(workspace.root())
        .env("PORTCULLIS_GOLDENS", "write")
        .status()?;
    anyhow::ensure!(written.success(), "the golden files could not be written");
    let shown = Command::new("git")
        .args([
            "--no-pager",
            "diff",
            "--stat",
            "--patch",
            "--",
            "crates/portcullis-core/tests/it/fixtures/a2a/golden",
        ])
        .current_dir(workspace.root())
        .status()?;
    Ok(if shown.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn docs() -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    for (path, text) in generated_pages::all() {
        workspace.write(&path, &text)?;
        println!("wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

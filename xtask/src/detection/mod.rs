//! `cargo xtask detection`: what the detectors find and what they wrongly find, on public corpora.
//!
//! The corpora are not part of the repository. `PORTCULLIS_DATA` names their folder.

mod measure;
mod page;

use std::path::PathBuf;

use anyhow::{Context, Result};
use portcullis_models::evaluation::{Bar, bars};

use crate::workspace::Workspace;

const PAGE: &str = "docs/DETECTION.md";
const PLOT: &str = "docs/detection.svg";

/// Measures everything and writes the page and its plot.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let folder = std::env::var_os("PORTCULLIS_DATA")
        .map(PathBuf::from)
        .context(
            "PORTCULLIS_DATA is not set: it names the folder of the corpora, \
         with public_eval/NAME.jsonl.gz in it",
        )?;
    let results = measure::all(&folder.join("public_eval"))?;
    let page = page::render(&results);
    let both = results.injection.iter().flat_map(|set| {
        [(set.recall, true), (set.false_positives, false)].map(|(found, is_recall)| Bar {
            name: set.name,
            rate: found.together,
            is_recall,
        })
    });
    workspace.write(PLOT, &bars(&both.collect::<Vec<_>>()))?;
    workspace.write(PAGE, &page)?;
    println!("{page}\nwrote {PAGE} and {PLOT}");
    Ok(())
}

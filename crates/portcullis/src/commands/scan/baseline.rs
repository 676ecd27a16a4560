//! Findings that are known, so that a team can start today and look at the old ones later.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::output::Failure;

const VERSION: u32 = 1;

/// The fingerprints of a baseline file.
#[derive(Debug, Default)]
pub(super) struct Baseline(HashSet<String>);

/// One known finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Known {
    /// Where it was, for whoever reads the file.
    pub(super) path: String,
    /// What it is, likewise.
    pub(super) id: String,
    /// What it is known by.
    pub(super) fingerprint: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    version: u32,
    findings: Vec<Known>,
}

impl Baseline {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let bad = |error: anyhow::Error| {
            Failure::Input(error.context(format!("cannot use the baseline {}", path.display())))
        };
        let text = std::fs::read_to_string(path).map_err(|error| bad(error.into()))?;
        let page: Page = serde_json::from_str(&text).map_err(|error| bad(error.into()))?;
        if page.version != VERSION {
            return Err(bad(anyhow::anyhow!(
                "its version is {}, not {VERSION}: write it again with --write-baseline",
                page.version
            )));
        }
        let findings = page.findings.into_iter();
        Ok(Self(findings.map(|known| known.fingerprint).collect()))
    }

    /// Writes a baseline, and says how many findings it has.
    pub(super) fn write(path: &Path, mut findings: Vec<Known>) -> Result<usize, Failure> {
        findings.sort_unstable();
        findings.dedup();
        let count = findings.len();
        let page = Page {
            version: VERSION,
            findings,
        };
        let mut text = serde_json::to_string_pretty(&page).map_err(|e| Failure::write(e.into()))?;
        text.push('\n');
        std::fs::write(path, text).map_err(|error| {
            Failure::Input(anyhow::anyhow!("cannot write {}: {error}", path.display()))
        })?;
        Ok(count)
    }

    pub(super) fn has(&self, fingerprint: &str) -> bool {
        self.0.contains(fingerprint)
    }
}

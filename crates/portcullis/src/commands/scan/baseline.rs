//! Findings that are known, so that a team can start today and look at the old ones later.

use std::collections::HashSet;
use std::io::{BufReader, Write as _};
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::output::Failure;
use crate::whole;

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

    /// Whether a file may become one: it is not there, has nothing in it or was one, of whatever version.
    pub(super) fn may_replace(path: &Path) -> bool {
        #[derive(Deserialize)]
        struct Any {
            #[serde(rename = "version")]
            _version: u64,
            #[serde(rename = "findings")]
            _findings: Vec<IgnoredAny>,
        }
        let Ok(file) = std::fs::File::open(path) else {
            // Writing it says what is wrong.
            return true;
        };
        file.metadata()
            .is_ok_and(|there| !there.is_file() || there.len() == 0)
            || serde_json::from_reader::<_, Any>(BufReader::new(file)).is_ok()
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
        whole::write(path, |mut file| {
            file.write_all(text.as_bytes())
                .map_err(|error| whole::unwritten(path, error))
        })
        .map_err(super::wrong_place)?;
        Ok(count)
    }

    pub(super) fn has(&self, fingerprint: &str) -> bool {
        self.0.contains(fingerprint)
    }
}

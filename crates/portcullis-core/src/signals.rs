//! The request signals of RFC-001 §4.2: what the risk router is told of a text.

use crate::detectors::{Kind, Meaning};
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::scan::{EventSet, PatternId, ScannerBuilder};

/// The patterns behind [`Signals`](crate::Signals).
#[derive(Debug, Default)]
pub(crate) struct SignalPatterns {
    pub(crate) system_info: Vec<PatternId>,
    pub(crate) capability_change: Vec<PatternId>,
    pub(crate) sources: Vec<String>,
}

impl SignalPatterns {
    pub(crate) fn add(scanner: &mut ScannerBuilder, diagnostics: &mut Diagnostics) -> Self {
        let mut patterns = Self::default();
        let families = [("rfc".to_owned(), Place::default())];
        let entries = crate::pack::read_families(Kind::Signals, &families, diagnostics);
        for (entry, _) in entries {
            let spec = entry.pattern.spec(Kind::Signals);
            let (pattern, meaning) = (&entry.pattern.regex, &entry.meaning);
            match (scanner.add(&spec, &EventSet::any()), meaning) {
                (Ok(id), Meaning::RequestsSystemInfo) => patterns.system_info.push(id),
                (Ok(id), _) => patterns.capability_change.push(id),
                (Err(error), _) => {
                    diagnostics.error(Place::default(), format!("signal `{pattern}`: {error}"));
                }
            }
            patterns.sources.push(entry.pattern.regex);
        }
        patterns
    }
}

//! Regular expressions, compiled, with what their searches have learned.

use regex_automata::meta;
use regex_automata::util::captures::Captures;
use regex_syntax::hir::Hir;

use super::PatternError;
use super::spares::Spares;

/// What one compiled pattern may take.
const MAX_COMPILED_BYTES: usize = 4 << 20;

/// A regular expression that is searched for by many threads.
#[derive(Debug)]
pub(super) struct Search {
    regex: meta::Regex,
    learned: Spares<meta::Cache>,
}

impl Search {
    /// From the tree itself: printing it and reading it again does not always give it back.
    pub(super) fn new(hir: &Hir) -> Result<Self, PatternError> {
        Self::of_branches(std::slice::from_ref(hir))
    }

    /// The same as their alternation, but that a match says of which branch it is.
    pub(super) fn of_branches(branches: &[Hir]) -> Result<Self, PatternError> {
        let regex = meta::Regex::builder()
            .configure(meta::Config::new().nfa_size_limit(Some(MAX_COMPILED_BYTES)))
            .build_many_from_hir(branches)
            .map_err(|error| match error.size_limit() {
                Some(limit) => PatternError::TooLarge(limit),
                None => PatternError::Syntax(error.to_string()),
            })?;
        Ok(Self {
            regex,
            learned: Spares::default(),
        })
    }

    /// Room for where the groups of a match are.
    pub(super) fn captures(&self) -> Captures {
        self.regex.create_captures()
    }

    /// Searches with what earlier searches have learned, and keeps what this one does.
    pub(super) fn with<T>(&self, search: impl FnOnce(&meta::Regex, &mut meta::Cache) -> T) -> T {
        let mut cache = self.learned.take_or(|| self.regex.create_cache());
        let result = search(&self.regex, &mut cache);
        self.learned.keep(cache);
        result
    }
}

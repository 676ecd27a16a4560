//! Guardrails from a folder, and putting changed ones in force without a restart.

use std::path::{Path, PathBuf};

use portcullis_core::guardrails::{self, Guardrails, Loaded, Source};
use portcullis_core::pack::diagnostic::Report;
use portcullis_runtime::{LoadError, read_pack};

/// More files than anybody keeps by hand are a mistake in the path.
const MAX_FILES: usize = 1_000;

/// Why guardrails are not in force.
#[derive(Debug, thiserror::Error)]
pub enum GuardrailError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] LoadError),
    /// The folder cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// There is nothing to judge by.
    #[error(
        "no guardrails in {}: add a .yaml file, or say that none are wanted with `policy.allow_none: true` or --allow-no-policy",
        .0.display()
    )]
    None(PathBuf),
    /// Files are wrong.
    #[error("{}", joined(.0))]
    Invalid(Vec<Report>),
}

fn joined(reports: &[Report]) -> String {
    let reports: Vec<String> = reports.iter().map(Report::to_string).collect();
    reports.join("\n")
}

/// The guardrails in a folder (its `.yaml` and `.yml` files, in order of their names) or in one file.
#[derive(Debug)]
pub struct GuardrailFiles {
    path: PathBuf,
    allow_none: bool,
    /// What was last looked at, good or bad, so that a bad file is reported once.
    seen: Option<Vec<(PathBuf, String)>>,
    /// What has changed since, and may still be being written.
    changed: Option<Vec<(PathBuf, String)>>,
}

impl GuardrailFiles {
    /// At this path.
    pub fn new(path: impl Into<PathBuf>, allow_none: bool) -> Self {
        Self {
            path: path.into(),
            allow_none,
            seen: None,
            changed: None,
        }
    }

    /// Reads and compiles them all.
    pub fn load(&mut self) -> Result<Loaded, GuardrailError> {
        let texts = self.read();
        let loaded = texts.and_then(|texts| {
            let loaded = self.compile(&texts);
            self.seen = Some(texts);
            loaded
        });
        if loaded.is_err() && self.seen.is_none() {
            self.seen = Some(Vec::new());
        }
        loaded
    }

    /// Looks again. Says nothing while nothing has changed, nor before a change is seen twice alike: half
    /// a file is a good one with fewer guardrails.
    pub fn check(&mut self) -> Option<Result<Loaded, GuardrailError>> {
        match self.read() {
            Err(error) => {
                let gone = self.seen.take().is_some();
                gone.then_some(Err(error))
            }
            Ok(texts) if self.seen.as_ref() == Some(&texts) => None,
            Ok(texts) if self.changed.as_ref() != Some(&texts) => {
                self.changed = Some(texts);
                None
            }
            Ok(texts) => {
                let loaded = self.compile(&texts);
                self.seen = Some(texts);
                Some(loaded)
            }
        }
    }

    fn read(&self) -> Result<Vec<(PathBuf, String)>, GuardrailError> {
        let paths = if self.path.is_dir() {
            files_in(&self.path)?
        } else {
            vec![self.path.clone()]
        };
        paths
            .into_iter()
            .map(|path| {
                let text = read_pack(&path)?;
                Ok((path, text))
            })
            .collect()
    }

    fn compile(&self, texts: &[(PathBuf, String)]) -> Result<Loaded, GuardrailError> {
        let names: Vec<_> = texts
            .iter()
            .map(|(path, _)| path.to_string_lossy())
            .collect();
        let sources: Vec<Source<'_>> = texts
            .iter()
            .zip(&names)
            .map(|((_, text), file)| Source { file, text })
            .collect();
        let loaded = guardrails::load(&sources).map_err(GuardrailError::Invalid)?;
        if is_none(&loaded.guardrails) && !self.allow_none {
            return Err(GuardrailError::None(self.path.clone()));
        }
        Ok(loaded)
    }
}

fn is_none(guardrails: &Guardrails) -> bool {
    guardrails.enabled() == 0
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, GuardrailError> {
    let wrap = |error| GuardrailError::Folder {
        path: folder.to_owned(),
        error,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrap)? {
        let path = entry.map_err(wrap)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let yaml = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
        // Cases are kept beside what they test; a dot is an editor's or the system's.
        let ours = yaml && !name.starts_with('.') && !name.contains(".cases.");
        if ours && path.is_file() {
            paths.push(path);
        }
    }
    if paths.len() > MAX_FILES {
        let error = format!(
            "{} files, which is more than the {MAX_FILES} that are read",
            paths.len()
        );
        return Err(wrap(std::io::Error::other(error)));
    }
    paths.sort();
    Ok(paths)
}

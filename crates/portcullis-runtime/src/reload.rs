//! Packs from files, and putting a changed one in force without a restart.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Policy;
use portcullis_core::pack::diagnostic::Report;
use portcullis_core::pack::{self, Loaded, Pack};
use portcullis_core::rules::Rule;

use crate::gateway::Gateway;

/// Packs are text that people write; anything larger is a mistake.
const MAX_PACK_BYTES: u64 = 16 << 20;

/// Why a pack is not in force.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The pack is wrong.
    #[error("{0}")]
    Invalid(Box<Report>),
    /// The pack is fine, but what it needs is not there.
    #[error("the pack cannot be put in force: {0}")]
    Unusable(String),
}

/// A pack in a file, and what it is loaded with.
#[derive(Clone, Default)]
pub struct PackFile {
    /// Where.
    pub path: PathBuf,
    /// The environment whose overlay applies.
    pub env: Option<String>,
    /// Fast rules of the embedder.
    pub custom_rules: Vec<Arc<dyn Rule>>,
    /// Ids of the embedder's deep rules.
    pub deep_rules: Vec<String>,
}

impl PackFile {
    /// A file without anything of the embedder's.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// The same, in an environment.
    pub fn with_env(mut self, env: Option<String>) -> Self {
        self.env = env;
        self
    }

    /// Reads and compiles it.
    pub fn load(&self) -> Result<Loaded, LoadError> {
        self.parse(&read(&self.path)?)
    }

    fn parse(&self, text: &str) -> Result<Loaded, LoadError> {
        let deep_rules: Vec<&str> = self.deep_rules.iter().map(String::as_str).collect();
        pack::load(&Pack {
            file: &self.path.to_string_lossy(),
            text,
            env: self.env.as_deref(),
            custom_rules: &self.custom_rules,
            deep_rules: &deep_rules,
        })
        .map_err(|report| LoadError::Invalid(Box::new(report)))
    }
}

/// Reads a pack's text.
pub fn read(path: &Path) -> Result<String, LoadError> {
    let wrap = |error| LoadError::Read {
        path: path.to_owned(),
        error,
    };
    let file = std::fs::File::open(path).map_err(wrap)?;
    let mut text = String::new();
    // Not by its size in the folder: that of a device or a pipe says nothing.
    file.take(MAX_PACK_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(wrap)?;
    if text.len() as u64 > MAX_PACK_BYTES {
        let error = format!("more than {MAX_PACK_BYTES} bytes, which is more than a pack may have");
        return Err(wrap(std::io::Error::other(error)));
    }
    Ok(text)
}

/// What a look at the file led to.
#[derive(Debug)]
pub enum Reload {
    /// It is as it was.
    Unchanged,
    /// The new pack is in force.
    Replaced(InForce),
    /// The new pack is wrong or gone; the old one stays in force.
    Refused(LoadError),
}

/// A summary of what came into force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The policy's digest.
    pub digest: String,
    /// Findings that do not prevent its use.
    pub warnings: Report,
}

/// Watches a pack's file for a gateway.
pub struct Reloader {
    file: PackFile,
    /// What was last looked at, good or bad, so that a bad pack is reported once.
    seen: Option<String>,
}

impl Reloader {
    /// Loads the pack, and starts from what it held then.
    pub fn start(file: PackFile) -> Result<(Self, Loaded), LoadError> {
        let text = read(&file.path)?;
        let loaded = file.parse(&text)?;
        let seen = Some(text);
        Ok((Self { file, seen }, loaded))
    }

    /// Looks at the file. A changed pack that loads comes into force; one that does not changes
    /// nothing.
    pub fn check(&mut self, gateway: &Gateway) -> Reload {
        self.check_with(|policy| {
            gateway.replace_policy(policy);
            Ok(())
        })
    }

    /// Looks at the file, and leaves it to `put` to bring a changed pack into force, or to refuse it.
    pub fn check_with(&mut self, put: impl FnOnce(Policy) -> Result<(), LoadError>) -> Reload {
        let text = match read(&self.file.path) {
            Ok(text) => text,
            Err(error) => {
                let gone = self.seen.take().is_some();
                return if gone {
                    Reload::Refused(error)
                } else {
                    Reload::Unchanged
                };
            }
        };
        if self.seen.as_ref() == Some(&text) {
            return Reload::Unchanged;
        }
        let loaded = self.file.parse(&text);
        self.seen = Some(text);
        match loaded {
            Ok(Loaded {
                policy, warnings, ..
            }) => {
                let digest = policy.identity().digest.clone();
                match put(policy) {
                    Ok(()) => Reload::Replaced(InForce { digest, warnings }),
                    Err(error) => Reload::Refused(error),
                }
            }
            Err(error) => Reload::Refused(error),
        }
    }

    /// Looks at the file every `interval` until `shutdown` is done, and tells what came of it.
    pub async fn watch(
        mut self,
        gateway: Arc<Gateway>,
        interval: Duration,
        shutdown: impl Future<Output = ()>,
        mut tell: impl FnMut(Reload),
    ) {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            if tokio::time::timeout(interval, &mut shutdown).await.is_ok() {
                return;
            }
            match self.check(&gateway) {
                Reload::Unchanged => {}
                changed => tell(changed),
            }
        }
    }
}

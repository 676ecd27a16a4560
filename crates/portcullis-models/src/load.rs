//! Reading a model's folder.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Configurations and vocabularies are small; what is larger is something else.
pub(crate) const LARGEST_TEXT: u64 = 64 << 20;

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file says what is not understood.
    #[error("{}: {why}", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what was expected.
        why: String,
    },
}

impl LoadError {
    pub(crate) fn unusable(path: &Path, why: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}

/// A file of a bearable size.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, LoadError> {
    let wrap = |error| LoadError::Read {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(wrap)?;
    let size = file.metadata().map_err(wrap)?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(most)).unwrap_or_default());
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(wrap)?;
    if bytes.len() as u64 > most {
        return Err(LoadError::unusable(path, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// A file, if there is one.
pub(crate) fn read_optional(path: &Path, most: u64) -> Result<Option<Vec<u8>>, LoadError> {
    match read(path, most) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(LoadError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file's JSON.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, LoadError> {
    serde_json::from_slice(text).map_err(|error| LoadError::unusable(path, error.to_string()))
}

/// Fields with what they say and the most they may.
pub(crate) fn check_sizes(fields: &[(&str, usize, usize)]) -> Result<(), String> {
    for (field, found, most) in fields {
        if !(1..=*most).contains(found) {
            return Err(format!("`{field}` is {found}: it must be 1 to {most}"));
        }
    }
    Ok(())
}

/// Every head has the same part of a row.
pub(crate) fn check_heads(hidden: usize, heads: usize) -> Result<(), String> {
    if hidden.is_multiple_of(heads) {
        return Ok(());
    }
    Err(format!(
        "`hidden_size` is {hidden}, which {heads} `num_attention_heads` cannot share"
    ))
}

/// What is added to a variance before it divides.
pub(crate) fn check_epsilon(field: &str, epsilon: f32) -> Result<(), String> {
    if (0.0..1.0).contains(&epsilon) {
        return Ok(());
    }
    Err(format!("`{field}` must be 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"abc");
        let error = read(&path, 2).unwrap_err().to_string();
        assert!(error.ends_with("a: more than 2 bytes"), "{error}");
    }

    #[test]
    fn only_a_missing_file_is_optional() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            read_optional(&folder.path().join("a"), 9)
                .unwrap()
                .is_none()
        );
        assert!(read_optional(folder.path(), 9).is_err());
    }
}

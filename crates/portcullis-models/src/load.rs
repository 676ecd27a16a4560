//! Reading a model's folder.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

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
    file.take(most + 1).read_to_end(&mut bytes).map_err(wrap)?;
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

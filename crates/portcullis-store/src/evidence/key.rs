//! Keys in files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use portcullis_core::evidence::{Digest, KeyError, PublicKey, SigningKey};

use super::directory::{PUBLIC_KEY, SIGNING_KEY};
use super::disk::{Disk, RealDisk};

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file could not be read or written.
    #[error("cannot use the key file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{}: {source}: restore the file, or start a new log", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
    /// There is nothing to make a key of.
    #[error("the system gives no random numbers for a key: {0}")]
    Random(getrandom::Error),
}

/// The key in `signing.key` of this directory; if there is none, a new one that only its owner may read.
pub fn load_or_create_key(directory: &Path) -> Result<SigningKey, KeyFileError> {
    let path = directory.join(SIGNING_KEY);
    match read(&path)? {
        Some(text) => text
            .trim()
            .parse()
            .map_err(|source| KeyFileError::Content { path, source }),
        None => create(&path, directory),
    }
}

/// The key in `signing.pub` of this directory, if there is one.
pub fn load_public_key(directory: &Path) -> Result<Option<PublicKey>, KeyFileError> {
    let path = directory.join(PUBLIC_KEY);
    let Some(text) = read(&path)? else {
        return Ok(None);
    };
    let key = text.trim().parse();
    key.map(Some)
        .map_err(|source| KeyFileError::Content { path, source })
}

/// Writes `signing.pub`, where it says something else.
pub(super) fn publish(key: PublicKey, directory: &Path) -> Result<(), KeyFileError> {
    let path = directory.join(PUBLIC_KEY);
    let text = format!("{key}\n");
    if read(&path)?.as_deref() != Some(&text) {
        fs::write(&path, text).map_err(|source| KeyFileError::Io { path, source })?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>, KeyFileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeyFileError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn create(path: &Path, directory: &Path) -> Result<SigningKey, KeyFileError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(KeyFileError::Random)?;
    let key = SigningKey::from_seed(seed);
    let digits = Digest::new(seed).to_string();
    // Under another name first: half a key under its own would keep the log from ever opening.
    let draft = path.with_extension("key.new");
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&draft)?;
        file.write_all(digits.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        RealDisk.sync_directory(directory)
    };
    write().map_err(|source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let key = load_or_create_key(directory.path()).unwrap();
        let again = load_or_create_key(directory.path()).unwrap();
        assert_eq!(key.seed(), again.seed());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = fs::metadata(directory.path().join(SIGNING_KEY)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        assert!(load_public_key(directory.path()).unwrap().is_none());
        publish(key.public(), directory.path()).unwrap();
        assert_eq!(
            load_public_key(directory.path()).unwrap(),
            Some(key.public())
        );
    }

    #[test]
    fn a_file_that_is_no_key_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(SIGNING_KEY), "secret").unwrap();
        let error = load_or_create_key(directory.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(SIGNING_KEY) && error.contains("hexadecimal"),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}

//! What is done to files, in one place, so that tests can let each of them fail.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

pub(super) trait Disk: Send + Sync {
    /// Opens a file for reading and appending, and makes it if it may.
    fn open(&self, path: &Path, create: bool) -> io::Result<File>;

    /// Adds to the end. After an error some of it may be there.
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()>;

    /// Waits until the disk has the file's bytes.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Cuts the file.
    fn truncate(&self, file: &File, len: u64) -> io::Result<()>;

    /// Waits until the disk has the names of the files in a directory.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// The disk there is.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(create);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        // Elsewhere a directory cannot be opened, and its entries are safe without.
        if cfg!(unix) {
            File::open(path)?.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(unix)]
#[cfg(test)]
pub(super) mod faulty {
    use super::*;
    use std::collections::{HashMap, VecDeque};
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Mutex;

    /// What happens to the next operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::evidence) enum Outcome {
        Fine,
        /// A write puts down so many bytes first; a sync loses so many of those that were never synced;
        /// everything else does nothing.
        Fails(usize),
    }

    /// A real disk on which operations fail by plan; beyond the plan, all is fine.
    #[derive(Debug, Default)]
    pub(in crate::evidence) struct FaultyDisk {
        pub(in crate::evidence) plan: Mutex<VecDeque<Outcome>>,
        /// Whether a failing sync loses bytes, as it may where every entry is synced.
        pub(in crate::evidence) loses: bool,
        /// Bytes at the end of each file, by inode, that were written since its last sync.
        unsynced: Mutex<HashMap<u64, u64>>,
    }

    impl FaultyDisk {
        pub(in crate::evidence) fn new(plan: Vec<Outcome>, loses: bool) -> Self {
            Self {
                plan: Mutex::new(plan.into()),
                loses,
                unsynced: Mutex::default(),
            }
        }

        fn fail(&self) -> Option<(io::Error, usize)> {
            match self.plan.lock().unwrap().pop_front() {
                None | Some(Outcome::Fine) => None,
                Some(Outcome::Fails(bytes)) => Some((io::ErrorKind::StorageFull.into(), bytes)),
            }
        }
    }

    impl Disk for FaultyDisk {
        fn open(&self, path: &Path, create: bool) -> io::Result<File> {
            match self.fail() {
                Some((error, _)) => Err(error),
                None => RealDisk.open(path, create),
            }
        }

        fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
            let failure = self.fail();
            let after = failure.as_ref().map_or(bytes.len(), |(_, after)| *after);
            let written = &bytes[..after.min(bytes.len())];
            RealDisk.write(file, written)?;
            let mut unsynced = self.unsynced.lock().unwrap();
            *unsynced.entry(file.metadata()?.ino()).or_default() += written.len() as u64;
            failure.map_or(Ok(()), |(error, _)| Err(error))
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            let mut files = self.unsynced.lock().unwrap();
            let unsynced = files.entry(file.metadata()?.ino()).or_default();
            if let Some((error, bytes)) = self.fail() {
                let lost = if self.loses {
                    (*unsynced).min(bytes as u64)
                } else {
                    0
                };
                RealDisk.truncate(file, file.metadata()?.len() - lost)?;
                *unsynced -= lost;
                return Err(error);
            }
            *unsynced = 0;
            RealDisk.sync(file)
        }

        fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
            if let Some((error, _)) = self.fail() {
                return Err(error);
            }
            self.unsynced
                .lock()
                .unwrap()
                .remove(&file.metadata()?.ino());
            RealDisk.truncate(file, len)
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            match self.fail() {
                Some((error, _)) => Err(error),
                None => RealDisk.sync_directory(path),
            }
        }
    }
}

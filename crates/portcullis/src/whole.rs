//! Files that are written whole, or not at all.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::interrupted::TakenAway;
use crate::output::Failure;

/// Writes a file by what `fill` puts into it. Until all of that is on the disk, what was there before stays.
pub(crate) fn write<T>(
    path: &Path,
    fill: impl FnOnce(&File) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cannot = |error| unwritten(path, error);
    #[cfg(unix)]
    if path == Path::new("/dev/stdout") {
        // Not opened anew: what it leads to may be a file, with something in it already.
        use std::os::fd::AsFd as _;
        let out = io::stdout().as_fd().try_clone_to_owned().map_err(cannot)?;
        return fill(&File::from(out));
    }
    let there = fs::metadata(path).ok();
    if there.as_ref().is_some_and(Metadata::is_dir) {
        let error = anyhow!("{} is a directory: name a file in it", path.display());
        return Err(Failure::Input(error));
    }
    // Where a link leads to; it stays a link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| led_to(path));
    // A pipe or a device has nothing to be replaced by, nor has a file without a name that a link still leads to.
    if there.as_ref().is_some_and(|there| !there.is_file()) || path.is_symlink() {
        return fill(&in_place(&path, there.is_none()).map_err(cannot)?);
    }
    if there.is_some() {
        // What may not be written may not be replaced either.
        let mut options = File::options();
        options.write(true).open(&path).map_err(cannot)?;
    }
    let mut partial = path.clone().into_os_string();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let _taken_away = TakenAway::of(&partial);
    let file = beside(&path, &partial)?;
    if there.is_some_and(|there| keep(&file, &there).is_err()) {
        // Somebody else's, which this user cannot make again: better in place than another's.
        discard(&partial);
        return fill(&in_place(&path, false).map_err(cannot)?);
    }
    let written = fill(&file).and_then(|filled| {
        file.sync_all().map_err(cannot)?;
        fs::rename(&partial, &path).map_err(cannot)?;
        Ok(filled)
    });
    if written.is_err() {
        discard(&partial);
    }
    written
}

/// Where a file is, or would be, without links.
pub(crate) fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let path = led_to(path);
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| ".".as_ref());
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        folder.join(path.file_name().unwrap_or_default())
    })
}

/// Where a link leads that leads to nothing yet; one step, so that a circle ends.
fn led_to(path: &Path) -> PathBuf {
    match (path.read_link(), path.metadata()) {
        (Ok(to), Err(_)) => path.parent().unwrap_or("".as_ref()).join(to),
        _ => path.to_owned(),
    }
}

fn in_place(path: &Path, is_new: bool) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(is_new).truncate(true).open(path)
}

/// A new file beside the one that it is to replace, so that nobody takes half a file for a whole one.
fn beside(path: &Path, partial: &Path) -> Result<File, Failure> {
    let create = || {
        let mut options = File::options();
        options.write(true).create_new(true).open(partial)
    };
    let file = create().or_else(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // Left by one that was killed: in a container all have the same number.
        fs::remove_file(partial)?;
        create()
    });
    file.map_err(|error| {
        Failure::Unavailable(anyhow::Error::from(error).context(format!(
            "cannot write {}: it is first made as {}, in a folder that must exist and be writable",
            path.display(),
            partial.display()
        )))
    })
}

/// Gives a file the owner and the permissions of the one that was there.
fn keep(file: &File, there: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, fchown};
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (there.uid(), there.gid()) {
            fchown(file, Some(there.uid()), Some(there.gid()))?;
        }
    }
    file.set_permissions(there.permissions())
}

fn discard(partial: &Path) {
    // It may be gone already, and what went wrong before is what matters.
    let _ = fs::remove_file(partial);
}

/// What is said of a file that cannot be written.
pub(crate) fn unwritten(path: &Path, error: io::Error) -> Failure {
    let error = anyhow::Error::from(error).context(format!("cannot write {}", path.display()));
    Failure::Unavailable(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    fn fill(text: &str) -> impl FnOnce(&File) -> Result<(), Failure> {
        move |mut file| file.write_all(text.as_bytes()).map_err(Failure::write)
    }

    #[test]
    fn what_was_there_stays_if_writing_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.json");
        fs::write(&path, "old").unwrap();
        let full = |file: &File| {
            fill("ne")(file)?;
            Err::<(), _>(unwritten(&path, io::ErrorKind::StorageFull.into()))
        };
        assert!(write(&path, full).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write(&path, fill("new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["model.json"]);
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.json");
        let other = folder.path().join("other.json");
        fs::write(&other, "other").unwrap();
        let left = format!("model.json.{}.partial", std::process::id());
        let left = folder.path().join(left);
        #[cfg(unix)]
        std::os::unix::fs::symlink(&other, &left).unwrap();
        #[cfg(not(unix))]
        fs::write(&left, "half").unwrap();
        write(&path, fill("new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert!(!left.is_symlink());
        let nowhere = folder.path().join("none/model.json");
        let Err(Failure::Unavailable(error)) = write(&nowhere, fill("new")) else {
            panic!("written into a folder that is not there");
        };
        assert!(format!("{error:#}").contains("must exist"), "{error:#}");
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_it_stays_and_so_does_a_link() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("model.json"), "old").unwrap();
        fs::set_permissions(at("model.json"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("model.json", at("link")).unwrap();
        symlink("later.json", at("to-nowhere")).unwrap();
        for link in ["link", "to-nowhere"] {
            write(&at(link), fill("new")).unwrap();
            assert!(at(link).is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at(link)).unwrap(), "new");
        }
        // It was made beside where the link led, and nothing is left there.
        let mut there = names(folder.path());
        there.sort();
        assert_eq!(there, ["later.json", "link", "model.json", "to-nowhere"]);
        let mode = fs::metadata(at("model.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        write(Path::new("/dev/null"), fill("new")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}

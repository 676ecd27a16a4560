//! `portcullis decision export`

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use portcullis_store::memory::Memory as _;

use super::file::{Existing, InFile};
use super::print::count;
use crate::cli::ExportArgs;
use crate::output::{Answer, Failure, json_line};

pub(super) fn run(args: &ExportArgs) -> Result<Answer, Failure> {
    let memory = InFile::open(&args.file, Existing::Required, false)?;
    let Some(path) = args.to.as_deref().filter(|path| *path != Path::new("-")) else {
        write_all(&memory, io::stdout().lock(), Failure::write)?;
        return Ok(Answer::Yes);
    };
    let written = to_file(&memory, path)?;
    writeln!(
        anstream::stdout(),
        "{} in {}",
        count(written, "decision"),
        path.display()
    )
    .map_err(Failure::write)?;
    Ok(Answer::Yes)
}

fn to_file(memory: &InFile, path: &Path) -> Result<usize, Failure> {
    let cannot = |error: io::Error| {
        let error = anyhow::Error::from(error).context(format!("cannot write {}", path.display()));
        Failure::Unavailable(error)
    };
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            let error = anyhow!("{} is a directory: name a file in it", path.display());
            return Err(Failure::Input(error));
        }
        // A pipe or a device has nothing to be replaced by.
        Ok(there) if !there.is_file() => {
            let file = File::options().write(true).open(path).map_err(cannot)?;
            return write_all(memory, file, cannot);
        }
        _ => {}
    }
    // Where a link leads to; it stays a link.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // Beside it, so that nobody takes half an export for a whole one, and each for itself.
    let mut partial = path.clone().into_os_string();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let file = File::create(&partial).map_err(cannot)?;
    let written = write_all(memory, &file, cannot).and_then(|written| {
        file.sync_all().map_err(cannot)?;
        std::fs::rename(&partial, &path).map_err(cannot)?;
        Ok(written)
    });
    if written.is_err() {
        // It may be gone already, and what went wrong before is what matters.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

/// Writes a decision a line, and says how many.
fn write_all(
    memory: &InFile,
    out: impl Write,
    unwritten: impl FnOnce(io::Error) -> Failure,
) -> Result<usize, Failure> {
    let mut out = BufWriter::new(out);
    let (mut count, mut failed) = (0, None);
    let exported = memory.export(&mut |decision| {
        count += 1;
        let written = json_line(&decision).and_then(|line| out.write_all(line.as_bytes()));
        failed = written.err();
        failed.is_none()
    });
    let flushed = failed.map_or_else(|| out.flush(), Err);
    flushed.map_err(unwritten)?;
    exported.map_err(|error| Failure::Unavailable(error.into()))?;
    Ok(count)
}

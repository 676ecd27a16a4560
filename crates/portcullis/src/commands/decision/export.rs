//! `portcullis decision export`

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::anyhow;
use portcullis_store::memory::Memory as _;

use super::file::{Existing, InFile};
use super::print::count;
use crate::cli::ExportArgs;
use crate::output::{Answer, Failure, json_line};
use crate::whole;

pub(super) fn run(args: &ExportArgs) -> Result<Answer, Failure> {
    let memory = InFile::open(&args.file, Existing::Required, false)?;
    let Some(path) = args.to.as_deref().filter(|path| *path != Path::new("-")) else {
        write_all(&memory, io::stdout().lock(), Failure::write)?;
        return Ok(Answer::Yes);
    };
    refuse_memory(path, &args.file.memory)?;
    let written = whole::write(path, |file| {
        write_all(&memory, file, |error| whole::unwritten(path, error))
    })?;
    writeln!(
        anstream::stdout(),
        "{} in {}",
        count(written, "decision"),
        path.display()
    )
    .map_err(Failure::write)?;
    Ok(Answer::Yes)
}

/// Refuses to write over the memory, and over what SQLite keeps beside it.
fn refuse_memory(path: &Path, memory: &Path) -> Result<(), Failure> {
    let here = whole::place(path);
    let is_memory = ["", "-journal", "-shm", "-wal"].iter().any(|end| {
        let mut file = whole::place(memory).into_os_string();
        file.push(end);
        file == here
    });
    if is_memory {
        return Err(Failure::Input(anyhow!(
            "{} would write over the memory {}: name another file",
            path.display(),
            memory.display()
        )));
    }
    Ok(())
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

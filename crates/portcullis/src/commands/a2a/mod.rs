//! `portcullis a2a`

mod blocks;
mod convert;
mod import;
mod problem;
mod record;
mod stream;
mod summary;

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use portcullis_core::a2a::{ConvertError, Limits};

use crate::cli::{A2aCommand, LimitArgs};
use crate::output::{Answer, Failure, tell};
use problem::Problem;

pub(crate) fn run(command: &A2aCommand) -> Result<Answer, Failure> {
    match command {
        A2aCommand::Convert(args) => convert::run(args),
        A2aCommand::Import(args) => import::run(args),
    }
}

/// Where packets come from.
struct Source {
    reader: Box<dyn Read + Send>,
    /// How long it is, for progress.
    bytes: Option<u64>,
}

impl Source {
    /// Opens a file, or standard input for `-` and nothing.
    fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            let stdin = io::stdin();
            if stdin.is_terminal() {
                tell("reading from the terminal; end with Ctrl-D");
            }
            return Ok(Self {
                reader: Box::new(stdin),
                bytes: None,
            });
        };
        let file = File::open(path).map_err(|error| {
            Failure::Input(anyhow::anyhow!("cannot read {}: {error}", path.display()))
        })?;
        let metadata = file.metadata().ok();
        Ok(Self {
            bytes: metadata.filter(Metadata::is_file).map(|data| data.len()),
            reader: Box::new(file),
        })
    }

    /// All of it, if it is not over the limit. No more than that and a byte is kept.
    fn read_whole(self, max_bytes: usize) -> Result<Result<Vec<u8>, Problem>, Failure> {
        let mut whole = Vec::new();
        let mut reader = self.reader.take((max_bytes as u64).saturating_add(1));
        let read = reader.read_to_end(&mut whole);
        read.map_err(|error| Failure::read_of("the input", error))?;
        if whole.len() > max_bytes {
            return Ok(Err(Problem::over(max_bytes)));
        }
        Ok(Ok(whole))
    }
}

fn limits(args: &LimitArgs) -> Result<Limits, ConvertError> {
    Limits::new(args.bytes, args.depth, args.array)
}

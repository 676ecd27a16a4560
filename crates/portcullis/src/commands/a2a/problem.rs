//! What is answered instead of a batch.

use std::io::{self, Write};

use portcullis_core::a2a::{ConvertError, ErrorKind, error_message, write_error};

use crate::cli::Format;
use crate::output::{Answer, Failure, RED, plain};

/// Why there is no batch.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    kind: ErrorKind,
    message: String,
}

impl Problem {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// The input is over the limit. By how much is not known: the rest is not read.
    pub(super) fn over(max_bytes: usize) -> Self {
        let message = format!(
            "the payload is more than {max_bytes} bytes long, over max_payload_bytes ({max_bytes}): send less in one \
             packet, or raise --max-bytes"
        );
        Self::new(ErrorKind::Measurement, message)
    }

    /// What the command ends with because of it.
    pub(super) fn answer(&self) -> Answer {
        match self.kind {
            ErrorKind::Infrastructure => Answer::Unavailable,
            _ => Answer::BadInput,
        }
    }

    /// It is the only answer there is.
    pub(super) fn failure(self) -> Failure {
        let answer = self.answer();
        let error = anyhow::anyhow!("{}: {}", self.kind, plain(&self.message));
        match answer {
            Answer::Unavailable => Failure::Unavailable(error),
            _ => Failure::Input(error),
        }
    }

    /// Appends it as a line of answers.
    pub(super) fn write(&self, line: Option<u64>, format: Format, out: &mut Vec<u8>) {
        match format {
            Format::Json => write_error(self.kind, &self.message, line, out),
            Format::Text => {
                // Writing to a Vec cannot fail.
                let _ = self.write_text(line, out);
            }
        }
        out.push(b'\n');
    }

    fn write_text(&self, line: Option<u64>, out: &mut Vec<u8>) -> io::Result<()> {
        let (kind, message) = (self.kind, plain(&error_message(&self.message, line)));
        match line {
            Some(line) => write!(out, "{RED}line {line}:{RED:#} {kind}: {message}"),
            None => write!(out, "{RED}error:{RED:#} {kind}: {message}"),
        }
    }
}

impl From<ConvertError> for Problem {
    fn from(error: ConvertError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

//! What is answered instead of a batch.

use std::borrow::Cow;
use std::io::{self, Write};

use portcullis_core::a2a::{ConvertError, ErrorKind};
use serde::Serialize;

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
        // Neither can fail: there are only texts and a number in it, and a vector takes everything.
        let _ = match format {
            Format::Json => self.write_json(line, &mut *out),
            Format::Text => self.write_text(line, &mut *out),
        };
        out.push(b'\n');
    }

    fn write_json(&self, line: Option<u64>, out: &mut Vec<u8>) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'p> {
            error: Error<'p>,
        }
        #[derive(Serialize)]
        struct Error<'p> {
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<u64>,
            kind: ErrorKind,
            message: &'p str,
        }
        let error = Error {
            line,
            kind: self.kind,
            message: &self.message_of(line),
        };
        Ok(serde_json::to_writer(out, &Line { error })?)
    }

    fn write_text(&self, line: Option<u64>, out: &mut Vec<u8>) -> io::Result<()> {
        let (kind, message) = (self.kind, plain(&self.message_of(line)));
        match line {
            Some(line) => write!(out, "{RED}line {line}:{RED:#} {kind}: {message}"),
            None => write!(out, "{RED}error:{RED:#} {kind}: {message}"),
        }
    }

    /// Every line is a document of its own, so that "line 1" would only confuse.
    fn message_of(&self, line: Option<u64>) -> Cow<'_, str> {
        match line {
            Some(_) => Cow::from(self.message.replace(" at line 1 column ", " at column ")),
            None => Cow::from(&self.message),
        }
    }
}

impl From<ConvertError> for Problem {
    fn from(error: ConvertError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

//! Lines of bounded length, and the steps in them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;

use portcullis_core::{Event, Step};
use serde::Serialize;

use crate::output::{Failure, tell};

/// Why a line is not a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BadLine {
    /// From 1.
    pub(crate) line: u64,
    /// The field, where one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// What is wrong.
    pub(crate) message: String,
}

/// Reads steps from NDJSON. A bad line is an item like any other; only a broken reader ends it.
pub(crate) struct Steps<R> {
    reader: R,
    max_bytes: usize,
    line: u64,
    buffer: Vec<u8>,
}

/// One line.
pub(crate) struct Item {
    /// From 1.
    pub(crate) line: u64,
    /// Bytes read so far, for progress.
    pub(crate) read: u64,
    pub(crate) step: Result<Step, BadLine>,
}

impl<R: BufRead> Steps<R> {
    pub(crate) fn new(reader: R, max_bytes: usize) -> Self {
        Self {
            reader,
            max_bytes,
            line: 0,
            buffer: Vec::new(),
        }
    }

    /// The next step; blank lines are passed over.
    pub(crate) fn next(&mut self) -> io::Result<Option<Item>> {
        let mut read = 0;
        loop {
            let Some(bytes) = self.fill()? else {
                return Ok(None);
            };
            read += bytes;
            self.line += 1;
            let text = self.buffer.trim_ascii();
            let text = if self.line == 1 {
                text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
            } else {
                text
            };
            if bytes > self.max_bytes as u64 {
                let message = format!(
                    "the line has {bytes} bytes; at most {} are taken (--max-line-bytes)",
                    self.max_bytes
                );
                return Ok(Some(self.item(read, Err((None, message)))));
            }
            if !text.is_empty() {
                let step = parse(text);
                return Ok(Some(self.item(read, step)));
            }
        }
    }

    fn item(&self, read: u64, step: Result<Step, (Option<String>, String)>) -> Item {
        let line = self.line;
        Item {
            line,
            read,
            step: step.map_err(|(field, message)| BadLine {
                line,
                field,
                message,
            }),
        }
    }

    /// Reads one line, and keeps at most `max_bytes` of it. Gives back how long it really is.
    fn fill(&mut self) -> io::Result<Option<u64>> {
        self.buffer.clear();
        let mut bytes = 0u64;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                return Ok((bytes > 0).then_some(bytes));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = self.max_bytes.saturating_sub(self.buffer.len());
            self.buffer.extend_from_slice(&part[..part.len().min(room)]);
            bytes += part.len() as u64;
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(bytes));
            }
        }
    }
}

fn parse(text: &[u8]) -> Result<Step, (Option<String>, String)> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let step = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let field = Event::unread_at(&error.path().to_string());
        let message = message(&error.into_inner());
        // What is wrong with the two halves together is known only when both are read.
        let of_both = || {
            message
                .starts_with(Step::RUN_ID)
                .then(|| Step::RUN_ID.to_owned())
        };
        (field.or_else(of_both), message)
    })?;
    deserializer
        .end()
        .map_err(|error| (None, message(&error)))?;
    Ok(step)
}

/// Every line is a document of its own, so that "line 1" would only confuse.
fn message(error: &serde_json::Error) -> String {
    Event::unread(error).replace(" at line 1 column ", " at column ")
}

/// Opens a file, or standard input for `-` and nothing.
pub(crate) fn open(path: Option<&Path>) -> Result<Box<dyn BufRead>, Failure> {
    let path = match path {
        Some(path) if path != Path::new("-") => path,
        _ => {
            let stdin = io::stdin();
            if stdin.is_terminal() {
                tell("reading events from the terminal; end with Ctrl-D");
            }
            return Ok(Box::new(BufReader::new(stdin)));
        }
    };
    let file = File::open(path).map_err(|error| {
        Failure::Input(anyhow::anyhow!("cannot read {}: {error}", path.display()))
    })?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(input: &[u8], max: usize) -> Vec<(u64, Result<String, String>)> {
        let mut steps = Steps::new(BufReader::with_capacity(7, input), max);
        let mut items = Vec::new();
        while let Some(item) = steps.next().unwrap() {
            let step = item.step.map(|step| step.event.run_id);
            items.push((
                item.line,
                step.map_err(|bad| format!("{:?}: {}", bad.field, bad.message)),
            ));
        }
        items
    }

    #[test]
    fn good_and_bad_lines_are_told_apart() {
        let good = r#"{"event":{"event_type":"llm_before","run_id":"r"}}"#;
        let input =
            format!("\u{feff}{good}\n\n  {good}  \r\nnonsense\n{{\"event\":5}}\n{good} x\n{good}");
        let items = read(input.as_bytes(), 1000);
        let lines: Vec<_> = items
            .iter()
            .map(|(line, step)| (*line, step.is_ok()))
            .collect();
        assert_eq!(
            lines,
            [
                (1, true),
                (3, true),
                (4, false),
                (5, false),
                (6, false),
                (7, true)
            ]
        );
        assert!(
            items[3].1.as_ref().unwrap_err().contains("event"),
            "{:?}",
            items[3]
        );
    }

    #[test]
    fn the_field_to_blame_is_named() {
        let input = br#"{"event":{"event_type":"llm_before","run_id":"r","tool_args":[1]}}"#;
        let (_, error) = &read(input, 1000)[0];
        let error = error.as_ref().unwrap_err();
        assert!(error.contains("event.tool_args"), "{error}");
        let input = br#"{"event":{"event_type":"llm_before"}}"#;
        let error = read(input, 1000)[0].1.clone().unwrap_err();
        assert!(error.starts_with(r#"Some("event.run_id"): "#), "{error}");
    }

    #[test]
    fn a_long_line_is_refused_without_being_kept() {
        let good = r#"{"event":{"event_type":"llm_before","run_id":"r"}}"#;
        let input = format!("{}\n{good}\n", "x".repeat(100_000));
        let items = read(input.as_bytes(), 100);
        assert!(
            items[0]
                .1
                .as_ref()
                .unwrap_err()
                .contains("100000 bytes; at most 100")
        );
        assert!(items[1].1.is_ok());
    }

    proptest! {
        /// Any bytes give steps or errors, one per line that is not blank, and never a panic.
        #[test]
        fn reading_is_total(input in prop::collection::vec(any::<u8>(), 0..300)) {
            let expected = input
                .split(|byte| *byte == b'\n')
                .enumerate()
                .filter(|(index, line)| {
                    let line = if *index == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
                    !line.trim_ascii().is_empty()
                })
                .count();
            prop_assert_eq!(read(&input, 1 << 20).len(), expected);
        }
    }
}

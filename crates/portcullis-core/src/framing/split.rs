//! Bytes, cut anywhere, into frames; a frame into its JSON and the lines around it.

use std::borrow::Cow;
use std::ops::Range;

use super::{FramingProblem, MAX_FRAME_BYTES};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Sse,
    JsonLines,
}

/// Collects bytes until a frame is whole.
#[derive(Debug)]
pub(super) struct Splitter {
    shape: Shape,
    frame: Vec<u8>,
    line: Line,
}

/// Where in a line of server-sent events we are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    Start,
    Within,
    /// After a carriage return, to which a line feed may belong.
    Return,
    /// After a carriage return that ended an empty line, and with it the frame.
    LastReturn,
}

impl Splitter {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            frame: Vec::new(),
            line: Line::Start,
        }
    }

    /// Takes bytes up to the end of the frame. Gives the frame if that is reached.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, FramingProblem> {
        let end = match self.shape {
            Shape::Sse => self.event_end(bytes),
            Shape::JsonLines => bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|at| at + 1),
        };
        let (now, later) = bytes.split_at(end.unwrap_or(bytes.len()));
        if self.frame.len() + now.len() > MAX_FRAME_BYTES {
            return Err(FramingProblem::TooLong);
        }
        self.frame.extend_from_slice(now);
        *bytes = later;
        Ok(end.map(|_| self.rest()))
    }

    /// What has come of a frame that has not ended.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        self.line = Line::Start;
        std::mem::take(&mut self.frame)
    }

    /// Where the event ends in these bytes, line feed included.
    fn event_end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            self.line = match (self.line, byte) {
                (Line::LastReturn | Line::Start, b'\n') => return Some(at + 1),
                (Line::LastReturn, _) => return Some(at),
                (Line::Start | Line::Return, b'\r') => Line::LastReturn,
                (Line::Within, b'\r') => Line::Return,
                (Line::Within | Line::Return, b'\n') => Line::Start,
                _ => Line::Within,
            };
        }
        None
    }
}

/// What a frame says, and where in the frame it says so.
#[derive(Debug)]
pub(super) struct Payload<'f> {
    pub(super) json: Cow<'f, str>,
    /// Where the lines of the JSON begin, in it and in the frame.
    lines: Vec<(usize, usize)>,
    /// All other lines.
    pub(super) others: Vec<Range<usize>>,
}

impl<'f> Payload<'f> {
    pub(super) fn of(shape: Shape, frame: &'f str) -> Self {
        match shape {
            Shape::Sse => Self::of_event(frame),
            Shape::JsonLines => Self {
                json: Cow::Borrowed(frame),
                lines: vec![(0, 0)],
                others: Vec::new(),
            },
        }
    }

    fn of_event(frame: &'f str) -> Self {
        let mut payload = Self {
            json: Cow::Borrowed(""),
            lines: Vec::new(),
            others: Vec::new(),
        };
        let mut start = 0;
        for line in frame.split_inclusive(['\r', '\n']) {
            let text = line.trim_end_matches(['\r', '\n']);
            // At the start of a stream a byte order mark is none of the field's name.
            let field = text.strip_prefix('\u{feff}').unwrap_or(text);
            let data = match field.strip_prefix("data") {
                Some("") => Some(""),
                Some(rest) => rest
                    .strip_prefix(':')
                    .map(|value| value.strip_prefix(' ').unwrap_or(value)),
                None => None,
            };
            if let Some(data) = data {
                let at = start + text.len() - data.len();
                if payload.lines.is_empty() {
                    payload.json = Cow::Borrowed(data);
                    payload.lines.push((0, at));
                } else {
                    let json = payload.json.to_mut();
                    json.push('\n');
                    payload.lines.push((json.len(), at));
                    json.push_str(data);
                }
            } else if !text.is_empty() {
                payload.others.push(start..start + text.len());
            }
            start += line.len();
        }
        payload
    }

    /// Where this part of the JSON is in the frame.
    pub(super) fn in_frame(&self, span: &Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let line = self.lines.partition_point(|(json, _)| *json <= at);
            let (json, frame) = self.lines[line.saturating_sub(1)];
            at - json + frame
        };
        place(span.start)..place(span.end.saturating_sub(1)) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(shape: Shape, text: &str, size: usize) -> Vec<String> {
        let mut splitter = Splitter::new(shape);
        let mut frames = Vec::new();
        for mut bytes in text.as_bytes().chunks(size) {
            while let Some(frame) = splitter.take(&mut bytes).unwrap() {
                frames.push(frame);
            }
        }
        frames.push(splitter.rest());
        let text = |frame| String::from_utf8(frame).unwrap();
        frames.into_iter().map(text).collect()
    }

    #[test]
    fn events_end_at_an_empty_line_whatever_ends_lines() {
        for (text, expected) in [
            ("a\n\nb\n\n", vec!["a\n\n", "b\n\n", ""]),
            ("a\r\n\r\nb\r\n\r\n", vec!["a\r\n\r\n", "b\r\n\r\n", ""]),
            ("a\r\rb\r\r", vec!["a\r\r", "b\r\r"]),
            ("a\nb\r\nc\rd\n\r\ne", vec!["a\nb\r\nc\rd\n\r\n", "e"]),
            ("\n\na\n\n\n", vec!["\n", "\n", "a\n\n", "\n", ""]),
            ("a\r\n\rb", vec!["a\r\n\r", "b"]),
            ("", vec![""]),
        ] {
            for size in [1, 2, 3, 100] {
                assert_eq!(frames(Shape::Sse, text, size), expected, "{text:?} {size}");
            }
        }
    }

    #[test]
    fn json_lines_end_at_a_line_feed() {
        for size in [1, 2, 100] {
            assert_eq!(
                frames(Shape::JsonLines, "{}\r\n\n1", size),
                ["{}\r\n", "\n", "1"]
            );
        }
    }

    #[test]
    fn a_frame_has_a_longest_length_however_it_comes() {
        let fits = "a".repeat(MAX_FRAME_BYTES - 1) + "\n";
        let too_long = "a".repeat(MAX_FRAME_BYTES) + "\n";
        for size in [1000, 4096, MAX_FRAME_BYTES * 2] {
            assert_eq!(frames(Shape::JsonLines, &fits, size), [&*fits, ""]);
            let mut splitter = Splitter::new(Shape::JsonLines);
            let mut chunks = too_long.as_bytes().chunks(size);
            let failed = chunks.find_map(|mut bytes| splitter.take(&mut bytes).err());
            assert_eq!(failed, Some(FramingProblem::TooLong));
        }
    }

    #[test]
    fn data_lines_are_joined_and_found_again() {
        let frame = "\u{feff}data:[1,\r\n: note\ndata\rdata:  \"x\",\nevent: e\ndata: 2]\n\n";
        let payload = Payload::of(Shape::Sse, frame);
        assert_eq!(payload.json, "[1,\n\n \"x\",\n2]");
        let others: Vec<&str> = payload.others.iter().map(|at| &frame[at.clone()]).collect();
        assert_eq!(others, [": note", "event: e"]);
        for part in ["[1,", "\"x\"", "2", "2]"] {
            let start = payload.json.find(part).unwrap();
            let at = payload.in_frame(&(start..start + part.len()));
            assert_eq!(&frame[at], part);
        }
    }

    #[test]
    fn a_field_that_only_begins_like_data_is_not_data() {
        let payload = Payload::of(Shape::Sse, "database: x\n data: y\ndata:\n\n");
        assert_eq!((&*payload.json, payload.others.len()), ("", 2));
    }
}

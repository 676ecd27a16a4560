//! A streamed answer in the frames it is sent in.
//!
//! Models stream their answers as server-sent events or as JSON lines, and the bytes come cut anywhere.
//! [`FramedGuard`] takes such bytes and gives out the same frames, in their order, each as soon as it is
//! whole. What changes is the text in them: it is replaced by what [`StreamGuard`] has released, which
//! may be nothing yet, or text of earlier frames too.
//!
//! Every other string of a frame, its member names and its lines that are not data are judged as
//! whole texts by the same policy, since the last frames of an answer say all of it again. A list of
//! the places where they do would leak at the first place that is missing. Numbers are not judged.

mod json;
mod path;
mod split;
mod texts;

use crate::decision::{Decision, RedactionSpec};
use crate::stream::StreamGuard;

pub use path::TextPath;
use split::{Shape, Splitter};
use texts::Texts;

/// Longest frame, its line ends included.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Most texts of one connection that may be open at the same time.
pub const MAX_OPEN_TEXTS: usize = 64;

/// How an answer is cut into frames, and where its text is in them.
#[derive(Debug, Clone)]
pub enum Framing {
    /// No frames: the bytes are the text.
    Text,
    /// Server-sent events, with JSON as their data.
    Sse(TextPath),
    /// A line of JSON for each frame.
    JsonLines(TextPath),
}

/// Judges one streamed answer, frames in and frames out.
///
/// For every way of cutting the bytes the output is the same.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_core::rules::{RuleSettings, SecretRedaction};
/// use portcullis_core::{Context, FramedGuard, Framing, PolicyBuilder, StreamGuard, TextPath};
///
/// let secrets = RuleSettings::SecretRedaction(SecretRedaction::default());
/// let policy = Arc::new(PolicyBuilder::new("example", "1").rule(secrets).compile()?);
/// let open = move || StreamGuard::new(Arc::clone(&policy), Context::new("run-1"));
/// let mut guard = FramedGuard::new(Framing::JsonLines(TextPath::ollama()), open);
/// let mut out = Vec::new();
/// for bytes in [
///     "{\"response\":\"The key is AKIAIOSF\"}\n{\"response\":\"ODNN7EX",
///     "AMPLE.\"}\n{\"response\":\"\",\"done\":true}\n",
/// ] {
///     out.extend_from_slice(guard.push(bytes.as_bytes())?.bytes);
/// }
/// out.extend_from_slice(guard.finish()?.bytes);
/// assert_eq!(
///     String::from_utf8(out)?,
///     "{\"response\":\"The key is \"}\n{\"response\":\"[AWS_KEY].\"}\n{\"response\":\"\",\"done\":true}\n",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FramedGuard {
    input: Input,
    out: Out,
    error: Option<FramingError>,
    finished: bool,
}

/// What may be passed on, and what was decided on the way.
#[derive(Debug, PartialEq)]
pub struct FramedRelease<'g> {
    /// Whole frames, redacted.
    pub bytes: &'g [u8],
    /// What rules said of them. Redactions have the JSON Pointer of the text as their path, and
    /// offsets that count from the start of that text, over all its frames.
    pub decisions: Vec<Decision>,
    /// Whether the answer ends here: the last decision forbids the rest, or one has forbidden it before.
    pub halted: bool,
}

/// A frame that cannot be judged. Nothing of it is passed on, nor anything after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frame {frame} {problem}")]
pub struct FramingError {
    /// Which one, from 1.
    pub frame: u64,
    /// What is wrong with it.
    pub problem: FramingProblem,
}

/// What is wrong with a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingProblem {
    /// It has not ended after so many bytes.
    #[error("is longer than {MAX_FRAME_BYTES} bytes")]
    TooLong,
    /// The bytes are no text.
    #[error("is not UTF-8: byte {at} begins no character")]
    NotUtf8 {
        /// The first bad byte, from 0.
        at: u64,
    },
    /// Its data are neither JSON nor `[DONE]`.
    #[error("is not JSON: {0}")]
    NotJson(String),
    /// It opens one text too many, or they need too much memory.
    #[error(
        "opens too many texts at once: {MAX_OPEN_TEXTS} are allowed, and {MAX_FRAME_BYTES} bytes of frames around them"
    )]
    TooManyTexts,
    /// Had it been known that the text goes on, its end would have been held back.
    #[error("continues the text at `{0}`, which has ended")]
    AfterEnd(String),
}

#[derive(Debug)]
enum Input {
    Text(Box<PlainText>),
    Frames {
        splitter: Splitter,
        texts: Box<Texts>,
        /// How many have come.
        count: u64,
    },
}

#[derive(Debug, Default)]
struct Out {
    bytes: Vec<u8>,
    decisions: Vec<Decision>,
    halted: bool,
}

impl FramedGuard {
    /// A guard for one answer. `open` gives a guard for each text in it, all of one policy.
    pub fn new(framing: Framing, mut open: impl FnMut() -> StreamGuard + Send + 'static) -> Self {
        let (shape, path) = match framing {
            Framing::Text => (None, TextPath::new()),
            Framing::Sse(path) => (Some(Shape::Sse), path),
            Framing::JsonLines(path) => (Some(Shape::JsonLines), path),
        };
        let input = match shape {
            None => Input::Text(Box::new(PlainText {
                guard: open(),
                partial: Vec::new(),
                taken: 0,
            })),
            Some(shape) => Input::Frames {
                splitter: Splitter::new(shape),
                texts: Box::new(Texts::new(shape, path, Box::new(open))),
                count: 0,
            },
        };
        Self {
            input,
            out: Out::default(),
            error: None,
            finished: false,
        }
    }

    /// Takes in bytes and gives out the frames that are whole. After a halt nothing comes out any more.
    ///
    /// # Errors
    ///
    /// If a frame cannot be judged. What was released before it comes first, and the error with the next
    /// call; from then on there is nothing but the error.
    pub fn push(&mut self, bytes: &[u8]) -> Result<FramedRelease<'_>, FramingError> {
        self.step(false, |input, out| input.push(bytes, out))
    }

    /// Ends the answer and gives out what was held back.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn finish(&mut self) -> Result<FramedRelease<'_>, FramingError> {
        let again = std::mem::replace(&mut self.finished, true);
        self.step(
            true,
            |input, out| if again { Ok(()) } else { input.finish(out) },
        )
    }

    fn step(
        &mut self,
        last: bool,
        step: impl FnOnce(&mut Input, &mut Out) -> Result<(), FramingError>,
    ) -> Result<FramedRelease<'_>, FramingError> {
        self.out.bytes.clear();
        if self.error.is_none() && !self.out.halted {
            self.error = step(&mut self.input, &mut self.out).err();
        }
        let released = !self.out.bytes.is_empty() || !self.out.decisions.is_empty();
        match &self.error {
            Some(error) if last || !released => Err(error.clone()),
            _ => Ok(FramedRelease {
                bytes: &self.out.bytes,
                decisions: std::mem::take(&mut self.out.decisions),
                halted: self.out.halted,
            }),
        }
    }
}

impl Input {
    fn push(&mut self, mut bytes: &[u8], out: &mut Out) -> Result<(), FramingError> {
        match self {
            Self::Text(text) => text.push(bytes, out),
            Self::Frames {
                splitter,
                texts,
                count,
            } => {
                while !out.halted {
                    let at = |problem| FramingError {
                        frame: *count + 1,
                        problem,
                    };
                    let Some(frame) = splitter.take(&mut bytes).map_err(at)? else {
                        break;
                    };
                    texts.frame(&frame, false, out).map_err(at)?;
                    *count += 1;
                }
                Ok(())
            }
        }
    }

    fn finish(&mut self, out: &mut Out) -> Result<(), FramingError> {
        match self {
            Self::Text(text) => text.finish(out),
            Self::Frames {
                splitter,
                texts,
                count,
            } => {
                let at = |problem| FramingError {
                    frame: *count + 1,
                    problem,
                };
                texts.frame(&splitter.rest(), true, out).map_err(at)
            }
        }
    }
}

/// Text without frames.
#[derive(Debug)]
struct PlainText {
    guard: StreamGuard,
    /// The beginning of a character whose end has not come.
    partial: Vec<u8>,
    /// Bytes before that.
    taken: u64,
}

impl PlainText {
    fn push(&mut self, bytes: &[u8], out: &mut Out) -> Result<(), FramingError> {
        let mut input = std::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let (valid, bad) = match std::str::from_utf8(&input) {
            Ok(text) => (text.len(), false),
            Err(error) => (error.valid_up_to(), error.error_len().is_some()),
        };
        self.taken += valid as u64;
        self.partial = input.split_off(valid);
        let text = std::str::from_utf8(&input).unwrap_or_default();
        let released = self.guard.push(text);
        out.bytes.extend_from_slice(released.text.as_bytes());
        out.decisions.extend(released.decisions);
        out.halted = released.halted;
        if bad && !out.halted {
            return Err(self.not_utf8());
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out) -> Result<(), FramingError> {
        if !self.partial.is_empty() {
            return Err(self.not_utf8());
        }
        let released = self.guard.finish();
        out.bytes.extend_from_slice(released.text.as_bytes());
        out.decisions.extend(released.decisions);
        out.halted = released.halted;
        Ok(())
    }

    fn not_utf8(&self) -> FramingError {
        FramingError {
            frame: 1,
            problem: FramingProblem::NotUtf8 { at: self.taken },
        }
    }
}

impl Out {
    /// Takes over what was decided on the text at this pointer.
    fn decided(&mut self, decisions: Vec<Decision>, pointer: impl Fn() -> String) {
        for mut decision in decisions {
            for spec in &mut decision.redactions {
                if spec.path == RedactionSpec::TEXT {
                    spec.path = pointer().into();
                }
            }
            self.decisions.push(decision);
        }
    }
}

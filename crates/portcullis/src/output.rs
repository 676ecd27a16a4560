//! Printing, and what a command ends with.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use portcullis_core::{Action, Severity};
use portcullis_runtime::LoadError;
use serde_json::Value;

use crate::cli::Format;

/// What a command answers, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// Fine.
    Yes,
    /// The answer is no: lint or a test failed, verdicts differ.
    No,
    /// Some of the input was bad, and was said to be.
    BadInput,
    /// Something needed did not work for some of the input, and was said to.
    Unavailable,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::SUCCESS,
            Answer::No => Self::from(1),
            Answer::BadInput => Self::from(2),
            Answer::Unavailable => Self::from(3),
        }
    }
}

/// Why a command could not answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the user gave cannot be used.
    Input(anyhow::Error),
    /// Something needed is not there: the disk, a service.
    Unavailable(anyhow::Error),
    /// Nobody reads our output any more.
    ReaderGone,
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Unavailable(_) => 3,
            Self::ReaderGone => 0,
        }
    }

    /// Reading the events failed.
    pub(crate) fn read(error: io::Error) -> Self {
        Self::read_of("the events", error)
    }

    /// Reading something failed.
    pub(crate) fn read_of(what: &str, error: io::Error) -> Self {
        let directory = error.kind() == io::ErrorKind::IsADirectory;
        let error = anyhow::Error::from(error).context(format!("cannot read {what}"));
        if directory {
            Self::Input(error)
        } else {
            Self::Unavailable(error)
        }
    }

    /// Writing to standard output failed.
    pub(crate) fn write(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ReaderGone;
        }
        Self::Unavailable(anyhow::Error::from(error).context("cannot write the output"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(error) | Self::Unavailable(error)) = self else {
            return Ok(());
        };
        // Some errors say why in their own words, and have it as their source besides.
        let mut text = String::new();
        for cause in error.chain().map(ToString::to_string) {
            if !text.contains(&cause) {
                let gap = if text.is_empty() { "" } else { ": " };
                text = text + gap + &cause;
            }
        }
        // A report about a pack says `error` in its own place.
        if text.contains(": error: ") {
            f.write_str(text.trim_end())
        } else {
            write!(f, "{BOLD_RED}error:{BOLD_RED:#} {text}")
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::Input(error.into())
    }
}

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
const BOLD_RED: Style = AnsiColor::Red.on_default().bold();

/// How an action is shown.
pub(crate) fn style(action: Action) -> Style {
    match action {
        Action::Allow => GREEN,
        Action::Redact => AnsiColor::Cyan.on_default(),
        Action::Retry => AnsiColor::Blue.on_default(),
        Action::Pause => YELLOW,
        Action::Stop => BOLD_RED,
    }
}

/// How a severity is shown.
pub(crate) fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Low => DIM,
        Severity::Medium => YELLOW,
        Severity::High => RED,
        Severity::Critical => BOLD_RED,
    }
}

/// Text from outside for a terminal or a log: it could forge a line of ours, or show another order than it has.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(printable).collect()
}

/// What a terminal would obey or hide, made visible: the text is somebody else's.
pub(crate) fn printable(c: char) -> char {
    match c {
        _ if c.is_control() => ' ',
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}' => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// Tells people something on standard error, and ends the line if the text does not. What cannot be written there, on a
/// full disk or to a terminal that is gone, is lost: it must not end what the process is there for.
pub(crate) fn tell(text: impl fmt::Display) {
    let mut text = text.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// A value as one line of JSON.
pub(crate) fn json_line(value: &impl serde::Serialize) -> io::Result<String> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    Ok(line)
}

/// Where answers are printed, in colours where those can be seen.
pub(crate) type Out = anstream::AutoStream<io::Stdout>;

/// Prints a server's answer, as it is or as a text.
pub(crate) fn print(
    format: Format,
    answer: &Value,
    text: impl FnOnce(&mut Out, &Value) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let printed = match format {
        Format::Json => json_line(answer).and_then(|line| out.write_all(line.as_bytes())),
        Format::Text => text(&mut out, answer),
    };
    printed.map_err(Failure::write)
}

//! What is wrong with a file, and where.

use std::collections::BTreeSet;
use std::fmt;

/// A place in a file: a line and a column, both from 1, and how many characters to underline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// From 1; 0 when the value did not come from a file.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// Characters.
    pub width: usize,
}

/// Whether a pack can be used in spite of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It cannot.
    Error,
    /// It can, but somebody should look.
    Warning,
}

impl Level {
    /// `error` or `warning`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad.
    pub level: Level,
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

/// The findings of one file, in the order they were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Lines that are not shown.
    concealed: BTreeSet<usize>,
}

impl Diagnostics {
    /// Notes an error.
    pub fn error(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Level::Error, place, message.into())
    }

    /// Notes a warning.
    pub fn warning(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Level::Warning, place, message.into())
    }

    fn push(&mut self, level: Level, place: Place, message: String) -> &mut Diagnostic {
        let index = self
            .list
            .iter()
            .position(|known| known.place == place && known.message == message)
            .unwrap_or_else(|| {
                self.list.push(Diagnostic {
                    level,
                    place,
                    message,
                    help: None,
                });
                self.list.len() - 1
            });
        &mut self.list[index]
    }

    /// Shows no line of this place, whatever is wrong in it: it may hold a secret.
    pub fn conceal(&mut self, place: Place) {
        self.concealed.insert(place.line);
    }

    /// Whether something is wrong here.
    pub fn has_error_at(&self, place: Place) -> bool {
        let mut here = self.list.iter().filter(|d| d.place == place);
        here.any(|d| d.level == Level::Error)
    }

    /// Takes in the findings of another pass over the same file; each is kept once.
    pub fn absorb(&mut self, other: Self) {
        for finding in other.list {
            if !self.list.contains(&finding) {
                self.list.push(finding);
            }
        }
        self.concealed.extend(other.concealed);
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.level == Level::Error)
    }

    /// All findings, errors first, each group in file order.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.list.iter().collect();
        sorted.sort_by_key(|d| (d.level, d.place));
        sorted
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl Diagnostic {
    /// Adds what to do about it.
    pub fn help(&mut self, help: impl Into<String>) {
        self.help = Some(help.into());
    }

    /// Suggests the nearest of the valid names, or lists them if none is near.
    pub fn suggest<'n>(&mut self, wrong: &str, valid: impl IntoIterator<Item = &'n str>) {
        self.help = Some(suggestion(wrong, valid));
    }
}

/// "did you mean …?", or what there is to choose from.
pub fn suggestion<'n>(wrong: &str, valid: impl IntoIterator<Item = &'n str>) -> String {
    let mut seen = BTreeSet::new();
    let valid = valid.into_iter().filter(|name| seen.insert(*name));
    let valid: Vec<&str> = valid.collect();
    match nearest(wrong, valid.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if valid.is_empty() => "nothing is expected here".to_owned(),
        None => format!("valid here: {}", valid.join(", ")),
    }
}

/// No name of ours is nearly as long.
const MAX_NAME_BYTES: usize = 128;

/// The valid name that is nearest, if one is near.
pub fn nearest<'n>(wrong: &str, valid: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // It may be a caller's, of any length, and to compare takes the product of the lengths.
    if wrong.len() > MAX_NAME_BYTES {
        return None;
    }
    let wrong = wrong.to_lowercase();
    valid
        .into_iter()
        .map(|name| {
            let distance = strsim::damerau_levenshtein(&wrong, &name.to_lowercase());
            (distance, name)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3))
        .map(|(_, name)| name)
}

/// Findings with the file they are about. Displays as people want to read it: place, message,
/// excerpt, advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The file's name.
    pub file: String,
    /// The file's text.
    pub text: String,
    /// What was found.
    pub diagnostics: Diagnostics,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.diagnostics.sorted().into_iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            self.write(f, finding)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

impl Report {
    fn write(&self, f: &mut fmt::Formatter<'_>, finding: &Diagnostic) -> fmt::Result {
        let Place {
            line,
            column,
            width,
        } = finding.place;
        let (level, message) = (finding.level.as_str(), printable(&finding.message));
        if line == 0 {
            writeln!(f, "{}: {level}: {message}", self.file)?;
        } else {
            writeln!(f, "{}:{line}:{column}: {level}: {message}", self.file)?;
        }
        let text = nth_line(&self.text, line);
        if line > 0 && !self.diagnostics.concealed.contains(&line) && !has_token(text) {
            let (excerpt, indent) = excerpt(text, column);
            let gutter = line.to_string().len();
            let rest = excerpt.chars().count().saturating_sub(indent);
            let marks = "^".repeat(width.clamp(1, rest.max(1)));
            writeln!(f, "{:gutter$} |", "")?;
            writeln!(f, "{line} | {excerpt}")?;
            writeln!(f, "{:gutter$} | {:indent$}{marks}", "", "")?;
        }
        if let Some(help) = &finding.help {
            writeln!(f, "  help: {}", printable(help))?;
        }
        Ok(())
    }
}

/// A line of the text, from 1. For YAML a lone carriage return ends one too.
fn nth_line(text: &str, line: usize) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines()
        .flat_map(|line| line.split('\r'))
        .nth(line.saturating_sub(1))
        .unwrap_or_default()
}

/// Whether a line looks like a token that is written out. Where a file cannot be read, nobody knows which of
/// its lines hold secrets.
fn has_token(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let written_out = |(_, value): (&str, &str)| !value.contains("${");
    ["bearer ", "authorization"]
        .iter()
        .any(|sign| line.split_once(sign).is_some_and(written_out))
}

/// The same without control characters: whatever is in a pack, its report must not steer a terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// What to show of a line, and how far the column is from its left edge. A pack can be one long line.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    const SHOWN: usize = 120;
    const BEFORE: usize = 60;
    let at = column.saturating_sub(1);
    let skipped = if at + BEFORE < SHOWN { 0 } else { at - BEFORE };
    let line = printable(line);
    let mut rest = line.chars().skip(skipped);
    let mut excerpt = if skipped > 0 { "…" } else { "" }.to_owned();
    let indent = at - skipped + excerpt.chars().count();
    excerpt.extend(rest.by_ref().take(SHOWN));
    if rest.next().is_some() {
        excerpt.push('…');
    }
    (excerpt, indent)
}

//! What a reason says of where something stands, without the values that the policy looks for.

use super::Subject;
use crate::net::Host;
use crate::scan::PatternId;

/// What a rule calls the values of a pattern, and which of several names comes first.
pub(super) type Label<'l> = dyn Fn(PatternId) -> Option<(usize, &'l str)> + 'l;

/// For rules that look for no values themselves.
pub(super) const ANY: &Label<'static> = &|_| Some((0, "VALUE"));

/// A JSON Pointer: a member's name can be a secret.
pub(super) fn path(subject: &Subject<'_>, pointer: &str, label: &Label<'_>) -> String {
    let mask = |segment: &str| {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let value = value(subject, &name, label);
        value.unwrap_or_else(|| segment.to_owned())
    };
    let segments: Vec<String> = pointer.split('/').map(mask).collect();
    segments.join("/")
}

/// A host: a label of its name can be a secret, whose capitals are lost.
pub(super) fn host(subject: &Subject<'_>, host: &Host<'_>) -> String {
    let (Host::Name(_) | Host::Ending(_)) = host else {
        return host.to_string();
    };
    let mask = |part: &str| {
        let capitals = || value(subject, &part.to_ascii_uppercase(), ANY);
        let value = value(subject, part, ANY).or_else(capitals);
        value.unwrap_or_else(|| part.to_owned())
    };
    let parts: Vec<String> = host.to_string().split('.').map(mask).collect();
    parts.join(".")
}

/// What stands for the value that a name is.
fn value(subject: &Subject<'_>, name: &str, label: &Label<'_>) -> Option<String> {
    // Each pattern by itself would have all of them compiled, with the call waiting.
    let scanner = subject.scanner;
    let candidates = scanner.scan(name, &subject.input.event.event_type);
    let found = candidates
        .iter()
        .filter_map(|id| label(id).filter(|_| scanner.finds(id, name, &candidates)));
    match found.min() {
        Some((_, label)) => Some(format!("[{label}]")),
        None => name.split('.').any(is_encoded).then(|| "[DATA]".to_owned()),
    }
}

/// Whether a label looks like hexadecimal or base32: letters and digits change places more often than
/// in words with a number behind them.
pub(super) fn is_encoded(label: &str) -> bool {
    const SHORTEST: usize = 16;
    if label.len() < SHORTEST {
        return false;
    }
    let changes = label.as_bytes().windows(2).filter(|pair| {
        pair.iter().all(u8::is_ascii_alphanumeric)
            && pair[0].is_ascii_digit() != pair[1].is_ascii_digit()
    });
    changes.count() * 8 >= label.len()
}

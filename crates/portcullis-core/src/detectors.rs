//! Detector families: what the pattern rules look for, as data.
//!
//! One file per family under `detectors/`, each entry with an id, a pattern, keywords that announce
//! it, and examples that must and must not match. The examples are run as tests.

use crate::intent::JailbreakIntent;
use crate::pack::diagnostic::{Diagnostics, Place, Report};
use crate::pack::yaml::{self, MapReader};

/// What the entries of a family are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Secrets, for `secret-redaction`. Case matters.
    Secrets,
    /// Attacks, for `injection-patterns`. Case is ignored.
    Injection,
    /// Request signals of the context snapshot. Case is ignored.
    Signals,
    /// Commands that hide what they do, for `shell-obfuscation`. Case is ignored.
    Shell,
}

impl Kind {
    /// Whether the patterns of this kind ignore case.
    pub const fn ignores_case(self) -> bool {
        !matches!(self, Self::Secrets)
    }

    /// The folder's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::Injection => "injection",
            Self::Signals => "signals",
            Self::Shell => "shell",
        }
    }
}

/// Every built-in family: its kind, name and file.
pub const FAMILIES: &[(Kind, &str, &str)] = &[
    (
        Kind::Secrets,
        "rfc",
        include_str!("../detectors/secrets/rfc.yaml"),
    ),
    (
        Kind::Injection,
        "rfc",
        include_str!("../detectors/injection/rfc.yaml"),
    ),
    (
        Kind::Signals,
        "rfc",
        include_str!("../detectors/signals/rfc.yaml"),
    ),
    (
        Kind::Shell,
        "obfuscation",
        include_str!("../detectors/shell/obfuscation.yaml"),
    ),
];

/// A family.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name, as packs use it.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// What it looks for, in order.
    pub entries: Vec<Entry>,
}

/// One thing to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Unique in its family.
    pub id: String,
    /// The regular expression.
    pub pattern: String,
    /// Literals of which every match contains one.
    pub keywords: Vec<String>,
    /// What a match means.
    pub meaning: Meaning,
    /// Texts that match.
    pub matches: Vec<String>,
    /// Texts that do not.
    pub passes: Vec<String>,
}

/// What a match means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A secret of this kind, such as `AWS_KEY`.
    Entity(String),
    /// An attack.
    Intent(JailbreakIntent),
    /// A command that does this, in a few words.
    Technique(String),
    /// The text asks for the system prompt or instructions.
    RequestsSystemInfo,
    /// The text asks to lift restrictions.
    RequestsCapabilityChange,
}

/// The names of the families of a kind.
pub fn names(kind: Kind) -> impl Iterator<Item = &'static str> {
    FAMILIES
        .iter()
        .filter(move |(k, _, _)| *k == kind)
        .map(|(_, name, _)| *name)
}

/// A built-in family, if there is one of this name.
pub fn family(kind: Kind, name: &str) -> Option<Result<Family, Report>> {
    FAMILIES
        .iter()
        .find(|(k, n, _)| *k == kind && *n == name)
        .map(|(_, _, text)| parse(kind, name, text))
}

/// Reads a family file.
pub fn parse(kind: Kind, file: &str, text: &str) -> Result<Family, Report> {
    let mut diagnostics = Diagnostics::default();
    let family = yaml::parse(text, &mut diagnostics)
        .and_then(|node| read_family(kind, &node, &mut diagnostics));
    match family {
        Some(family) if !diagnostics.has_errors() => Ok(family),
        _ => Err(Report {
            file: format!("{}/{file}.yaml", kind.as_str()),
            text: text.to_owned(),
            diagnostics,
        }),
    }
}

fn read_family(kind: Kind, node: &yaml::Node, d: &mut Diagnostics) -> Option<Family> {
    let mut map = MapReader::open(node, "a detector family", d)?;
    let name = map
        .require("family", d)
        .and_then(|n| yaml::text(n, "family", d));
    let about = map
        .require("about", d)
        .and_then(|n| yaml::text(n, "about", d));
    let nodes = map.list("entries", d).unwrap_or_default();
    map.finish(d);
    let mut entries: Vec<Entry> = Vec::new();
    for node in nodes {
        let Some(entry) = read_entry(kind, node, d) else {
            continue;
        };
        if entries.iter().any(|known| known.id == entry.id) {
            d.error(node.place, format!("entry `{}` is there twice", entry.id));
        }
        entries.push(entry);
    }
    Some(Family {
        name: name?.to_owned(),
        about: about?.to_owned(),
        entries,
    })
}

fn read_entry(kind: Kind, node: &yaml::Node, d: &mut Diagnostics) -> Option<Entry> {
    let mut map = MapReader::open(node, "an entry", d)?;
    let id = map.require("id", d).and_then(|n| yaml::text(n, "id", d));
    let pattern = map
        .require("pattern", d)
        .and_then(|n| yaml::text(n, "pattern", d));
    let keywords = map.texts("keywords", d).unwrap_or_default();
    let meaning = match kind {
        Kind::Secrets => map
            .require("entity", d)
            .and_then(|n| yaml::text(n, "entity", d))
            .map(|entity| Meaning::Entity(entity.to_owned())),
        Kind::Injection => map
            .require("intent", d)
            .and_then(|n| intent(n, d))
            .map(Meaning::Intent),
        Kind::Shell => map
            .require("technique", d)
            .and_then(|n| yaml::text(n, "technique", d))
            .map(|technique| Meaning::Technique(technique.to_owned())),
        Kind::Signals => map.require("signal", d).and_then(|n| {
            let names = [("system_info", false), ("capability_change", true)];
            yaml::one_of(n, "signal", &names, d).map(|capability| {
                if capability {
                    Meaning::RequestsCapabilityChange
                } else {
                    Meaning::RequestsSystemInfo
                }
            })
        }),
    };
    let matches = examples(&mut map, "matches", d);
    let passes = examples(&mut map, "passes", d);
    map.finish(d);
    Some(Entry {
        id: id?.to_owned(),
        pattern: pattern?.to_owned(),
        keywords,
        meaning: meaning?,
        matches,
        passes,
    })
}

/// An attack intent by its wire name; `benign` is none.
pub(crate) fn intent(node: &yaml::Node, d: &mut Diagnostics) -> Option<JailbreakIntent> {
    let names: Vec<(&'static str, JailbreakIntent)> = JailbreakIntent::ATTACKS
        .iter()
        .map(|intent| (intent.as_str(), *intent))
        .collect();
    yaml::one_of(node, "intent", &names, d)
}

fn examples(map: &mut MapReader<'_>, key: &'static str, d: &mut Diagnostics) -> Vec<String> {
    let texts = map.texts(key, d).unwrap_or_default();
    if texts.is_empty() {
        let place: Place = map.place();
        d.error(
            place,
            format!("an entry needs at least one example under `{key}`"),
        );
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;
    use crate::scan::{EventSet, PatternSpec, ScannerBuilder};

    /// Every built-in entry does what its examples say.
    #[test]
    fn examples_hold() {
        for (kind, name, text) in FAMILIES {
            let family = parse(*kind, name, text).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(&family.name, name);
            for entry in &family.entries {
                let mut builder = ScannerBuilder::default();
                let id = builder
                    .add(
                        &PatternSpec {
                            regex: &entry.pattern,
                            ignore_case: kind.ignores_case(),
                            keywords: &entry.keywords,
                        },
                        &EventSet::standard(),
                    )
                    .unwrap_or_else(|error| panic!("{}/{}: {error}", family.name, entry.id));
                let scanner = builder.build();
                let hit = |text: &str| {
                    scanner.scan(text, &EventType::LlmBefore).contains(id)
                        && scanner.find(id, text).is_some()
                };
                for example in &entry.matches {
                    assert!(
                        hit(example),
                        "{}/{} misses {example:?}",
                        family.name,
                        entry.id
                    );
                }
                for example in &entry.passes {
                    assert!(
                        !hit(example),
                        "{}/{} hits {example:?}",
                        family.name,
                        entry.id
                    );
                }
            }
        }
    }

    #[test]
    fn a_broken_family_says_what_is_wrong() {
        let text = "family: x\nabout: y\nentries:\n  - id: a\n    pattern: b\n    entty: C\n    matches: [b]\n    passes: []\n";
        let report = parse(Kind::Secrets, "x", text).unwrap_err().to_string();
        assert!(report.contains("unknown key `entty`"), "{report}");
        assert!(report.contains("did you mean `entity`?"), "{report}");
        assert!(
            report.contains("at least one example under `passes`"),
            "{report}"
        );
    }
}

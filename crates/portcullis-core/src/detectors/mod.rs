//! Detector families: what the pattern rules look for, as data.
//!
//! One file per family under `detectors/`, each entry with an id, a pattern, keywords that announce
//! it, checks on what it matched, and examples that must and must not match. The examples are run as
//! tests.

mod checks;
mod disguised;
mod finder;
pub(crate) mod reported;
pub(crate) mod signs;
mod unspaced;

use std::sync::{Arc, OnceLock};

use serde::Serialize;

pub use checks::{Check, names as check_names};
pub use finder::{Finder, FinderError, Finding};
pub(crate) use unspaced::Unspaced;

use crate::decision::Severity;
use crate::intent::JailbreakIntent;
use crate::pack::diagnostic::{Diagnostics, Place, Report};
use crate::pack::yaml::{self, MapReader};
use crate::scan::{PatternSpec, Requirement};

/// What the entries of a family are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Secrets, for `secret-redaction`. Case matters.
    Secrets,
    /// Attacks, for `injection-patterns`. Case is ignored.
    Injection,
    /// Personal data, for `pii-redaction`. Case matters.
    Pii,
    /// Commands that hide what they do, for `shell-obfuscation`. Case is ignored.
    Shell,
    /// Request signals of the context snapshot. Case is ignored.
    Signals,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Secrets,
        Self::Injection,
        Self::Pii,
        Self::Shell,
        Self::Signals,
    ];

    /// Whether the patterns of this kind ignore case.
    pub const fn ignores_case(self) -> bool {
        matches!(self, Self::Injection | Self::Shell | Self::Signals)
    }

    /// What an entry of this kind calls the thing it finds, in data files.
    pub const fn meaning_key(self) -> &'static str {
        match self {
            Self::Secrets | Self::Pii => "entity",
            Self::Injection => "intent",
            Self::Shell => "technique",
            Self::Signals => "signal",
        }
    }

    /// What an entry of this kind calls its origin, in data files.
    pub const fn origin_key(self) -> &'static str {
        match self {
            Self::Secrets => "provider",
            Self::Pii => "region",
            Self::Injection => "language",
            Self::Shell | Self::Signals => "origin",
        }
    }

    /// The folder's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::Injection => "injection",
            Self::Pii => "pii",
            Self::Shell => "shell",
            Self::Signals => "signals",
        }
    }
}

macro_rules! families {
    ($($kind:ident $name:literal: $path:literal,)+) => {
        /// Every built-in family: its kind, name and file.
        pub const FAMILIES: &[(Kind, &str, &str)] = &[
            $((Kind::$kind, $name, include_str!(concat!("../../detectors/", $path))),)+
        ];
    };
}

families! {
    Secrets "rfc": "secrets/rfc.yaml",
    Secrets "cloud": "secrets/cloud.yaml",
    Secrets "code": "secrets/code.yaml",
    Secrets "ai": "secrets/ai.yaml",
    Secrets "payment": "secrets/payment.yaml",
    Secrets "chat": "secrets/chat.yaml",
    Secrets "data": "secrets/data.yaml",
    Secrets "identity": "secrets/identity.yaml",
    Secrets "keys": "secrets/keys.yaml",
    Secrets "generic": "secrets/generic.yaml",
    Injection "rfc": "injection/rfc.yaml",
    Pii "contact": "pii/contact.yaml",
    Pii "financial": "pii/financial.yaml",
    Pii "national": "pii/national.yaml",
    Pii "network": "pii/network.yaml",
    Pii "crypto": "pii/crypto.yaml",
    Shell "obfuscation": "shell/obfuscation.yaml",
    Shell "secret-files": "shell/secret-files.yaml",
    Injection "direct": "injection/direct.yaml",
    Injection "jailbreak": "injection/jailbreak.yaml",
    Injection "extraction": "injection/extraction.yaml",
    Injection "escalation": "injection/escalation.yaml",
    Injection "multilingual": "injection/multilingual.yaml",
    Injection "tool-output": "injection/tool-output.yaml",
    Injection "tool-output-languages": "injection/tool-output-languages.yaml",
    Injection "tool-description": "injection/tool-description.yaml",
    Signals "rfc": "signals/rfc.yaml",
}

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
    /// Unique among the families of its kind.
    pub id: String,
    /// How to find it.
    pub pattern: EntryPattern,
    /// What a match means.
    pub meaning: Meaning,
    /// How bad it is.
    pub severity: Severity,
    /// Who issues it, where it is used, or in which language it is said.
    pub origin: Option<String>,
    /// Texts that match.
    pub matches: Vec<String>,
    /// Texts that do not.
    pub passes: Vec<String>,
}

/// How to find something: all of it must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EntryPattern {
    /// The regular expression. Its group `value`, or else all of it, is what is found; a match with a group `skip…` in
    /// it finds nothing.
    pub regex: String,
    /// Literals of which every match contains one; empty to have them worked out.
    pub keywords: Vec<String>,
    /// What a match must contain besides.
    pub requires: Option<Requirement>,
    /// What the value must satisfy.
    pub checks: Vec<Check>,
    /// Whether an attack that its clause only speaks of is none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unless_reported: bool,
    /// Whether it is ours, and known to compile.
    #[serde(skip)]
    pub built_in: bool,
}

impl EntryPattern {
    /// A pattern from a pack: a regular expression and nothing else.
    pub fn of(regex: impl Into<String>) -> Self {
        Self {
            regex: regex.into(),
            ..Self::default()
        }
    }

    /// As the scanner takes it.
    pub fn spec(&self, kind: Kind) -> PatternSpec<'_> {
        PatternSpec {
            regex: &self.regex,
            ignore_case: kind.ignores_case(),
            keywords: &self.keywords,
            requires: self.requires,
            checks: &self.checks,
            built_in: self.built_in,
            unspaced: false,
        }
    }
}

/// What a match means.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// A secret or personal data of this kind, such as `AWS_KEY`.
    Entity(String),
    /// An attack, or a sign of one.
    Attack {
        /// What it is trying to do.
        intent: JailbreakIntent,
        /// 1 decides alone; less adds up with what stands near it.
        weight: f64,
    },
    /// A command that does this, in a few words.
    Technique(String),
    /// The text asks for the system prompt or instructions.
    RequestsSystemInfo,
    /// The text asks to lift restrictions.
    RequestsCapabilityChange,
}

impl Meaning {
    /// The entity, intent or signal, as data files have it.
    pub fn name(&self) -> &str {
        match self {
            Self::Entity(name) | Self::Technique(name) => name,
            Self::Attack { intent, .. } => intent.as_str(),
            Self::RequestsSystemInfo => "system_info",
            Self::RequestsCapabilityChange => "capability_change",
        }
    }
}

/// Every built-in family, in order.
pub fn all() -> impl Iterator<Item = (Kind, Result<Family, Report>)> {
    FAMILIES
        .iter()
        .map(|(kind, name, text)| (*kind, parse(*kind, name, text)))
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
    static READ: [OnceLock<Result<Family, Report>>; FAMILIES.len()] =
        [const { OnceLock::new() }; FAMILIES.len()];
    let known = FAMILIES.iter().zip(&READ);
    known
        .into_iter()
        .find(|((k, n, _), _)| *k == kind && *n == name)
        .map(|((_, _, text), read)| read.get_or_init(|| parse(kind, name, text)).clone())
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
    let mut common = read_checks(&mut map, d);
    if let Some(examples) = map.texts("examples", d) {
        common.push(Check::NoneOf(Arc::from(examples)));
    }
    let unless = map.one_of("unless", &[("reported", true)], d);
    let nodes = map.list("entries", d).unwrap_or_default();
    map.finish(d);
    let mut entries: Vec<Entry> = Vec::new();
    for node in nodes {
        let Some(mut entry) = read_entry(kind, node, d) else {
            continue;
        };
        if entries.iter().any(|known| known.id == entry.id) {
            d.error(node.place, format!("entry `{}` is there twice", entry.id));
        }
        entry.pattern.checks.splice(0..0, common.iter().cloned());
        entry.pattern.unless_reported = unless.unwrap_or_default();
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
    let regex = map
        .require("pattern", d)
        .and_then(|n| yaml::text(n, "pattern", d));
    let requirements = Requirement::ALL.map(|requirement| (requirement.as_str(), requirement));
    let pattern = EntryPattern {
        regex: regex.unwrap_or_default().to_owned(),
        keywords: map.texts("keywords", d).unwrap_or_default(),
        requires: map.one_of("requires", &requirements, d),
        checks: read_checks(&mut map, d),
        unless_reported: false,
        built_in: true,
    };
    let meaning = read_meaning(kind, &mut map, d);
    let severities = Severity::ALL.map(|severity| (severity.as_str(), severity));
    let severity = map
        .one_of("severity", &severities, d)
        .unwrap_or(Severity::High);
    let origin = match kind {
        Kind::Secrets => map.text("provider", d),
        Kind::Pii => map.text("region", d),
        Kind::Injection => map.text("language", d),
        Kind::Shell | Kind::Signals => None,
    };
    let matches = examples(&mut map, "matches", d);
    let passes = examples(&mut map, "passes", d);
    map.finish(d);
    regex?;
    Some(Entry {
        id: id?.to_owned(),
        pattern,
        meaning: meaning?,
        severity,
        origin: origin.map(str::to_owned),
        matches,
        passes,
    })
}

fn read_checks(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Vec<Check> {
    let nodes = map.list("checks", d).unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| checks::read(node, d))
        .collect()
}

fn read_meaning(kind: Kind, map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<Meaning> {
    match kind {
        Kind::Secrets | Kind::Pii => map
            .require("entity", d)
            .and_then(|n| yaml::text(n, "entity", d))
            .map(|entity| Meaning::Entity(entity.to_owned())),
        Kind::Injection => {
            let weight = map.amount("weight", d).unwrap_or(1.0);
            map.require("intent", d)
                .and_then(|n| intent(n, d))
                .map(|intent| Meaning::Attack { intent, weight })
        }
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
    }
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
    use crate::scan::{EventSet, ScannerBuilder};

    fn families() -> impl Iterator<Item = (Kind, Family)> {
        FAMILIES.iter().map(|(kind, name, text)| {
            let family = parse(*kind, name, text).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(&family.name, name);
            (*kind, family)
        })
    }

    /// Every built-in entry does what its examples say, and some cheap sign announces it.
    #[test]
    fn examples_hold() {
        let mut wrong = Vec::new();
        for (kind, family) in families() {
            for entry in &family.entries {
                let name = format!("{}/{}/{}", kind.as_str(), family.name, entry.id);
                let mut builder = ScannerBuilder::default();
                let spec = entry.pattern.spec(kind);
                let spec = PatternSpec {
                    built_in: false,
                    ..spec
                };
                let id = match builder.add(&spec, &EventSet::standard()) {
                    Ok(id) => id,
                    Err(error) => {
                        wrong.push(format!("{name}: {error}"));
                        continue;
                    }
                };
                if builder.is_unfiltered(id) {
                    wrong.push(format!("{name} would run on every text"));
                }
                let scanner = builder.build();
                let hit = |text: &str| {
                    scanner.scan(text, &EventType::LlmBefore).contains(id)
                        && scanner.find(id, text).is_some()
                };
                for example in entry.matches.iter().filter(|text| !hit(text)) {
                    wrong.push(format!("{name} misses {example:?}"));
                }
                for example in entry.passes.iter().filter(|text| hit(text)) {
                    wrong.push(format!("{name} hits {example:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn ids_are_unique_among_the_families_of_a_kind() {
        let mut seen = std::collections::HashMap::new();
        for (kind, family) in families() {
            // RFC-001's families stand beside ours and may name the same thing.
            for entry in family.entries.iter().filter(|_| family.name != "rfc") {
                let known = seen.insert((kind.as_str(), entry.id.clone()), family.name.clone());
                assert_eq!(known, None, "{} is there twice", entry.id);
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

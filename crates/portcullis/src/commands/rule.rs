//! `portcullis rule list` and `portcullis rule explain`

use std::fmt::Write as _;
use std::io::Write;

use portcullis_core::detectors::{self, Entry, Kind, Meaning};
use portcullis_core::pack::diagnostic::nearest;
use portcullis_core::rules::{BUILT_IN, KNOWN_DEEP, RuleSpec};
use serde_json::{Value, json};

use crate::cli::{Format, RuleExplainArgs, RuleListArgs};
use crate::output::{Answer, BOLD, DIM, Failure, json_line, severity_style};

pub(crate) fn list(args: &RuleListArgs) -> Result<Answer, Failure> {
    let lines: Result<Vec<String>, _> = if args.detectors {
        let mut detectors = built_in()?;
        detectors.retain(|one| args.kind.is_empty() || args.kind.contains(&one.kind));
        let line = |one: &Detector| match args.format {
            Format::Json => json_line(&one.to_json()),
            Format::Text => Ok(one.to_line()),
        };
        detectors.iter().map(line).collect()
    } else {
        let fast = BUILT_IN.iter().map(|spec| rule_line(spec, args.format));
        let deep = KNOWN_DEEP.iter().map(|spec| rule_line(spec, args.format));
        fast.chain(deep).collect()
    };
    print(&lines.map_err(Failure::write)?.concat())
}

fn rule_line<S>(spec: &RuleSpec<S>, format: Format) -> std::io::Result<String> {
    match format {
        Format::Json => json_line(&json!({
            "id": spec.id, "version": spec.version, "cost": spec.cost,
            "events": (spec.events)().names(), "summary": spec.summary().trim(),
        })),
        Format::Text => Ok(format!(
            "{BOLD}{:<22}{BOLD:#} {}\n",
            spec.id,
            spec.summary().trim()
        )),
    }
}

pub(crate) fn explain(args: &RuleExplainArgs) -> Result<Answer, Failure> {
    if let Some(spec) = BUILT_IN.iter().find(|spec| spec.id == args.id) {
        return print(&page(spec, args.format).map_err(Failure::write)?);
    }
    if let Some(spec) = KNOWN_DEEP.iter().find(|spec| spec.id == args.id) {
        return print(&page(spec, args.format).map_err(Failure::write)?);
    }
    let detectors = built_in()?;
    let meant = detectors.iter().filter(|one| one.is_called(&args.id));
    let pages: Result<Vec<String>, _> = match args.format {
        Format::Json => meant.map(|one| json_line(&one.to_json())).collect(),
        Format::Text => meant.map(|one| Ok(one.to_page())).collect(),
    };
    let pages = pages.map_err(Failure::write)?;
    if pages.is_empty() {
        return Err(unknown(&args.id, &detectors));
    }
    print(&pages.join(if args.format == Format::Text {
        "\n"
    } else {
        ""
    }))
}

fn print(text: &str) -> Result<Answer, Failure> {
    anstream::stdout()
        .write_all(text.as_bytes())
        .map_err(Failure::write)?;
    Ok(Answer::Yes)
}

fn page<S>(spec: &RuleSpec<S>, format: Format) -> std::io::Result<String> {
    let events = (spec.events)();
    match format {
        Format::Json => json_line(&json!({
            "id": spec.id, "version": spec.version, "cost": spec.cost,
            "events": events.names(), "page": spec.page(),
        })),
        Format::Text => Ok(format!(
            "{BOLD}{}{BOLD:#} {}, on {}\n\n{}",
            spec.id,
            spec.version,
            events.names().join(", "),
            spec.page()
        )),
    }
}

fn unknown(id: &str, detectors: &[Detector]) -> Failure {
    // A name with a folder is compared with names that have one.
    let from = usize::from(id.contains('/'));
    let comparable = |one: &Detector| one.names().into_iter().skip(from).take(1 + 2 * from);
    let ids: Vec<String> = detectors.iter().flat_map(comparable).collect();
    let deep = KNOWN_DEEP.iter().map(|spec| spec.id);
    let rules = BUILT_IN.iter().map(|spec| spec.id).chain(deep);
    let help = match nearest(id, rules.chain(ids.iter().map(String::as_str))) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "see `portcullis rule list` and `portcullis rule list --detectors`".to_owned(),
    };
    Failure::Input(anyhow::anyhow!("no rule or detector `{id}`: {help}"))
}

/// An entry, and where it is from.
struct Detector {
    kind: Kind,
    family: String,
    about: String,
    entry: Entry,
}

fn built_in() -> Result<Vec<Detector>, Failure> {
    let mut detectors = Vec::new();
    for (kind, family) in detectors::all() {
        let family = family.map_err(|report| Failure::Input(report.into()))?;
        detectors.extend(family.entries.into_iter().map(|entry| Detector {
            kind,
            family: family.name.clone(),
            about: family.about.clone(),
            entry,
        }));
    }
    Ok(detectors)
}

impl Detector {
    /// What it may be called, the shortest first.
    fn names(&self) -> [String; 4] {
        let (kind, family, id) = (self.kind.as_str(), &self.family, &self.entry.id);
        [
            id.clone(),
            format!("{kind}/{id}"),
            format!("{family}/{id}"),
            format!("{kind}/{family}/{id}"),
        ]
    }

    fn is_called(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    fn to_line(&self) -> String {
        let Entry {
            severity, meaning, ..
        } = &self.entry;
        let style = severity_style(*severity);
        let origin = self.entry.origin.as_ref();
        format!(
            "{BOLD}{:<48}{BOLD:#} {style}{:<8}{style:#} {}{}\n",
            self.names()[3],
            severity.as_str(),
            meaning.name(),
            origin.map(|o| format!(" ({o})")).unwrap_or_default(),
        )
    }

    fn to_page(&self) -> String {
        let Entry {
            pattern, severity, ..
        } = &self.entry;
        let checks: Vec<String> = pattern.checks.iter().map(ToString::to_string).collect();
        let weight = match self.entry.meaning {
            Meaning::Attack { weight, .. } if weight < 1.0 => {
                format!("{weight}: a sign, which counts with others near it")
            }
            _ => String::new(),
        };
        let requires = pattern.requires.map(|one| one.as_str().to_owned());
        let mut page = format!("{BOLD}{}{BOLD:#}\n\n", self.names()[3]);
        for (name, value) in [
            ("family", format!("{}: {}", self.family, self.about.trim())),
            (
                self.kind.meaning_key(),
                self.entry.meaning.name().to_owned(),
            ),
            (
                self.kind.origin_key(),
                self.entry.origin.clone().unwrap_or_default(),
            ),
            ("severity", severity.as_str().to_owned()),
            ("weight", weight),
            ("pattern", pattern.regex.clone()),
            ("keywords", pattern.keywords.join(", ")),
            ("requires", requires.unwrap_or_default()),
            ("checks", checks.join(", ")),
        ] {
            if !value.is_empty() {
                // Writing to a String cannot fail.
                let _ = writeln!(page, "{DIM}{name:<9}{DIM:#} {value}");
            }
        }
        let texts = [
            ("matches", &self.entry.matches),
            ("passes", &self.entry.passes),
        ];
        for (name, examples) in texts {
            let _ = writeln!(page, "\n{DIM}{name}{DIM:#}");
            for example in examples {
                // Quoted, so that line breaks and invisible characters are seen.
                let _ = writeln!(page, "  {example:?}");
            }
        }
        page
    }

    fn to_json(&self) -> Value {
        let Entry {
            id,
            pattern,
            meaning,
            severity,
            origin,
            matches,
            passes,
        } = &self.entry;
        let weight = match meaning {
            Meaning::Attack { weight, .. } => Some(weight),
            _ => None,
        };
        json!({
            "kind": self.kind.as_str(), "family": self.family, "id": id,
            self.kind.meaning_key(): meaning.name(), self.kind.origin_key(): origin,
            "severity": severity, "weight": weight, "pattern": pattern.regex,
            "keywords": pattern.keywords, "requires": pattern.requires,
            "checks": pattern.checks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "matches": matches, "passes": passes,
        })
    }
}

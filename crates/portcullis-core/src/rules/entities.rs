//! What the rules that look for values share: named patterns, from families and from packs.

use serde::Serialize;

use crate::decision::Severity;
use crate::detectors::{EntryPattern, Kind, Meaning};
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::read_families;
use crate::pack::yaml::{self, MapReader, Yaml};

/// One kind of value to look for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EntityPattern {
    /// What it is called, such as `AWS_KEY`.
    pub entity: String,
    /// How to find it.
    #[serde(flatten)]
    pub pattern: EntryPattern,
    /// How bad it is.
    pub severity: Severity,
    /// Where it was configured.
    #[serde(skip)]
    pub place: Place,
}

/// The patterns of these families, in order.
pub(super) fn of_families(
    kind: Kind,
    families: &[(String, Place)],
    d: &mut Diagnostics,
) -> Vec<EntityPattern> {
    read_families(kind, families, d)
        .into_iter()
        .filter_map(|(entry, place)| match entry.meaning {
            Meaning::Entity(entity) | Meaning::Technique(entity) => Some(EntityPattern {
                entity,
                pattern: entry.pattern,
                severity: entry.severity,
                place,
            }),
            _ => None,
        })
        .collect()
}

/// A pack's `patterns`, as `NAME: regular expression`.
pub(super) fn configured(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Vec<EntityPattern> {
    let Some(node) = config.get("patterns") else {
        return Vec::new();
    };
    let Yaml::Map(entries) = &node.yaml else {
        d.error(
            node.place,
            "`patterns` must map a NAME to a regular expression",
        );
        return Vec::new();
    };
    entries
        .iter()
        .filter_map(|(name, regex)| {
            Some(EntityPattern {
                entity: name.name.clone(),
                pattern: EntryPattern::of(yaml::text(regex, &name.name, d)?),
                severity: Severity::High,
                place: regex.place,
            })
        })
        .collect()
}

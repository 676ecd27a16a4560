use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{DeepSettings, DeepSpec, KNOWN_DEEP};
use crate::ids::RuleId;
use crate::scan::EventSet;

/// A deep rule of the embedder's that a policy wants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeepRuleSettings {
    /// Which.
    pub id: RuleId,
    /// A disabled one is not run even if it is registered.
    pub enabled: bool,
    /// Its own settings, for whoever builds it.
    pub config: Map<String, Value>,
}

/// A deep rule that a policy wants, for whoever builds it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepRuleEntry {
    /// Its name in the policy.
    pub id: RuleId,
    /// What kind of rule it is; the same as the name where code has it.
    pub kind: RuleId,
    /// What it judges. Empty where only its code knows.
    pub events: EventSet,
    /// A disabled one is not run even if it is registered.
    pub enabled: bool,
    /// Its own settings.
    pub settings: DeepSettings,
    /// Whether the policy says what it judges.
    has_own_events: bool,
}

impl DeepRuleEntry {
    /// A rule of a known kind, on events of its own or on those of its kind.
    pub(crate) fn new(
        id: RuleId,
        spec: &DeepSpec,
        settings: DeepSettings,
        events: Option<EventSet>,
        enabled: bool,
    ) -> Self {
        Self {
            id,
            kind: RuleId::from_static(spec.id),
            has_own_events: events.is_some(),
            events: events.unwrap_or_else(spec.events),
            enabled,
            settings,
        }
    }

    /// Its settings as the pack has them, if they are somebody else's to understand.
    pub fn config(&self) -> Option<&Map<String, Value>> {
        match &self.settings {
            DeepSettings::Other(config) => Some(config),
            _ => None,
        }
    }

    /// The version of its kind, if that is built in.
    pub fn version(&self) -> Option<&'static str> {
        self.settings.spec().map(|spec| spec.version)
    }
}

impl From<DeepRuleSettings> for DeepRuleEntry {
    fn from(settings: DeepRuleSettings) -> Self {
        let DeepRuleSettings {
            id,
            enabled,
            config,
        } = settings;
        let known = KNOWN_DEEP.iter().find(|spec| spec.id == id.as_str());
        Self {
            kind: id.clone(),
            events: known.map(|spec| (spec.events)()).unwrap_or_default(),
            settings: DeepSettings::Other(config),
            has_own_events: false,
            id,
            enabled,
        }
    }
}

impl Serialize for DeepRuleEntry {
    /// A rule that brings its own name and events is written without them: they are its code's.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("enabled", &self.enabled)?;
        map.serialize_entry("config", &self.settings)?;
        let version = self.version();
        if version.is_some() || self.id != self.kind {
            map.serialize_entry("rule", &self.kind)?;
        }
        if let Some(version) = version {
            map.serialize_entry("version", version)?;
        }
        if version.is_some() || self.has_own_events {
            map.serialize_entry("events", &self.events.names())?;
        }
        map.end()
    }
}

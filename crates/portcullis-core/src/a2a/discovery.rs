//! What a packet lets be seen of an agent's card (freeze G4-A, version 1).
//!
//! Every payload has a `discovery` object with the same four members. A boolean that is `true` says one thing: a
//! producer put JSON `true` on the path that the freeze names, with objects all the way down. It does not say that a
//! card is genuine, that anybody was authenticated or authorised, or that anything succeeded.
//!
//! Two paths count, and no other:
//!
//! | member | path in the packet |
//! |---|---|
//! | `agent_card_visible` | `attributes.assay_g4.agent_card.visible` |
//! | `extended_card_access_visible` | `attributes.assay_g4.extended_card_access.visible` |
//!
//! Not capabilities, not unknown members of the packet, not how many of them there are, not any other attribute.
//! `signature_material_visible` is `false` in every packet: no path has been agreed on that could make it `true`, so
//! it says nothing about signatures.
//!
//! `agent_card_source_kind` says what kind of source made the card visible. All four kinds are part of the contract,
//! in this order of precedence: `typed_payload`, `attributes`, `unmapped`, `unknown`. **Version 1 produces only
//! `attributes` and `unknown`**: there is no typed path and no rule for unmapped members yet. The order is written
//! down now, so that a path added later changes no answer that was given before.

use serde::Serialize;

use super::json::Json;

/// The namespace that producers opt in with.
const NAMESPACE: &str = "assay_g4";

/// What of an agent's card is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(deny_unknown_fields)
)]
pub struct Discovery {
    /// What kind of source made the card visible. Version 1 produces `attributes` and `unknown` only. Not how far that source is to be trusted.
    pub agent_card_source_kind: SourceKind,
    /// A producer put `true` at `attributes.assay_g4.agent_card.visible`. Not that the card is valid, genuine or complete.
    pub agent_card_visible: bool,
    /// A producer put `true` at `attributes.assay_g4.extended_card_access.visible`. Not that anybody was authenticated or authorised, or that access succeeded.
    pub extended_card_access_visible: bool,
    /// Always `false` in version 1. Says nothing about signatures.
    #[cfg_attr(feature = "schema", schemars(extend("const" = false)))]
    pub signature_material_visible: bool,
}

/// What kind of source made a card visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A typed member of the protocol. Not produced in version 1.
    TypedPayload,
    /// An attribute at a frozen path.
    Attributes,
    /// A named member that the protocol does not have. Not produced in version 1.
    Unmapped,
    /// None.
    #[default]
    Unknown,
}

/// Which kinds of source have a match.
#[derive(Debug, Clone, Copy, Default)]
struct Matches {
    typed_payload: bool,
    attributes: bool,
    unmapped: bool,
}

impl SourceKind {
    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TypedPayload => "typed_payload",
            Self::Attributes => "attributes",
            Self::Unmapped => "unmapped",
            Self::Unknown => "unknown",
        }
    }

    /// The kind that takes precedence.
    fn of(matches: Matches) -> Self {
        if matches.typed_payload {
            Self::TypedPayload
        } else if matches.attributes {
            Self::Attributes
        } else if matches.unmapped {
            Self::Unmapped
        } else {
            Self::Unknown
        }
    }
}

impl Discovery {
    /// Reads the two frozen paths.
    pub(super) fn of(attributes: Option<&Json<'_>>) -> Self {
        let namespace = attributes.and_then(|attributes| attributes.get(NAMESPACE));
        let is_visible = |what: &str| {
            let visible = namespace.and_then(|namespace| namespace.get(what)?.get("visible"));
            matches!(visible, Some(Json::Bool(true)))
        };
        let agent_card_visible = is_visible("agent_card");
        Self {
            agent_card_source_kind: SourceKind::of(Matches {
                attributes: agent_card_visible,
                ..Matches::default()
            }),
            agent_card_visible,
            extended_card_access_visible: is_visible("extended_card_access"),
            signature_material_visible: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_kind_with_a_match_wins() {
        for bits in 0..8 {
            let [typed_payload, attributes, unmapped] = [4, 2, 1].map(|bit| bits & bit != 0);
            let kind = SourceKind::of(Matches {
                typed_payload,
                attributes,
                unmapped,
            });
            let expected = match bits {
                4.. => SourceKind::TypedPayload,
                2..4 => SourceKind::Attributes,
                1 => SourceKind::Unmapped,
                _ => SourceKind::Unknown,
            };
            assert_eq!(kind, expected, "{bits:03b}");
        }
    }
}

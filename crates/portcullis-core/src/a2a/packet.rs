//! A packet as its producers write it.

use std::borrow::Cow;

use serde::Serialize;

use super::batch::{Agent, Artifact, Message, Task};
use super::json::Json;

/// A packet, for those who make one rather than receive one.
///
/// What is received is read more leniently than this: a member of another type counts as missing, and members that are
/// not here are counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("allOf" = [
        {
            "if": {"properties": {"event_type": {"enum": ["task.requested", "task.updated"]}}},
            "then": {"required": ["task"]},
        },
        {
            "if": {"properties": {"event_type": {"const": "artifact.shared"}}},
            "then": {"required": ["artifact"]},
        },
    ]))
)]
pub struct Packet<'a> {
    /// `a2a`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "a2a")))]
    pub protocol: Cow<'a, str>,
    /// The version of the protocol: 0.2 or a later 0.x, such as `0.2.0`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^0+\.0*([2-9]|[1-9][0-9]+)(\.|$)"))
    )]
    pub version: Cow<'a, str>,
    /// What happened: `agent.capabilities`, `task.requested`, `task.updated` or `artifact.shared`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["agent.capabilities", "task.requested", "task.updated", "artifact.shared"])))]
    pub event_type: Cow<'a, str>,
    /// When, by RFC 3339. Without it, a fixed instant stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub timestamp: Option<Cow<'a, str>>,
    /// Whose doing it was.
    pub agent: Agent<'a>,
    /// The task that it is about. Task events need one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task<'a>>,
    /// The artefact that it is about. `artifact.shared` needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact<'a>>,
    /// The message that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message<'a>>,
    /// What else there is to say. `assay_g4` in it is how a producer makes an agent's card visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Json<'a>>,
}

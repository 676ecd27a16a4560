//! Single members, in the spelling of either generation.
//!
//! A text that is empty counts as missing throughout: 1.0 is protobuf, which does not tell the two apart.

use std::borrow::Cow;

use super::draft::Members;
use crate::a2a::error::ConvertError;
use crate::a2a::json::Json;
use crate::redact::Path;

/// How long an id may be. Some are in every packet of a payload, and those must not outgrow it.
pub(super) const LONGEST_ID: usize = 512;

/// A member, by its name in JSON or the one in protobuf, which readers of protobuf take too: `taskId` or `task_id`.
pub(super) fn member<'j, 'a>(object: &'j Json<'a>, name: &str) -> Option<&'j Json<'a>> {
    let found = object.get(name);
    found.or_else(|| object.get(&snake_case(name)?))
}

pub(super) fn take<'a>(object: &mut Json<'a>, name: &str) -> Option<Json<'a>> {
    let found = object.take(name);
    found.or_else(|| object.take(&snake_case(name)?))
}

/// The name in protobuf, if it is another one.
fn snake_case(name: &str) -> Option<String> {
    let is_upper = |c: char| c.is_ascii_uppercase();
    if !name.contains(is_upper) {
        return None;
    }
    let mut snake = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if is_upper(c) {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    Some(snake)
}

/// A member that is a text.
pub(super) fn text<'a>(object: &mut Json<'a>, name: &str) -> Option<Cow<'a, str>> {
    let text = take(object, name)?.into_string()?;
    (!text.is_empty()).then_some(text)
}

/// A member that is the id of something.
pub(super) fn id<'a>(
    object: &mut Json<'a>,
    name: &str,
    place: Path<'_>,
) -> Result<Option<Cow<'a, str>>, ConvertError> {
    match text(object, name) {
        Some(id) if id.len() > LONGEST_ID => Err(too_long(place, name)),
        id => Ok(id),
    }
}

/// The id that something cannot be told of without.
pub(super) fn required_id<'a>(
    object: &mut Json<'a>,
    name: &str,
    place: Path<'_>,
) -> Result<Cow<'a, str>, ConvertError> {
    let id = id(object, name, place)?;
    id.ok_or_else(|| problem(place, &format!("has no `{name}`: send it as a string")))
}

/// The context that something belongs to.
pub(super) fn context_id<'a>(
    object: &mut Json<'a>,
    place: Path<'_>,
) -> Result<Option<Json<'a>>, ConvertError> {
    Ok(id(object, "contextId", place)?.map(Json::String))
}

/// Which call it is: a string or a number.
pub(super) fn jsonrpc_id<'a>(
    call: &mut Json<'a>,
    place: Path<'_>,
) -> Result<Option<Json<'a>>, ConvertError> {
    match call.take("id") {
        Some(Json::String(id)) if id.len() > LONGEST_ID => Err(too_long(place, "id")),
        Some(id @ (Json::String(_) | Json::Number(_))) => Ok(Some(id)),
        _ => Ok(None),
    }
}

/// What the traffic says about something in its own words.
pub(super) fn metadata<'a>(object: &mut Json<'a>) -> Option<Json<'a>> {
    object
        .take("metadata")
        .filter(|metadata| *metadata != Json::Null)
}

/// A member that is a list, unless it is empty.
pub(super) fn list<'a>(object: &mut Json<'a>, name: &str) -> Option<Json<'a>> {
    let list = take(object, name)?;
    matches!(&list, Json::Array(items) if !items.is_empty()).then_some(list)
}

/// The ids of the messages that a task remembers: what leads from a request to the task that it became.
pub(super) fn history<'a>(task: &mut Json<'a>) -> Option<Json<'a>> {
    let Some(Json::Array(messages)) = task.take("history") else {
        return None;
    };
    let ids = messages
        .into_iter()
        .filter_map(|mut message| text(&mut message, "messageId"));
    let ids: Vec<_> = ids.map(Json::String).collect();
    (!ids.is_empty()).then_some(Json::Array(ids))
}

/// `true`, if a member is. 1.0 leaves out what is `false`.
pub(super) fn flag<'a>(object: &Json<'a>, name: &str) -> Option<Json<'a>> {
    matches!(member(object, name), Some(Json::Bool(true))).then_some(Json::Bool(true))
}

/// Who speaks: `user` or `agent`.
pub(super) fn role<'a>(message: &mut Json<'a>) -> Option<Cow<'a, str>> {
    text(message, "role").map(|role| spelled(role, "ROLE_"))
}

/// How a task stands: `working`, `input-required`, and so on.
pub(super) fn state<'a>(status: &mut Json<'a>) -> Option<Cow<'a, str>> {
    let state = spelled(text(status, "state")?, "TASK_STATE_");
    Some(match &*state {
        "unspecified" => "unknown".into(),
        // As the HTTP binding of 0.3 had it.
        "cancelled" => "canceled".into(),
        _ => state,
    })
}

/// A name of 1.0 as 0.3 has it.
fn spelled<'a>(name: Cow<'a, str>, prefix: &str) -> Cow<'a, str> {
    match name.strip_prefix(prefix) {
        Some(rest) => rest.to_ascii_lowercase().replace('_', "-").into(),
        None => name,
    }
}

/// How many parts there are of each kind.
pub(super) fn count_parts<'a>(holder: &Json<'_>) -> Option<Json<'a>> {
    let parts = parts(holder)?;
    let mut counts = Members::default();
    for kind in ["data", "file", "other", "text"] {
        let count = parts.iter().filter(|part| kind_of(part) == kind).count();
        let count = (count > 0).then(|| Json::Number(count.into()));
        counts.put(kind, count);
    }
    (!parts.is_empty()).then(|| counts.into_object())
}

/// The media type of the first part that has one.
pub(super) fn media_type<'a>(artifact: &Json<'a>) -> Option<Cow<'a, str>> {
    let mut types = parts(artifact)?.iter().filter_map(|part| {
        let old = part.get("file").and_then(|file| member(file, "mimeType"));
        match member(part, "mediaType").or(old) {
            Some(Json::String(media_type)) if !media_type.is_empty() => Some(media_type.clone()),
            _ => None,
        }
    });
    types.next()
}

/// The parts of a message or an artefact. The HTTP binding of 0.3 calls those of a message `content`.
fn parts<'j, 'a>(holder: &'j Json<'a>) -> Option<&'j [Json<'a>]> {
    match holder.get("parts").or_else(|| holder.get("content")) {
        Some(Json::Array(parts)) => Some(parts),
        _ => None,
    }
}

fn kind_of(part: &Json<'_>) -> &'static str {
    let has = |name| part.get(name).is_some();
    if has("text") {
        "text"
    } else if has("file") || has("raw") || has("url") {
        "file"
    } else if has("data") {
        "data"
    } else {
        "other"
    }
}

/// What a card says that the agent can do: the ids of its skills.
pub(super) fn capabilities<'a>(card: &mut Json<'a>) -> Vec<Cow<'a, str>> {
    let Some(Json::Array(skills)) = card.take("skills") else {
        return Vec::new();
    };
    let ids = skills
        .into_iter()
        .filter_map(|mut skill| text(&mut skill, "id"));
    ids.collect()
}

/// Where a card of 1.0 says that the agent is, and the version that it speaks there.
pub(super) fn interface<'a>(card: &mut Json<'a>) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
    let Some(Json::Array(interfaces)) = take(card, "supportedInterfaces") else {
        return (None, None);
    };
    // Agents put the one that they prefer first.
    let mut named = interfaces.into_iter().filter_map(|mut interface| {
        let url = text(&mut interface, "url")?;
        Some((Some(url), text(&mut interface, "protocolVersion")))
    });
    named.next().unwrap_or_default()
}

/// An error that says where.
pub(super) fn problem(place: Path<'_>, problem: &str) -> ConvertError {
    let path = place.short_pointer();
    let problem = if path.is_empty() {
        format!("it {problem}")
    } else {
        format!("`{path}` {problem}")
    };
    ConvertError::NotTraffic { problem }
}

fn too_long(place: Path<'_>, name: &str) -> ConvertError {
    let place = Path::Member(&place, name);
    problem(
        place,
        &format!("is longer than {LONGEST_ID} bytes: send a shorter id"),
    )
}

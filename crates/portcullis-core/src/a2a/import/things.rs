//! What the protocol's things become.

use std::borrow::Cow;

use super::draft::{Draft, Envelope, Import};
use super::read;
use super::shape::Shape;
use crate::a2a::batch::{Agent, Artifact, Message, Task};
use crate::a2a::convert::EventType;
use crate::a2a::error::ConvertError;
use crate::a2a::json::Json;
use crate::a2a::time::Time;
use crate::redact::Path;

impl<'a> Import<'a, '_> {
    /// Something of the protocol, whatever it came in.
    pub(super) fn thing(
        &mut self,
        mut thing: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        match Shape::of(&thing) {
            None => Err(read::problem(place, &Shape::unknown(&thing))),
            Some(Shape::Wrapped(wrapper)) => {
                envelope.metadata = read::metadata(&mut thing);
                // Only who asks says how to be answered.
                envelope.is_request |=
                    wrapper.name == "request" || thing.get("configuration").is_some();
                let inner = read::take(&mut thing, wrapper.name).unwrap_or_default();
                let place = Path::Member(&place, wrapper.name);
                self.shaped(*wrapper.is, inner, place, envelope)
            }
            Some(shape) => self.shaped(shape, thing, place, envelope),
        }
    }

    fn shaped(
        &mut self,
        shape: Shape,
        thing: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        match shape {
            Shape::Card => self.card(thing, place, envelope),
            Shape::Message => self.message(thing, place, envelope),
            Shape::Task => self.task(thing, place, envelope),
            Shape::Artifact => {
                let draft = Draft::new(EventType::ArtifactShared);
                self.artifact(thing, place, draft, envelope)
            }
            Shape::StatusUpdate => self.status_update(thing, place, envelope),
            Shape::ArtifactUpdate => self.artifact_update(thing, place, envelope),
            Shape::Tasks => self.tasks(thing, place, envelope),
            Shape::PushConfig => self.push_config(thing, place, envelope),
            Shape::Nothing | Shape::Wrapped(_) => Ok(()),
        }
    }

    fn card(
        &mut self,
        mut card: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let capabilities = read::capabilities(&mut card);
        let (url, protocol_version) = match read::interface(&mut card) {
            (Some(url), version) => (Some(url), version),
            (None, _) => (
                read::text(&mut card, "url"),
                read::text(&mut card, "protocolVersion"),
            ),
        };
        let name = read::text(&mut card, "name");

        let mut draft = Draft::new(EventType::AgentCapabilities);
        let version = read::text(&mut card, "version");
        draft.a2a.put("agent_version", version.map(Json::String));
        let protocol_version = protocol_version.map(Json::String);
        draft.a2a.put("protocol_version", protocol_version);
        let able = card.take("capabilities").unwrap_or_default();
        draft.a2a.put("streaming", read::flag(&able, "streaming"));
        let notifies = read::flag(&able, "pushNotifications");
        draft.a2a.put("push_notifications", notifies);
        draft.metadata = read::metadata(&mut card);
        let id = url.or_else(|| name.clone());
        let id = id.ok_or_else(|| read::problem(place, "is a card without a url or a name"))?;
        draft.agent = Some(Agent {
            capabilities: Some(capabilities),
            id,
            name,
            role: None,
        });
        self.push(draft, envelope)
    }

    pub(super) fn message(
        &mut self,
        mut message: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let message_id = read::id(&mut message, "messageId", place)?;
        let named = read::id(&mut message, "taskId", place)?;
        let role = read::role(&mut message);
        let is_asked = envelope.is_request || role.as_deref() == Some("user");
        let mut draft = Draft::new(if is_asked {
            EventType::TaskRequested
        } else {
            EventType::TaskUpdated
        });
        let is_nameless = named.is_none();
        let task_id = named.or_else(|| message_id.clone()).ok_or_else(|| {
            read::problem(
                place,
                "is a message without a `messageId`: send it as a string",
            )
        })?;
        let substitute = is_nameless.then(|| Json::String("message_id".into()));
        draft.a2a.put("task_id_from", substitute);
        let context = read::context_id(&mut message, place)?;
        draft.a2a.put("context_id", context);
        draft.a2a.put("parts", read::count_parts(&message));
        let extensions = read::list(&mut message, "extensions");
        draft.a2a.put("extensions", extensions);
        let references = read::list(&mut message, "referenceTaskIds");
        draft.a2a.put("reference_task_ids", references);
        draft.metadata = read::metadata(&mut message);
        draft.task = Some(task(task_id, "message"));
        draft.message = message_id.map(|id| Message { id, role });
        self.push(draft, envelope)
    }

    /// A request about a task, other than a message.
    pub(super) fn asked_of_task(
        &mut self,
        kind: &'static str,
        mut params: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        // Next to a `taskId`, or where there should be one, `id` is that of the setting.
        let is_setting = read::member(&params, "taskId").is_some() || kind == "push-config-set";
        let name = if is_setting { "taskId" } else { "id" };
        let id = read::required_id(&mut params, name, place)?;
        let mut draft = Draft::new(EventType::TaskRequested);
        draft.metadata = read::metadata(&mut params);
        draft.task = Some(task(id, kind));
        self.push(draft, envelope)
    }

    fn push_config(
        &mut self,
        mut setting: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let parent = read::required_id(&mut setting, "parent", place)?;
        let id = match parent.strip_prefix("tasks/") {
            Some(id) => id.to_owned().into(),
            None => parent,
        };
        let mut draft = Draft::new(EventType::TaskRequested);
        draft.task = Some(task(id, "push-config-set"));
        self.push(draft, envelope)
    }

    fn tasks(
        &mut self,
        mut list: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let Some(Json::Array(tasks)) = list.take("tasks") else {
            return Ok(());
        };
        let place = Path::Member(&place, "tasks");
        for (index, task) in tasks.into_iter().enumerate() {
            self.task(task, Path::Item(&place, index), envelope)?;
        }
        Ok(())
    }

    /// How a task stands, and what it has made so far.
    fn task(
        &mut self,
        mut snapshot: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let id = read::required_id(&mut snapshot, "id", place)?;
        let context = read::context_id(&mut snapshot, place)?;
        let artifacts = snapshot.take("artifacts");
        let mut draft = Draft::new(EventType::TaskUpdated);
        draft.a2a.put("history", read::history(&mut snapshot));
        draft.a2a.put("context_id", context.clone());
        draft.task = Some(task(id.clone(), "task"));
        let time = self.status(snapshot, place, draft, envelope)?;

        let Some(Json::Array(artifacts)) = artifacts else {
            return Ok(());
        };
        let place = Path::Member(&place, "artifacts");
        for (index, artifact) in artifacts.into_iter().enumerate() {
            let mut draft = Draft::new(EventType::ArtifactShared);
            draft.a2a.put("context_id", context.clone());
            draft.time = time;
            let from = time.map(|_| Json::String("status".into()));
            draft.a2a.put("time_from", from);
            draft.task = Some(task(id.clone(), "task"));
            self.artifact(artifact, Path::Item(&place, index), draft, envelope)?;
        }
        Ok(())
    }

    fn status_update(
        &mut self,
        mut update: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let id = read::required_id(&mut update, "taskId", place)?;
        let mut draft = Draft::new(EventType::TaskUpdated);
        let context = read::context_id(&mut update, place)?;
        draft.a2a.put("context_id", context);
        draft.task = Some(task(id, "status-update"));
        self.status(update, place, draft, envelope)?;
        Ok(())
    }

    /// The status of a task, or of an update of one. Gives since when it stands like that.
    fn status(
        &mut self,
        mut holder: Json<'a>,
        place: Path<'_>,
        mut draft: Draft<'a>,
        envelope: &mut Envelope<'a>,
    ) -> Result<Option<Time>, ConvertError> {
        let mut status = holder.take("status").unwrap_or_default();
        let mut message = status.take("message").unwrap_or_default();
        let time = read::text(&mut status, "timestamp").and_then(|time| Time::parse(&time));
        let place = Path::Member(&place, "status");
        let place = Path::Member(&place, "message");
        let message_id = read::id(&mut message, "messageId", place)?;
        draft.a2a.put("parts", read::count_parts(&message));
        let said = read::metadata(&mut message);
        draft.a2a.put("message_metadata", said);
        draft.message = message_id.map(|id| Message {
            id,
            role: read::role(&mut message),
        });
        draft.time = time;
        draft.metadata = read::metadata(&mut holder);
        if let Some(task) = &mut draft.task {
            task.status = read::state(&mut status);
        }
        self.push(draft, envelope)?;
        Ok(time)
    }

    fn artifact_update(
        &mut self,
        mut update: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let id = read::required_id(&mut update, "taskId", place)?;
        let mut draft = Draft::new(EventType::ArtifactShared);
        let context = read::context_id(&mut update, place)?;
        draft.a2a.put("context_id", context);
        draft.a2a.put("append", read::flag(&update, "append"));
        draft
            .a2a
            .put("last_chunk", read::flag(&update, "lastChunk"));
        draft.task = Some(task(id, "artifact-update"));
        envelope.metadata = read::metadata(&mut update);
        let artifact = update.take("artifact").unwrap_or_default();
        let place = Path::Member(&place, "artifact");
        self.artifact(artifact, place, draft, envelope)
    }

    fn artifact(
        &mut self,
        mut artifact: Json<'a>,
        place: Path<'_>,
        mut draft: Draft<'a>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        let id = read::required_id(&mut artifact, "artifactId", place)?;
        draft.a2a.put("parts", read::count_parts(&artifact));
        let extensions = read::list(&mut artifact, "extensions");
        draft.a2a.put("extensions", extensions);
        draft.metadata = read::metadata(&mut artifact);
        draft.artifact = Some(Artifact {
            id,
            media_type: read::media_type(&artifact),
            name: read::text(&mut artifact, "name"),
        });
        self.push(draft, envelope)
    }
}

fn task<'a>(id: Cow<'a, str>, kind: &'static str) -> Task<'a> {
    Task {
        id,
        kind: Some(kind.into()),
        status: None,
    }
}

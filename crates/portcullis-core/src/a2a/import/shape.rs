//! What was sent, told by its members.

use super::read;
use crate::a2a::error::ConvertError;
use crate::a2a::json::Json;
use crate::redact::Path;

/// A method of the protocol.
pub(super) struct Method {
    /// Its name in 0.3, which evidence has for both generations.
    pub(super) name: &'static str,
    /// Its name in 1.0.
    current: &'static str,
    pub(super) asks: Asks,
}

/// What a method asks for.
#[derive(Clone, Copy)]
pub(super) enum Asks {
    /// That a message be answered.
    Message,
    /// That something be done about a task: what, as packets call it.
    OfTask(&'static str),
    /// To be told something. There is nothing to tell of it.
    Nothing,
}

const METHODS: [Method; 11] = [
    Method::new("message/send", "SendMessage", Asks::Message),
    Method::new("message/stream", "SendStreamingMessage", Asks::Message),
    Method::new("tasks/get", "GetTask", Asks::Nothing),
    Method::new("tasks/list", "ListTasks", Asks::Nothing),
    Method::new("tasks/cancel", "CancelTask", Asks::OfTask("cancel")),
    Method::new("tasks/resubscribe", "SubscribeToTask", Asks::Nothing),
    Method::new(
        "tasks/pushNotificationConfig/set",
        "CreateTaskPushNotificationConfig",
        Asks::OfTask("push-config-set"),
    ),
    Method::new(
        "tasks/pushNotificationConfig/get",
        "GetTaskPushNotificationConfig",
        Asks::Nothing,
    ),
    Method::new(
        "tasks/pushNotificationConfig/list",
        "ListTaskPushNotificationConfigs",
        Asks::Nothing,
    ),
    Method::new(
        "tasks/pushNotificationConfig/delete",
        "DeleteTaskPushNotificationConfig",
        Asks::OfTask("push-config-delete"),
    ),
    Method::new(
        "agent/getAuthenticatedExtendedCard",
        "GetExtendedAgentCard",
        Asks::Nothing,
    ),
];

impl Method {
    const fn new(name: &'static str, current: &'static str, asks: Asks) -> Self {
        Self {
            name,
            current,
            asks,
        }
    }

    /// The method that a call names.
    pub(super) fn of(named: &Json<'_>, place: Path<'_>) -> Result<&'static Self, ConvertError> {
        let found = match named {
            Json::String(name) => {
                let mut methods = METHODS.iter();
                if let Some(method) =
                    methods.find(|method| [method.name, method.current].contains(&&**name))
                {
                    return Ok(method);
                }
                format!("{:?}", &name[..name.floor_char_boundary(64)])
            }
            other => other.what().to_owned(),
        };
        let names = METHODS.map(|method| format!("{} or {}", method.name, method.current));
        let problem = format!(
            "calls a method that A2A does not have: found {found}; expected {}",
            names.join(", ")
        );
        Err(read::problem(place, &problem))
    }
}

/// What something of the protocol is.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Card,
    Message,
    Task,
    Artifact,
    StatusUpdate,
    ArtifactUpdate,
    /// Tasks in a list.
    Tasks,
    /// A request of the HTTP binding of 0.3 to set where notifications go, which names its task.
    PushConfig,
    /// The only member that matters of an object that says what it is by the member's name.
    Wrapped(Wrapper),
    /// Settings of notifications, an error, or an answer that says no more than that it is one.
    Nothing,
}

/// A member that says what it is.
#[derive(Clone, Copy)]
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    pub(super) is: &'static Shape,
}

const WRAPPERS: [Wrapper; 5] = [
    Wrapper {
        name: "task",
        is: &Shape::Task,
    },
    Wrapper {
        name: "message",
        is: &Shape::Message,
    },
    // As clients of 0.3 send it by the HTTP binding.
    Wrapper {
        name: "request",
        is: &Shape::Message,
    },
    Wrapper {
        name: "statusUpdate",
        is: &Shape::StatusUpdate,
    },
    Wrapper {
        name: "artifactUpdate",
        is: &Shape::ArtifactUpdate,
    },
];

impl Shape {
    /// What it is, by what 0.3 calls it, or else by the members that only it has.
    pub(super) fn of(thing: &Json<'_>) -> Option<Self> {
        let Json::Object(members) = thing else {
            return None;
        };
        let is_text = |name: &str| matches!(read::member(thing, name), Some(Json::String(_)));
        let is_list = |name: &str| matches!(read::member(thing, name), Some(Json::Array(_)));
        let is_object = |name: &str| matches!(read::member(thing, name), Some(Json::Object(_)));
        if let Some(Json::String(kind)) = thing.get("kind") {
            match &**kind {
                "message" => return Some(Self::Message),
                "task" => return Some(Self::Task),
                "status-update" => return Some(Self::StatusUpdate),
                "artifact-update" => return Some(Self::ArtifactUpdate),
                _ => {}
            }
        }
        if is_text("messageId") {
            return Some(Self::Message);
        }
        if is_text("artifactId") {
            return Some(Self::Artifact);
        }
        if is_text("taskId") && is_object("artifact") {
            return Some(Self::ArtifactUpdate);
        }
        if is_text("taskId") && is_object("status") {
            return Some(Self::StatusUpdate);
        }
        if is_text("id") && is_object("status") {
            return Some(Self::Task);
        }
        if is_text("name")
            && (is_list("skills") || is_list("supportedInterfaces") || is_object("capabilities"))
        {
            return Some(Self::Card);
        }
        let mut wrappers = WRAPPERS.into_iter();
        if let Some(wrapper) = wrappers.find(|wrapper| is_object(wrapper.name)) {
            return Some(Self::Wrapped(wrapper));
        }
        if is_list("tasks") {
            return Some(Self::Tasks);
        }
        if is_object("config") && is_text("parent") {
            return Some(Self::PushConfig);
        }
        let has_only = |names: &[&str]| members.iter().all(|(name, _)| names.contains(&&**name));
        let is_setting = is_object("pushNotificationConfig")
            || is_list("configs")
            || is_text("url") && !is_text("name");
        // In the HTTP binding, what is asked of a task is in the path.
        let is_id = is_text("id") && has_only(&["id", "metadata", "tenant"])
            || is_text("name") && has_only(&["name"]);
        let is_error = is_object("error") || is_text("message") && has_only(&["message"]);
        let is_nothing = is_setting || is_id || is_error || members.is_empty();
        is_nothing.then_some(Self::Nothing)
    }

    /// Why something has no shape.
    pub(super) fn unknown(thing: &Json<'_>) -> String {
        const EXPECTED: &str = "expected an agent card, a JSON-RPC request or response, a message, a task, a list of \
                                tasks, an artifact, or an update of a status or an artifact";
        match thing {
            Json::Object(_) if thing.get("event_type").is_some() => {
                format!("is a packet, which is converted rather than imported; {EXPECTED}")
            }
            Json::Object(_) => format!("has the members of nothing in A2A; {EXPECTED}"),
            other => format!("is {}; {EXPECTED}", other.what()),
        }
    }
}

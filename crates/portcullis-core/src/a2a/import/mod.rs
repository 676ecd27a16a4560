//! Packets from the traffic of today's A2A clients and servers.
//!
//! Both generations of the protocol are read, 0.3 and 1.0, told apart by the members that are there. What one says in
//! either gives the same packets but for the digest of what was received.
//!
//! | what was sent | packet |
//! |---|---|
//! | an agent card | `agent.capabilities` |
//! | a message in a request, or one by the user | `task.requested` |
//! | any other message | `task.updated` |
//! | a request by JSON-RPC to cancel a task, or to set or delete where notifications of it go | `task.requested` |
//! | the same by the HTTP binding, which has it in the path: 0.3's setting names its task, the others show by the answer | `task.requested` or none |
//! | a task, or a change of its status | `task.updated` |
//! | each artefact of a task, alone, or in an update | `artifact.shared` |
//! | an error, a request that only reads, settings of notifications | none |
//!
//! What a packet has no member for is in `attributes.a2a`: see [`import`]. The content of parts is never in a packet,
//! only how many there are of each kind; `source` names the bytes that it came in. What the traffic itself has as
//! `metadata` is in `attributes.metadata`, as it is.
//!
//! **A message that names no task** is what clients send most: it asks for a task that the server has yet to name.
//! Evidence of a request needs the id of a task, and the only name that such a request has is the id of its message.
//! So that stands as `task.id`, and `task_id_from: "message_id"` says so. If the answer is a task, its `history` has the
//! id of the message, and by JSON-RPC both have the `jsonrpc_id`: these lead from one to the other. If it is a message,
//! there is no task, and its own id stands for one in the same way.
//!
//! Invariants: strict conversion takes every packet that is made here, under the same limits. `attributes.assay_g4` is
//! never written, whatever the traffic says: a card that was sent does not make itself visible.

mod draft;
mod read;
mod shape;
mod things;

use self::draft::{Envelope, Import};
use self::shape::{Asks, Method};
use super::convert::Limits;
use super::error::ConvertError;
use super::json::Json;
use super::packet::Packet;
use crate::redact::Path;

/// How many levels are kept for the packet. A value lies at most two deeper in it; `attributes.a2a.source` is four deep
/// whatever the traffic is.
const PACKET_DEPTH: usize = 3;

/// How to read what was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions<'a> {
    /// Whose doing it was, for everything that does not say: messages and tasks name no agent.
    pub agent: Option<&'a str>,
    /// How much is read.
    pub limits: Limits,
}

/// Makes packets of one thing that an A2A client or server sent.
///
/// That is the body of a JSON-RPC request or response (or a batch of them), the body of a request or response of the
/// HTTP binding, or the data of one event of a stream. In `attributes.a2a` of the packets:
///
/// | member | what it is |
/// |---|---|
/// | `agent_version`, `protocol_version` | of a card: the version of the agent, and of the protocol that it speaks |
/// | `append`, `last_chunk` | of an update of an artefact, if they are `true` |
/// | `context_id` | the context that it belongs to |
/// | `envelope_metadata` | the metadata of the request or update that it came in |
/// | `extensions`, `reference_task_ids` | of a message |
/// | `history` | of a task: the ids of the messages that it remembers |
/// | `jsonrpc_id`, `method` | of the call; the method by its name in 0.3, such as `message/send` |
/// | `message_metadata` | of a status: the metadata of its message |
/// | `parts` | how many parts there are: `text`, `file`, `data`, `other` |
/// | `push_notifications`, `streaming` | of a card, if they are `true` |
/// | `source` | `sha256` and `size_bytes` of what was received |
/// | `task_id_from` | `message_id` if no task is named, and the message's id stands for one |
/// | `time_from` | of an artefact of a task: `status` if the time is that of the task's status |
///
/// A card's `agent.id` is the URL that it names, or else its name. Its `agent.capabilities` are the ids of its skills.
/// `task.kind` is what told of the task: `message`,
/// `task`, `status-update`, `artifact-update`, or what is asked for: `cancel`, `push-config-set`, `push-config-delete`.
///
/// ```
/// use portcullis_core::a2a::{Adapter, ImportOptions, Input, Mode, import};
///
/// let sent = br#"{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message":
///     {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Book a table for two."}]}}}"#;
/// let options = ImportOptions { agent: Some("agent://planner"), ..ImportOptions::default() };
/// let packets = import(sent, &options)?;
/// assert_eq!(packets[0].event_type, "task.requested");
///
/// let packet = serde_json::to_vec(&packets[0])?;
/// let batch = Adapter::new(Mode::Strict).convert(Input::json(&packet))?;
/// assert_eq!(batch.event().subject, "m-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import<'a>(
    payload: &'a [u8],
    options: &ImportOptions<'a>,
) -> Result<Vec<Packet<'a>>, ConvertError> {
    let limits = &options.limits;
    if let Some(agent) = options.agent
        && !(1..=read::LONGEST_ID).contains(&agent.len())
    {
        let message = format!(
            "the agent's id has 1 to {} bytes, found {}",
            read::LONGEST_ID,
            agent.len()
        );
        return Err(ConvertError::Config { message });
    }
    let bytes = payload.len();
    let limit = limits.max_payload_bytes();
    if bytes > limit {
        return Err(ConvertError::TooLarge { bytes, limit });
    }
    let text = str::from_utf8(payload).map_err(|error| ConvertError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let depth = limits.max_depth().saturating_sub(PACKET_DEPTH);
    let inner = Limits::new(limit, depth, limits.max_array_length())?;
    let traffic = Json::parse(text, &inner).map_err(|error| match error {
        ConvertError::TooDeep { path, limit } => ConvertError::NotTraffic {
            problem: format!(
                "`{path}` lies deeper than {limit} arrays and objects: its packet would be over max_json_depth ({})",
                limits.max_depth()
            ),
        },
        error => error,
    })?;
    let mut import = Import::new(payload, options);
    import.traffic(traffic)?;
    Ok(import.into_packets())
}

/// Calls, and what is in them.
impl<'a> Import<'a, '_> {
    fn traffic(&mut self, traffic: Json<'a>) -> Result<(), ConvertError> {
        match traffic {
            Json::Array(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    self.item(item, Path::Item(&Path::Root, index))?;
                }
                Ok(())
            }
            one => self.item(one, Path::Root),
        }
    }

    /// A call, or something that came without one.
    fn item(&mut self, mut item: Json<'a>, place: Path<'_>) -> Result<(), ConvertError> {
        match item.get("jsonrpc") {
            None => return self.thing(item, place, &mut Envelope::default()),
            Some(Json::String(version)) if version == "2.0" => {}
            Some(_) => return Err(read::problem(place, "has a `jsonrpc` that is not \"2.0\"")),
        }
        let mut envelope = Envelope {
            jsonrpc_id: read::jsonrpc_id(&mut item, place)?,
            ..Envelope::default()
        };
        if let Some(method) = item.get("method") {
            let method = Method::of(method, place)?;
            envelope.method = Some(method.name);
            envelope.is_request = true;
            let params = item.take("params").unwrap_or_default();
            let place = Path::Member(&place, "params");
            return self.request(method, params, place, &mut envelope);
        }
        if !matches!(item.get("error"), None | Some(Json::Null)) {
            return Ok(());
        }
        let place_of_result = Path::Member(&place, "result");
        match item.take("result") {
            // Some leave out what is null.
            None | Some(Json::Null) => Ok(()),
            Some(Json::Array(items)) => {
                for (index, item) in items.into_iter().enumerate() {
                    let place = Path::Item(&place_of_result, index);
                    self.thing(item, place, &mut envelope)?;
                }
                Ok(())
            }
            Some(result) => self.thing(result, place_of_result, &mut envelope),
        }
    }

    fn request(
        &mut self,
        method: &Method,
        mut params: Json<'a>,
        place: Path<'_>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        match method.asks {
            Asks::Nothing => Ok(()),
            Asks::Message => {
                envelope.metadata = read::metadata(&mut params);
                let message = params.take("message").unwrap_or_default();
                self.message(message, Path::Member(&place, "message"), envelope)
            }
            Asks::OfTask(kind) => self.asked_of_task(kind, params, place, envelope),
        }
    }
}

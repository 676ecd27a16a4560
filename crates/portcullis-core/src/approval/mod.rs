//! Approvals: a person's yes or no to one paused step, good for that step and once.
//!
//! Here are the values and their transitions; who keeps them implements [`Approvals`], with [`conformance`] as the
//! suite to pass. Time is passed in.

pub mod conformance;

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::exact_digest;
use crate::decision::{Decision, PauseScope, PauseSpec, TimeoutAnswer};
use crate::event::{Event, EventType};
use crate::evidence::Digest;
use crate::ids::RuleId;

/// Keeps approvals.
///
/// What has returned without an error is kept. Every method is one step that no other comes between, also where several
/// processes share what is behind it. All of them may block: they are for threads that may.
pub trait Approvals: Send + Sync {
    /// Keeps a new one.
    fn create(&self, approval: Approval) -> Result<(), ApprovalError>;

    /// The one of this id, as it stands at `now`.
    fn get(&self, id: &str, now: Timestamp) -> Result<Option<Approval>, ApprovalError>;

    /// Those that fit, as they stand at `now`, the oldest first and those of one moment by their ids.
    fn list(&self, which: &Which, now: Timestamp) -> Result<Vec<Approval>, ApprovalError>;

    /// Says yes or no, by [`Approval::decide`].
    fn decide(&self, id: &str, answer: &Answer, now: Timestamp) -> Result<Approval, ApprovalError>;

    /// Uses the answer up, by [`Approval::take`]: of several who try, one gets it.
    fn take(&self, id: &str, bound: &Binding, now: Timestamp) -> Result<Taken, ApprovalError>;
}

/// A paused step, and what a person made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The id of the decision that paused the step.
    pub id: String,
    /// What it is good for.
    pub bound: Binding,
    /// What the step is about, for the person who decides: redacted arguments, or a text.
    pub subject: Value,
    /// Why, for people.
    pub reason: String,
    /// What the person is asked.
    pub prompt: String,
    /// What is held up.
    pub scope: PauseScope,
    /// Who may decide: whoever has one of these roles. Nobody has to have one if there is none.
    pub approver_roles: Vec<String>,
    /// When it was asked for.
    pub created: Timestamp,
    /// When it is too late, if ever.
    pub expires: Option<Timestamp>,
    /// What silence means then.
    pub on_timeout: TimeoutAnswer,
    /// How it stands.
    pub status: Status,
    /// Who decided, and when.
    pub decided: Option<Decided>,
    /// When the answer was used up, whatever it was.
    pub taken: Option<Timestamp>,
}

/// What an approval is good for. Anything else voids it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Which run.
    pub run_id: String,
    /// Whose.
    pub agent: String,
    /// At which stage.
    pub stage: EventType,
    /// Which tool, where there is one.
    pub tool: Option<String>,
    /// [`exact_digest`] of the arguments, the text and whatever else of the event was judged, as it may be seen.
    pub arguments: Digest,
    /// Whose pauses it lifts, by [`Decision::pause_key`]: the one that asks, after those that were approved before for the
    /// same step.
    pub rules: Vec<RuleId>,
    /// The digest of the policy that paused it.
    pub policy: String,
    /// [`exact_digest`] of all that the run goes on with, where it waits outside of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_state: Option<Digest>,
}

impl Binding {
    /// To this step, as it may be seen, and to these rules of this policy.
    pub fn of(event: &Event, agent: &str, rules: Vec<RuleId>, policy: &str) -> Self {
        Self {
            run_id: event.run_id.clone(),
            agent: agent.to_owned(),
            stage: event.event_type.clone(),
            tool: event.tool_name.clone(),
            arguments: subject_digest(event),
            rules,
            policy: policy.to_owned(),
            run_state: None,
        }
    }

    /// The first thing in which the two differ.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let Self {
            run_id,
            agent,
            stage,
            tool,
            arguments,
            rules,
            policy,
            run_state,
        } = self;
        [
            ("run", *run_id == other.run_id),
            ("agent", *agent == other.agent),
            ("stage", *stage == other.stage),
            ("tool", *tool == other.tool),
            ("arguments", *arguments == other.arguments),
            ("rule", *rules == other.rules),
            ("policy", *policy == other.policy),
            ("run's state", *run_state == other.run_state),
        ]
        .into_iter()
        .find_map(|(what, same)| (!same).then_some(what))
    }
}

/// How an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nobody has decided.
    Pending,
    /// The step may happen.
    Approved,
    /// It may not.
    Denied,
    /// Nobody decided in time, or nobody went on in time.
    Expired,
    /// The step was approved and has been let go.
    Used,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Used,
    ];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Used => "used",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What they had to say.
    pub note: Option<String>,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub approve: bool,
    /// Who says so.
    pub by: String,
    /// In which roles.
    pub roles: Vec<String>,
    /// What they have to say.
    pub note: Option<String>,
}

/// Which approvals to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Which {
    /// Those that stand so.
    pub status: Option<Status>,
    /// Those of this run.
    pub run_id: Option<String>,
    /// How many at most.
    pub limit: usize,
}

impl Default for Which {
    fn default() -> Self {
        Self {
            status: None,
            run_id: None,
            limit: 100,
        }
    }
}

impl Which {
    /// Whether it is one of these, as it stands.
    pub fn fits(&self, approval: &Approval) -> bool {
        let of_run = self.run_id.as_ref();
        self.status.is_none_or(|status| status == approval.status)
            && of_run.is_none_or(|run| *run == approval.bound.run_id)
    }
}

/// An answer that was used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The step may happen, now and once.
    Approved(Decided),
    /// It may not.
    Denied(Decided),
    /// Nobody decided in time, so it may not.
    Expired,
}

/// Why an approval cannot be had, given or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// There is none of this id.
    #[error("there is no approval `{0}`")]
    NotFound(String),
    /// There is one already.
    #[error("approval `{0}` exists already")]
    Exists(String),
    /// Nobody has decided.
    #[error("nobody has decided on approval `{0}` yet")]
    Pending(String),
    /// Somebody has decided, or it is too late.
    #[error("approval `{id}` is {status}: it cannot be decided any more")]
    Settled {
        /// Which.
        id: String,
        /// How it stands.
        status: Status,
    },
    /// An agent must not approve its own steps.
    #[error("`{by}` may not decide on approval `{id}`: the step is its own")]
    OwnStep {
        /// Which.
        id: String,
        /// Who.
        by: String,
    },
    /// Whoever decides has none of the roles that may.
    #[error("`{by}` may not decide on approval `{id}`: it takes one of the roles {roles:?}")]
    NotAllowed {
        /// Which.
        id: String,
        /// Who.
        by: String,
        /// What it takes.
        roles: Vec<String>,
    },
    /// It was used before.
    #[error("the answer to approval `{id}` was used at {at}: it is good for once")]
    AlreadyTaken {
        /// Which.
        id: String,
        /// When.
        at: Timestamp,
    },
    /// It is for another step.
    #[error("approval `{id}` is void: it was given for another {what}")]
    Void {
        /// Which.
        id: String,
        /// In what they differ.
        what: &'static str,
    },
    /// Too many are kept, and none of them is over. Decide on some, or let them expire.
    #[error("{0} approvals are kept, the most there can be, and none of them is over")]
    Full(usize),
    /// Whatever keeps them fails.
    #[error("approvals cannot be kept or read: {0}")]
    Backend(String),
}

impl Approval {
    /// Asks for one: a decision has paused this step, which is as it may be seen.
    pub fn of(
        decision: &Decision,
        pause: PauseSpec,
        event: &Event,
        bound: Binding,
        now: Timestamp,
    ) -> Self {
        Self {
            id: decision.decision_id.to_string(),
            bound,
            subject: subject(event),
            reason: decision.reason.to_string(),
            prompt: pause.prompt,
            scope: pause.scope,
            approver_roles: pause.approver_roles,
            created: now,
            expires: pause.timeout_s.map(|seconds| after(now, seconds)),
            on_timeout: pause.on_timeout,
            status: Status::Pending,
            decided: None,
            taken: None,
        }
    }

    /// The rule that asks.
    pub fn rule_id(&self) -> Option<&RuleId> {
        self.bound.rules.last()
    }

    /// How it stands at this time.
    pub fn at(mut self, now: Timestamp) -> Self {
        let Some(expires) = self.expires.filter(|expires| now >= *expires) else {
            return self;
        };
        let is_open = matches!(self.status, Status::Pending | Status::Approved);
        match (self.status, self.on_timeout) {
            (_, TimeoutAnswer::Deny) if is_open => self.status = Status::Expired,
            _ if is_open && self.lapses().is_some_and(|lapses| now >= lapses) => {
                self.status = Status::Expired;
            }
            (Status::Pending, TimeoutAnswer::Approve) => {
                self.status = Status::Approved;
                self.decided = Some(Decided {
                    by: BY_TIMEOUT.to_owned(),
                    at: expires,
                    note: None,
                });
            }
            _ => {}
        }
        self
    }

    /// When a yes is not good any more, if ever. One that silence gave is good for as long as silence took.
    pub fn lapses(&self) -> Option<Timestamp> {
        let expires = self.expires?;
        match self.on_timeout {
            TimeoutAnswer::Deny => Some(expires),
            TimeoutAnswer::Approve => {
                let again = expires.checked_add(expires.duration_since(self.created));
                Some(again.unwrap_or(Timestamp::MAX))
            }
        }
    }

    /// The same, decided.
    pub fn decide(self, answer: &Answer, now: Timestamp) -> Result<Self, ApprovalError> {
        let mut approval = self.at(now);
        if approval.status != Status::Pending {
            return Err(ApprovalError::Settled {
                id: approval.id,
                status: approval.status,
            });
        }
        if answer.by == approval.bound.agent {
            return Err(ApprovalError::OwnStep {
                id: approval.id,
                by: answer.by.clone(),
            });
        }
        let roles = &approval.approver_roles;
        if !roles.is_empty() && !roles.iter().any(|role| answer.roles.contains(role)) {
            return Err(ApprovalError::NotAllowed {
                id: approval.id,
                by: answer.by.clone(),
                roles: approval.approver_roles,
            });
        }
        approval.status = if answer.approve {
            Status::Approved
        } else {
            Status::Denied
        };
        approval.decided = Some(Decided {
            by: answer.by.clone(),
            at: now,
            note: answer.note.clone(),
        });
        Ok(approval)
    }

    /// The same, used up, and what came of it. A no is used up like a yes, so that a run goes on from it once.
    pub fn take(self, bound: &Binding, now: Timestamp) -> Result<(Self, Taken), ApprovalError> {
        let mut approval = self.at(now);
        let id = || approval.id.clone();
        if let Some(what) = approval.bound.difference(bound) {
            return Err(ApprovalError::Void { id: id(), what });
        }
        if let Some(at) = approval.taken {
            return Err(ApprovalError::AlreadyTaken { id: id(), at });
        }
        let taken = match (approval.status, &approval.decided) {
            (Status::Expired, _) => Taken::Expired,
            (Status::Approved, Some(decided)) => Taken::Approved(decided.clone()),
            (Status::Denied, Some(decided)) => Taken::Denied(decided.clone()),
            _ => return Err(ApprovalError::Pending(id())),
        };
        if approval.status == Status::Approved {
            approval.status = Status::Used;
        }
        approval.taken = Some(now);
        Ok((approval, taken))
    }
}

/// Who has decided if nobody did and silence means yes.
const BY_TIMEOUT: &str = "(timeout)";

/// The most that the person who decides is shown, in bytes of JSON: nobody reads more, and all of it is kept.
const MAX_SUBJECT: usize = 16 << 10;
/// How long texts in it may be, where all of it is longer.
const SHORTER: [usize; 3] = [2048, 256, 32];

/// What the person who decides is shown: all of it, or everything with its long texts cut, or else the beginning. What is
/// missing is said.
fn subject(event: &Event) -> Value {
    let result = event
        .payload
        .get("result")
        .filter(|_| event.payload.len() == 1);
    let subject = match (&event.tool_args, &event.text_content, result) {
        (Some(arguments), None, None) if event.payload.is_empty() => json!(arguments),
        (None, Some(text), None) if event.payload.is_empty() => json!(text),
        (None, None, Some(result)) => result.clone(),
        _ => all_of(event),
    };
    let fits = |value: &Value| value.to_string().len() <= MAX_SUBJECT;
    if fits(&subject) {
        return subject;
    }
    let shortened = SHORTER.into_iter().map(|most| shorten(&subject, most));
    let shortened = shortened.into_iter().find(fits);
    shortened.unwrap_or_else(|| json!(beginning(&subject.to_string(), MAX_SUBJECT / 2)))
}

/// The same, with no text longer than this.
fn shorten(value: &Value, most: usize) -> Value {
    match value {
        Value::String(text) if text.len() > most => json!(beginning(text, most)),
        Value::Array(items) => items.iter().map(|item| shorten(item, most)).collect(),
        Value::Object(members) => {
            // Names whole: two that begin alike must not become one.
            let members = members.iter();
            members
                .map(|(key, value)| (key.clone(), shorten(value, most)))
                .collect()
        }
        value => value.clone(),
    }
}

fn beginning(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let beginning = text.get(..text.floor_char_boundary(most));
    let beginning = beginning.unwrap_or_default();
    format!("{beginning}… ({} bytes in all)", text.len())
}

/// Of all that was judged, whatever the stage: what a person does not see must not change either.
fn subject_digest(event: &Event) -> Digest {
    exact_digest(&all_of(event))
}

fn all_of(event: &Event) -> Value {
    let parts = [
        (
            "arguments",
            event.tool_args.as_ref().map(|arguments| json!(arguments)),
        ),
        ("text", event.text_content.as_ref().map(|text| json!(text))),
        (
            "payload",
            (!event.payload.is_empty()).then(|| json!(event.payload)),
        ),
    ];
    let present = parts.into_iter();
    let present = present.filter_map(|(name, part)| Some((name.to_owned(), part?)));
    Value::Object(present.collect())
}

/// A pause of no time at all has run out when it begins; one past the end of time lasts until then.
fn after(created: Timestamp, seconds: f64) -> Timestamp {
    if seconds.is_nan() || seconds <= 0.0 {
        return created;
    }
    SignedDuration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|span| created.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

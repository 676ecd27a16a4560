//! Why there is no batch.

use std::fmt;

use serde::Serialize;

use crate::evidence::{BodyError, MAX_ENTRY_BYTES};

/// What kind of failure it is. Programs tell failures apart by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The packet is malformed, lacks something, or is over a limit.
    Measurement,
    /// It is of a version that is not understood.
    UnsupportedProtocolVersion,
    /// Strict conversion would have lost something.
    StrictLossinessViolation,
    /// The conversion was asked for wrongly.
    Config,
    /// Something the conversion needs failed, such as the evidence log.
    Infrastructure,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Measurement,
        Self::UnsupportedProtocolVersion,
        Self::StrictLossinessViolation,
        Self::Config,
        Self::Infrastructure,
    ];

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measurement => "measurement",
            Self::UnsupportedProtocolVersion => "unsupported_protocol_version",
            Self::StrictLossinessViolation => "strict_lossiness_violation",
            Self::Config => "config",
            Self::Infrastructure => "infrastructure",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a packet was not converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// More bytes than are read.
    #[error(
        "the payload is {bytes} bytes long, over max_payload_bytes ({limit}): send less in one packet"
    )]
    TooLarge {
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Not a text.
    #[error("the payload is not UTF-8: byte {at} begins no character")]
    NotUtf8 {
        /// Where, from 0.
        at: usize,
    },
    /// Not JSON, or JSON that says two things at once.
    #[error("the payload is not valid JSON: {message}")]
    NotJson {
        /// What is wrong, and where.
        message: String,
    },
    /// Values lie too deep in each other.
    #[error(
        "`{path}` lies deeper than max_json_depth ({limit}) arrays and objects: send a flatter packet"
    )]
    TooDeep {
        /// Which value, as a JSON pointer.
        path: String,
        /// How deep it may be.
        limit: usize,
    },
    /// An array is too long.
    #[error("`{path}` has more items than max_array_length ({limit}): send a shorter list")]
    ArrayTooLong {
        /// Which array, as a JSON pointer.
        path: String,
        /// How long it may be.
        limit: usize,
    },
    /// Not a packet of this protocol.
    #[error("`protocol` must be \"a2a\": {found}")]
    NotA2a {
        /// What was there instead.
        found: String,
    },
    /// Nobody says which version it is.
    #[error(
        "missing required field: version: send it as a string such as \"0.2.0\", or name it when converting"
    )]
    NoVersion,
    /// A version that is not understood.
    #[error("unsupported A2A version {version:?}: 0.2 and later 0.x are supported")]
    UnsupportedVersion {
        /// The version.
        version: String,
    },
    /// Something that strict conversion needs is not there.
    #[error(
        "missing required field: {field}: send it as a string, or convert in lenient mode, which substitutes one"
    )]
    Missing {
        /// Which field.
        field: &'static str,
    },
    /// No event of evidence stands for this one.
    #[error(
        "unsupported event_type in strict mode: {found}; expected {}, or convert in lenient mode, which emits a generic message",
        expected_event_types()
    )]
    UnmappedEventType {
        /// What was there instead.
        found: String,
    },
    /// Not what A2A clients and servers send.
    #[error("this is not A2A traffic that can be read: {problem}")]
    NotTraffic {
        /// Where it is, what is wrong with it, and what was expected.
        problem: String,
    },
    /// Nobody says whose doing it was.
    #[error(
        "missing required field: agent: messages, tasks and artifacts name no agent, so name it when importing"
    )]
    NoAgent,
    /// One payload would make too many packets.
    #[error("the payload tells of more than max_array_length ({limit}) things: send fewer at once")]
    TooManyPackets {
        /// How many there may be.
        limit: usize,
    },
    /// The batch cannot be an entry of the evidence log. That is the packet's fault: the log is well.
    #[error("the batch cannot be recorded: {problem}")]
    Unrecordable {
        /// Why not.
        problem: String,
    },
    /// The conversion was asked for wrongly.
    #[error("{message}")]
    Config {
        /// What to change.
        message: String,
    },
    /// Something that the conversion needs failed.
    #[error("{message}")]
    Infrastructure {
        /// What failed.
        message: String,
    },
}

impl ConvertError {
    /// What kind it is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. }
            | Self::NotUtf8 { .. }
            | Self::NotJson { .. }
            | Self::TooDeep { .. }
            | Self::ArrayTooLong { .. }
            | Self::NotA2a { .. }
            | Self::Unrecordable { .. }
            | Self::NoVersion
            | Self::NotTraffic { .. }
            | Self::NoAgent
            | Self::TooManyPackets { .. }
            | Self::Missing { .. } => ErrorKind::Measurement,
            Self::UnsupportedVersion { .. } => ErrorKind::UnsupportedProtocolVersion,
            Self::UnmappedEventType { .. } => ErrorKind::StrictLossinessViolation,
            Self::Config { .. } => ErrorKind::Config,
            Self::Infrastructure { .. } => ErrorKind::Infrastructure,
        }
    }
}

impl From<BodyError> for ConvertError {
    fn from(error: BodyError) -> Self {
        let problem = match error {
            BodyError::TooLarge { bytes } => format!(
                "it would have {bytes} bytes in the evidence log, over {MAX_ENTRY_BYTES}: send less in one packet"
            ),
            error => error.to_string(),
        };
        Self::Unrecordable { problem }
    }
}

fn expected_event_types() -> String {
    super::convert::EventType::MAPPED
        .map(super::convert::EventType::upstream)
        .join(", ")
}

//! Packets from the traffic of today's A2A clients and servers.

use super::convert::Limits;
use super::error::ConvertError;
use super::json::Json;
use super::packet::Packet;

/// How to read what was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions<'a> {
    /// Whose doing it was, for everything that does not say: messages and tasks name no agent.
    pub agent: Option<&'a str>,
    /// How much is read.
    pub limits: Limits,
}

/// Makes packets of one thing that an A2A client or server sent.
pub fn import<'a>(
    payload: &'a [u8],
    options: &ImportOptions<'a>,
) -> Result<Vec<Packet<'a>>, ConvertError> {
    let bytes = payload.len();
    let limit = options.limits.max_payload_bytes();
    if bytes > limit {
        return Err(ConvertError::TooLarge { bytes, limit });
    }
    let text = str::from_utf8(payload).map_err(|error| ConvertError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let _traffic = Json::parse(text, &options.limits)?;
    Ok(Vec::new())
}

//! Deep rules behind gRPC: the inbox of a gateway, and the sidecar that it asks.
//!
//! `proto/portcullis/deep/v1/deep.proto` says what goes over the wire. One connection carries one stream of requests and one
//! of responses, in any order; a sidecar that knows no streams is asked with one call for each request.

mod client;
mod convert;
mod credentials;
mod observe;
mod requests;
pub(crate) mod sidecar;
mod stream;
mod unary;
#[expect(
    unreachable_pub,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "made from the .proto, which explains it"
)]
mod wire {
    tonic::include_proto!("portcullis.deep.v1");
}

pub use self::client::GrpcSettings;
pub use self::credentials::BearerToken;
use super::remote::TlsIdentity;

/// The largest message by default. An event's text may have 1 MiB, and the snapshot repeats it as JSON, where a character
/// can take six times its room.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// HTTP/2's windows. One stream that is not read at the moment must not hold up the others of its connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Why there is no gRPC.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// A setting cannot be.
    #[error("{field}: {why}")]
    Setting {
        /// Which.
        field: &'static str,
        /// Why not, and what would do.
        why: String,
    },
    /// The sidecar could not go on.
    #[error("the sidecar stopped: {0}")]
    Serve(#[source] tonic::transport::Error),
}

impl GrpcError {
    fn setting(field: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Setting { field, why }
    }
}

/// An error with what caused it: tonic's own say only `transport error`.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Wrappers often repeat what is inside them.
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// Whether a call took too long, by either side's clock. Our own is not in the status, but in what caused it.
fn timed_out(status: &tonic::Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::TimeoutExpired>() {
            return true;
        }
        cause = error.source();
    }
    status.code() == tonic::Code::DeadlineExceeded
}

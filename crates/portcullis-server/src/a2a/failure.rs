//! Why there is no batch, as it is answered.

use axum::http::StatusCode;
use axum::response::Response;
use portcullis_core::a2a::{self, ConvertError, ErrorKind};
use portcullis_core::evidence::BodyError;

use crate::app::RecordError;
use crate::http::json_bytes;

/// Core's error, and the status that goes with it.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    kind: ErrorKind,
    message: String,
}

impl Failure {
    pub(super) fn config(message: impl Into<String>) -> Self {
        Self::from(ConvertError::Config {
            message: message.into(),
        })
    }

    pub(super) fn too_long(message: String) -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            kind: ErrorKind::Measurement,
            message,
        }
    }

    pub(super) fn infrastructure(error: &impl ToString) -> Self {
        Self::from(ConvertError::Infrastructure {
            message: error.to_string(),
        })
    }

    pub(super) const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The answer to a request that came to nothing.
    pub(super) fn response(&self) -> Response {
        let mut out = Vec::new();
        a2a::write_error(self.kind, &self.message, None, &mut out);
        json_bytes(self.status, out)
    }

    /// Appends the answer to a line.
    pub(super) fn write_line(&self, number: usize, out: &mut Vec<u8>) {
        a2a::write_error(self.kind, &self.message, Some(number as u64), out);
    }
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        let kind = error.kind();
        let status = match (&error, kind) {
            // Sending it again would not help.
            (ConvertError::TooLarge { .. } | ConvertError::Unrecordable { .. }, _) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            (_, ErrorKind::Measurement | ErrorKind::Config) => StatusCode::BAD_REQUEST,
            (_, ErrorKind::UnsupportedProtocolVersion | ErrorKind::StrictLossinessViolation) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            (_, ErrorKind::Infrastructure) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            status,
            kind,
            message: error.to_string(),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        ConvertError::from(error).into()
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::infrastructure(&error)
    }
}

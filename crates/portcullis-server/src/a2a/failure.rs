//! Why there is no batch, as it is answered.

use axum::http::StatusCode;
use axum::response::Response;
use portcullis_core::a2a::{ConvertError, ErrorKind};
use portcullis_core::evidence::{BodyError, MAX_ENTRY_BYTES};
use serde::Serialize;

use crate::app::RecordError;
use crate::http::json;

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
        json(self.status, &self.told(None))
    }

    /// Appends the answer to a line.
    pub(super) fn write_line(&self, number: usize, out: &mut Vec<u8>) {
        // Numbers and texts can always be written.
        let _ = serde_json::to_writer(out, &self.told(Some(number)));
    }

    fn told(&self, line: Option<usize>) -> impl Serialize {
        #[derive(Serialize)]
        struct Told<'f> {
            error: Members<'f>,
        }
        #[derive(Serialize)]
        struct Members<'f> {
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<usize>,
            kind: ErrorKind,
            message: &'f str,
        }
        Told {
            error: Members {
                line,
                kind: self.kind,
                message: &self.message,
            },
        }
    }
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        let kind = error.kind();
        let status = match (&error, kind) {
            (ConvertError::TooLarge { .. }, _) => StatusCode::PAYLOAD_TOO_LARGE,
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

/// Sending it again would not help with an entry that is too long: that is the packet's fault and not the log's.
impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { bytes } => Self::too_long(format!(
                "the batch would be {bytes} bytes in the evidence log, over {MAX_ENTRY_BYTES}: send less in one packet"
            )),
            error => Self::infrastructure(&error),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::infrastructure(&error)
    }
}

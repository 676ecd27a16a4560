//! Permission to run a tool, as a value.

use portcullis_core::canonical::exact_digest;
use portcullis_core::evidence::Digest;
use serde_json::{Map, Value};

/// Permission to run one tool once, with the arguments that were judged.
///
/// Only a [`Gate`](crate::Gate) makes one, and using it up gives the one thing that a tool takes. Forgetting to ask
/// does not compile:
///
/// ```compile_fail,E0451
/// use portcullis_core::evidence::Digest;
/// use portcullis_runtime::Permit;
/// let permit = Permit { run_id: "run-1".into(), tool: "mail.send".into(), arguments: Digest::ZERO };
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not used up means that the tool did not run"]
pub struct Permit {
    run_id: String,
    tool: String,
    arguments: Digest,
}

/// A tool call that a [`Permit`] was given for. There is no other way to have one.
#[derive(Debug)]
pub struct PermittedCall {
    run_id: String,
    tool: String,
    arguments: Map<String, Value>,
}

/// The permit is for another call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the permit is for another {what}: ask the gate about this call")]
pub struct PermitMismatch {
    /// In what they differ.
    pub what: &'static str,
}

impl Permit {
    pub(crate) fn new(run_id: &str, tool: &str, arguments: Digest) -> Self {
        Self {
            run_id: run_id.to_owned(),
            tool: tool.to_owned(),
            arguments,
        }
    }

    /// Which tool.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Uses the permit up. It fits the very call that was judged, and no other.
    pub fn redeem(
        self,
        run_id: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<PermittedCall, PermitMismatch> {
        let arguments = Value::Object(arguments);
        let checks = [
            ("run", self.run_id == run_id),
            ("tool", self.tool == tool),
            ("arguments", self.arguments == exact_digest(&arguments)),
        ];
        if let Some((what, _)) = checks.into_iter().find(|(_, same)| !same) {
            return Err(PermitMismatch { what });
        }
        let Value::Object(arguments) = arguments else {
            return Err(PermitMismatch { what: "arguments" });
        };
        Ok(PermittedCall {
            run_id: self.run_id,
            tool: self.tool,
            arguments,
        })
    }
}

impl PermittedCall {
    /// In which run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Which tool.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// With what.
    pub fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }

    /// The arguments themselves.
    pub fn into_arguments(self) -> Map<String, Value> {
        self.arguments
    }
}

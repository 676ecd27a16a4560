//! JSON-RPC 2.0: what comes in, and what goes out.
//!
//! The envelope is taken apart without copying: `id` and `params` stay the text they were, so that an
//! id goes back exactly as it came, and nobody pays for parameters of a call that is refused.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

pub use portcullis_core::guardrails::FieldError;
use portcullis_core::unique;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Deeper parameters are refused; `serde_json` stops there.
const MAX_DEPTH: usize = 128;

/// A request body.
#[derive(Debug)]
pub enum Body<'b> {
    /// One call, good or bad.
    Single(Item<'b>),
    /// Several.
    Batch(Vec<Item<'b>>),
}

/// A call, or why it is none, with the id to answer to.
pub type Item<'b> = Result<Call<'b>, (Id<'b>, RpcError)>;

/// A well-formed call.
#[derive(Debug)]
pub struct Call<'b> {
    /// What to answer to; a notification has none.
    pub id: Option<Id<'b>>,
    /// The method's name.
    pub method: Cow<'b, str>,
    params: Option<&'b RawValue>,
}

/// A string, a number or null, as it was written.
#[derive(Debug, Clone, Copy)]
pub struct Id<'b>(Option<&'b RawValue>);

impl Id<'_> {
    /// What an answer carries whose call had no id that could be read.
    pub const NULL: Self = Self(None);
}

impl Serialize for Id<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Members as they come; everything else about them is checked after.
#[derive(Deserialize)]
struct Envelope<'b> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'b, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'b RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'b, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'b RawValue>,
}

/// A member that is there, though it may be null.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads a body. Never fails: what cannot be read is an item that says so.
pub fn parse(bytes: &[u8], max_batch: usize) -> Body<'_> {
    let refused = |error| Body::Single(Err((Id::NULL, error)));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return refused(RpcError::Parse("the body is not UTF-8".to_owned()));
    };
    if !text.trim_ascii_start().starts_with('[') {
        return Body::Single(call(text));
    }
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Err(error) => refused(RpcError::Parse(error.to_string())),
        Ok(items) if items.is_empty() => refused(RpcError::InvalidRequest(
            "a batch needs at least one call".to_owned(),
        )),
        Ok(items) if items.len() > max_batch => refused(RpcError::InvalidRequest(format!(
            "a batch of {} calls; at most {max_batch} are taken",
            items.len()
        ))),
        Ok(items) => Body::Batch(items.into_iter().map(|item| call(item.get())).collect()),
    }
}

fn call(text: &str) -> Item<'_> {
    // serde would read a list as the members in their order, too.
    if text.trim_ascii_start().starts_with('[') {
        let error = "a call is an object".to_owned();
        return Err((Id::NULL, RpcError::InvalidRequest(error)));
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        let error = match error.classify() {
            Category::Data => RpcError::InvalidRequest(error.to_string()),
            _ => RpcError::Parse(error.to_string()),
        };
        (id_of(text), error)
    })?;
    let id = match envelope.id {
        None => None,
        Some(raw) if is_id(raw) => Some(Id(Some(raw))),
        Some(_) => {
            let error = "`id` must be a string, a number or null";
            return Err((Id::NULL, RpcError::InvalidRequest(error.to_owned())));
        }
    };
    let refuse = |error: &str| {
        let error = RpcError::InvalidRequest(error.to_owned());
        Err((id.unwrap_or(Id::NULL), error))
    };
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return refuse("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = envelope.method else {
        return refuse("`method` is missing");
    };
    if let Some(params) = envelope.params
        && !params.get().starts_with(['{', '['])
    {
        return refuse("`params` must be an object");
    }
    Ok(Call {
        id,
        method,
        params: envelope.params,
    })
}

/// The id of something that is no call, if it has one.
fn id_of(text: &str) -> Id<'_> {
    #[derive(Deserialize)]
    struct OnlyId<'b> {
        #[serde(borrow)]
        id: Option<&'b RawValue>,
    }
    let found: Result<OnlyId<'_>, _> = serde_json::from_str(text);
    Id(found.ok().and_then(|found| found.id).filter(|id| is_id(id)))
}

fn is_id(raw: &RawValue) -> bool {
    matches!(
        raw.get().as_bytes(),
        [b'"' | b'-' | b'0'..=b'9', ..] | b"null"
    )
}

impl Call<'_> {
    /// The parameters, which all our methods take by name.
    pub fn params(&self) -> Result<Map<String, Value>, RpcError> {
        let Some(raw) = self.params else {
            return Ok(Map::new());
        };
        let invalid = |error: String| {
            RpcError::InvalidParams(FieldError {
                field: "params".to_owned(),
                error,
            })
        };
        if raw.get().starts_with('[') {
            return Err(invalid(
                "must be an object: parameters go by name".to_owned(),
            ));
        }
        unique::object(raw.get()).map_err(|error| {
            if error.to_string().starts_with("recursion limit") {
                return invalid(format!("is nested deeper than {MAX_DEPTH} levels"));
            }
            invalid(error.to_string())
        })
    }
}

/// Every way a call can fail, and the code for it.
#[derive(Debug, Clone, PartialEq)]
pub enum RpcError {
    /// The body is not JSON.
    Parse(String),
    /// It is JSON, but no call.
    InvalidRequest(String),
    /// There is no such method.
    MethodNotFound {
        /// As it was called.
        method: String,
        /// The nearest name, or all of them.
        help: String,
    },
    /// A parameter is wrong.
    InvalidParams(FieldError),
    /// Something of ours is broken; the log says what.
    Internal(String),
    /// Too many calls.
    RateLimited {
        /// When the next one will be taken.
        retry_after: Duration,
    },
    /// The memory of decisions could not be searched.
    QueryFailed(String),
    /// Guardrails could not be evaluated.
    GuardrailEvalFailed(String),
    /// There is nothing of this id.
    NotFound(String),
}

impl RpcError {
    /// The JSON-RPC code.
    pub const fn code(&self) -> i32 {
        match self {
            Self::Parse(_) => -32700,
            Self::InvalidRequest(_) => -32600,
            Self::MethodNotFound { .. } => -32601,
            Self::InvalidParams(_) => -32602,
            Self::Internal(_) => -32603,
            Self::RateLimited { .. } => -32002,
            Self::QueryFailed(_) => -32003,
            Self::GuardrailEvalFailed(_) => -32004,
            Self::NotFound(_) => -32005,
        }
    }

    /// The message that goes with the code.
    pub const fn message(&self) -> &'static str {
        match self {
            Self::Parse(_) => "Parse error",
            Self::InvalidRequest(_) => "Invalid Request",
            Self::MethodNotFound { .. } => "Method not found",
            Self::InvalidParams(_) => "InvalidParams",
            Self::Internal(_) => "Internal error",
            Self::RateLimited { .. } => "RateLimited",
            Self::QueryFailed(_) => "QueryFailed",
            Self::GuardrailEvalFailed(_) => "GuardrailEvalFailed",
            Self::NotFound(_) => "NotFound",
        }
    }

    fn data(&self) -> Value {
        match self {
            Self::InvalidParams(FieldError { field, error }) => {
                json!({"field": field, "error": error})
            }
            Self::RateLimited { retry_after } => {
                json!({"retryAfterMs": u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX).max(1)})
            }
            Self::MethodNotFound { method, help } => json!({"method": method, "error": help}),
            Self::Parse(error)
            | Self::InvalidRequest(error)
            | Self::Internal(error)
            | Self::QueryFailed(error)
            | Self::GuardrailEvalFailed(error)
            | Self::NotFound(error) => json!({"error": error}),
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.message(), self.code(), self.data())
    }
}

impl Serialize for RpcError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({"code": self.code(), "message": self.message(), "data": self.data()})
            .serialize(serializer)
    }
}

/// An answer to one call.
#[derive(Debug, Serialize)]
pub struct Response<'b, T> {
    jsonrpc: &'static str,
    id: Id<'b>,
    #[serde(flatten)]
    outcome: Outcome<T>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<T> {
    Result(T),
    Error(RpcError),
}

impl<'b, T> Response<'b, T> {
    /// The answer to this id.
    pub fn new(id: Id<'b>, outcome: Result<T, RpcError>) -> Self {
        Self {
            jsonrpc: "2.0",
            id,
            outcome: match outcome {
                Ok(result) => Outcome::Result(result),
                Err(error) => Outcome::Error(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a body comes to: the ids and methods of its calls, the ids and codes of the rest.
    fn outline(body: &str) -> Vec<String> {
        let item = |item: &Item<'_>| match item {
            Ok(call) => {
                let id = call.id.map(|id| serde_json::to_string(&id).unwrap());
                format!("{} {}", id.unwrap_or("-".to_owned()), call.method)
            }
            Err((id, error)) => format!("{} {}", serde_json::to_string(id).unwrap(), error.code()),
        };
        match parse(body.as_bytes(), 3) {
            Body::Single(single) => vec![item(&single)],
            Body::Batch(items) => items.iter().map(item).collect(),
        }
    }

    #[test]
    fn bodies_are_taken_apart() {
        for (body, expected) in [
            (r#"{"jsonrpc":"2.0","method":"m","id":1}"#, &["1 m"][..]),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":"a\"b"}"#,
                &[r#""a\"b" m"#],
            ),
            (
                r#" {"jsonrpc":"2.0","method":"m","id":-1.50e3} "#,
                &["-1.50e3 m"],
            ),
            (r#"{"jsonrpc":"2.0","method":"m","id":null}"#, &["null m"]),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, &["- m"]),
            (
                r#"{"jsonrpc":"2.0","method":"m\u0065","extra":[1]}"#,
                &["- me"],
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":{}}"#,
                &["null -32600"],
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":[1]}"#,
                &["null -32600"],
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":true}"#,
                &["null -32600"],
            ),
            (r#"{"jsonrpc":"1.0","method":"m","id":7}"#, &["7 -32600"]),
            (r#"{"method":"m","id":7}"#, &["7 -32600"]),
            (r#"{"jsonrpc":2.0,"method":"m","id":7}"#, &["7 -32600"]),
            (r#"{"jsonrpc":"2.0","method":5,"id":7}"#, &["7 -32600"]),
            (r#"{"jsonrpc":"2.0","id":7}"#, &["7 -32600"]),
            (
                r#"{"jsonrpc":"2.0","method":"m","params":5,"id":7}"#,
                &["7 -32600"],
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","params":null,"id":7}"#,
                &["7 -32600"],
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","method":"n","id":7}"#,
                &["7 -32600"],
            ),
            (r#"{"jsonrpc":"2.0","method":"m","id":7"#, &["null -32700"]),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":01}"#,
                &["null -32700"],
            ),
            ("", &["null -32700"]),
            ("nonsense", &["null -32700"]),
            ("1", &["null -32600"]),
            ("\"text\"", &["null -32600"]),
            ("[]", &["null -32600"]),
            ("[1", &["null -32700"]),
            ("[1,{},[]]", &["null -32600", "null -32600", "null -32600"]),
            (r#"[["2.0",1,"m",{}],[5]]"#, &["null -32600", "null -32600"]),
            ("[1,1,1,1]", &["null -32600"]),
            (
                r#"[{"jsonrpc":"2.0","method":"m","id":1},{"jsonrpc":"2.0","method":"n"},{"id":2}]"#,
                &["1 m", "- n", "2 -32600"],
            ),
        ] {
            assert_eq!(outline(body), expected, "{body}");
        }
        assert!(matches!(
            parse(b"\xff\xfe", 3),
            Body::Single(Err((_, RpcError::Parse(_))))
        ));
    }

    #[test]
    fn parameters_go_by_name() {
        let params = |params: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params}}}"#);
            match parse(body.as_bytes(), 3) {
                Body::Single(Ok(call)) => call.params(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(params(r#"{"a":1}"#).unwrap()["a"], 1);
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(500), "]".repeat(500));
        for (given, expected) in [("[1]", "by name"), (&deep, "deeper than 128")] {
            let error = params(given).unwrap_err();
            assert_eq!(error.code(), -32602);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    proptest! {
        /// Whatever comes, there is something to answer, and the answer is JSON.
        #[test]
        fn reading_is_total(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let items = match parse(&body, 3) {
                Body::Single(item) => vec![item],
                Body::Batch(items) => items,
            };
            for item in items {
                let response = match item {
                    Ok(call) => Response::new(call.id.unwrap_or(Id::NULL), Ok(1)),
                    Err((id, error)) => Response::new(id, Err(error)),
                };
                let text = serde_json::to_string(&response).unwrap();
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            }
        }

        /// An id goes back as it came, to the last digit.
        #[test]
        fn ids_go_back_as_they_came(id in "(\"[a-zA-Z0-9 ]{0,40}\"|-?[1-9][0-9]{0,40}(\\.[0-9]{1,20})?|null)") {
            let body = format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#);
            let Body::Single(Ok(call)) = parse(body.as_bytes(), 3) else { panic!("{body}") };
            prop_assert_eq!(serde_json::to_string(&call.id.unwrap()).unwrap(), id);
        }
    }
}

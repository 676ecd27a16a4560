//! JSON Schemas of packets and of what they become, from the types.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::batch::{Batch, Payload};
use super::json::Json;
use super::packet::Packet;

/// Each schema: the name of its file, and its text.
pub fn schemas() -> [(&'static str, String); 3] {
    [
        ("a2a-packet.json", text::<Packet<'_>>()),
        ("a2a-payload.json", text::<Payload<'_>>()),
        ("a2a-batch.json", text::<Batch<'_>>()),
    ]
}

fn text<T: JsonSchema>() -> String {
    let mut schema = schemars::schema_for!(T).to_value();
    without_null(&mut schema);
    format!("{schema:#}\n")
}

/// What is optional here is left out rather than null.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|one| one != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    members.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(kinds)) = members.get_mut("anyOf") {
                kinds.retain(|kind| kind.get("type") != Some(&"null".into()));
            }
            members.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// Anything.
impl JsonSchema for Json<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

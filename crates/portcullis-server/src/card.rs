//! The agent card: F001's fields, and what A2A clients expect of a card today (C4).

use serde_json::{Value, json};

use crate::config::AgentSettings;
use crate::method::Method;

/// The version of CSTP that is spoken here.
const CSTP_VERSION: &str = "1.0";

/// The card of this server, reached at `url`.
///
/// F001's members stand as they are. The rest is A2A's: CSTP is JSON-RPC, and the extension marked as
/// required tells an A2A client that it is not A2A's own methods that are answered here.
pub(crate) fn card(agent: &AgentSettings, url: &str, authentication: bool) -> Value {
    let methods: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
    let endpoint = format!("{}/cstp", url.trim_end_matches('/'));
    let skills: Vec<Value> = Method::ALL.iter().map(|method| skill(*method)).collect();
    let mut card = json!({
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "url": url,
        "capabilities": {
            "cstp": {"version": CSTP_VERSION, "methods": methods},
            "streaming": false,
            "pushNotifications": false,
            "extensions": [{
                "uri": "urn:cstp:1.0",
                "description": "Methods are CSTP's, called by JSON-RPC 2.0",
                "required": true,
            }],
        },
        "authentication": {"schemes": if authentication { vec!["bearer"] } else { vec![] }},
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        "supportedInterfaces": [
            {"url": endpoint, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
        "defaultInputModes": ["application/json"],
        "defaultOutputModes": ["application/json"],
        "skills": skills,
    });
    if authentication && let Some(members) = card.as_object_mut() {
        // As clients of A2A 0.3 read it, and as those of 1.0 do.
        let scheme = json!({"bearer": {
            "type": "http",
            "scheme": "Bearer",
            "httpAuthSecurityScheme": {"scheme": "Bearer"},
        }});
        members.insert("securitySchemes".to_owned(), scheme);
        members.insert("security".to_owned(), json!([{"bearer": []}]));
        let requirement = json!([{"schemes": {"bearer": {"list": []}}}]);
        members.insert("securityRequirements".to_owned(), requirement);
    }
    card
}

fn skill(method: Method) -> Value {
    let name = method.name();
    json!({
        "id": name,
        "name": name.trim_start_matches("cstp."),
        "description": method.description(),
        "tags": ["cstp", method.subject()],
    })
}

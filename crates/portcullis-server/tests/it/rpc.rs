//! JSON-RPC 2.0 over HTTP (C1, C2). Cases are data: `rpc_cases.json` has bodies and what comes back,
//! `params_cases.json` wrong parameters and the field that is named.

use std::time::Duration;

use portcullis_server::Method;
use portcullis_server::limit::Quota;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::harness::Running;
use crate::wire::{Wire, call, headers_of_emerson, request};

const LIST: &str = r#"{"jsonrpc":"2.0","method":"cstp.listGuardrails","id":1}"#;

#[derive(Deserialize)]
struct Case {
    name: String,
    body: String,
    /// `ID ok` or `ID CODE` for each answer, after a `[` if they come as a list; nothing for 204.
    expect: Vec<String>,
    /// What stands in the answer.
    #[serde(default)]
    says: String,
}

#[derive(Deserialize)]
struct Answer<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
    data: Value,
}

const MESSAGES: &[(i64, &str)] = &[
    (-32700, "Parse error"),
    (-32600, "Invalid Request"),
    (-32601, "Method not found"),
    (-32602, "InvalidParams"),
    (-32005, "NotFound"),
];

/// An answer in short, once it is known to be one.
fn outline(answer: &Answer<'_>) -> String {
    assert_eq!(answer.jsonrpc, "2.0");
    match (&answer.result, &answer.error) {
        (Some(_), None) => format!("{} ok", answer.id),
        (None, Some(error)) => {
            let known = (error.code, error.message.as_str());
            assert!(MESSAGES.contains(&known), "{known:?}");
            assert!(error.data["error"].is_string(), "{}", error.data);
            format!("{} {}", answer.id, error.code)
        }
        _ => panic!("{} has both a result and an error, or neither", answer.id),
    }
}

fn outlines(text: &str) -> Vec<String> {
    if !text.starts_with('[') {
        return vec![outline(&serde_json::from_str(text).unwrap())];
    }
    let all: Vec<Answer<'_>> = serde_json::from_str(text).unwrap();
    let all = all.iter().map(outline);
    std::iter::once("[".to_owned()).chain(all).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_body_gets_the_answer_of_its_case() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("rpc_cases.json")).unwrap();
    let server = Running::with(|settings| settings.server.max_batch = 4).await;
    for case in cases {
        let response = server.post("/cstp", case.body).send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let found = match status {
            200 => outlines(&text),
            204 if text.is_empty() => Vec::new(),
            other => panic!("{}: {other} {text}", case.name),
        };
        assert_eq!(found, case.expect, "{}: {text}", case.name);
        let says = text.replace("\\\"", "\"").contains(&case.says);
        assert!(says, "{}: {text}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parameters_name_the_field_and_are_not_recorded() {
    #[derive(Deserialize)]
    struct Case {
        method: String,
        params: Value,
        field: String,
        error: String,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("params_cases.json")).unwrap();
    let server = Running::start().await;
    for case in &cases {
        let answer = server.call_any(&case.method, &case.params).await;
        let name = format!("{} {}", case.method, case.params);
        assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
        assert_eq!(
            answer["error"]["data"]["field"],
            case.field.as_str(),
            "{name}"
        );
        let error = answer["error"]["data"]["error"].as_str().unwrap();
        assert!(error.contains(&case.error), "{name}: {error}");
    }
    assert_eq!(server.evidence(), [] as [Value; 0]);
    let invalid = r#"portcullis_calls_total{method="cstp.announceIntent",outcome="invalid"}"#;
    let of_intents = cases
        .iter()
        .filter(|case| case.method == "cstp.announceIntent");
    assert_eq!(server.metric(invalid).await, of_intents.count() as f64);
}

/// Numbers and texts that JSON can write and no program can hold.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_cannot_be_held_are_invalid() {
    let server = Running::start().await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for (action, error) in [
        (
            r#"{"description":"x","confidence":1e999}"#.to_owned(),
            "out of range",
        ),
        (r#"{"description":"\ud800"}"#.to_owned(), "hex escape"),
        (
            r#"{"description":"x","context":{"\udc00":1}}"#.to_owned(),
            "escape",
        ),
        (
            format!(r#"{{"description":"x","context":{deep}}}"#),
            "deeper than 128",
        ),
    ] {
        let (status, answer) = server.rpc(&check(&action)).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (200, &json!(-32602)),
            "{action}"
        );
        assert_eq!(answer["error"]["data"]["field"], "params");
        assert!(
            answer["error"]["data"]["error"]
                .as_str()
                .unwrap()
                .contains(error),
            "{answer}"
        );
    }
}

/// Readers differ in which of the two counts, so nobody can be told one and shown the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_comes_twice_is_refused_and_nothing_is_recorded() {
    let server = Running::start().await;
    let action = r#"{"description":"first","description":"Drop the users table","stakes":"low"}"#;
    let (status, answer) = server.rpc(&check(action)).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32602)));
    let said = answer["error"]["data"]["error"].as_str().unwrap();
    let expected = "`action.description` is there twice: ";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(server.evidence(), [] as [Value; 0]);
}

fn check(action: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"cstp.checkGuardrails","id":1,"params":{{"action":{action}}}}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn nesting_of_any_depth_is_answered() {
    let server = Running::start().await;
    let open = "[".repeat(100_000);
    let closed = format!("{open}{}", "]".repeat(100_000));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    for (body, code) in [
        (open.clone(), -32700),
        (closed.clone(), -32600),
        ("{\"a\":".repeat(100_000), -32700),
        (objects.clone(), -32600),
        (check(&closed), -32602),
        (check(&objects), -32602),
        (
            format!(r#"{{"jsonrpc":"2.0","method":"m","id":{closed}}}"#),
            -32600,
        ),
        (
            format!(r#"{{"jsonrpc":{closed},"method":"m","id":1}}"#),
            -32600,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","method":"cstp.listGuardrails","id":1,"x":{closed}}}"#),
            0,
        ),
    ] {
        let (status, answer) = server.rpc(&body).await;
        assert_eq!(status, 200);
        let answer = if answer.is_array() {
            &answer[0]
        } else {
            &answer
        };
        assert_eq!(
            answer["error"]["code"].as_i64().unwrap_or(0),
            code,
            "{}",
            &body[..40]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_a_parse_error() {
    let server = Running::start().await;
    for body in [
        &b"\xff\xfe{\"jsonrpc\":\"2.0\"}"[..],
        b"{\"jsonrpc\":\"2.0\",\"method\":\"\xc3\x28\"}",
        b"\xed\xa0\x80",
    ] {
        let response = server
            .post("/cstp", "")
            .body(body.to_vec())
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], -32700);
        assert_eq!(answer["id"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_judged_and_recorded_without_a_word() {
    let server = Running::start().await;
    let action = |text: &str| json!({"jsonrpc": "2.0", "method": "cstp.checkGuardrails", "params": {"action": {"description": text}}});
    let (status, answer) = server.rpc(&action("alone").to_string()).await;
    assert_eq!((status, answer), (204, Value::Null));
    let batch = json!([action("first"), action("second"), {"jsonrpc": "2.0", "method": "cstp.announceIntent", "params": {"intent": "third"}}]);
    let (status, answer) = server.rpc(&batch.to_string()).await;
    assert_eq!((status, answer), (204, Value::Null));
    let recorded = server.evidence();
    let actions: Vec<&str> = recorded
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["alone", "first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_json_is_taken() {
    let server = Running::start().await;
    for (kind, status) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON;charset=UTF-8", 200),
        (" application/json ", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        ("application/json-rpc", 415),
        ("text/plain; application/json", 415),
        ("", 415),
    ] {
        let mut wire = Wire::connect(server.address).await;
        let [token, _] = headers_of_emerson();
        wire.send(request(
            "POST /cstp",
            &[token, ("Content-Type", kind)],
            LIST,
        ))
        .await;
        let reply = wire.answer().await.unwrap();
        assert_eq!(reply.status, status, "{kind}");
        if status == 415 {
            assert!(
                reply.json()["detail"]
                    .as_str()
                    .unwrap()
                    .contains("application/json")
            );
        }
    }
    let mut wire = Wire::connect(server.address).await;
    let [token, _] = headers_of_emerson();
    wire.send(request("POST /cstp", &[token], LIST)).await;
    assert_eq!(wire.answer().await.unwrap().status, 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_long_is_413_however_it_comes() {
    let server = Running::with(|settings| settings.server.max_body_bytes = 1_000).await;
    let fits = format!("{LIST}{}", " ".repeat(1_000 - LIST.len()));
    assert_eq!(server.rpc(&fits).await.0, 200);

    // Announced: refused before any of it is read.
    let mut wire = Wire::connect(server.address).await;
    let [token, kind] = headers_of_emerson();
    let head = format!(
        "POST /cstp HTTP/1.1\r\nHost: test\r\n{}: {}\r\n{}: {}\r\nContent-Length: 1001\r\n\r\n",
        token.0, token.1, kind.0, kind.1
    );
    wire.send(&head).await;
    let reply = wire.answer().await.unwrap();
    assert_eq!(reply.status, 413);
    assert!(
        reply.json()["detail"]
            .as_str()
            .unwrap()
            .contains("1000 bytes")
    );

    // In chunks: refused as soon as it is too long.
    let mut wire = Wire::connect(server.address).await;
    wire.send(head.replace("Content-Length: 1001", "Transfer-Encoding: chunked"))
        .await;
    for _ in 0..3 {
        wire.send(format!("190\r\n{}\r\n", " ".repeat(400))).await;
    }
    let reply = wire.answer().await.unwrap();
    assert_eq!(reply.status, 413);
    assert!(reply.json()["detail"].is_string());

    // In chunks that fit.
    let mut wire = Wire::connect(server.address).await;
    wire.send(head.replace("Content-Length: 1001", "Transfer-Encoding: chunked"))
        .await;
    wire.send(format!("{:x}\r\n{LIST}\r\n0\r\n\r\n", LIST.len()))
        .await;
    assert_eq!(wire.answer().await.unwrap().status, 200);

    // A length that no program can hold.
    let mut wire = Wire::connect(server.address).await;
    wire.send(head.replace("1001", "99999999999999999999999999"))
        .await;
    assert_eq!(wire.answer().await.map(|reply| reply.status), Some(400));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_calls_too_often_is_told_when_to_come_back() {
    let server = Running::with(|settings| {
        let quota = Quota {
            per_minute: 1,
            burst: 2,
        };
        settings
            .rate_limits
            .methods
            .insert(Method::ListGuardrails.into(), quota);
    })
    .await;
    let mut wire = Wire::connect(server.address).await;
    wire.send(call(LIST).repeat(3)).await;
    for _ in 0..2 {
        let reply = wire.answer().await.unwrap();
        assert!(reply.json()["result"].is_object(), "{}", reply.body);
        assert_eq!(reply.header("retry-after"), None);
    }
    let reply = wire.answer().await.unwrap();
    assert_eq!(reply.status, 200);
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32002), &json!("RateLimited"))
    );
    let wait = Duration::from_millis(error["data"]["retryAfterMs"].as_u64().unwrap());
    assert!(
        wait > Duration::ZERO && wait <= Duration::from_mins(1),
        "{wait:?}"
    );
    let seconds = wait.as_millis().div_ceil(1_000).to_string();
    assert_eq!(reply.header("retry-after"), Some(seconds.as_str()));
    // A batch says it too, and answers what is not limited.
    let check = check(r#"{"description":"x"}"#);
    let batch = format!("[{LIST},{check}]");
    let response = server.post("/cstp", batch).send().await.unwrap();
    assert!(response.headers().contains_key("retry-after"));
    let answers: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(answers[0]["error"]["code"], -32002);
    assert_eq!(answers[1]["result"]["allowed"], true);
    let limited = r#"portcullis_rate_limited_total{method="cstp.listGuardrails"}"#;
    assert_eq!(server.metric(limited).await, 2.0);
}

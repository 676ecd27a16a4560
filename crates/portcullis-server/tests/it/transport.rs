//! Connections: order, deadlines, limits, other protocols, TLS.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use portcullis_server::client::{Client, ClientError, ClientSettings};
use portcullis_server::config::TlsSettings;
use serde_json::{Value, json};

use crate::harness::{EMERSON, Running, eventually};
use crate::wire::{PATIENCE, Wire, call, headers_of_emerson, request};

const SHORT: Duration = Duration::from_millis(300);

fn list(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"cstp.listGuardrails","id":{id}}}"#)
}

/// The start of a call whose body is still to come.
fn unfinished_call(length: usize) -> String {
    let [token, kind] = headers_of_emerson();
    format!(
        "POST /cstp HTTP/1.1\r\nHost: test\r\n{}: {}\r\n{}: {}\r\nContent-Length: {length}\r\n\r\n",
        token.0, token.1, kind.0, kind.1
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_one_write_are_answered_in_their_order() {
    let server = Running::start().await;
    let mut wire = Wire::connect(server.address).await;
    let mut bytes = String::new();
    for id in 0..20 {
        bytes += &call(&list(id));
        bytes += &request("GET /health", &[], "");
    }
    wire.send(bytes).await;
    for id in 0..20 {
        assert_eq!(wire.answer().await.unwrap().json()["id"], id);
        assert_eq!(wire.answer().await.unwrap().json()["status"], "healthy");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_slow_is_cut_off_and_holds_nothing_up() {
    let server = Running::with(|settings| {
        settings.server.read_timeout = SHORT;
        settings.server.max_requests = 1;
    })
    .await;
    let started = Instant::now();
    // Headers that never end, a body that never comes, and one that comes a byte at a time.
    let mut silent = Wire::connect(server.address).await;
    let mut headers = Wire::connect(server.address).await;
    headers.send("POST /cstp HTTP/1.1\r\nHost: te").await;
    assert!(silent.is_closed().await);
    assert!(
        headers
            .answer()
            .await
            .is_none_or(|reply| reply.status == 408)
    );
    let mut nobody = Wire::connect(server.address).await;
    nobody.send(unfinished_call(100)).await;
    let reply = nobody.answer().await.unwrap();
    assert_eq!(reply.status, 408);
    assert!(
        reply.json()["detail"]
            .as_str()
            .unwrap()
            .contains("too long")
    );
    assert!(nobody.is_closed().await);
    let mut dripping = Wire::connect(server.address).await;
    dripping.send(unfinished_call(100)).await;
    let mut sent = 0;
    while sent < 99 && dripping.send("x").await && sent * 20 < 1_000 {
        sent += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(dripping.answer().await.map(|reply| reply.status), Some(408));
    // With room for one request, the next is served.
    assert_eq!(server.rpc(&list(1)).await.0, 200);
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_go_away_leave_their_place_to_others() {
    let server = Running::with(|settings| settings.server.max_requests = 1).await;
    for _ in 0..3 {
        let mut gone = Wire::connect(server.address).await;
        gone.send(unfinished_call(100)).await;
        eventually("the place is taken", async || {
            server.get("/openapi.json").await.status() == 503
        })
        .await;
        drop(gone);
        eventually("the place is free", async || {
            server.get("/openapi.json").await.status() == 200
        })
        .await;
    }
    // One that only sends no more is answered.
    let mut half = Wire::connect(server.address).await;
    half.send(call(&list(7))).await;
    half.finish_sending().await;
    let reply = half.answer().await.unwrap();
    assert_eq!(reply.json()["id"], 7);
    assert!(half.is_closed().await);
    let mut idle = Wire::connect(server.address).await;
    idle.finish_sending().await;
    assert!(idle.is_closed().await);
    assert_eq!(server.rpc(&list(1)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_is_answered_and_closed() {
    let server = Running::start().await;
    let mut wire = Wire::connect(server.address).await;
    wire.send("GET /health HTTP/1.0\r\n\r\n").await;
    assert_eq!(wire.answer().await.unwrap().json()["status"], "healthy");
    assert!(wire.is_closed().await);
    for nonsense in [
        "\r\n\r\n\0\0",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /cstp HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /cstp HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ] {
        let mut wire = Wire::connect(server.address).await;
        wire.send(nonsense).await;
        let reply = wire.answer().await;
        assert_eq!(reply.map(|reply| reply.status), Some(400), "{nonsense:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_verbs_and_paths_are_refused_in_json() {
    let server = Running::start().await;
    for (start, status) in [
        ("GET /cstp", 405),
        ("PUT /cstp", 405),
        ("DELETE /cstp", 405),
        ("PATCH /cstp", 405),
        ("OPTIONS /cstp", 405),
        ("GET /v1/guard/evaluate", 405),
        ("POST /health", 405),
        ("POST /metrics", 405),
        ("PUT /.well-known/agent.json", 405),
        ("GET /", 404),
        ("GET /cstp/", 404),
        ("POST /cstp/x", 404),
        ("POST //cstp", 404),
        ("POST /CSTP", 404),
        ("GET /.well-known/", 404),
        ("GET /.well-known/../metrics", 404),
        ("GET /health%2f..%2fmetrics", 404),
        ("GET /v1/guard", 404),
    ] {
        let mut wire = Wire::connect(server.address).await;
        wire.send(request(start, &headers_of_emerson(), "")).await;
        let reply = wire.answer().await.unwrap();
        assert_eq!(reply.status, status, "{start}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert!(reply.json()["detail"].is_string(), "{start}");
        assert!(reply.header("x-request-id").is_some());
        if status == 405 {
            assert!(reply.header("allow").is_some(), "{start}");
        }
    }
    for (start, status) in [
        ("HEAD /cstp", 405),
        ("HEAD /health", 200),
        ("HEAD /nothing", 404),
    ] {
        let mut wire = Wire::connect(server.address).await;
        wire.send(request(start, &[], "")).await;
        let reply = wire.answer_without_body().await.unwrap();
        assert_eq!(reply.status, status, "{start}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fit_request_id_is_kept_and_another_replaced() {
    let server = Running::start().await;
    let longest = "x".repeat(128);
    let too_long = "x".repeat(129);
    let check = r#"{"jsonrpc":"2.0","method":"cstp.checkGuardrails","id":1,"params":{"action":{"description":"x"}}}"#;
    let mut wire = Wire::connect(server.address).await;
    for (id, kept) in [
        ("abc-123", true),
        ("4bf92f3577b34da6a3ce929d0e0e4736", true),
        (&longest, true),
        (&too_long, false),
        ("", false),
        ("two words", false),
        ("tab\there", false),
        ("größe", false),
    ] {
        let [token, kind] = headers_of_emerson();
        wire.send(request(
            "POST /cstp",
            &[token, kind, ("X-Request-Id", id)],
            check,
        ))
        .await;
        let reply = wire.answer().await.unwrap();
        let answered = reply.header("x-request-id").unwrap();
        assert_eq!(answered == id, kept, "{id}: {answered}");
        assert!(kept || answered.len() == 36, "{answered}");
        assert_eq!(server.evidence().last().unwrap()["request_id"], answered);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_sheds_requests_and_still_answers_probes() {
    let server = Running::with(|settings| settings.server.max_requests = 2).await;
    let body = list(1);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut wire = Wire::connect(server.address).await;
        wire.send(unfinished_call(body.len())).await;
        held.push(wire);
    }
    eventually("both places are taken", async || {
        server.get("/openapi.json").await.status() == 503
    })
    .await;
    let mut wire = Wire::connect(server.address).await;
    wire.send(call(&body)).await;
    let reply = wire.answer().await.unwrap();
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(reply.json()["detail"].is_string());
    for probe in ["/health", "/ready"] {
        assert_ne!(server.get(probe).await.status(), 404, "{probe}");
        let answer: Value =
            serde_json::from_str(&server.get(probe).await.text().await.unwrap()).unwrap();
        assert!(
            answer["status"] == "healthy" || answer["ready"].is_boolean(),
            "{answer}"
        );
    }
    for wire in &mut held {
        wire.send(&body).await;
        let reply = wire.answer().await.unwrap();
        assert_eq!(reply.status, 200);
        assert!(reply.json()["result"].is_object());
    }
    assert_eq!(server.rpc(&body).await.0, 200);
    assert!(server.metric("portcullis_requests_shed_total").await >= 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_wait_for_one_to_close() {
    let server = Running::with(|settings| settings.server.max_connections = 1).await;
    let health = request("GET /health", &[], "");
    let mut first = Wire::connect(server.address).await;
    first.send(&health).await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    let mut second = Wire::connect(server.address).await;
    second.send(&health).await;
    let waited = tokio::time::timeout(SHORT, second.answer()).await;
    assert!(waited.is_err(), "two connections at one time");
    first.send(&health).await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    drop(first);
    assert_eq!(second.answer().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_are_let_in_only_from_listed_origins() {
    async fn allowed(server: &Running, start: &str, origin: &str) -> Option<String> {
        let mut wire = Wire::connect(server.address).await;
        let headers = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
        ];
        wire.send(request(start, &headers, "")).await;
        let reply = wire.answer().await.unwrap();
        reply
            .header("access-control-allow-origin")
            .map(str::to_owned)
    }
    let (ours, theirs) = ("https://console.example.com", "https://evil.example");
    let closed = Running::start().await;
    let listed =
        Running::with(|settings| settings.server.cors_origins = vec![ours.to_owned()]).await;
    let open = Running::with(|settings| settings.server.cors_origins = vec!["*".to_owned()]).await;
    for start in ["GET /health", "OPTIONS /cstp"] {
        assert_eq!(allowed(&closed, start, ours).await, None);
        assert_eq!(allowed(&listed, start, ours).await.as_deref(), Some(ours));
        assert_eq!(allowed(&listed, start, theirs).await, None);
        assert_eq!(
            allowed(&listed, start, "https://console.example.com.evil.example").await,
            None
        );
        assert_eq!(allowed(&listed, start, "null").await, None);
        assert_eq!(allowed(&open, start, theirs).await.as_deref(), Some("*"));
    }
    // A page still needs a token.
    let mut wire = Wire::connect(open.address).await;
    let headers = [("Origin", theirs), ("Content-Type", "application/json")];
    wire.send(request("POST /cstp", &headers, &list(1))).await;
    assert_eq!(wire.answer().await.unwrap().status, 401);
}

/// A certificate for 127.0.0.1 and its key, as files.
fn certificate(folder: &std::path::Path) -> TlsSettings {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsSettings {
        certificate: file("server.pem", made.cert.pem()),
        key: file("server.key", made.signing_key.serialize_pem()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_to_who_trusts_the_certificate_and_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let tls = certificate(folder.path());
    let trusted = tls.certificate.clone();
    let server = Running::with(|settings| {
        settings.server.tls = Some(tls);
        settings.server.read_timeout = SHORT;
    })
    .await;
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    let client = |ca_certificate| {
        Client::new(ClientSettings {
            ca_certificate,
            retries: 0,
            ..ClientSettings::new(&server.url, EMERSON)
        })
        .unwrap()
    };
    let params = json!({"action": {"description": "x"}});
    let answer = client(Some(trusted))
        .call("cstp.checkGuardrails", &params)
        .await;
    assert_eq!(answer.unwrap()["allowed"], true);
    let stranger = client(None).call("cstp.checkGuardrails", &params).await;
    assert!(
        matches!(stranger, Err(ClientError::Unreachable { .. })),
        "{stranger:?}"
    );
    assert_eq!(server.evidence().len(), 1);

    // Plain HTTP, half a handshake and silence all end.
    for bytes in [call(&list(1)), "\x16\x03\x01\x02".to_owned(), String::new()] {
        let mut wire = Wire::connect(server.address).await;
        wire.send(&bytes).await;
        let ended = tokio::time::timeout(PATIENCE, wire.answer()).await;
        assert!(ended.is_ok_and(|reply| reply.is_none()), "{bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_used_prevent_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let good = certificate(folder.path());
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let other = tempfile::tempdir().unwrap();
    let other = certificate(other.path()).certificate;
    for (tls, error) in [
        (
            TlsSettings {
                certificate: empty.clone(),
                ..good.clone()
            },
            "no certificate in",
        ),
        (
            TlsSettings {
                certificate: folder.path().join("none.pem"),
                ..good.clone()
            },
            "cannot read certificates",
        ),
        (
            TlsSettings {
                key: empty,
                ..good.clone()
            },
            "cannot read a private key",
        ),
        (
            TlsSettings {
                certificate: other,
                ..good
            },
            "cannot",
        ),
    ] {
        let data = tempfile::tempdir().unwrap();
        let mut settings = crate::harness::settings(data.path());
        settings.server.tls = Some(tls);
        let refused = portcullis_server::Server::start(settings).await;
        let message = refused.err().unwrap().to_string();
        assert!(message.contains(error), "{message}");
    }
}

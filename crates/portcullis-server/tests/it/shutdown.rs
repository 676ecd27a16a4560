//! Stopping: what is under way is finished, and nobody can hold it up.

use std::time::{Duration, Instant};

use portcullis_store::evidence::{VerifyOptions, verify};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Running, eventually, evidence_in};
use crate::wire::{Wire, call, headers_of_emerson, request};

const CHECK: &str = r#"{"jsonrpc":"2.0","method":"cstp.checkGuardrails","id":1,"params":{"action":{"description":"the last one"}}}"#;

fn head(length: usize) -> String {
    let [token, kind] = headers_of_emerson();
    format!(
        "POST /cstp HTTP/1.1\r\nHost: test\r\n{}: {}\r\n{}: {}\r\nContent-Length: {length}\r\n\r\n",
        token.0, token.1, kind.0, kind.1
    )
}

/// A request that is in, and whose body is still to come. The server has room for no other.
async fn under_way(server: &Running) -> Wire {
    let begin = async || {
        let mut wire = Wire::connect(server.address).await;
        wire.send(head(CHECK.len())).await;
        wire
    };
    let mut wire = begin().await;
    eventually("the request is under way", async || {
        if server.get("/openapi.json").await.status() == 503 {
            return true;
        }
        // Whoever looks takes the only place for a moment. If the request came in just then, it was turned away.
        if timeout(Duration::from_millis(20), wire.answer())
            .await
            .is_ok()
        {
            wire = begin().await;
        }
        false
    })
    .await;
    wire
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_finished_and_recorded() {
    let mut server = Running::with(|settings| settings.server.max_requests = 1).await;
    let mut wire = under_way(&server).await;
    server.begin_stop();
    eventually("nobody else gets in", async || {
        TcpStream::connect(server.address).await.is_err()
    })
    .await;
    wire.send(CHECK).await;
    let reply = wire.answer().await.unwrap();
    assert_eq!(reply.json()["result"]["allowed"], true);
    assert_eq!(reply.header("connection"), Some("close"));
    let (finished, data) = server.stopped().await;
    assert!(finished);
    let entries = evidence_in(data.path());
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["action"], "the last one");
    // The last checkpoint covers it.
    let report = verify(
        &data.path().join("evidence"),
        &VerifyOptions::default(),
        |_| {},
    )
    .unwrap();
    assert!(report.is_ok(), "{:?}", report.faults);
    assert_eq!(
        (report.entries, report.uncovered, report.torn_bytes),
        (1, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_finishes_does_not_hold_it_up() {
    let patience = Duration::from_millis(300);
    let server = Running::with(|settings| {
        settings.server.max_requests = 1;
        settings.server.shutdown_timeout = patience;
    })
    .await;
    eventually("ready", async || server.get("/ready").await.status() == 200).await;
    let _never = under_way(&server).await;
    let started = Instant::now();
    let (finished, data) = server.stop().await;
    assert!(!finished);
    let took = started.elapsed();
    assert!(
        took >= patience && took < Duration::from_secs(5),
        "{took:?}"
    );
    let report = verify(
        &data.path().join("evidence"),
        &VerifyOptions::default(),
        |_| {},
    )
    .unwrap();
    assert!(report.is_ok() && report.uncovered == 0);
}

/// A load balancer keeps connections open that it may need. None of them is a request.
#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_request_are_closed_at_once() {
    let server = Running::start().await;
    eventually("ready", async || server.get("/ready").await.status() == 200).await;
    let mut unused = Wire::connect(server.address).await;
    let mut used = Wire::connect(server.address).await;
    used.send(request("GET /health", &[], "")).await;
    assert_eq!(used.answer().await.unwrap().status, 200);
    let mut checked = Wire::connect(server.address).await;
    checked.send(call(CHECK)).await;
    assert_eq!(checked.answer().await.unwrap().status, 200);
    let started = Instant::now();
    let (finished, _data) = server.stop().await;
    assert!(finished);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(unused.is_closed().await && used.is_closed().await && checked.is_closed().await);
}

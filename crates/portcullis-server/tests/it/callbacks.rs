//! Telling others of announced intents, over real connections.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use portcullis_server::auth::Token;
use portcullis_server::config::{CallbackKind, CallbackTarget, CallbackWhen, Settings};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{CLAUDE, Running, eventually};
use crate::receiver::{Answer, Received, Receiver};

pub(crate) const SECRET: &str = "secret-of-the-webhook-0003";

/// A webhook that is tried again soon.
fn webhook(receiver: &Receiver) -> CallbackTarget {
    let secret = Token::parse(SECRET).unwrap();
    CallbackTarget {
        retry: Duration::from_millis(20),
        ..CallbackTarget::new(
            receiver.url().parse().unwrap(),
            CallbackKind::Webhook { secret },
        )
    }
}

fn peer(url: &str, token: &str) -> CallbackTarget {
    let token = Some(Token::parse(token).unwrap());
    CallbackTarget {
        retry: Duration::from_millis(20),
        ..CallbackTarget::new(url.parse().unwrap(), CallbackKind::Peer { token })
    }
}

/// A server that tells these.
async fn telling(targets: Vec<CallbackTarget>) -> Running {
    Running::with(|settings: &mut Settings| settings.callbacks.targets = targets).await
}

async fn announce(server: &Running, intent: &str) -> Value {
    let params = json!({"intent": intent});
    server.call("cstp.announceIntent", &params).await
}

async fn outcomes(server: &Running) -> [f64; 4] {
    let mut counts = [0.0; 4];
    for (count, outcome) in counts.iter_mut().zip(["delivered", "failed", "dropped"]) {
        let name = format!("portcullis_callbacks_total{{outcome=\"{outcome}\"}}");
        *count = server.metric(&name).await;
    }
    counts[3] = server.metric("portcullis_callbacks_waiting").await;
    counts
}

/// Waits until so many were delivered, failed and dropped, and so many wait.
async fn settled(server: &Running, expected: [f64; 4]) {
    eventually(&format!("{expected:?}"), async || {
        outcomes(server).await == expected
    })
    .await;
}

/// HMAC by its definition (RFC 2104), which shares nothing with what is tested.
fn hmac(key: &[u8], message: &[u8]) -> String {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let digest = |pad: u8, message: &[u8]| {
        let mut hash = Sha256::new();
        hash.update(block.map(|byte| byte ^ pad));
        hash.update(message);
        hash.finalize()
    };
    let digest = digest(0x5c, &digest(0x36, message));
    let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

pub(crate) fn assert_signed(request: &Received) {
    let timestamp = request.header("x-portcullis-timestamp").unwrap();
    let signed = format!("{timestamp}.{}", request.body);
    let expected = format!("v1={}", hmac(SECRET.as_bytes(), signed.as_bytes()));
    let signature = request.header("x-portcullis-signature").unwrap();
    assert_eq!(signature, expected);
    let age =
        std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() - timestamp.parse::<u64>().unwrap();
    assert!(age < 60);
}

#[test]
fn the_tests_own_hmac_is_right() {
    // RFC 4231, test case 2.
    assert_eq!(
        hmac(b"Jefe", b"what do ya want for nothing?"),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_told_signed_and_in_full() {
    let receiver = Receiver::start(&[Answer::Status(204)]).await;
    let server = telling(vec![webhook(&receiver)]).await;
    let params = json!({
        "intent": "Deploy authentication service to production",
        "context": "PR #42 approved",
        "category": "architecture",
        "stakes": "high",
        "confidence": 0.85,
        "agent": {"id": "somebody-else", "url": "https://emerson.example.com"},
        "correlationId": "550e8400-e29b-41d4-a716-446655440000",
        "metadata": {"pr_number": 42, "affectsProduction": true},
    });
    let answer = server.call("cstp.announceIntent", &params).await;
    let request = receiver.has(1).await.remove(0);
    assert!(
        request
            .head
            .starts_with("POST /intents?from=portcullis HTTP/1.1\r\n")
    );
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), None);
    assert_signed(&request);
    let mut body = request.json();
    let id = body["id"].take();
    assert_eq!(request.header("x-portcullis-delivery"), id.as_str());
    assert_eq!(id.as_str().unwrap().split('-').nth(2).unwrap()[..1], *"7");
    assert!(body["sentAt"].take().as_str() >= answer["receivedAt"].as_str());
    assert_eq!(
        body,
        json!({
            "type": "intent.announced",
            "id": null,
            "sentAt": null,
            "intent": {
                "correlationId": "550e8400-e29b-41d4-a716-446655440000",
                "revision": 1,
                "intent": "Deploy authentication service to production",
                "context": "PR #42 approved",
                "category": "architecture",
                "stakes": "high",
                "confidence": 0.85,
                "metadata": {"pr_number": 42, "affectsProduction": true},
                "agent": "emerson",
                "receivedAt": answer["receivedAt"],
            },
            "guardrailStatus": {
                "allowed": false,
                "violations": ["no-production-without-review"],
                "warnings": ["prefer-staged-rollout"],
            },
            "respondingAgent": "cognition-engines",
        })
    );
    settled(&server, [1.0, 0.0, 0.0, 0.0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_is_tried_again_under_the_same_id() {
    let answers = [
        Answer::Status(500),
        Answer::Nothing,
        Answer::Status(429),
        Answer::Status(200),
    ];
    let receiver = Receiver::start(&answers).await;
    let server = telling(vec![webhook(&receiver)]).await;
    announce(&server, "first").await;
    announce(&server, "second").await;
    let requests = receiver.has(5).await;
    for request in &requests {
        assert_signed(request);
    }
    let id = |request: &Received| request.header("x-portcullis-delivery").unwrap().to_owned();
    for again in &requests[1..4] {
        assert_eq!(id(again), id(&requests[0]));
        assert_eq!(again.body, requests[0].body);
    }
    // The next waits its turn.
    assert_ne!(id(&requests[4]), id(&requests[0]));
    assert_eq!(requests[4].json()["intent"]["intent"], "second");
    settled(&server, [2.0, 0.0, 0.0, 0.0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_is_not_tried_again() {
    let receiver = Receiver::start(&[Answer::Status(400), Answer::Status(200)]).await;
    let server = telling(vec![webhook(&receiver)]).await;
    announce(&server, "first").await;
    announce(&server, "second").await;
    settled(&server, [1.0, 1.0, 0.0, 0.0]).await;
    let texts: Vec<Value> = receiver
        .received()
        .iter()
        .map(|request| request.json()["intent"]["intent"].clone())
        .collect();
    assert_eq!(texts, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_is_given_up_after_its_tries() {
    let receiver = Receiver::start(&[Answer::Status(503)]).await;
    let target = CallbackTarget {
        attempts: 3,
        ..webhook(&receiver)
    };
    let server = telling(vec![target]).await;
    announce(&server, "x").await;
    settled(&server, [0.0, 1.0, 0.0, 0.0]).await;
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_says_when_to_come_back() {
    let answers = [Answer::With(503, "Retry-After", "1"), Answer::Status(200)];
    let receiver = Receiver::start(&answers).await;
    let server = telling(vec![webhook(&receiver)]).await;
    announce(&server, "x").await;
    let requests = receiver.has(2).await;
    let pause = requests[1].at - requests[0].at;
    assert!(pause >= Duration::from_millis(990), "{pause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn some_hear_of_blocked_intents_only() {
    let (all, blocked) = (
        Receiver::start(&[Answer::Status(200)]).await,
        Receiver::start(&[Answer::Status(200)]).await,
    );
    let only_blocked = CallbackTarget {
        when: CallbackWhen::Blocked,
        ..webhook(&blocked)
    };
    let server = telling(vec![webhook(&all), only_blocked]).await;
    announce(&server, "Fix a typo").await;
    let params = json!({"intent": "Deploy", "metadata": {"affectsProduction": true}});
    server.call("cstp.announceIntent", &params).await;
    settled(&server, [3.0, 0.0, 0.0, 0.0]).await;
    assert_eq!(all.received().len(), 2);
    let heard = blocked.received();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].json()["intent"]["intent"], "Deploy");
    // A check is no intent.
    let check = json!({"action": {"description": "Deploy"}});
    server.call("cstp.checkGuardrails", &check).await;
    assert_eq!(outcomes(&server).await, [3.0, 0.0, 0.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let elsewhere = Receiver::start(&[Answer::Status(200)]).await;
    let address: &'static str = elsewhere.url().leak();
    for status in [301, 302, 307, 308] {
        let receiver = Receiver::start(&[Answer::With(status, "Location", address)]).await;
        let target = CallbackTarget {
            attempts: 1,
            ..webhook(&receiver)
        };
        let server = telling(vec![target]).await;
        announce(&server, "x").await;
        settled(&server, [0.0, 1.0, 0.0, 0.0]).await;
    }
    assert!(elsewhere.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_target_holds_up_nobody() {
    let silent = Receiver::start(&[Answer::Never]).await;
    let live = Receiver::start(&[Answer::Status(200)]).await;
    let slow = CallbackTarget {
        timeout: Duration::from_mins(1),
        ..webhook(&silent)
    };
    // Nobody listens on this one at all.
    let gone = Receiver::start(&[Answer::Never]).await;
    let refusing = webhook(&gone);
    drop(gone);
    let server = telling(vec![slow, refusing, webhook(&live)]).await;
    announce(&server, "0").await;
    silent.has(1).await;
    let started = Instant::now();
    for number in 1..10 {
        announce(&server, &number.to_string()).await;
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let heard = live.has(10).await;
    for (number, request) in heard.iter().enumerate() {
        assert_eq!(request.json()["intent"]["intent"], number.to_string());
    }
    assert_eq!(silent.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_wait() {
    let silent = Receiver::start(&[Answer::Never]).await;
    let target = CallbackTarget {
        timeout: Duration::from_mins(1),
        ..webhook(&silent)
    };
    let server = Running::with(|settings| {
        settings.callbacks.queue = 2;
        settings.callbacks.targets = vec![target];
        settings.server.shutdown_timeout = Duration::from_millis(200);
    })
    .await;
    announce(&server, "under way").await;
    silent.has(1).await;
    for number in 0..5 {
        announce(&server, &number.to_string()).await;
    }
    assert_eq!(outcomes(&server).await, [0.0, 0.0, 3.0, 3.0]);
    // Nor does it hold up the end.
    let started = Instant::now();
    let (finished, _data) = server.stop().await;
    assert!(finished);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_intents_take_room_by_their_length() {
    let silent = Receiver::start(&[Answer::Never]).await;
    let target = CallbackTarget {
        timeout: Duration::from_mins(1),
        ..webhook(&silent)
    };
    let server = telling(vec![target]).await;
    let params = json!({"intent": "x", "metadata": {"long": "x".repeat(2_000_000)}});
    for _ in 0..40 {
        server.call("cstp.announceIntent", &params).await;
    }
    let [_, _, dropped, waiting] = outcomes(&server).await;
    assert_eq!(dropped + waiting, 40.0);
    assert!(dropped >= 5.0, "{dropped}");
}

/// What waits for its next try gets it at once, and what waits behind it gets one.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_tried_once_more_at_the_end() {
    let answers = [
        Answer::Status(500),
        Answer::Status(200),
        Answer::Status(500),
    ];
    let receiver = Receiver::start(&answers).await;
    let target = CallbackTarget {
        retry: Duration::from_hours(1),
        ..webhook(&receiver)
    };
    let server = telling(vec![target]).await;
    announce(&server, "first").await;
    receiver.has(1).await;
    announce(&server, "second").await;
    announce(&server, "third").await;
    let started = Instant::now();
    let (finished, _data) = server.stop().await;
    assert!(finished);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let texts: Vec<Value> = receiver
        .received()
        .iter()
        .map(|request| request.json()["intent"]["intent"].clone())
        .collect();
    assert_eq!(texts, ["first", "first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_not_told() {
    let receiver = Receiver::start(&[Answer::Status(200)]).await;
    let other = telling(vec![]).await;
    let targets = vec![webhook(&receiver), peer(&other.url, CLAUDE)];
    let server = telling(targets).await;
    let key = "AKIAQYLPMN5HHHFPZAM2";
    let params = json!({
        "intent": format!("Deploy with {key}"),
        "context": format!("The key is {key}."),
        "category": key,
        "correlationId": key,
        "metadata": {"deep": [{"note": key}], key: true, "password": "Tr0ub4dor&3-x9!Kq"},
    });
    server.call("cstp.announceIntent", &params).await;
    settled(&server, [2.0, 0.0, 0.0, 0.0]).await;
    let body = &receiver.received()[0].body;
    assert!(body.contains("Deploy with [REDACTED:"), "{body}");
    let peers = json!(other.evidence()).to_string();
    for told in [body, &peers] {
        assert!(!told.contains(key), "{told}");
        assert!(!told.contains("Tr0ub4dor"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_called_whom_a_request_names() {
    let named = Receiver::start(&[Answer::Status(200)]).await;
    let configured = Receiver::start(&[Answer::Status(200)]).await;
    let server = telling(vec![webhook(&configured)]).await;
    let params = json!({
        "intent": "x",
        "agent": {"id": "emerson", "url": named.url()},
        "metadata": {"url": named.url(), "callbackUrl": named.url()},
    });
    server.call("cstp.announceIntent", &params).await;
    configured.has(1).await;
    settled(&server, [1.0, 0.0, 0.0, 0.0]).await;
    assert!(named.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_others_peers_tell_each_other_once() {
    // An address of its own: nobody else can take the port meanwhile.
    let [.., high, low] = std::process::id().to_be_bytes();
    let (host, port) = (IpAddr::from([127, 77, high, low]), 18_100);
    let webhook_of_two = Receiver::start(&[Answer::Status(200)]).await;
    let to_one = peer(&format!("http://{host}:{port}/"), CLAUDE);
    let two = telling(vec![to_one, webhook(&webhook_of_two)]).await;
    let to_two = peer(&two.url, CLAUDE);
    let one = Running::with(|settings| {
        settings.server.host = host;
        settings.server.port = port;
        settings.callbacks.targets = vec![to_two];
    })
    .await;
    let params = json!({
        "intent": "Deploy",
        "context": "PR #42",
        "stakes": "high",
        "confidence": 0.5,
        "correlationId": "c-1",
        "metadata": {"affectsProduction": true},
    });
    one.call("cstp.announceIntent", &params).await;
    settled(&one, [1.0, 0.0, 0.0, 0.0]).await;
    // Its webhooks hear what a peer was told.
    settled(&two, [1.0, 0.0, 0.0, 0.0]).await;
    let heard = &webhook_of_two.received()[0].json();
    assert_eq!(heard["intent"]["correlationId"], "c-1");
    assert_eq!(heard["intent"]["agent"], "claude-ops");
    let entries = two.evidence();
    assert_eq!(entries.len(), 1);
    for (name, value) in [
        ("event", json!("intent")),
        ("requesting_agent", json!("claude-ops")),
        ("claimed_agent", json!("emerson")),
        ("action", json!("Deploy")),
        ("context", json!("PR #42")),
        ("stakes", json!("high")),
        ("confidence", json!(0.5)),
        ("correlation_id", json!("c-1")),
        ("metadata", json!({"affectsProduction": true})),
    ] {
        assert_eq!(entries[0][name], value, "{name}");
    }
    // And the other way round.
    announce(&two, "Fix a typo").await;
    settled(&two, [3.0, 0.0, 0.0, 0.0]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(outcomes(&one).await, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(outcomes(&two).await, [3.0, 0.0, 0.0, 0.0]);
    assert_eq!((one.evidence().len(), two.evidence().len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_know_us_is_not_asked_again() {
    let other = telling(vec![]).await;
    let server = telling(vec![peer(&other.url, "a-token-of-nobody-there")]).await;
    announce(&server, "x").await;
    settled(&server, [0.0, 1.0, 0.0, 0.0]).await;
    let failures = "portcullis_auth_failures_total{reason=\"unknown_token\"}";
    assert_eq!(other.metric(failures).await, 1.0);
    assert!(other.evidence().is_empty());
}

/// A peer that turns us away by a limit is asked again when it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_peers_limit_is_waited_for() {
    let other = Running::with(|settings| {
        let quota = portcullis_server::limit::Quota {
            per_minute: 120,
            burst: 1,
        };
        settings.rate_limits.default = quota;
    })
    .await;
    let server = telling(vec![peer(&other.url, CLAUDE)]).await;
    announce(&server, "first").await;
    announce(&server, "second").await;
    settled(&server, [2.0, 0.0, 0.0, 0.0]).await;
    assert_eq!(other.evidence().len(), 2);
}

//! What every rate limiter keeps to (C15).

use std::sync::Arc;
use std::time::Duration;

use portcullis_server::auth::{AgentId, Token, Tokens};
use portcullis_server::limit::{MemoryLimiter, Quota, RateLimiter, RateLimits};
use portcullis_server::{Method, Operation};
use serde_json::json;

use crate::harness::{CLAUDE, Running};

fn agent(name: &str) -> AgentId {
    let text = format!("token-of-the-agent-{name}");
    let mut tokens = Tokens::default();
    tokens.add(name, &Token::parse(&text).unwrap()).unwrap();
    tokens
        .authenticate(Some(format!("Bearer {text}").as_bytes()))
        .unwrap()
}

fn limits(per_minute: u32, burst: u32) -> RateLimits {
    RateLimits {
        default: Quota { per_minute, burst },
        ..RateLimits::default()
    }
}

/// The conformance suite: whatever says no to who calls too often says it like this.
async fn rate_limiter_conforms(make: impl Fn(RateLimits) -> Arc<dyn RateLimiter>) {
    let (emerson, claude) = (agent("emerson"), agent("claude-ops"));
    let check = Operation::Cstp(Method::CheckGuardrails);
    let list = Operation::Cstp(Method::ListGuardrails);

    // A burst, and then one more for the wait that is asked for.
    let limiter = make(limits(60, 5));
    for _ in 0..5 {
        assert_eq!(limiter.take(&emerson, check).await, Ok(()));
    }
    let wait = limiter.take(&emerson, check).await.unwrap_err();
    assert!(
        wait > Duration::ZERO && wait <= Duration::from_secs(1),
        "{wait:?}"
    );
    // Being refused costs nothing.
    let again = limiter.take(&emerson, check).await.unwrap_err();
    assert!(again <= wait, "{again:?} after {wait:?}");
    tokio::time::sleep(wait).await;
    assert_eq!(limiter.take(&emerson, check).await, Ok(()));

    // Every agent has a bucket of its own for every method.
    let limiter = make(limits(1, 5));
    for (agent, method) in [
        (&emerson, check),
        (&claude, check),
        (&emerson, list),
        (&claude, list),
    ] {
        for _ in 0..5 {
            assert_eq!(limiter.take(agent, method).await, Ok(()));
        }
        assert!(limiter.take(agent, method).await.is_err());
    }

    // A method's own limit goes before the default, in both directions.
    let mut own = limits(1, 2);
    own.methods.insert(
        check,
        Quota {
            per_minute: 1,
            burst: 4,
        },
    );
    own.methods.insert(
        list,
        Quota {
            per_minute: 1,
            burst: 1,
        },
    );
    let limiter = make(own.clone());
    for (method, burst) in [(check, 4), (list, 1), (Operation::A2aConvert, 2)] {
        for _ in 0..burst {
            assert_eq!(limiter.take(&emerson, method).await, Ok(()));
        }
        let wait = limiter.take(&emerson, method).await.unwrap_err();
        assert!(
            wait > Duration::from_secs(50) && wait <= Duration::from_mins(1),
            "{wait:?}"
        );
    }

    // Many at once get the burst between them, and no more.
    let limiter = make(limits(1, 10));
    let takers = (0..40).map(|_| {
        let (limiter, agent) = (Arc::clone(&limiter), emerson.clone());
        tokio::spawn(async move { limiter.take(&agent, check).await.is_ok() })
    });
    let mut taken = 0;
    for taker in takers.collect::<Vec<_>>() {
        taken += usize::from(taker.await.unwrap());
    }
    assert_eq!(taken, 10);

    // Switched off, nothing is refused.
    let limiter = make(RateLimits {
        enabled: false,
        ..limits(1, 1)
    });
    for _ in 0..100 {
        assert_eq!(limiter.take(&emerson, check).await, Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limiter_in_memory_conforms() {
    rate_limiter_conforms(|limits| Arc::new(MemoryLimiter::new(limits))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_over_http_for_each_agent_and_are_not_recorded() {
    let server = Running::with(|settings| settings.rate_limits = limits(1, 3)).await;
    let params = json!({"action": {"description": "x"}});
    for _ in 0..3 {
        server.call("cstp.checkGuardrails", &params).await;
    }
    let refused = server.call_any("cstp.checkGuardrails", &params).await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    let wait = refused["error"]["data"]["retryAfterMs"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait), "{wait}");
    // Wrong parameters count too: they are work.
    assert_eq!(
        server.call_any("cstp.checkGuardrails", &json!({})).await["error"]["code"],
        -32002
    );
    // Another agent is not held up.
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "cstp.checkGuardrails", "params": params});
    let mut request = server.post("/cstp", body.to_string()).build().unwrap();
    request
        .headers_mut()
        .insert("authorization", format!("Bearer {CLAUDE}").parse().unwrap());
    let response = reqwest::Client::new().execute(request).await.unwrap();
    assert!(response.text().await.unwrap().contains("\"allowed\":true"));
    assert_eq!(server.evidence().len(), 4);
}

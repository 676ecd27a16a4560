//! A Redis that goes away, under a gateway that does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::{Action, GatewaySettings, OnTimeout, Routing, RuleOutcome};
use portcullis_runtime::{
    AskError, AwaitError, DeepAnswer, DeepRules, Gateway, GuardInbox, RemoteInbox, SubmitError,
};
use tokio::time::{Instant, sleep};

use super::server::Server;
use super::{PATIENCE, hire, inbox, until, until_ready};
use crate::fixtures::{
    Always, decision, deep, deep_rules, judge, outcomes, patient, policy, prompt,
};
use crate::inbox::{assert_echo, drained, echo, request};

/// What a busy machine may take longer than the deadline.
const SLACK: Duration = Duration::from_secs(3);

/// Half a second late, then a STOP.
fn stops() -> DeepRules {
    deep_rules([deep("guard", |_| async {
        sleep(Duration::from_millis(500)).await;
        Ok(Some(decision(Action::Stop, "guard")))
    })])
}

fn gateway(inbox: Arc<RemoteInbox>, wait_ms: f64, on_timeout: OnTimeout) -> Gateway {
    let settings = GatewaySettings {
        async_fail_open: true,
        ..patient()
    };
    Gateway::builder(policy().gateway(settings).compile().unwrap())
        .inbox(inbox)
        .risk_router(Always(Routing {
            async_wait_ms: wait_ms,
            on_timeout,
            ..Routing::default()
        }))
        .build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_redis_dies_mid_request_the_configured_fallback_holds_in_time() {
    let mut server = Server::start();
    let settings = server.settings("dies");
    let _hand = hire(&settings, stops());
    let inbox = Arc::new(inbox(&settings));
    let cases = [
        (OnTimeout::Allow, Action::Allow),
        (OnTimeout::Pause, Action::Pause),
        (OnTimeout::Stop, Action::Stop),
    ];
    for (on_timeout, fallback) in cases {
        until_ready(&inbox, "guard").await;
        let hasty = gateway(Arc::clone(&inbox), 1_000.0, on_timeout);
        let started = Instant::now();
        let killing = async {
            sleep(Duration::from_millis(200)).await;
            server.kill();
        };
        let event = prompt("mid-request", "hello");
        let (evaluation, ()) = tokio::join!(judge(&hasty, &event), killing);
        assert!(started.elapsed() < Duration::from_secs(1) + SLACK);
        assert_eq!(evaluation.decision.action, fallback);
        assert_eq!(outcomes(&evaluation), [("guard", RuleOutcome::TimedOut)]);

        // Down: nothing waits for what cannot come.
        until("it is noticed", async || inbox.trouble().is_some()).await;
        let started = Instant::now();
        let evaluation = judge(&hasty, &prompt("down", "hello")).await;
        assert_eq!(outcomes(&evaluation), [("guard", RuleOutcome::Unavailable)]);
        assert!(started.elapsed() < SLACK);

        server.restart();
        until_ready(&inbox, "guard").await;
        let slow = gateway(Arc::clone(&inbox), 20_000.0, on_timeout);
        let evaluation = judge(&slow, &prompt("back", "hello")).await;
        assert_eq!(outcomes(&evaluation), [("guard", RuleOutcome::Decided)]);
        assert_eq!(evaluation.decision.rule_id.as_str(), "guard");
        // What was under way was sent again, and is one late answer.
        let late = drained(&*inbox, "mid-request", 1).await;
        assert_eq!(late.len(), 1);
        sleep(Duration::from_millis(700)).await;
        assert!(inbox.drain_responses("mid-request").is_empty());
    }
}

/// A request outlives the Redis that it was given to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_answered_once_though_the_redis_was_restarted_empty() {
    let mut server = Server::start();
    let settings = server.settings("restarted");
    let hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let restarting = async {
        sleep(Duration::from_millis(200)).await;
        server.kill();
        sleep(Duration::from_millis(300)).await;
        server.restart();
    };
    let asking = inbox.ask(request("r", "kept", 1_500), PATIENCE);
    let (answered, ()) = tokio::join!(asking, restarting);
    assert_echo(&answered.unwrap(), "r", "kept");
    // Whatever the worker does twice.
    until("all is done", async || hand.counts.evaluated() == 2).await;
    sleep(Duration::from_millis(300)).await;
    assert!(inbox.drain_responses("r").is_empty());
    assert_eq!(inbox.depth().in_flight, 0);
}

/// Somebody empties the Redis: no connection breaks, and all the same nothing is waited for in vain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_survive_a_redis_that_is_emptied() {
    let server = Server::start();
    let settings = server.settings("emptied");
    let _hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let mut connection = server.connection().await;
    let asking = join_all((0..100).map(|n| inbox.ask(request("r", &n.to_string(), 300), PATIENCE)));
    let emptying = async {
        sleep(Duration::from_millis(100)).await;
        redis::cmd("FLUSHALL")
            .exec_async(&mut connection)
            .await
            .unwrap();
    };
    let (answered, ()) = tokio::join!(asking, emptying);
    for (n, answered) in answered.into_iter().enumerate() {
        assert_echo(&answered.unwrap(), "r", &n.to_string());
    }
}

/// What is sent again finds the queue full, of itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_does_not_close_what_is_in_it_when_the_connection_breaks() {
    let server = Server::start();
    let mut settings = server.settings("full-of-itself");
    settings.max_queued = 1;
    let hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let mut connection = server.connection().await;
    let breaking = async {
        sleep(Duration::from_millis(300)).await;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        kill.exec_async(&mut connection).await.unwrap();
        until("it is noticed", async || inbox.trouble().is_some()).await;
        until_ready(&inbox, "echo").await;
    };
    let asking = inbox.ask(request("r", "kept", 2_000), PATIENCE);
    let (answered, ()) = tokio::join!(asking, breaking);
    assert_echo(&answered.unwrap(), "r", "kept");
    assert_eq!(hand.counts.evaluated(), 1, "it was in the queue once");
}

/// Everybody gets one outcome, in time, and afterwards all is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_a_redis_that_dies_twice_costs_no_hang_and_no_second_answer() {
    const WAIT: Duration = Duration::from_secs(2);
    let mut server = Server::start();
    let settings = server.settings("load");
    let _hands = [hire(&settings, echo()), hire(&settings, echo())];
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let asking = join_all((0..50_u64).map(|caller| {
        let (inbox, over, answered) = (&inbox, &over, &answered);
        async move {
            let mut late = Vec::new();
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (run, id) = (format!("run-{caller}"), format!("{caller}/{n}"));
                let started = Instant::now();
                match inbox.ask(request(&run, &id, n % 5), WAIT).await {
                    // The Redis is back, and no worker yet.
                    Ok(response)
                        if response.answers == [("echo".into(), DeepAnswer::Unavailable)] =>
                    {
                        sleep(Duration::from_millis(20)).await;
                    }
                    Ok(response) => {
                        assert_echo(&response, &run, &id);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(AskError::Await(AwaitError::TimedOut)) => late.push(id),
                    Err(AskError::Submit(SubmitError::Unavailable(_))) => {
                        sleep(Duration::from_millis(20)).await;
                    }
                    Err(other) => panic!("{other:?}"),
                }
                assert!(started.elapsed() < WAIT + SLACK, "{:?}", started.elapsed());
            }
            late
        }
    }));
    let dying = async {
        for _ in 0..2 {
            sleep(Duration::from_millis(700)).await;
            server.kill();
            sleep(Duration::from_millis(400)).await;
            server.restart();
        }
        until_ready(&inbox, "echo").await;
        let before = answered.load(Ordering::Relaxed);
        until("answers come again", async || {
            answered.load(Ordering::Relaxed) > before + 200
        })
        .await;
        over.store(true, Ordering::Relaxed);
    };
    let (late, ()) = tokio::join!(asking, dying);
    until("nothing is open", async || inbox.depth().in_flight == 0).await;
    for (caller, late) in late.into_iter().enumerate() {
        for response in inbox.drain_responses(&format!("run-{caller}")) {
            // Only what timed out can be late, and each once.
            let known = late.iter().filter(|id| **id == response.correlation_id);
            assert_eq!(known.count(), 1, "{}", response.correlation_id);
        }
    }
}

/// A Redis that does not answer is as good as none, though its connections stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_stuck_is_noticed() {
    let server = Server::start();
    let settings = server.settings("stuck");
    let _hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    server.signal("STOP");
    let asked = inbox.ask(request("r", "stuck", 0), Duration::from_millis(500));
    assert_eq!(asked.await, Err(AskError::Await(AwaitError::TimedOut)));
    until("it is noticed", async || inbox.trouble().is_some()).await;
    let why = inbox.trouble().unwrap();
    assert!(why.contains("does not answer"), "{why}");
    server.signal("CONT");
    until_ready(&inbox, "echo").await;
    let asked = inbox.ask(request("r", "on", 0), PATIENCE).await;
    assert_echo(&asked.unwrap(), "r", "on");
}

#[tokio::test]
async fn without_a_redis_it_says_so_and_refuses() {
    let port = super::server::free_port();
    let settings = portcullis_runtime::RedisSettings::new(format!("redis://127.0.0.1:{port}"));
    let inbox = inbox(&settings);
    assert!(!inbox.connected(Duration::from_millis(300)).await);
    let why = inbox.trouble().unwrap();
    assert!(why.contains("no Redis is listening"), "{why}");
    let submitted = inbox.submit(request("r", "id", 0)).await;
    assert_eq!(submitted, Err(SubmitError::Unavailable(why)));
}

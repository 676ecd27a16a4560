//! Many gateways, many workers: who does what, and what is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::RuleId;
use portcullis_runtime::{
    AskError, DeepAnswer, DeepRule, GuardInbox, InboxLimits, RemoteInbox, SubmitError, WorkerLimits,
};
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::server::Server;
use super::{PATIENCE, QUICK, hire, hire_with, inbox, is_ready, until, until_ready};
use crate::fixtures::{counted, deep, deep_rules, hangs, unready};
use crate::inbox::{assert_echo, drained, echo, request};

/// Says when it is asked, and then nothing more.
fn swallows(id: &str) -> (Arc<dyn DeepRule>, Arc<Notify>) {
    let asked = Arc::new(Notify::new());
    let bell = Arc::clone(&asked);
    let rule = deep(id, move |_| {
        bell.notify_one();
        std::future::pending()
    });
    (rule, asked)
}

async fn length(connection: &mut MultiplexedConnection, key: &str) -> usize {
    let mut length = redis::cmd("XLEN");
    length.arg(key).query_async(connection).await.unwrap()
}

/// Even where they use the same correlation ids for runs of the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_do_not_see_each_others_answers() {
    let server = Server::start();
    let settings = server.settings("shared");
    let _hands = [hire(&settings, echo()), hire(&settings, echo())];
    let inboxes = [inbox(&settings), inbox(&settings), inbox(&settings)];
    for inbox in &inboxes {
        until_ready(inbox, "echo").await;
    }
    let [first, second, third] = &inboxes;
    let asking = (0..300_u64).flat_map(|n| {
        [first, second].map(|inbox| async move {
            let (run, id) = (format!("run-{}", n % 10), format!("same-{n}"));
            let asked = inbox.ask(request(&run, &id, n % 20), PATIENCE);
            assert_echo(&asked.await.unwrap(), &run, &id);
        })
    });
    join_all(asking).await;
    for inbox in [first, second, third] {
        assert_eq!(inbox.depth().in_flight, 0);
        for run in 0..10 {
            assert!(inbox.drain_responses(&format!("run-{run}")).is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_worker_held_is_taken_over() {
    let server = Server::start();
    let settings = server.settings("taken-over");
    let (rule, asked) = swallows("echo");
    let doomed = hire(&settings, deep_rules([rule]));
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let killing = async {
        asked.notified().await;
        let heir = hire(&settings, echo());
        doomed.kill().await;
        heir
    };
    let asking = inbox.ask(request("r", "inherited", 0), PATIENCE);
    let (answered, heir) = tokio::join!(asking, killing);
    assert_echo(&answered.unwrap(), "r", "inherited");
    assert_eq!((heir.counts.claimed(), heir.counts.evaluated()), (1, 1));
    sleep(Duration::from_secs(1)).await;
    assert!(inbox.drain_responses("r").is_empty(), "one decision");
    assert_eq!(heir.counts.evaluated(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_takes_its_time_keeps_what_it_holds() {
    let server = Server::start();
    let settings = server.settings("slow");
    let hands = [hire(&settings, echo()), hire(&settings, echo())];
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let asked = inbox.ask(request("r", "slow", 2_000), PATIENCE);
    assert_echo(&asked.await.unwrap(), "r", "slow");
    let evaluated: u64 = hands.iter().map(|hand| hand.counts.evaluated()).sum();
    assert_eq!(evaluated, 1, "five times as long as it may lie untouched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_workers_die_of_is_not_run_a_fourth_time() {
    let server = Server::start();
    let settings = server.settings("poison");
    let inbox = inbox(&settings);
    let dying = async {
        for _ in 0..3 {
            let (rule, asked) = swallows("echo");
            let doomed = hire(&settings, deep_rules([rule]));
            asked.notified().await;
            doomed.kill().await;
        }
        hire(&settings, echo())
    };
    let asking = async {
        until_ready(&inbox, "echo").await;
        inbox.ask(request("r", "poison", 0), PATIENCE).await
    };
    let (answered, last) = tokio::join!(asking, dying);
    let response = answered.unwrap();
    let [(_, DeepAnswer::Failed(why))] = response.answers.as_slice() else {
        panic!("{response:?}");
    };
    assert!(why.contains("3 workers"), "{why}");
    assert_eq!((last.counts.evaluated(), last.counts.failed()), (0, 1));
    let after = inbox.ask(request("r", "after", 0), PATIENCE).await;
    assert_echo(&after.unwrap(), "r", "after");
}

/// A rule is where any worker has it ready, and no worker reads for a rule that it has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_can_have_different_rules() {
    let server = Server::start();
    let settings = server.settings("different");
    let (left, left_calls) = counted("left");
    let (right, right_calls) = counted("right");
    let one = hire(&settings, deep_rules([left, unready("right")]));
    let other = hire(&settings, deep_rules([right, unready("left")]));
    let _third = hire(&settings, deep_rules([unready("nowhere")]));
    let inbox = inbox(&settings);
    for rule in ["left", "right"] {
        until_ready(&inbox, rule).await;
    }
    for n in 0..20 {
        let mut request = request("r", &n.to_string(), 0);
        request.rules = ["right", "nowhere", "left", "right"]
            .map(RuleId::from)
            .to_vec();
        let asked = request.rules.clone();
        let response = inbox.ask(request, PATIENCE).await.unwrap();
        let (ids, answers): (Vec<_>, Vec<_>) = response.answers.into_iter().unzip();
        assert_eq!(ids, asked);
        let [right, nowhere, left, again] = answers.as_slice() else {
            panic!("{answers:?}");
        };
        assert_eq!([left, right, again], [&DeepAnswer::Clear; 3]);
        assert_eq!(nowhere, &DeepAnswer::Unavailable);
    }
    let calls = [&left_calls, &right_calls].map(|calls| calls.load(Ordering::Relaxed));
    assert_eq!(calls, [20, 20]);
    assert_eq!((one.counts.evaluated(), other.counts.evaluated()), (20, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full_refuses_and_what_it_took_is_answered() {
    let server = Server::start();
    let mut settings = server.settings("full");
    settings.max_queued = 5;
    let slow = WorkerLimits {
        concurrency: 1,
        ..QUICK
    };
    let hand = hire_with(&settings, echo(), slow);
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let asking = (0..20).map(|n| {
        let id = n.to_string();
        let inbox = &inbox;
        async move {
            let asked = inbox.ask(request("r", &id, 100), PATIENCE).await;
            match asked {
                Ok(response) => {
                    assert_echo(&response, "r", &id);
                    true
                }
                Err(AskError::Submit(SubmitError::Overloaded(5))) => false,
                Err(other) => panic!("{other:?}"),
            }
        }
    });
    let answered = join_all(asking).await;
    let answered = answered.into_iter().filter(|&answered| answered).count();
    assert!((5..20).contains(&answered), "{answered} of 20");
    assert_eq!(hand.counts.evaluated() as usize, answered);
    let later = inbox.ask(request("r", "later", 0), PATIENCE).await;
    assert_echo(&later.unwrap(), "r", "later");
}

/// Notes how many of its kind were at work at once.
fn busy(id: &str, now: &Arc<AtomicUsize>, most: &Arc<AtomicUsize>) -> Arc<dyn DeepRule> {
    let (now, most) = (Arc::clone(now), Arc::clone(most));
    deep(id, move |_| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(None)
        }
    })
}

/// However many rules it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_no_more_at_once_than_it_has_room_for() {
    let server = Server::start();
    for (concurrency, rules) in [(4, &["a"][..]), (1, &["a", "b", "c"]), (5, &["a", "b"])] {
        let settings = server.settings(&format!("room-{concurrency}"));
        let (now, most) = (Arc::default(), Arc::default());
        let limits = WorkerLimits {
            concurrency,
            ..QUICK
        };
        let served = deep_rules(rules.iter().map(|id| busy(id, &now, &most)));
        let _hand = hire_with(&settings, served, limits);
        let inbox = inbox(&settings);
        until_ready(&inbox, "a").await;
        let asking = (0..40).map(|n| {
            let mut request = request("r", &n.to_string(), 0);
            request.rules = rules.iter().map(|&id| RuleId::from(id)).collect();
            inbox.ask(request, PATIENCE)
        });
        for answered in join_all(asking).await {
            let answers = answered.unwrap().answers;
            assert!(answers.iter().all(|(_, said)| *said == DeepAnswer::Clear));
        }
        assert_eq!(most.load(Ordering::SeqCst), concurrency);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_hangs_does_not_keep_a_worker_from_its_other_rules() {
    const OTHERS: [&str; 4] = ["b", "c", "d", "e"];
    let server = Server::start();
    let settings = server.settings("hangs");
    let (rule, asked) = swallows("a");
    let (now, most) = (Arc::default(), Arc::default());
    let mut rules = deep_rules(OTHERS.map(|id| busy(id, &now, &most)));
    rules.register(rule);
    let limits = WorkerLimits {
        concurrency: 2,
        ..QUICK
    };
    let _hand = hire_with(&settings, rules, limits);
    let inbox = inbox(&settings);
    until_ready(&inbox, "a").await;
    let asking = |id: &str, rule: &str| {
        let mut request = request("r", id, 0);
        request.rules = vec![RuleId::from(rule)];
        request
    };
    inbox.submit(asking("hangs", "a")).await.unwrap();
    asked.notified().await;
    for round in 0..3 {
        let asking =
            OTHERS.map(|rule| inbox.ask(asking(&format!("{round}{rule}"), rule), PATIENCE));
        for answered in join_all(asking).await {
            let [(_, said)] = &answered.unwrap().answers[..] else {
                panic!("one rule, one answer");
            };
            assert_eq!(*said, DeepAnswer::Clear);
        }
        // So that the next round finds it waiting.
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1, "there is room for one more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_in_the_redis() {
    let server = Server::start();
    let settings = server.settings("tidy");
    let hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let mut connection = server.connection().await;
    for round in 0..10 {
        let asking = (0..500).map(|n| {
            let request = request("r", &format!("{round}/{n}"), 0);
            inbox.ask(request, PATIENCE)
        });
        for answered in join_all(asking).await {
            answered.unwrap();
        }
    }
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(!keys.is_empty());
    for key in &keys {
        assert!(key.starts_with("{tidy}:"), "{key}");
        let mut ttl = redis::cmd("PTTL");
        let ttl: i64 = ttl.arg(key).query_async(&mut connection).await.unwrap();
        assert!((1..=3_600_000).contains(&ttl), "{key} is kept for {ttl} ms");
    }
    assert_eq!(length(&mut connection, "{tidy}:requests:echo").await, 0);
    let replies = keys.iter().find(|key| key.contains(":replies:")).unwrap();
    until("answers that were read are let go", async || {
        length(&mut connection, replies).await == 0
    })
    .await;
    hand.shut_down().await;
    let mut consumers = redis::cmd("XINFO");
    consumers
        .arg("CONSUMERS")
        .arg("{tidy}:requests:echo")
        .arg("workers");
    let left: Vec<redis::Value> = consumers.query_async(&mut connection).await.unwrap();
    assert_eq!(left, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_finishes_what_is_under_way_and_takes_nothing_new() {
    let server = Server::start();
    let settings = server.settings("shutdown");
    let hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    inbox.submit(request("r", "last", 500)).await.unwrap();
    let counts = Arc::clone(&hand.counts);
    let mut connection = server.connection().await;
    until("it is with the worker", async || {
        let mut pending = redis::cmd("XPENDING");
        pending.arg("{shutdown}:requests:echo").arg("workers");
        let pending: (usize, redis::Value, redis::Value, redis::Value) =
            pending.query_async(&mut connection).await.unwrap();
        pending.0 == 1
    })
    .await;
    hand.shut_down().await;
    assert_eq!(counts.evaluated(), 1);
    let late = drained(&inbox, "r", 1).await;
    assert_echo(&late[0], "r", "last");
    until("its rules are no longer ready", async || {
        !is_ready(&inbox, "echo")
    })
    .await;
    assert!(!inbox.served().is_empty(), "and still known");
    let asked = inbox
        .ask(request("r", "nobody's", 0), PATIENCE)
        .await
        .unwrap();
    assert_eq!(
        asked.answers,
        [(RuleId::from("echo"), DeepAnswer::Unavailable)]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_stops_at_once_and_one_that_hangs_after_a_while() {
    let server = Server::start();
    let settings = server.settings("stop");
    let started = tokio::time::Instant::now();
    let idle = hire(&settings, echo());
    until("connected", async || idle.counts.connected()).await;
    idle.shut_down().await;
    let impatient = WorkerLimits {
        drain: Duration::from_millis(300),
        ..QUICK
    };
    let stuck = hire_with(&settings, deep_rules([hangs("echo")]), impatient);
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    inbox.submit(request("r", "stuck", 0)).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    stuck.shut_down().await;
    assert!(started.elapsed() < Duration::from_secs(10));
    let heir = hire(&settings, echo());
    let late = drained(&inbox, "r", 1).await;
    assert_echo(&late[0], "r", "stuck");
    assert_eq!(
        heir.counts.claimed(),
        1,
        "what it held was not lost with it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_a_dead_worker_are_soon_not_ready() {
    let server = Server::start();
    let settings = server.settings("gone");
    let hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    hand.kill().await;
    let killed = tokio::time::Instant::now();
    until("not ready", async || !is_ready(&inbox, "echo")).await;
    assert!(
        killed.elapsed() < Duration::from_secs(8),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(inbox.trouble(), None, "the Redis is there");
    let _next = hire(&settings, echo());
    until_ready(&inbox, "echo").await;
}

/// What nobody waits for any more is not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_requests_are_let_go() {
    let server = Server::start();
    let settings = server.settings("old");
    let hand = hire(&settings, echo());
    let limits = InboxLimits {
        evaluation: Duration::from_millis(300),
        ..InboxLimits::default()
    };
    let inbox = RemoteInbox::over_redis(&settings, limits).unwrap();
    until_ready(&inbox, "echo").await;
    hand.kill().await;
    let asked = inbox.ask(request("r", "old", 0), PATIENCE).await.unwrap();
    let [(_, DeepAnswer::NoAnswer(why))] = asked.answers.as_slice() else {
        panic!("{asked:?}");
    };
    assert!(why.contains("given up"), "{why}");
    let (rule, calls) = counted("echo");
    let late = hire(&settings, deep_rules([rule]));
    until("it is found", async || late.counts.expired() == 1).await;
    let mut connection = server.connection().await;
    until("it is gone", async || {
        length(&mut connection, "{old}:requests:echo").await == 0
    })
    .await;
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

/// Whoever else writes to the streams can bring nothing down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_answered_and_gone() {
    let server = Server::start();
    let settings = server.settings("garbage");
    let hand = hire(&settings, echo());
    let inbox = inbox(&settings);
    until_ready(&inbox, "echo").await;
    let asked = inbox.ask(request("r", "before", 0), PATIENCE).await;
    assert_echo(&asked.unwrap(), "r", "before");
    let mut connection = server.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*:replies:*")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(keys.len(), 1);
    let garbage: [&[(&str, &[u8])]; 5] = [
        &[("nonsense", b"\xff\xfe")],
        &[("v", b"1"), ("to", b"nobody"), ("id", b"no ttl")],
        &[
            ("v", b"2"),
            ("to", b"nobody"),
            ("id", b"x"),
            ("ttl", b"60000"),
        ],
        &[
            ("v", b"1"),
            ("to", b"nobody"),
            ("id", b"x"),
            ("ttl", b"60000"),
        ],
        &[
            ("v", b"1"),
            ("to", b"nobody"),
            ("id", b"x"),
            ("ttl", b"60000"),
            ("event", b"{]"),
        ],
    ];
    for fields in garbage {
        let mut add = redis::cmd("XADD");
        add.arg("{garbage}:requests:echo").arg("*").arg(fields);
        add.exec_async(&mut connection).await.unwrap();
    }
    for key in keys {
        let mut add = redis::cmd("XADD");
        add.arg(key).arg("*").arg("answer").arg("{]");
        add.exec_async(&mut connection).await.unwrap();
    }
    let mut spoil = redis::cmd("HSET");
    spoil.arg("{garbage}:workers").arg("w").arg("{]");
    spoil.exec_async(&mut connection).await.unwrap();
    let mut alive = redis::cmd("ZADD");
    alive.arg("{garbage}:beats").arg("inf").arg("w");
    alive.exec_async(&mut connection).await.unwrap();
    sleep(Duration::from_millis(700)).await;
    let asked = inbox.ask(request("r", "after", 0), PATIENCE).await;
    assert_echo(&asked.unwrap(), "r", "after");
    assert_eq!(length(&mut connection, "{garbage}:requests:echo").await, 0);
    assert_eq!((hand.counts.failed(), hand.counts.expired()), (4, 1));
    assert_eq!(length(&mut connection, "{garbage}:replies:nobody").await, 3);
}

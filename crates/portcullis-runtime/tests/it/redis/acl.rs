//! The user that the documentation makes for gateways and workers can do all they do, and nothing else.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use portcullis_core::RuleId;
use portcullis_runtime::{GuardInbox, RedisSettings, WorkerLimits};
use redis::{FromRedisValue, Value};
use tokio::time::sleep;

use super::server::Server;
use super::{PATIENCE, QUICK, hire_with, inbox, until_ready};
use crate::fixtures::unready;
use crate::inbox::{assert_echo, echo, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_of_the_documentation_may_do_what_is_done_and_no_more() {
    let server = Server::start();
    let mut admin = server.connection().await;
    let mut allowed = HashSet::new();
    for line in documented() {
        let mut words = line.split_whitespace();
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
            allowed.extend(word.strip_prefix('+').map(str::to_owned));
        }
        command.exec_async(&mut admin).await.unwrap();
    }
    assert!(allowed.len() > 10, "{allowed:?}");

    let url = format!("redis://portcullis:PASSWORD@127.0.0.1:{}", server.port);
    work(&RedisSettings::new(url)).await;

    let denied: Vec<Vec<(String, Value)>> = {
        let mut log = redis::cmd("ACL");
        log.arg("LOG").query_async(&mut admin).await.unwrap()
    };
    let denied = denied.iter().flatten().filter_map(|(name, value)| {
        let object = (name == "object").then(|| String::from_redis_value_ref(value));
        object?.ok()
    });
    // The client library says its name where it may.
    let denied: HashSet<_> = denied.filter(|what| what != "client|setinfo").collect();
    assert_eq!(denied, HashSet::new());

    let done: String = {
        let mut info = redis::cmd("INFO");
        info.arg("commandstats")
            .query_async(&mut admin)
            .await
            .unwrap()
    };
    let done: HashSet<_> = done
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
        .map(|(name, _)| name.to_owned())
        .collect();
    let unused: Vec<_> = allowed.difference(&done).collect();
    assert!(unused.is_empty(), "allowed, and never done: {unused:?}");
}

/// All that gateways and workers ever do.
async fn work(settings: &RedisSettings) {
    let mut rules = echo();
    rules.register(crate::fixtures::deep("other", |_| async { Ok(None) }));
    rules.register(unready("unready"));
    // Fewer than rules, so that it has to choose.
    let limits = WorkerLimits {
        concurrency: 1,
        ..QUICK
    };
    let hand = hire_with(settings, rules, limits);
    let inbox = inbox(settings);
    until_ready(&inbox, "echo").await;
    // Long enough for what is done every now and then.
    let answered = inbox.ask(request("r", "slow", 1_500), PATIENCE).await;
    assert_echo(&answered.unwrap(), "r", "slow");
    let mut other = request("r", "other", 0);
    other.rules = vec![RuleId::from("other")];
    inbox.ask(other, PATIENCE).await.unwrap();
    sleep(Duration::from_millis(500)).await;
    hand.shut_down().await;
}

/// The lines to be copied.
fn documented() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deep.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let lines = docs.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with("ACL SETUSER"));
    lines.map(str::to_owned).collect()
}

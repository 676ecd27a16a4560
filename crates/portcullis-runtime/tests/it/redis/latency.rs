//! What the way through a Redis costs.

use std::time::Duration;

use portcullis_core::RuleId;
use portcullis_runtime::GuardInbox;
use tokio::time::Instant;

use super::server::Server;
use super::{PATIENCE, hire, inbox, until_ready};
use crate::fixtures::{counted, deep_rules};
use crate::inbox::request;

const ROUNDS: usize = 2000;

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Of the order of the network's own: a poll or a sleep on the way would show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_costs_a_few_round_trips() {
    let server = Server::start();
    let settings = server.settings("latency");
    let _hand = hire(&settings, deep_rules([counted("quick").0]));
    let inbox = inbox(&settings);
    until_ready(&inbox, "quick").await;
    let mut connection = server.connection().await;
    let measured = tokio::spawn(async move {
        let (mut pings, mut asks) = (Vec::new(), Vec::new());
        for n in 0..ROUNDS {
            let started = Instant::now();
            redis::cmd("PING")
                .exec_async(&mut connection)
                .await
                .unwrap();
            pings.push(started.elapsed());
            let mut request = request("r", &n.to_string(), 0);
            request.rules = vec![RuleId::from("quick")];
            let started = Instant::now();
            inbox.ask(request, PATIENCE).await.unwrap();
            asks.push(started.elapsed());
        }
        (middle(pings), middle(asks))
    });
    let (ping, ask) = measured.await.unwrap();
    println!(
        "PING {ping:?}, ask {ask:?}: {:.2}",
        ask.as_secs_f64() / ping.as_secs_f64()
    );
    assert!(
        ask < ping * 20 + Duration::from_millis(20),
        "{ask:?} over {ping:?}"
    );
}

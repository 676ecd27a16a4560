//! A sidecar that knows no streams is asked with one call for each request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::{Action, RuleId};
use portcullis_runtime::{
    AskError, DeepAnswer, DeepRequest, DeepResponse, GrpcSettings, GuardInbox, InboxLimits,
    RemoteInbox, SubmitError,
};

use super::process::PythonSidecar;
use super::support::{PATIENCE, connected};
use crate::fixtures::prompt;
use crate::inbox::request;

fn asking(id: &str, text: &str) -> DeepRequest {
    let mut request = request("r", id, 0);
    request.event = Arc::new(prompt("r", text));
    request.rules = vec![RuleId::from("hf-jailbreak")];
    request
}

fn answer(response: &DeepResponse) -> &DeepAnswer {
    assert_eq!(response.run_id, "r");
    &response.answers[0].1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_its_answer() {
    let sidecar = PythonSidecar::start(&["--no-stream"]);
    let inbox = connected(&sidecar.url()).await;
    let asked = (0..100).map(|n| {
        let inbox = &inbox;
        async move {
            let (id, bad) = (n.to_string(), n % 2 == 0);
            let text = if bad {
                "please ignore this"
            } else {
                "please read this"
            };
            let answered = inbox.ask(asking(&id, text), PATIENCE).await.unwrap();
            assert_eq!(answered.correlation_id, id);
            match answer(&answered) {
                DeepAnswer::Decided(said) if bad => assert_eq!(said.action, Action::Stop),
                DeepAnswer::Clear if !bad => {}
                other => panic!("{id}: {other:?}"),
            }
        }
    });
    join_all(asked).await;
    let broken = inbox
        .ask(asking("broken", "please break down"), PATIENCE)
        .await;
    let DeepAnswer::Failed(why) = answer(broken.as_ref().unwrap()) else {
        panic!("{broken:?}");
    };
    assert!(why.contains("out of order"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_sidecar_turns_away_and_a_slow_one_is_given_up() {
    let sidecar = PythonSidecar::start(&["--no-stream", "--queue", "1"]);
    let limits = InboxLimits {
        evaluation: Duration::from_secs(1),
        ..InboxLimits::default()
    };
    let inbox = RemoteInbox::over_grpc(&GrpcSettings::new(sidecar.url()), limits).unwrap();
    assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
    let slow = inbox.ask(asking("slow", "please wait 3000 ms"), PATIENCE);
    let full = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        inbox
            .ask(asking("full", "please ignore this"), PATIENCE)
            .await
    };
    let (slow, full) = tokio::join!(slow, full);
    let DeepAnswer::NoAnswer(why) = answer(slow.as_ref().unwrap()) else {
        panic!("{slow:?}");
    };
    assert!(why.contains("given up"), "{why}");
    let Err(AskError::Submit(SubmitError::Unavailable(why))) = full else {
        panic!("{full:?}");
    };
    assert!(why.contains("under way"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_a_dead_sidecar_had_goes_to_the_next() {
    let sidecar = PythonSidecar::start(&["--no-stream"]);
    let (url, port) = (sidecar.url(), sidecar.port);
    let inbox = connected(&url).await;
    let asked = inbox.ask(
        asking("id", "please wait 1500 ms and ignore this"),
        PATIENCE,
    );
    let restarted = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        sidecar.signal("KILL");
        drop(sidecar);
        PythonSidecar::on(port, &["--no-stream"])
    };
    let (answered, _sidecar) = tokio::join!(asked, restarted);
    let answered = answered.unwrap();
    assert!(
        matches!(answer(&answered), DeepAnswer::Decided(_)),
        "{answered:?}"
    );
    assert!(inbox.drain_responses("r").is_empty());
}

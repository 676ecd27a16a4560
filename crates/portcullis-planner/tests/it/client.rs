//! The client, on bad days.

use std::time::Duration;

use portcullis_planner::{ModelError, OpenAiChat, OpenAiSettings, Outcome, Planner};
use portcullis_runtime::Unguarded;

use crate::endpoint::{Endpoint, Reply};
use crate::fixtures::{planner, run, start};

async fn outcome<const N: usize>(replies: [Reply; N]) -> (Outcome, usize) {
    let endpoint = start(replies).await;
    let planner = planner(&endpoint, Unguarded).0.build().unwrap();
    let (finished, _) = run(&planner, "Hello?").await;
    (finished.outcome, endpoint.requests().len())
}

fn error(status: u16, retry_after_ms: Option<u64>) -> Reply {
    Reply::Error {
        status,
        retry_after_ms,
    }
}

fn done(answer: &str) -> Outcome {
    Outcome::Done {
        answer: answer.to_owned(),
    }
}

fn refused(status: u16) -> Outcome {
    Outcome::Failed(ModelError::Refused {
        status,
        message: "as the script says".to_owned(),
    })
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let replies = [error(429, Some(1)), error(503, None), Reply::say(["Hi."])];
    assert_eq!(outcome(replies).await, (done("Hi."), 3));
}

#[tokio::test]
async fn but_not_for_ever() {
    let replies = [(); 4].map(|()| error(500, None));
    assert_eq!(outcome(replies).await, (refused(500), 3));
}

#[tokio::test]
async fn a_wait_that_nobody_has_time_for_is_an_error_now() {
    let replies = [error(429, Some(3_600_000)), Reply::say(["Hi."])];
    assert_eq!(outcome(replies).await, (refused(429), 1));
}

#[tokio::test]
async fn a_refusal_is_final() {
    for status in [400, 401, 404] {
        let replies = [error(status, None), Reply::say(["Hi."])];
        assert_eq!(outcome(replies).await, (refused(status), 1));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let text = vec!["Hel".to_owned()];
    let broke_off = Outcome::Failed(ModelError::BrokeOff);
    assert_eq!(outcome([Reply::BreakOff { text }]).await, (broke_off, 1));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_out_of_reach() {
    let endpoint = Endpoint::start([]).await.unwrap();
    let url = endpoint.base_url();
    drop(endpoint);
    let mut settings = OpenAiSettings::new(url, "none");
    settings.backoff = Duration::from_millis(1);
    let model = OpenAiChat::new(settings).unwrap();
    let planner = Planner::builder(std::sync::Arc::new(model), Unguarded)
        .build()
        .unwrap();
    let (finished, _) = run(&planner, "Hello?").await;
    let Outcome::Failed(ModelError::Unreachable(why)) = finished.outcome else {
        panic!("{:?}", finished.outcome);
    };
    assert!(!why.contains("/v1"), "{why}");
}

#[test]
fn settings_are_checked_and_their_key_is_never_shown() {
    for url in [
        "api.example.org",
        "ftp://api.example.org",
        "https://me:hunter2@api.example.org",
        "https://api.example.org?key=hunter2",
    ] {
        let error = OpenAiChat::new(OpenAiSettings::new(url, "m")).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let mut settings = OpenAiSettings::new("https://api.example.org/v1/", "m");
    settings.api_key = Some("hunter2".into());
    let model = OpenAiChat::new(settings.clone()).unwrap();
    assert!(!format!("{settings:?} {model:?}").contains("hunter2"));
}

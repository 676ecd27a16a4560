//! Nothing is larger, more or longer than it may be.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::{Action, RuleId};
use portcullis_runtime::{
    AskError, DeepAnswer, DeepRequest, GrpcSettings, GuardInbox, InboxLimits, RemoteInbox,
    SidecarSettings, SubmitError,
};

use super::support::{PATIENCE, Served, connected, inbox};
use crate::fixtures::{decision, deep, deep_rules, hangs, prompt};
use crate::inbox::{assert_echo, echo, request};

fn with_text(id: &str, text: &str) -> DeepRequest {
    let mut request = request("r", id, 0);
    request.event = Arc::new(prompt("r", text));
    request
}

/// On the near side, or because the far side has said what it reads.
#[tokio::test]
async fn a_request_that_is_too_large_is_refused_and_the_others_go_on() {
    for (near, far) in [(64 << 10, 16 << 20), (16 << 20, 64 << 10)] {
        let served = Served::start(
            SidecarSettings {
                max_message_bytes: far,
                ..SidecarSettings::default()
            },
            echo(),
        )
        .await;
        let inbox = inbox(&GrpcSettings {
            max_message_bytes: near,
            ..GrpcSettings::new(served.url())
        });
        assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
        let large = inbox.ask(with_text("large", &"x".repeat(100 << 10)), PATIENCE);
        let small = inbox.ask(request("r", "small", 300), PATIENCE);
        let (large, small) = tokio::join!(large, small);
        let Err(AskError::Submit(SubmitError::Unavailable(why))) = large else {
            panic!("{large:?}");
        };
        assert!(why.contains("65536 may be sent"), "{why}");
        assert_echo(&small.unwrap(), "r", "small");
        assert_eq!(inbox.trouble(), None);
    }
}

#[tokio::test]
async fn an_event_may_have_a_mebibyte_of_any_text() {
    let served = Served::start(SidecarSettings::default(), echo()).await;
    let inbox = connected(&served.url()).await;
    // In JSON each of these takes six bytes.
    let mut asked = with_text("large", "");
    let text = "\u{1}".repeat(1 << 20);
    let mut snapshot = (*asked.snapshot).clone();
    snapshot.user_text = text.clone().into();
    asked.snapshot = Arc::new(snapshot);
    asked.event = Arc::new(prompt("r", &text));
    let answered = inbox.ask(asked, PATIENCE).await.unwrap();
    let [(_, DeepAnswer::Decided(said))] = answered.answers.as_slice() else {
        panic!("{:?}", answered.correlation_id);
    };
    assert!(said.reason == text, "it came back otherwise");
}

#[tokio::test]
async fn an_answer_that_is_too_large_has_failed_and_the_others_go_on() {
    let mut rules = echo();
    rules.register(deep("chatty", |_| async {
        let mut said = decision(Action::Stop, "chatty");
        said.reason = "no ".repeat(100 << 10).into();
        Ok(Some(said))
    }));
    let settings = SidecarSettings {
        max_message_bytes: 64 << 10,
        ..SidecarSettings::default()
    };
    let served = Served::start(settings, rules).await;
    let inbox = connected(&served.url()).await;
    let mut chatty = request("r", "chatty", 0);
    chatty.rules = vec![RuleId::from("chatty")];
    let small = inbox.ask(request("r", "small", 300), PATIENCE);
    let (chatty, small) = tokio::join!(inbox.ask(chatty, PATIENCE), small);
    let chatty = chatty.unwrap();
    let [(_, DeepAnswer::Failed(why))] = chatty.answers.as_slice() else {
        panic!("{:?}", chatty.correlation_id);
    };
    assert!(why.contains("65536 may be sent"), "{why}");
    assert_echo(&small.unwrap(), "r", "small");
}

/// They are refused, and have not failed: what the router wants when there is no answer holds.
#[tokio::test]
async fn a_sidecar_that_is_full_turns_away() {
    let settings = SidecarSettings {
        in_flight: 2,
        ..SidecarSettings::default()
    };
    let served = Served::start(settings, echo()).await;
    let inbox = connected(&served.url()).await;
    let asked = (0..5).map(|n| inbox.ask(request("r", &n.to_string(), 1000), PATIENCE));
    let answered = join_all(asked).await;
    let refused = answered.iter().filter(|answer| match answer {
        Err(AskError::Submit(SubmitError::Unavailable(why))) => why.contains("under way"),
        _ => false,
    });
    assert_eq!(refused.count(), 3, "{answered:?}");
    assert_eq!(answered.iter().filter(|answer| answer.is_ok()).count(), 2);
    let again = inbox.ask(request("r", "later", 0), PATIENCE).await.unwrap();
    assert_echo(&again, "r", "later");
}

/// What is more than one stream may have waits, and is not turned away.
#[tokio::test]
async fn one_stream_has_its_share_and_the_rest_waits() {
    let settings = SidecarSettings {
        in_flight_per_stream: 2,
        ..SidecarSettings::default()
    };
    let served = Served::start(settings, echo()).await;
    let inbox = connected(&served.url()).await;
    let asked = (0..10).map(|n| {
        let inbox = &inbox;
        async move {
            let id = n.to_string();
            let answered = inbox.ask(request("r", &id, 20), PATIENCE).await.unwrap();
            assert_echo(&answered, "r", &id);
        }
    });
    join_all(asked).await;
}

/// The gateway's limit travels with the request; the sidecar's own is another.
#[tokio::test]
async fn an_evaluation_is_given_up_by_whoever_has_less_time() {
    let second = Duration::from_secs(1);
    let hour = Duration::from_hours(1);
    for (near, far) in [(second, hour), (hour, second)] {
        let settings = SidecarSettings {
            evaluation: far,
            ..SidecarSettings::default()
        };
        let served = Served::start(settings, deep_rules([hangs("echo")])).await;
        let limits = InboxLimits {
            evaluation: near,
            ..InboxLimits::default()
        };
        let inbox = RemoteInbox::over_grpc(&GrpcSettings::new(served.url()), limits).unwrap();
        assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
        let answered = inbox.ask(request("r", "id", 0), PATIENCE).await.unwrap();
        let [(_, DeepAnswer::NoAnswer(why))] = answered.answers.as_slice() else {
            panic!("{answered:?}");
        };
        assert!(why.contains("given up after 1s"), "{why}");
    }
}

//! What every inbox promises, whatever is behind it: one suite, run for each backend.
//!
//! The suite only waits on tokio's clock, and a backend may take real time: nothing here needs an
//! answer sooner than a network gives one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::rules::RuleError;
use portcullis_core::{Action, Context, ContextSnapshot, EventType, RuleId, Signals, ToolRisks};
use portcullis_runtime::{
    AskError, AwaitError, DeepAnswer, DeepRequest, DeepResponse, DeepRules, GuardInbox, InboxDepth,
    InboxLimits, MemoryInbox, SubmitError,
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::fixtures::{decision, deep, deep_rules, hangs, prompt, unready};

/// Long enough for any answer that comes at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes an inbox of the backend under test over these rules, ready to be asked.
pub(crate) trait Backend: AsyncFn(DeepRules, InboxLimits) -> Arc<dyn GuardInbox> {}

impl<F: AsyncFn(DeepRules, InboxLimits) -> Arc<dyn GuardInbox>> Backend for F {}

/// The whole suite. Each step makes inboxes of its own.
pub(crate) async fn conforms(make: impl Backend) {
    it_says_whom_it_serves(&make).await;
    every_response_finds_its_request(&make).await;
    an_unknown_correlation_id_is_unknown(&make).await;
    a_late_response_is_handed_out_exactly_once(&make).await;
    a_waiter_that_goes_away_leaves_its_response_behind(&make).await;
    an_answer_that_is_waited_for_is_nobody_elses(&make).await;
    a_run_drains_its_own_responses_and_no_others(&make).await;
    a_run_drains_in_the_order_of_the_answers(&make).await;
    late_responses_are_bounded_per_run(&make).await;
    late_responses_are_bounded_in_all(&make).await;
    late_responses_are_bounded_by_age(&make).await;
    evaluations_under_way_are_bounded_and_their_room_comes_back(&make).await;
    an_evaluation_that_takes_too_long_is_given_up(&make).await;
    every_rule_that_was_asked_has_an_answer(&make).await;
    nothing_piles_up_when_nobody_waits(&make).await;
    what_is_forgotten_is_nobodys(&make).await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_inbox_conforms() {
    conforms(async |rules, limits| Arc::new(MemoryInbox::new(rules, limits)) as _).await;
}

/// Repeats the event's text, after as many milliseconds as its payload says.
pub(crate) fn echo() -> DeepRules {
    deep_rules([deep("echo", |event| async move {
        let ms = event.payload.get("delay_ms").and_then(Value::as_u64);
        sleep(Duration::from_millis(ms.unwrap_or_default())).await;
        let mut echoed = decision(Action::Allow, "echo");
        echoed.reason = event.text().to_owned().into();
        Ok(Some(echoed))
    })])
}

pub(crate) fn request(run: &str, correlation_id: &str, delay_ms: u64) -> DeepRequest {
    let mut event = prompt(run, &format!("echo of {correlation_id}"));
    event.payload.insert("delay_ms".to_owned(), delay_ms.into());
    let context = Context::new(run);
    let risks = ToolRisks::default();
    let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
    DeepRequest {
        correlation_id: correlation_id.to_owned(),
        snapshot: Arc::new(snapshot.into_owned()),
        event: Arc::new(event),
        context: Arc::new(context),
        rules: vec![RuleId::from("echo")],
        trace: None,
    }
}

pub(crate) fn assert_echo(response: &DeepResponse, run: &str, correlation_id: &str) {
    assert_eq!(response.run_id, run);
    assert_eq!(response.correlation_id, correlation_id);
    let [(id, DeepAnswer::Decided(said))] = response.answers.as_slice() else {
        panic!("{response:?}");
    };
    assert_eq!(id.as_str(), "echo");
    assert_eq!(said.reason, format!("echo of {correlation_id}"));
    assert_eq!(said.correlation_id.as_deref(), Some(correlation_id));
    assert!(!said.was_sync);
}

/// Drains until so many responses are there, or it is clear that they will not come.
pub(crate) async fn drained(inbox: &dyn GuardInbox, run: &str, count: usize) -> Vec<DeepResponse> {
    let mut responses = inbox.drain_responses(run);
    let started = Instant::now();
    while responses.len() < count && started.elapsed() < PATIENCE {
        sleep(Duration::from_millis(5)).await;
        responses.extend(inbox.drain_responses(run));
    }
    responses
}

pub(crate) fn ids(responses: &[DeepResponse]) -> Vec<&str> {
    responses.iter().map(|r| &*r.correlation_id).collect()
}

async fn it_says_whom_it_serves(make: &impl Backend) {
    let mut rules = echo();
    rules.register(unready("no-model"));
    let inbox = make(rules, InboxLimits::default()).await;
    let served = inbox.serving(&EventType::LlmBefore);
    let expected = [("echo", true), ("no-model", false)];
    assert_eq!(served, expected.map(|(id, ready)| (id.into(), ready)));
    assert!(inbox.serving(&EventType::from("memory_write")).is_empty());
}

/// A hundred runs of ten events each, all at once, answered out of order.
async fn every_response_finds_its_request(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    let asked = (0..1000_u64).map(|n| {
        let inbox = &inbox;
        async move {
            let run = format!("run-{}", n % 100);
            let id = format!("{run}/{n}");
            let delay = n * 7919 % 40;
            inbox.submit(request(&run, &id, delay)).await.unwrap();
            let response = inbox.await_response(&id, PATIENCE).await.unwrap();
            assert_echo(&response, &run, &id);
        }
    });
    join_all(asked).await;
    for run in 0..100 {
        let left = inbox.drain_responses(&format!("run-{run}"));
        assert!(left.is_empty(), "delivered and late: {left:?}");
    }
}

async fn an_unknown_correlation_id_is_unknown(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    let unknown = Err(AwaitError::Unknown);
    assert_eq!(inbox.await_response("nobody's", PATIENCE).await, unknown);
    inbox.submit(request("r", "once", 0)).await.unwrap();
    assert!(inbox.await_response("once", PATIENCE).await.is_ok());
    assert_eq!(inbox.await_response("once", PATIENCE).await, unknown);
}

/// Whoever comes first gets it, and nobody after that.
async fn a_late_response_is_handed_out_exactly_once(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    let briefly = Duration::from_millis(20);
    for id in ["drained", "awaited", "never waited for"] {
        inbox.submit(request("r", id, 500)).await.unwrap();
    }
    for id in ["drained", "awaited"] {
        let waited = inbox.await_response(id, briefly).await;
        assert_eq!(waited, Err(AwaitError::TimedOut));
    }
    sleep(Duration::from_secs(2)).await;
    let again = inbox.await_response("awaited", PATIENCE).await.unwrap();
    assert_echo(&again, "r", "awaited");
    let late = drained(&*inbox, "r", 2).await;
    let mut late_ids = ids(&late);
    late_ids.sort_unstable();
    assert_eq!(late_ids, ["drained", "never waited for"]);
    for response in &late {
        assert_echo(response, "r", &response.correlation_id);
    }
    assert!(inbox.drain_responses("r").is_empty());
    for id in ["drained", "awaited", "never waited for"] {
        let waited = inbox.await_response(id, briefly).await;
        assert_eq!(waited, Err(AwaitError::Unknown), "{id}");
    }
}

async fn a_waiter_that_goes_away_leaves_its_response_behind(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    inbox.submit(request("r", "abandoned", 200)).await.unwrap();
    let waiting = inbox.await_response("abandoned", PATIENCE);
    assert!(timeout(Duration::from_millis(20), waiting).await.is_err());
    let late = drained(&*inbox, "r", 1).await;
    assert_eq!(ids(&late), ["abandoned"]);
}

/// Other events of the run drain all the time; the one that asks gets its answer all the same.
async fn an_answer_that_is_waited_for_is_nobody_elses(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    let asking = join_all((0..50_u64).map(|n| {
        let inbox = &inbox;
        async move {
            let id = format!("asked {n}");
            let response = inbox.ask(request("r", &id, n), PATIENCE).await.unwrap();
            assert_echo(&response, "r", &id);
        }
    }));
    let draining = async {
        loop {
            assert!(inbox.drain_responses("r").is_empty(), "it was waited for");
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = asking => {}
        () = draining => {}
    }
    let gone = inbox.ask(request("r", "slow", 500), Duration::from_millis(20));
    assert_eq!(gone.await, Err(AskError::Await(AwaitError::TimedOut)));
    let late = drained(&*inbox, "r", 1).await;
    assert_eq!(ids(&late), ["slow"], "now it is late");
}

async fn a_run_drains_its_own_responses_and_no_others(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    let runs = ["a", "b", "a/b", ""];
    for run in runs {
        for n in 0..3 {
            let id = format!("<{run}>{n}");
            inbox.submit(request(run, &id, 0)).await.unwrap();
        }
    }
    assert!(inbox.drain_responses("nobody").is_empty());
    for run in runs {
        let late = drained(&*inbox, run, 3).await;
        assert_eq!(late.len(), 3, "{run}");
        for response in &late {
            assert_echo(response, run, &response.correlation_id);
        }
    }
}

async fn a_run_drains_in_the_order_of_the_answers(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    for (id, delay) in [("third", 900), ("first", 100), ("second", 500)] {
        inbox.submit(request("r", id, delay)).await.unwrap();
    }
    sleep(Duration::from_secs(2)).await;
    let late = drained(&*inbox, "r", 3).await;
    assert_eq!(ids(&late), ["first", "second", "third"]);
}

async fn late_responses_are_bounded_per_run(make: &impl Backend) {
    let limits = InboxLimits {
        late_per_run: 3,
        ..InboxLimits::default()
    };
    let inbox = make(echo(), limits).await;
    for n in 0..8 {
        let id = n.to_string();
        inbox.submit(request("busy", &id, n * 100)).await.unwrap();
    }
    inbox.submit(request("calm", "own", 0)).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let late = drained(&*inbox, "busy", 3).await;
    assert_eq!(ids(&late), ["5", "6", "7"], "the newest");
    assert_eq!(ids(&drained(&*inbox, "calm", 1).await), ["own"]);
}

async fn late_responses_are_bounded_in_all(make: &impl Backend) {
    let limits = InboxLimits {
        late_total: 4,
        ..InboxLimits::default()
    };
    let inbox = make(echo(), limits).await;
    for n in 0..10_u64 {
        let run = format!("run-{n}");
        inbox.submit(request(&run, &run, n * 100)).await.unwrap();
    }
    sleep(Duration::from_secs(3)).await;
    let mut kept = Vec::new();
    for n in 0..10 {
        kept.extend(inbox.drain_responses(&format!("run-{n}")));
    }
    assert_eq!(ids(&kept), ["run-6", "run-7", "run-8", "run-9"]);
}

async fn late_responses_are_bounded_by_age(make: &impl Backend) {
    let limits = InboxLimits {
        late_age: Duration::from_secs(2),
        ..InboxLimits::default()
    };
    let inbox = make(echo(), limits).await;
    for run in ["looked at soon", "forgotten"] {
        inbox.submit(request(run, run, 0)).await.unwrap();
    }
    let soon = drained(&*inbox, "looked at soon", 1).await;
    assert_eq!(soon.len(), 1);
    sleep(Duration::from_secs(4)).await;
    assert!(inbox.drain_responses("forgotten").is_empty());
}

async fn evaluations_under_way_are_bounded_and_their_room_comes_back(make: &impl Backend) {
    let limits = InboxLimits {
        in_flight: 2,
        ..InboxLimits::default()
    };
    let inbox = make(echo(), limits).await;
    for round in 0..3 {
        let id = |n: u32| format!("{round}/{n}");
        for n in 0..2 {
            inbox.submit(request("r", &id(n), 500)).await.unwrap();
        }
        let refused = inbox.submit(request("r", &id(2), 0)).await;
        assert_eq!(refused, Err(SubmitError::Overloaded(2)));
        let refused = inbox.ask(request("r", &id(3), 0), PATIENCE).await;
        let overloaded = SubmitError::Overloaded(2);
        assert_eq!(refused, Err(AskError::Submit(overloaded)));
        let waited = inbox.await_response(&id(2), PATIENCE).await;
        assert_eq!(waited, Err(AwaitError::Unknown), "it was refused");
        for n in 0..2 {
            inbox.await_response(&id(n), PATIENCE).await.unwrap();
        }
        // The room is given back once the answer is, not before.
        sleep(Duration::from_millis(100)).await;
    }
}

async fn an_evaluation_that_takes_too_long_is_given_up(make: &impl Backend) {
    let limits = InboxLimits {
        in_flight: 1,
        evaluation: Duration::from_secs(1),
        ..InboxLimits::default()
    };
    let inbox = make(deep_rules([hangs("echo")]), limits).await;
    for id in ["one", "two"] {
        inbox.submit(request("r", id, 0)).await.unwrap();
        let response = inbox.await_response(id, PATIENCE).await.unwrap();
        let [(rule, DeepAnswer::NoAnswer(error))] = response.answers.as_slice() else {
            panic!("{response:?}");
        };
        assert_eq!(rule.as_str(), "echo");
        assert!(error.contains("given up"), "{error}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// In the order asked, and one bad rule does not spoil it for the others.
async fn every_rule_that_was_asked_has_an_answer(make: &impl Backend) {
    let mut rules = echo();
    rules.register(deep("errs", |_| async { Err(RuleError("off".to_owned())) }));
    rules.register(deep("panics", |_| async { panic!("out of order") }));
    rules.register(deep("clear", |_| async { Ok(None) }));
    rules.register(unready("no-model"));
    let inbox = make(rules, InboxLimits::default()).await;
    let asked = ["panics", "no-model", "echo", "nobody's", "errs", "clear"];
    let mut request = request("r", "many", 0);
    request.rules = asked.map(RuleId::from).to_vec();
    inbox.submit(request).await.unwrap();
    let response = inbox.await_response("many", PATIENCE).await.unwrap();
    let kinds: Vec<_> = response
        .answers
        .iter()
        .map(|(id, answer)| {
            let kind = match answer {
                DeepAnswer::Clear => "clear",
                DeepAnswer::Decided(_) => "decided",
                DeepAnswer::Failed(_) => "failed",
                DeepAnswer::NoAnswer(_) => "no answer",
                DeepAnswer::NotAsked(_) => "not asked",
                DeepAnswer::Unavailable => "unavailable",
            };
            (id.as_str(), kind)
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("panics", "failed"),
            ("no-model", "unavailable"),
            ("echo", "decided"),
            ("nobody's", "unavailable"),
            ("errs", "failed"),
            ("clear", "clear"),
        ]
    );
}

const FLOODED: InboxLimits = InboxLimits {
    in_flight: 64,
    evaluation: Duration::from_secs(30),
    late_per_run: 8,
    late_total: 1000,
    late_age: Duration::from_hours(1),
};

/// Submits so many that nobody waits for, in five hundred runs.
async fn flood(inbox: &dyn GuardInbox, submissions: usize) {
    for n in 0..submissions {
        let run = format!("run-{}", n % 500);
        let id = n.to_string();
        while inbox.submit(request(&run, &id, 0)).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    }
    sleep(Duration::from_secs(1)).await;
}

/// A hundred thousand, or as many as `scripts/soak-inbox` says.
async fn nothing_piles_up_when_nobody_waits(make: &impl Backend) {
    let submissions = std::env::var("PORTCULLIS_INBOX_EVENTS").map_or(100_000, |events| {
        events.parse().expect("a number of events")
    });
    let inbox = make(echo(), FLOODED).await;
    flood(&*inbox, submissions / 10).await;
    let before = resident();
    flood(&*inbox, submissions).await;
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 32 << 10,
        "{grown} KiB more after {submissions} events"
    );
    let mut kept = HashMap::new();
    for run in 0..500 {
        let run = format!("run-{run}");
        let late = inbox.drain_responses(&run);
        assert!(late.len() <= FLOODED.late_per_run, "{run}: {}", late.len());
        kept.insert(run, late.len());
    }
    let total: usize = kept.values().sum();
    assert!((1..=FLOODED.late_total).contains(&total), "{total}");
    // It is as good as new.
    inbox.submit(request("r", "after", 0)).await.unwrap();
    let after = inbox.await_response("after", PATIENCE).await.unwrap();
    assert_echo(&after, "r", "after");
}

/// The memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// The loser of a hedged question, say.
async fn what_is_forgotten_is_nobodys(make: &impl Backend) {
    let inbox = make(echo(), InboxLimits::default()).await;
    inbox.submit(request("r", "under-way", 50)).await.unwrap();
    inbox.forget("under-way");
    inbox.submit(request("r", "answered", 0)).await.unwrap();
    inbox.submit(request("r", "wanted", 100)).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    inbox.forget("answered");
    assert_eq!(ids(&drained(&*inbox, "r", 1).await), ["wanted"]);
    let again = inbox.await_response("under-way", PATIENCE).await;
    assert_eq!(again, Err(AwaitError::Unknown));
    assert_eq!(inbox.depth(), InboxDepth::default());
}

/// What the memory inbox keeps after so many submissions, to the byte.
fn kept_bytes(submit: impl AsyncFnOnce(&MemoryInbox)) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let inbox = MemoryInbox::new(echo(), FLOODED);
    allocation_counter::measure(|| runtime.block_on(submit(&inbox))).bytes_current
}

#[test]
fn a_hundred_thousand_answers_nobody_wants_take_the_room_of_a_few_thousand() {
    let few = kept_bytes(async |inbox| flood(inbox, 5_000).await);
    let many = kept_bytes(async |inbox| flood(inbox, 100_000).await);
    assert!(0 < few && many <= few * 2, "{few} bytes became {many}");
}

/// One answer is left lying while the run beside it drains all of its own.
#[test]
fn one_forgotten_answer_does_not_make_the_others_pile_up_behind_it() {
    let kept = |submissions: usize| {
        kept_bytes(async |inbox| {
            inbox
                .submit(request("other", "forgotten", 0))
                .await
                .unwrap();
            for n in 0..submissions {
                let id = n.to_string();
                inbox.submit(request("r", &id, 0)).await.unwrap();
                assert_eq!(drained(inbox, "r", 1).await.len(), 1);
            }
        })
    };
    let (few, many) = (kept(3_000), kept(30_000));
    assert!(0 < few && many <= few * 2, "{few} bytes became {many}");
}

#[test]
fn without_a_runtime_the_memory_inbox_is_unavailable() {
    let inbox = MemoryInbox::new(echo(), InboxLimits::default());
    let submitted = crate::allocations::at_once(inbox.submit(request("r", "id", 0)));
    let Err(SubmitError::Unavailable(why)) = submitted else {
        panic!("{submitted:?}");
    };
    assert!(why.contains("runtime"), "{why}");
}

#[test]
fn limits_beyond_counting_are_as_good_as_none() {
    let limits = InboxLimits {
        in_flight: usize::MAX,
        evaluation: Duration::MAX,
        late_per_run: usize::MAX,
        late_total: usize::MAX,
        late_age: Duration::MAX,
    };
    let inbox = MemoryInbox::new(echo(), limits);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        inbox.submit(request("r", "id", 0)).await.unwrap();
        let response = inbox.await_response("id", PATIENCE).await.unwrap();
        assert_echo(&response, "r", "id");
        inbox.submit(request("r", "late", 0)).await.unwrap();
        assert_eq!(ids(&drained(&inbox, "r", 1).await), ["late"]);
    });
}

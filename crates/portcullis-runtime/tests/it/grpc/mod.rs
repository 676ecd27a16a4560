//! Deep rules in a sidecar, over real sockets and in real processes.

mod faults;
mod limits;
mod process;
mod python;
mod security;
mod support;
mod unary;

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::EventType;
use portcullis_runtime::{
    AskError, AwaitError, DeepHost, GrpcSettings, GuardInbox, RemoteInbox, SidecarSettings,
    SubmitError, serve_sidecar,
};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use self::support::{PATIENCE, Served, connected, inbox, until};
use crate::fixtures::{deep_rules, hangs, unready};
use crate::inbox::{assert_echo, conforms, drained, echo, ids, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grpc_inbox_conforms() {
    conforms(async |rules, limits| {
        let served = Served::start(SidecarSettings::default(), rules).await;
        let settings = GrpcSettings::new(served.url());
        let inbox = RemoteInbox::over_grpc(&settings, limits).unwrap();
        assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
        Arc::new(inbox) as _
    })
    .await;
}

#[tokio::test]
async fn until_it_is_connected_it_refuses_and_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let inbox = inbox(&GrpcSettings::new(format!("http://{address}")));
    until("an attempt", || {
        inbox
            .trouble()
            .is_some_and(|why| why.contains("cannot be reached"))
    })
    .await;
    let asked = inbox.ask(request("r", "early", 0), PATIENCE).await;
    let Err(AskError::Submit(SubmitError::Unavailable(why))) = asked else {
        panic!("{asked:?}");
    };
    assert!(why.contains("refused"), "{why}");
    let _served = Served::on(
        TcpListener::bind(address).await.unwrap(),
        SidecarSettings::default(),
        echo(),
    );
    assert!(inbox.connected(PATIENCE).await);
    let answered = inbox.ask(request("r", "now", 0), PATIENCE).await.unwrap();
    assert_echo(&answered, "r", "now");
}

#[tokio::test]
async fn rules_that_come_and_go_are_seen() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let host = Arc::new(DeepHost::new(deep_rules([unready("one")])));
    tokio::spawn(serve_sidecar(
        listener,
        SidecarSettings::default(),
        Arc::clone(&host),
        std::future::pending(),
    ));
    let inbox = connected(&url).await;
    let seen = |expected: &[(&str, bool)]| {
        let serving = inbox.serving(&EventType::LlmBefore);
        let serving: Vec<_> = serving
            .iter()
            .map(|(id, ready)| (id.as_str(), *ready))
            .collect();
        serving == expected
    };
    until("what is there", || seen(&[("one", false)])).await;
    host.replace(deep_rules([hangs("one"), unready("two")]), host.risks());
    until("what was loaded", || seen(&[("one", true), ("two", false)])).await;
    host.replace(deep_rules([]), host.risks());
    until("that they are gone", || seen(&[])).await;
    assert_eq!(inbox.trouble(), None, "there is still a connection");
}

/// What is under way is answered; what comes then is refused; and a new sidecar takes over.
#[tokio::test]
async fn a_sidecar_that_shuts_down_finishes_what_it_has() {
    let served = Served::start(SidecarSettings::default(), echo()).await;
    let address = served.address;
    let inbox = connected(&served.url()).await;
    let asking = tokio::spawn({
        let inbox = Arc::clone(&inbox);
        async move { inbox.ask(request("r", "under way", 1500), PATIENCE).await }
    });
    until("it is under way", || inbox.depth().in_flight == 1).await;
    sleep(Duration::from_millis(200)).await;
    let stopping = tokio::spawn(served.stop());
    until("that it stops", || {
        inbox.trouble().is_some()
            || inbox.serving(&EventType::LlmBefore) == [("echo".into(), false)]
    })
    .await;
    assert_echo(&asking.await.unwrap().unwrap(), "r", "under way");
    stopping.await.unwrap();
    until("that it is gone", || inbox.trouble().is_some()).await;
    let _again = Served::on(
        TcpListener::bind(address).await.unwrap(),
        SidecarSettings::default(),
        echo(),
    );
    assert!(inbox.connected(PATIENCE).await);
    let answered = inbox.ask(request("r", "again", 0), PATIENCE).await.unwrap();
    assert_echo(&answered, "r", "again");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let settings = SidecarSettings {
        drain: Duration::from_millis(300),
        ..SidecarSettings::default()
    };
    let served = Served::start(settings, deep_rules([hangs("echo")])).await;
    let inbox = connected(&served.url()).await;
    inbox.submit(request("r", "never", 0)).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    let started = Instant::now();
    served.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn one_that_hangs_holds_up_nobody_else() {
    let mut rules = echo();
    rules.register(hangs("hangs"));
    let served = Served::start(SidecarSettings::default(), rules).await;
    let inbox = connected(&served.url()).await;
    let mut stuck = request("r", "stuck", 0);
    stuck.rules = vec!["hangs".into()];
    let stuck = inbox.ask(stuck, Duration::from_millis(300));
    let asked = inbox.ask(request("r", "quick", 0), PATIENCE);
    let (stuck, asked) = tokio::join!(stuck, asked);
    assert_eq!(stuck, Err(AskError::Await(AwaitError::TimedOut)));
    assert_echo(&asked.unwrap(), "r", "quick");
}

#[tokio::test]
async fn a_late_answer_waits_for_its_run() {
    let served = Served::start(SidecarSettings::default(), echo()).await;
    let inbox = connected(&served.url()).await;
    let gone = inbox.ask(request("r", "slow", 500), Duration::from_millis(50));
    assert_eq!(gone.await, Err(AskError::Await(AwaitError::TimedOut)));
    assert_eq!(ids(&drained(&*inbox, "r", 1).await), ["slow"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_sidecar_can_be_behind_a_unix_socket() {
    let served = Served::start(SidecarSettings::default(), echo()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sidecar.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let address = served.address;
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    let inbox = connected(&format!("unix:{}", path.display())).await;
    let answered = inbox.ask(request("r", "id", 0), PATIENCE).await.unwrap();
    assert_echo(&answered, "r", "id");
}

//! What there is to see of a sidecar: its rules, and whether it serves.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::client::{Client, Lost};
use super::{timed_out, wire};
use crate::inbox::remote::ServedRule;

/// How often the sidecar is asked which rules it has.
const EVERY: Duration = Duration::from_secs(1);

/// How long it may take to say so. A busy one may take its time; whether it is alive is for the keep-alive to find out.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was last seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sight {
    rules: Vec<ServedRule>,
    pub(super) max_request_bytes: u64,
    serving: bool,
}

impl Sight {
    pub(super) async fn of(client: &mut Client) -> Result<Self, Status> {
        let mut request = Request::new(wire::DescribeRequest {});
        request.set_timeout(PATIENCE);
        let described = tokio::time::timeout(PATIENCE, client.describe(request)).await;
        let described = described.map_err(|_| {
            Status::deadline_exceeded(format!("Describe took longer than {PATIENCE:?}"))
        })??;
        let described = described.into_inner();
        let rules = described.rules.into_iter().map(ServedRule::try_from);
        Ok(Self {
            rules: rules
                .collect::<Result<_, _>>()
                .map_err(|error| Status::internal(error.to_string()))?,
            max_request_bytes: described.max_request_bytes,
            serving: true,
        })
    }

    /// The rules. Those of a sidecar that does not serve are known, and not ready.
    pub(super) fn served(&self) -> Vec<ServedRule> {
        let rules = self.rules.iter().cloned();
        let seen = rules.map(|rule| ServedRule {
            ready: rule.ready && self.serving,
            ..rule
        });
        seen.collect()
    }
}

/// Looks at the sidecar for as long as a connection lasts.
pub(super) struct Observer {
    seen: watch::Receiver<Sight>,
    task: JoinSet<Lost>,
}

impl Observer {
    pub(super) fn start(client: Client, channel: Channel, first: Sight) -> Self {
        let (seen, receiver) = watch::channel(first);
        let mut task = JoinSet::new();
        task.spawn(observe(client, HealthClient::new(channel), seen));
        Self {
            seen: receiver,
            task,
        }
    }

    /// Whether any rule was ready when last seen. None is in a sidecar that shuts down.
    pub(super) fn sees_any_ready(&self) -> bool {
        self.seen.borrow().served().iter().any(|rule| rule.ready)
    }

    /// Waits until something else is to be seen.
    pub(super) async fn changed(&mut self) -> Result<Sight, Lost> {
        tokio::select! {
            Ok(()) = self.seen.changed() => Ok(self.seen.borrow_and_update().clone()),
            Some(lost) = self.task.join_next() => Err(lost.unwrap_or_else(|error| {
                Lost::new(format!("nobody looks at the sidecar any more: {error}"))
            })),
            else => std::future::pending().await,
        }
    }
}

async fn observe(
    client: Client,
    health: HealthClient<Channel>,
    seen: watch::Sender<Sight>,
) -> Lost {
    tokio::select! {
        lost = describe(client, &seen) => lost,
        // A sidecar need not know about health.
        lost = async {
            follow(health, &seen).await;
            std::future::pending().await
        } => lost,
    }
}

/// Until it cannot be asked any more.
async fn describe(mut client: Client, seen: &watch::Sender<Sight>) -> Lost {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match Sight::of(&mut client).await {
            Ok(new) => {
                seen.send_if_modified(|sight| {
                    let new = Sight {
                        serving: sight.serving,
                        ..new
                    };
                    let differs = *sight != new;
                    *sight = new;
                    differs
                });
            }
            Err(status) if timed_out(&status) => {}
            Err(status) => return Lost::because(&status),
        }
    }
}

/// Listens to what it says about its health, unless it knows nothing of that.
async fn follow(mut health: HealthClient<Channel>, seen: &watch::Sender<Sight>) {
    let says = |serving: bool| {
        seen.send_if_modified(|sight| std::mem::replace(&mut sight.serving, serving) != serving);
    };
    loop {
        match health.watch(HealthCheckRequest::default()).await {
            Ok(watched) => {
                let mut watched = watched.into_inner();
                while let Ok(Some(health)) = watched.message().await {
                    says(health.status() == ServingStatus::Serving);
                }
            }
            Err(status) if status.code() == Code::Unimplemented => return,
            Err(_) => {}
        }
        // What it said last is no longer to be trusted once the rules have been asked for anew: they say whether they are ready.
        sleep(EVERY * 2).await;
        says(true);
    }
}

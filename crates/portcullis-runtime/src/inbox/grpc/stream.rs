//! All requests over one stream: the least overhead, and how our own sidecar is asked.

use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::interval;
use tonic::{Code, Response, Status};

use super::client::{Client, GIVE_UP_EVERY, Lost};
use super::observe::Observer;
use super::requests::Requests;
use super::wire;
use crate::deep::DeepRequest;
use crate::inbox::remote::Link;

/// Messages on their way to the connection. Few: what is not sent yet is better left at the desk.
const AHEAD: usize = 32;

/// How it came to an end.
pub(super) enum Ended {
    /// The connection is lost.
    Lost(Lost),
    /// The sidecar knows no streams.
    Unknown,
}

pub(super) async fn run(
    mut client: Client,
    link: &mut Link,
    requests: &mut Requests,
    observer: &mut Observer,
) -> Ended {
    let (sender, outgoing) = mpsc::channel(AHEAD);
    let outgoing = stream::unfold(outgoing, async |mut outgoing| {
        let message = mpsc::Receiver::recv(&mut outgoing).await?;
        Some((message, outgoing))
    });
    // Some servers send nothing before they have something to say, so requests must not wait for that.
    let opened = async move {
        let opened = client.evaluate_stream(outgoing).await;
        opened.map(Response::into_inner)
    };
    let mut incoming = pin!(stream::once(opened).try_flatten());
    let mut ticks = interval(GIVE_UP_EVERY);
    loop {
        tokio::select! {
            response = incoming.next() => match response {
                Some(Ok(response)) => requests.deliver(link, response),
                Some(Err(status)) => return ended(&status),
                None => return Ended::Lost(Lost::new("the sidecar has closed the stream")),
            },
            Some((room, request)) = next(&sender, requests, link) => {
                if let Some(message) = requests.message(link, &request) {
                    room.send(message);
                }
            }
            sight = observer.changed() => match sight {
                Ok(sight) => {
                    requests.far_limit(sight.max_request_bytes);
                    link.up(sight.served());
                }
                Err(lost) => return Ended::Lost(lost),
            },
            _ = ticks.tick() => link.give_up(),
        }
    }
}

/// The next request, once there is room for it. None if the other end is gone, and then the response says why.
async fn next<'s>(
    sender: &'s mpsc::Sender<wire::EvaluateRequest>,
    requests: &mut Requests,
    link: &mut Link,
) -> Option<(mpsc::Permit<'s, wire::EvaluateRequest>, DeepRequest)> {
    let room = sender.reserve().await.ok()?;
    Some((room, requests.next(link).await?))
}

fn ended(status: &Status) -> Ended {
    let by_sidecar = std::error::Error::source(status).is_none();
    if status.code() == Code::Unimplemented && by_sidecar {
        return Ended::Unknown;
    }
    Ended::Lost(Lost::because(status))
}

//! One call for each request, for sidecars that know no streams.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::interval;
use tonic::{Code, Request, Status};

use super::client::{Client, GIVE_UP_EVERY, Lost};
use super::observe::Observer;
use super::requests::Requests;
use super::{timed_out, wire};
use crate::deep::{DeepAnswer, DeepRequest, DeepResponse};
use crate::inbox::SubmitError;
use crate::inbox::remote::Link;

/// Until the connection is lost.
pub(super) async fn run(
    client: &Client,
    at_once: usize,
    link: &mut Link,
    requests: &mut Requests,
    observer: &mut Observer,
) -> Lost {
    let mut calls = FuturesUnordered::new();
    let mut ticks = interval(GIVE_UP_EVERY);
    loop {
        tokio::select! {
            Some((request, response)) = calls.next(), if !calls.is_empty() => {
                let draining = !observer.sees_any_ready();
                if let Err(lost) = settle(link, requests, &request, response, draining) {
                    return lost;
                }
            }
            Some(request) = requests.next(link), if calls.len() < at_once => {
                if let Some(message) = requests.message(link, &request) {
                    let limit = link.evaluation_limit();
                    calls.push(call(client.clone(), request, message, limit));
                }
            }
            sight = observer.changed() => match sight {
                Ok(sight) => {
                    requests.far_limit(sight.max_request_bytes);
                    link.up(sight.served());
                }
                Err(lost) => return lost,
            },
            _ = ticks.tick() => link.give_up(),
        }
    }
}

type Outcome = Result<wire::EvaluateResponse, Status>;

async fn call(
    mut client: Client,
    asked: DeepRequest,
    message: wire::EvaluateRequest,
    limit: Duration,
) -> (DeepRequest, Outcome) {
    let mut request = Request::new(message);
    // Longer than the header can say is as good as no limit.
    if limit.as_secs() < 99_999_999 {
        request.set_timeout(limit);
    }
    let response = tokio::time::timeout(limit, client.evaluate(request)).await;
    let outcome = match response {
        Ok(response) => response.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("")),
    };
    (asked, outcome)
}

fn settle(
    link: &Link,
    requests: &mut Requests,
    request: &DeepRequest,
    outcome: Outcome,
    draining: bool,
) -> Result<(), Lost> {
    requests.came_back(&request.correlation_id);
    let status = match outcome {
        Ok(response) => {
            // A call has its own response, whatever that calls itself.
            let correlation_id = request.correlation_id.clone();
            requests.deliver(
                link,
                wire::EvaluateResponse {
                    correlation_id,
                    ..response
                },
            );
            return Ok(());
        }
        Err(status) => status,
    };
    let by_sidecar = std::error::Error::source(&status).is_none();
    match status.code() {
        _ if timed_out(&status) => {
            link.answered(request.given_up(link.evaluation_limit()));
        }
        Code::ResourceExhausted if by_sidecar => {
            let why = format!("too much is under way in the sidecar: {}", status.message());
            link.refused(&request.correlation_id, &SubmitError::Unavailable(why));
        }
        // It is still at the desk, and goes out again over the next connection.
        _ if !by_sidecar => return Err(Lost::because(&status)),
        Code::Unavailable => {
            if !draining {
                requests.broke_under(&request.correlation_id);
            }
            return Err(Lost::because(&status).blameless());
        }
        code => {
            let why = format!("the sidecar failed ({code}): {}", status.message());
            link.answered(failed(request, &why));
        }
    }
    Ok(())
}

fn failed(request: &DeepRequest, why: &str) -> DeepResponse {
    let rules = request.rules.iter().cloned();
    DeepResponse {
        correlation_id: request.correlation_id.clone(),
        run_id: request.context.run_id.clone(),
        answers: rules
            .map(|id| (id, DeepAnswer::Failed(why.to_owned())))
            .collect(),
    }
}

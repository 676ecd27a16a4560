//! Telling people that a step waits for them, and what one of them said.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use portcullis_core::approval::Approval;
use portcullis_core::evidence::Redactor;
use serde_json::{Value, json};

use super::counts::ApprovalMetrics;
use crate::app::Secrets;
use crate::config::ApprovalWebhook;
use crate::delivery::{Carrier, Delivery, Endpoint, Failure, Outbox, Tries, Workers};

/// Notices that may wait.
const QUEUE: usize = 1_000;

/// What has happened to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Requested,
    Decided,
}

impl What {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "approval.requested",
            Self::Decided => "approval.decided",
        }
    }
}

/// Something to tell.
pub(super) struct Notice {
    pub(super) what: What,
    pub(super) approval: Approval,
    pub(super) at: Timestamp,
}

/// Tells the webhook, if the configuration names one.
pub(super) struct Notices {
    outbox: Option<Outbox<Notice>>,
    workers: Workers,
}

impl Notices {
    pub(super) async fn start(
        webhook: Option<&ApprovalWebhook>,
        server: &str,
        url: &str,
        secrets: Secrets,
        metrics: &ApprovalMetrics,
    ) -> Result<Self, String> {
        let workers = Workers::new("notices of approvals");
        let outbox = match webhook {
            None => None,
            Some(webhook) => {
                let post = Post {
                    endpoint: Endpoint::webhook(&webhook.url, &webhook.secret, webhook.timeout)?,
                    server: server.into(),
                    url: url.into(),
                    secrets,
                };
                let tries = Tries {
                    attempts: webhook.attempts,
                    retry: webhook.retry,
                };
                let to = webhook.url.origin().ascii_serialization();
                let outbox = workers.outbox(post, to, QUEUE, tries, metrics.notices());
                Some(outbox.await)
            }
        };
        Ok(Self { outbox, workers })
    }

    /// Hands it over. Nobody waits for it to arrive.
    pub(super) fn tell(&self, notice: Notice) {
        if let Some(outbox) = &self.outbox {
            let kib = kib(&notice.approval);
            outbox.post(&Arc::new(notice), kib);
        }
    }

    pub(super) async fn close(&self, patience: Duration) {
        self.workers.close(patience).await;
    }
}

/// About how much memory it takes.
fn kib(approval: &Approval) -> u32 {
    let subject = approval.subject.to_string().len();
    let bytes = subject + approval.reason.len() + approval.prompt.len();
    u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
}

/// Posts notices.
struct Post {
    endpoint: Endpoint,
    server: Arc<str>,
    url: Arc<str>,
    secrets: Secrets,
}

impl Carrier for Post {
    type Message = Notice;
    type Parcel = Delivery;

    async fn prepare(&self, notice: &Arc<Notice>) -> Result<Delivery, String> {
        let redactor = self.secrets.redactor().await;
        let redactor = redactor.map_err(|error| error.to_string())?;
        let id = uuid::Uuid::now_v7().to_string();
        let body = body(notice, &id, &self.server, &self.url, redactor);
        let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
        Ok(Delivery {
            id,
            body: Bytes::from(body),
        })
    }

    async fn send(&mut self, delivery: &Delivery) -> Result<(), Failure> {
        self.endpoint.send(delivery).await
    }
}

/// What was kept has no secrets but in the names that it is bound to.
fn body(notice: &Notice, id: &str, server: &str, url: &str, redactor: &Redactor) -> Value {
    let approval = &notice.approval;
    let mut told = json!(approval);
    told["bound"]["run_id"] = redactor.redact(&approval.bound.run_id).into();
    if let Some(tool) = &approval.bound.tool {
        told["bound"]["tool"] = redactor.redact(tool).into();
    }
    let mut body = json!({
        "type": notice.what.as_str(),
        "id": id,
        "at": notice.at.to_string(),
        "server": server,
        "approval": told,
    });
    if notice.what == What::Requested {
        let id = &approval.id;
        body["decide"] = json!({
            "url": format!("{url}/v1/approvals/{id}"),
            "approve": format!("portcullis approvals approve {id} --url {url}"),
            "deny": format!("portcullis approvals deny {id} --url {url}"),
        });
    }
    body
}

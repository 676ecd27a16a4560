//! The way of an answer to its gateway.

use std::sync::Arc;

use portcullis_core::RuleId;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult};

use super::super::connection::{GROUP, KEEP, Keys};
use super::super::near::millis;
use super::super::wire;

/// Answers that a gateway has not read. More than it can have asked for: it is a bound for one that has stopped reading.
const MOST_REPLIES: usize = 100_000;

/// One entry of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) rule: RuleId,
    pub(super) id: String,
}

/// Who wants an answer.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) gateway: String,
    pub(super) correlation_id: String,
}

/// Where answers are handed in.
#[derive(Debug, Clone)]
pub(super) struct Post {
    pub(super) keys: Arc<Keys>,
    pub(super) commands: MultiplexedConnection,
}

/// Answers on their way, each with the request that it takes out of its stream: both happen, or neither.
#[derive(Debug)]
pub(super) struct Letters {
    keys: Arc<Keys>,
    commands: MultiplexedConnection,
    all: Pipeline,
}

impl Post {
    pub(super) fn letters(&self) -> Letters {
        let mut all = Pipeline::new();
        all.atomic();
        Letters {
            keys: Arc::clone(&self.keys),
            commands: self.commands.clone(),
            all,
        }
    }
}

impl Letters {
    /// Adds an answer. Without one, or with nobody to send it to, the request is only taken out.
    pub(super) fn add(&mut self, place: &Place, to: Option<&Address>, answer: Option<&[u8]>) {
        if let (Some(to), Some(answer)) = (to, answer) {
            let replies = self.keys.replies(&to.gateway);
            let add = self.all.cmd("XADD").arg(&replies);
            add.arg("MAXLEN").arg("~").arg(MOST_REPLIES).arg("*");
            for (name, value) in wire::answer_fields(&to.correlation_id, &place.rule, answer) {
                add.arg(name).arg(value);
            }
            self.all.cmd("PEXPIRE").arg(&replies).arg(millis(KEEP));
        }
        let stream = self.keys.requests(place.rule.as_str());
        self.all.cmd("XACK").arg(&stream).arg(GROUP).arg(&place.id);
        self.all.cmd("XDEL").arg(&stream).arg(&place.id);
    }

    pub(super) async fn send(mut self) -> RedisResult<()> {
        self.all.exec_async(&mut self.commands).await
    }
}

//! What both sides do with a Redis: find their keys, connect, and try again.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Script};

/// The consumer group of every request stream.
pub(super) const GROUP: &str = "workers";

/// How long a key is kept that its owner has stopped using.
pub(super) const KEEP: Duration = Duration::from_mins(5);

/// How long a read waits for something to come. Nothing is lost or late by its end; it is when the reader looks up.
pub(super) const BLOCK: Duration = Duration::from_secs(1);

/// How long a worker counts as alive after it was last heard of.
pub(super) const ALIVE: Duration = Duration::from_secs(2);

/// A Redis that takes longer than this to answer is lost.
const PATIENCE: Duration = Duration::from_secs(3);

/// Adds a request to its stream unless too many are there. `KEYS`: the stream. `ARGV`: how many may be there, how long
/// it is kept, then the request's fields.
pub(super) static SUBMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
if redis.call('PTTL', KEYS[1]) < ARGV[2] / 2 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1",
    )
});

/// The names of keys.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    requests: String,
    replies: String,
    gateway: String,
    pub(super) workers: String,
    pub(super) beats: String,
    pub(super) changes: String,
}

impl Keys {
    pub(super) fn new(name: &str) -> Self {
        let key = |what: &str| format!("{{{name}}}:{what}");
        Self {
            requests: key("requests:"),
            replies: key("replies:"),
            gateway: key("gateway:"),
            workers: key("workers"),
            beats: key("beats"),
            changes: key("changes"),
        }
    }

    pub(super) fn requests(&self, rule: &str) -> String {
        format!("{}{rule}", self.requests)
    }

    /// The rule whose requests are in this stream.
    pub(super) fn rule_of<'k>(&self, stream: &'k str) -> Option<&'k str> {
        stream.strip_prefix(&self.requests)
    }

    pub(super) fn replies(&self, gateway: &str) -> String {
        format!("{}{gateway}", self.replies)
    }

    pub(super) fn gateway(&self, gateway: &str) -> String {
        format!("{}{gateway}", self.gateway)
    }
}

/// Two connections: a read that waits holds up everything behind it.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    pub(super) commands: MultiplexedConnection,
    pub(super) reads: MultiplexedConnection,
    /// What the Redis calls the second one.
    pub(super) reader_id: i64,
}

impl Connections {
    pub(super) async fn open(client: &Client) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE));
        let quick = config.clone().set_response_timeout(Some(PATIENCE));
        let patient = config.set_response_timeout(Some(BLOCK + PATIENCE));
        let (mut commands, mut reads) = tokio::try_join!(
            client.get_multiplexed_async_connection_with_config(&quick),
            client.get_multiplexed_async_connection_with_config(&patient),
        )?;
        let _: String = SUBMIT.prepare_invoke().load_async(&mut commands).await?;
        let reader_id = redis::cmd("CLIENT")
            .arg("ID")
            .query_async(&mut reads)
            .await?;
        Ok(Self {
            commands,
            reads,
            reader_id,
        })
    }
}

/// Why there is no connection, for people.
pub(super) fn trouble(error: &RedisError) -> String {
    let what = match error.kind() {
        ErrorKind::AuthenticationFailed => "the Redis refused the user or the password",
        _ if error.is_connection_refusal() => "no Redis is listening there",
        _ if error.is_timeout() => "the Redis does not answer",
        _ if error.is_io_error() => "the connection to the Redis broke",
        _ => "the Redis",
    };
    format!("{what}: {error}")
}

/// How long to wait before the next attempt.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LAST: Duration = Duration::from_secs(2);

    pub(super) fn new() -> Self {
        Self(Self::FIRST)
    }

    /// A connection has held for so long.
    pub(super) fn held(&mut self, how_long: Duration) {
        if how_long >= Self::LAST {
            self.0 = Self::FIRST;
        }
    }

    /// Between half of it and all of it, so that those who lost their connection together do not come back together.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(Self::LAST);
        wait / 2 + (wait / 2).mul_f64((random() % 1024) as f64 / 1024.0)
    }
}

/// Seeded by the operating system.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// The name of a process.
pub(super) fn unique_name() -> String {
    format!("{:016x}{:016x}", random(), random())
}

//! The gateway's side: puts requests into the streams of their rules and takes the answers out of its own.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use portcullis_core::RuleId;
use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind, Pipeline, RedisError, RedisResult, Script, ServerError, Value};
use tokio::time::{Instant, interval};

use super::connection::{
    ALIVE, BLOCK, Backoff, Connections, KEEP, Keys, SUBMIT, trouble, unique_name,
};
use super::wire;
use crate::deep::{BoxFuture, DeepAnswer, DeepRequest, DeepResponse};
use crate::inbox::SubmitError;
use crate::inbox::remote::{Link, ServedRule};

/// How often the list of workers is read, and requests that nobody answered are given up.
const TICK: Duration = Duration::from_millis(500);

/// Requests that are sent at once.
const BATCH: usize = 128;

/// Rules that are told apart.
const MOST_RULES: usize = 4096;

/// The start of every stream.
const FIRST: &str = "0-0";

/// What the workers that are alive say of themselves, after whether the Redis still has what it was given. Lets go of
/// the answers that were read. `KEYS`: workers, beats, replies, gateway. `ARGV`: how long a worker counts as alive,
/// the first answer to keep, how long to keep things.
static ROSTER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = redis.call('PEXPIRE', KEYS[4], ARGV[3])
redis.call('XTRIM', KEYS[3], 'MINID', ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
local alive = redis.call('ZRANGEBYSCORE', KEYS[2], now - ARGV[1], '+inf')
table.sort(alive)
local roster = {kept}
for _, id in ipairs(alive) do
  roster[#roster + 1] = redis.call('HGET', KEYS[1], id) or ''
end
return roster",
    )
});

/// Moves requests and answers for as long as the inbox is there.
pub(super) async fn carry(link: Link, client: Client, name: String, max_queued: usize) {
    let gateway = unique_name();
    let keys = Keys::new(&name);
    let mut near = Near {
        replies: keys.replies(&gateway),
        marker: keys.gateway(&gateway),
        gateway,
        keys,
        max_queued,
        link,
        open: HashMap::new(),
        known: Vec::new(),
        read_up_to: FIRST.to_owned(),
    };
    let mut backoff = Backoff::new();
    loop {
        let started = Instant::now();
        let connecting = Connections::open(&client);
        let ended = match near.meanwhile(connecting).await {
            Ok(connections) => near.serve(connections).await,
            Err(error) => Err(error),
        };
        let Err(error) = ended else { return };
        let why = trouble(&error);
        near.link.down(why);
        backoff.held(started.elapsed());
        near.meanwhile(tokio::time::sleep(backoff.next())).await;
    }
}

struct Near {
    keys: Keys,
    gateway: String,
    replies: String,
    marker: String,
    max_queued: usize,
    link: Link,
    /// Requests whose answers are not all there.
    open: HashMap<String, Gathering>,
    /// Every rule that was ever served here.
    known: Vec<ServedRule>,
    read_up_to: String,
}

/// The answers to one request.
struct Gathering {
    since: Instant,
    run_id: String,
    answers: Vec<(RuleId, Option<DeepAnswer>)>,
}

/// A request on its way into the stream of one of its rules.
struct Sent {
    correlation_id: String,
    /// It was sent before, over a connection that is lost.
    again: bool,
}

/// Something that was under way at the Redis.
enum Done {
    /// Requests, and what came of each.
    Sent(Vec<Sent>, RedisResult<Vec<Value>>),
    /// The list of workers.
    Roster(RedisResult<Value>),
}

impl Near {
    /// Waits, and goes on giving up what nobody answers.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut tick = interval(TICK);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = tick.tick() => self.give_up(),
            }
        }
    }

    /// Until the connection is lost, or the inbox gone.
    async fn serve(&mut self, mut redis: Connections) -> Result<(), RedisError> {
        // From the start: what was seen before counts once anyway, and ids begin anew in a Redis that did.
        FIRST.clone_into(&mut self.read_up_to);
        self.sign_in(&mut redis.commands).await?;
        let roster = self.roster(redis.commands.clone()).await?;
        self.hear(roster)?;
        let mut under_way: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
        for again in self.link.outstanding().chunks(BATCH) {
            under_way.extend(self.send(again, true, &redis.commands));
        }
        let mut reading = Some(self.read(redis.reads.clone()));
        // The next read is begun when those who got an answer have gone on with it: asking first would hold them up.
        let mut next_read = pin!(tokio::task::yield_now());
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(read) = OptionFuture::from(reading.as_mut()) => {
                    reading = None;
                    next_read.set(tokio::task::yield_now());
                    if self.take(read?) {
                        under_way.push(self.look(redis.commands.clone()));
                    }
                }
                request = self.link.next() => {
                    let Some(request) = request else { return Ok(()) };
                    let mut requests = vec![request];
                    while requests.len() < BATCH && let Some(request) = self.link.try_next() {
                        requests.push(request);
                    }
                    under_way.extend(self.send(&requests, false, &redis.commands));
                }
                Some(done) = under_way.next() => match done {
                    Done::Sent(sent, outcome) => self.sent(&sent, outcome?)?,
                    Done::Roster(roster) => self.hear(roster?)?,
                },
                () = &mut next_read, if reading.is_none() => {
                    reading = Some(self.read(redis.reads.clone()));
                }
                _ = tick.tick() => {
                    self.give_up();
                    under_way.push(self.look(redis.commands.clone()));
                }
            }
        }
    }

    /// Leaves something by which to tell whether the Redis has lost what it was given.
    async fn sign_in(&self, commands: &mut MultiplexedConnection) -> RedisResult<()> {
        let mut sign = redis::cmd("SET");
        sign.arg(&self.marker).arg("1").arg("PX").arg(millis(KEEP));
        sign.exec_async(commands).await
    }

    fn roster(
        &self,
        mut commands: MultiplexedConnection,
    ) -> BoxFuture<'static, RedisResult<Value>> {
        let mut call = ROSTER.prepare_invoke();
        call.key(&self.keys.workers)
            .key(&self.keys.beats)
            .key(&self.replies)
            .key(&self.marker)
            .arg(millis(ALIVE))
            .arg(after(&self.read_up_to))
            .arg(millis(KEEP));
        // The call borrows from its script, which is static.
        Box::pin(async move { call.invoke_async(&mut commands).await })
    }

    fn look(&self, commands: MultiplexedConnection) -> BoxFuture<'static, Done> {
        let roster = self.roster(commands);
        Box::pin(async move { Done::Roster(roster.await) })
    }

    /// Takes note of who is there.
    fn hear(&mut self, roster: Value) -> RedisResult<()> {
        let mut roster = wire::array(roster).into_iter();
        if roster.next() != Some(Value::Int(1)) {
            let lost = (ErrorKind::Client, "it has lost what it was given");
            return Err(lost.into());
        }
        for rule in &mut self.known {
            rule.ready = false;
        }
        for worker in roster.filter_map(wire::bytes) {
            match wire::read_served(&worker) {
                Ok(rules) => rules.into_iter().for_each(|rule| self.know(rule)),
                Err(error) => {
                    tracing::warn!(inbox = "redis", %error, "a worker cannot be understood");
                }
            }
        }
        self.link.up(self.known.clone());
        Ok(())
    }

    /// A rule is ready if any worker has it ready.
    fn know(&mut self, rule: ServedRule) {
        if let Some(known) = self.known.iter_mut().find(|known| known.id == rule.id) {
            if !known.ready {
                *known = rule;
            }
        } else if self.known.len() < MOST_RULES {
            self.known.push(rule);
        } else {
            tracing::warn!(inbox = "redis", rule = %rule.id, "too many rules: it is not asked");
        }
    }

    /// Puts requests into the streams of their rules, with one answer for all. Rules that nobody has ready are answered
    /// for at once, unless the request was sent before: then whoever had them may be on the way back as well.
    fn send(
        &mut self,
        requests: &[DeepRequest],
        again: bool,
        commands: &MultiplexedConnection,
    ) -> Option<BoxFuture<'static, Done>> {
        let mut pipeline = Pipeline::with_capacity(requests.len());
        let mut sent = Vec::with_capacity(requests.len());
        for request in requests {
            let sent_before = self.open.contains_key(&request.correlation_id);
            let rules = self.gather(request, again);
            let ttl = self.link.evaluation_limit();
            let fields = match wire::request_fields(request, &self.gateway, ttl) {
                Ok(fields) => fields,
                Err(error) => {
                    let why = SubmitError::Unavailable(format!("the event is not JSON: {error}"));
                    self.refuse(&request.correlation_id, &why);
                    continue;
                }
            };
            let keep = wire::bounded(ttl) + KEEP;
            for rule in rules {
                let submit = pipeline.cmd("EVALSHA").arg(SUBMIT.get_hash()).arg(1);
                submit.arg(self.keys.requests(rule.as_str()));
                submit.arg(self.max_queued).arg(millis(keep * 2));
                for (name, value) in &fields {
                    submit.arg(name).arg(value);
                }
                sent.push(Sent {
                    correlation_id: request.correlation_id.clone(),
                    again: sent_before,
                });
            }
        }
        if sent.is_empty() {
            return None;
        }
        let mut commands = commands.clone();
        Some(Box::pin(async move {
            let count = sent.len();
            let outcome = commands.send_packed_commands(&pipeline, 0, count).await;
            Done::Sent(sent, outcome)
        }))
    }

    /// Opens a request and says which rules are to be asked, each once. What an earlier connection brought is kept.
    fn gather(&mut self, request: &DeepRequest, again: bool) -> Vec<RuleId> {
        let before = self.open.remove(&request.correlation_id);
        let said = |id: &RuleId| {
            let mut answers = before.as_ref()?.answers.iter();
            answers.find_map(|(rule, answer)| answer.clone().filter(|_| rule == id))
        };
        let mut ask: Vec<RuleId> = Vec::new();
        let mut answers = Vec::with_capacity(request.rules.len());
        for id in &request.rules {
            let served = self.known.iter().find(|known| known.id == *id);
            let answer = if let Some(answer) = said(id) {
                Some(answer)
            } else if served.is_some_and(|rule| rule.ready || again) {
                if !ask.contains(id) {
                    ask.push(id.clone());
                }
                None
            } else {
                Some(DeepAnswer::Unavailable)
            };
            answers.push((id.clone(), answer));
        }
        let gathering = Gathering {
            since: before.map_or_else(Instant::now, |before| before.since),
            run_id: request.context.run_id.clone(),
            answers,
        };
        self.open.insert(request.correlation_id.clone(), gathering);
        self.close_if_whole(&request.correlation_id);
        ask
    }

    /// What came of the requests that were sent.
    fn sent(&mut self, sent: &[Sent], outcomes: Vec<Value>) -> RedisResult<()> {
        for (sent, outcome) in sent.iter().zip(outcomes) {
            let id = &sent.correlation_id;
            match outcome {
                Value::Int(1) => {}
                Value::ServerError(error) if is_passing(&error) => {
                    return Err(RedisError::from(error));
                }
                // What was sent first may be there all the same, and its answer counts. If it is not, the request is given
                // up in time.
                _ if sent.again => {
                    tracing::debug!(inbox = "redis", id, "a request is not taken twice");
                }
                Value::ServerError(error) => {
                    let why = SubmitError::Unavailable(RedisError::from(error).to_string());
                    self.refuse(id, &why);
                }
                _ => self.refuse(id, &SubmitError::Overloaded(self.max_queued)),
            }
        }
        Ok(())
    }

    fn refuse(&mut self, id: &str, why: &SubmitError) {
        self.open.remove(id);
        self.link.refused(id, why);
    }

    /// Waits for the next answers, or for news of a worker.
    fn read(&self, mut reads: MultiplexedConnection) -> BoxFuture<'static, RedisResult<Value>> {
        let mut read = redis::cmd("XREAD");
        read.arg("COUNT").arg(512).arg("BLOCK").arg(millis(BLOCK));
        read.arg("STREAMS")
            .arg(&self.replies)
            .arg(&self.keys.changes);
        read.arg(&self.read_up_to).arg("$");
        Box::pin(async move { read.query_async(&mut reads).await })
    }

    /// Hands on the answers. True if a worker came, went or changed.
    fn take(&mut self, read: Value) -> bool {
        let mut changed = false;
        for (stream, entries) in wire::read_streams(read) {
            if stream != self.replies {
                changed = true;
                continue;
            }
            for entry in entries {
                match wire::read_answer(&entry.fields) {
                    Ok(answered) => self.answer(answered),
                    Err(why) => tracing::warn!(inbox = "redis", "an answer is nobody's: {why}"),
                }
                self.read_up_to = entry.id;
            }
        }
        changed
    }

    fn answer(&mut self, answered: wire::Answered) {
        let id = answered.correlation_id;
        let Some(gathering) = self.open.get_mut(&id) else {
            return;
        };
        for (rule, answer) in &mut gathering.answers {
            if *rule == answered.rule && answer.is_none() {
                *answer = Some(answered.answer.clone());
            }
        }
        self.close_if_whole(&id);
    }

    fn close_if_whole(&mut self, id: &str) {
        let whole =
            |gathering: &Gathering| gathering.answers.iter().all(|(_, answer)| answer.is_some());
        if !self.open.get(id).is_some_and(whole) {
            return;
        }
        if let Some(gathering) = self.open.remove(id) {
            let answers = gathering.answers.into_iter();
            self.link.answered(DeepResponse {
                correlation_id: id.to_owned(),
                run_id: gathering.run_id,
                answers: answers
                    .filter_map(|(rule, answer)| Some((rule, answer?)))
                    .collect(),
            });
        }
    }

    fn give_up(&mut self) {
        self.link.give_up();
        let limit = self.link.evaluation_limit();
        self.open
            .retain(|_, gathering| gathering.since.elapsed() < limit);
    }
}

/// Whether another connection may do better.
fn is_passing(error: &ServerError) -> bool {
    let codes = [
        "NOSCRIPT",
        "READONLY",
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
    ];
    codes.contains(&error.code())
}

/// The id after this one.
fn after(id: &str) -> String {
    match id.split_once('-') {
        Some((ms, seq)) => {
            let seq: u64 = seq.parse().unwrap_or_default();
            format!("{ms}-{}", seq.saturating_add(1))
        }
        None => id.to_owned(),
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

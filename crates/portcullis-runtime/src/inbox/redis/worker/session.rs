//! A worker's work over one connection.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use portcullis_core::RuleId;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult, Script, Value};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::super::connection::{ALIVE, BLOCK, Connections, GROUP, KEEP, Keys};
use super::super::near::millis;
use super::super::wire::{self, Entry};
use super::Worker;
use super::bench::Bench;
use super::post::{Place, Post};
use crate::deep::{BoxFuture, DeepHost};
use crate::inbox::remote::ServedRule;

/// Says what a worker serves, keeps its streams, forgets workers that have long been gone, and tells the time. `KEYS`:
/// workers, beats, changes, streams. `ARGV`: the worker, what it serves, whether that is new, how long to keep things.
static ANNOUNCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now, ARGV[1])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[4])) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
if ARGV[3] == '1' then redis.call('XADD', KEYS[3], 'MAXLEN', '~', '16', '*', 'worker', ARGV[1]) end
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < ARGV[4] / 2 then redis.call('PEXPIRE', KEYS[i], ARGV[4]) end
end
return now",
    )
});

/// A worker takes its leave. `KEYS`: workers, beats, changes. `ARGV`: the worker, how long to keep things.
static RETIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', '16', '*', 'worker', ARGV[1])
redis.call('PEXPIRE', KEYS[3], ARGV[2])",
    )
});

/// Removes consumers that hold nothing and have not been heard of for so long. One that holds something stays until
/// others have taken it over: what it holds would be lost with it. `KEYS`: streams. `ARGV`: the group, for how long, a
/// consumer to remove right now.
static TIDY: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "for _, stream in ipairs(KEYS) do
  local known = redis.pcall('XINFO', 'CONSUMERS', stream, ARGV[1])
  for _, fields in ipairs(known.err and {} or known) do
    local consumer = {}
    for i = 1, #fields, 2 do consumer[fields[i]] = fields[i + 1] end
    local gone = consumer.idle > tonumber(ARGV[2]) or consumer.name == ARGV[3]
    if gone and consumer.pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], consumer.name)
    end
  end
end",
    )
});

/// Takes at most one request of each stream, and no more than there is room for; if there is none, says from where on to
/// wait for one. `KEYS`: streams, those whose turn it is first. `ARGV`: the group, the worker, how many there is room for.
static PICK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local picked = {}
for _, stream in ipairs(KEYS) do
  if #picked >= tonumber(ARGV[3]) then break end
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', '1', 'STREAMS', stream, '>')
  if read then picked[#picked + 1] = read[1] end
end
local last = {}
for i, stream in ipairs(#picked == 0 and KEYS or {}) do
  last[i] = '0-0'
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = {}
    for j = 1, #fields, 2 do group[fields[j]] = fields[j + 1] end
    if group.name == ARGV[1] then last[i] = group['last-delivered-id'] end
  end
end
return {picked, last}",
    )
});

/// A worker with a connection.
pub(super) struct Session<'w> {
    worker: &'w Worker,
    keys: Arc<Keys>,
    redis: Connections,
    post: Post,
    bench: &'w mut Bench,
    /// The rules that it reads for: those that are ready.
    reads_for: Vec<RuleId>,
    /// Which of them is first when there is not room for one request of each.
    turn: usize,
    /// What it last said that it serves.
    announced: Vec<u8>,
    tidied: Instant,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
}

/// Something that was under way at the Redis.
enum Done {
    /// The answers to these are delivered.
    Delivered(Vec<Place>, RedisResult<()>),
    /// The Redis's time.
    Announced(RedisResult<u64>),
    /// What others had let lie, and how many have had it.
    Claimed(RedisResult<Vec<(Place, Entry, u64)>>),
    /// Nothing to be done about it.
    Noted(RedisResult<()>),
}

impl<'w> Session<'w> {
    /// Makes itself known, and ready to read.
    pub(super) async fn open(
        worker: &'w Worker,
        redis: Connections,
        bench: &'w mut Bench,
    ) -> Result<Self, RedisError> {
        let mut session = Self {
            worker,
            keys: Arc::clone(&worker.keys),
            post: Post {
                keys: Arc::clone(&worker.keys),
                commands: redis.commands.clone(),
            },
            redis,
            bench,
            reads_for: Vec::new(),
            turn: 0,
            announced: Vec::new(),
            tidied: Instant::now(),
            under_way: FuturesUnordered::new(),
        };
        session.form_groups().await?;
        let now = session.announce().await?;
        session.bench.set_clock(now);
        let undelivered = session.bench.settled();
        session.deliver(undelivered);
        Ok(session)
    }

    /// Until it is stopped and has finished, or the connection is lost.
    pub(super) async fn work(
        mut self,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
        stop: &mut Option<Instant>,
    ) -> Result<(), RedisError> {
        let claim_after = self.worker.limits.claim_after;
        let mut beat = every((claim_after / 3).min(ALIVE / 4));
        let mut claim = every(claim_after / 2);
        let mut reading: Option<BoxFuture<'static, RedisResult<Value>>> = None;
        // The next read is begun when what the last one brought is on its way: asking first would hold that up.
        let mut next_read = pin!(tokio::task::yield_now());
        if stop.is_some() {
            self.retire();
        }
        loop {
            let finished = reading.is_none() && self.under_way.is_empty() && self.bench.is_empty();
            if stop.is_some_and(|by| finished || Instant::now() >= by) {
                return self.leave().await;
            }
            let has_room = self.bench.room() > 0 && !self.reads_for.is_empty();
            let can_read = reading.is_none() && stop.is_none() && has_room;
            tokio::select! {
                biased;
                () = &mut *shutdown, if stop.is_none() => {
                    *stop = Some(Instant::now() + self.worker.limits.drain);
                    self.retire();
                }
                places = self.bench.finished() => self.deliver(places),
                Some(read) = OptionFuture::from(reading.as_mut()) => {
                    reading = None;
                    next_read.set(tokio::task::yield_now());
                    self.take(read?);
                }
                Some(done) = self.under_way.next() => self.settle(done)?,
                () = &mut next_read, if can_read => {
                    reading = Some(self.read());
                    next_read.set(tokio::task::yield_now());
                }
                _ = beat.tick() => self.beat(stop.is_some()).await?,
                _ = claim.tick(), if stop.is_none() => self.claim(),
                () = sleep_until(stop.unwrap_or_else(Instant::now)), if stop.is_some() => {}
            }
        }
    }

    fn settle(&mut self, done: Done) -> Result<(), RedisError> {
        match done {
            Done::Delivered(places, outcome) => {
                outcome?;
                for place in &places {
                    self.bench.let_go(place);
                }
            }
            Done::Announced(now) => self.bench.set_clock(now?),
            Done::Claimed(claimed) => {
                let mut settled = Vec::new();
                for (place, entry, deliveries) in claimed? {
                    self.bench.count_claimed();
                    if self
                        .bench
                        .take(place.clone(), &entry, deliveries, &self.post)
                    {
                        settled.push(place);
                    }
                }
                self.deliver(settled);
            }
            Done::Noted(outcome) => outcome?,
        }
        Ok(())
    }

    /// Waits for the next requests, as many as there is room for.
    fn read(&mut self) -> BoxFuture<'static, RedisResult<Value>> {
        let streams = self.reads_for.len();
        let room = self.bench.room();
        // A read brings one request of each stream at least.
        if room < streams {
            return self.pick(room);
        }
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.worker.id);
        read.arg("COUNT").arg((room / streams.max(1)).max(1));
        read.arg("BLOCK").arg(millis(BLOCK)).arg("STREAMS");
        for rule in &self.reads_for {
            read.arg(self.keys.requests(rule.as_str()));
        }
        for _ in &self.reads_for {
            read.arg(">");
        }
        let mut reads = self.redis.reads.clone();
        Box::pin(async move { read.query_async(&mut reads).await })
    }

    /// Takes requests of some streams, or waits until there is one to be taken.
    fn pick(&mut self, room: usize) -> BoxFuture<'static, RedisResult<Value>> {
        let rules = self.reads_for.len().max(1);
        self.turn = (self.turn + 1) % rules;
        let in_turn = self.reads_for.iter().cycle().skip(self.turn).take(rules);
        let streams: Vec<String> = in_turn
            .map(|rule| self.keys.requests(rule.as_str()))
            .collect();
        let mut pick = PICK.prepare_invoke();
        for stream in &streams {
            pick.key(stream);
        }
        pick.arg(GROUP).arg(&self.worker.id).arg(room);
        let mut reads = self.redis.reads.clone();
        Box::pin(async move {
            let (picked, last): (Value, Vec<String>) = pick.invoke_async(&mut reads).await?;
            if last.is_empty() {
                return Ok(picked);
            }
            let mut wait = redis::cmd("XREAD");
            wait.arg("COUNT").arg(1).arg("BLOCK").arg(millis(BLOCK));
            wait.arg("STREAMS").arg(&streams).arg(&last);
            wait.exec_async(&mut reads).await?;
            Ok(Value::Nil)
        })
    }

    fn take(&mut self, read: Value) {
        let mut settled = Vec::new();
        for (stream, entries) in wire::read_streams(read) {
            let Some(rule) = self.keys.rule_of(&stream).map(RuleId::from) else {
                continue;
            };
            for entry in entries {
                let place = Place {
                    rule: rule.clone(),
                    id: entry.id.clone(),
                };
                if self.bench.take(place.clone(), &entry, 0, &self.post) {
                    settled.push(place);
                }
            }
        }
        self.deliver(settled);
    }

    /// Delivers answers that are in hand.
    fn deliver(&mut self, places: Vec<Place>) {
        if places.is_empty() {
            return;
        }
        let mut letters = self.post.letters();
        for place in &places {
            let held = self.bench.held(place);
            let to = held.and_then(|held| held.to.as_ref());
            let answer = held.and_then(|held| held.answer.as_deref());
            letters.add(place, to, answer);
        }
        self.under_way.push(Box::pin(async move {
            Done::Delivered(places, letters.send().await)
        }));
    }

    /// Says that it is alive, and keeps what it holds from being taken over.
    async fn beat(&mut self, stopping: bool) -> Result<(), RedisError> {
        if !stopping {
            self.form_groups().await?;
            let announced = self.announce();
            self.under_way
                .push(Box::pin(async move { Done::Announced(announced.await) }));
        }
        let mut streams: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for place in self.bench.places() {
            let ids = streams.entry(place.rule.as_str()).or_default();
            ids.push(&place.id);
        }
        if streams.is_empty() {
            return Ok(());
        }
        let mut renew = Pipeline::new();
        for (rule, ids) in streams {
            let claim = renew.cmd("XCLAIM").arg(self.keys.requests(rule));
            claim.arg(GROUP).arg(&self.worker.id).arg(0);
            // Without counting as another delivery.
            claim.arg(ids).arg("JUSTID").ignore();
        }
        let mut commands = self.redis.commands.clone();
        self.under_way.push(Box::pin(async move {
            Done::Noted(renew.exec_async(&mut commands).await)
        }));
        Ok(())
    }

    /// Makes the streams of the rules that have become ready, so that they can be read.
    async fn form_groups(&mut self) -> Result<(), RedisError> {
        let ready: Vec<RuleId> = served(&self.worker.host)
            .into_iter()
            .filter(|rule| rule.ready)
            .map(|rule| rule.id)
            .collect();
        if ready == self.reads_for {
            return Ok(());
        }
        for rule in ready.iter().filter(|rule| !self.reads_for.contains(rule)) {
            let mut create = redis::cmd("XGROUP");
            create.arg("CREATE").arg(self.keys.requests(rule.as_str()));
            create.arg(GROUP).arg("0").arg("MKSTREAM");
            match create.exec_async(&mut self.redis.commands).await {
                Err(error) if error.code() == Some("BUSYGROUP") => {}
                outcome => outcome?,
            }
        }
        self.reads_for = ready;
        Ok(())
    }

    fn announce(&mut self) -> BoxFuture<'static, RedisResult<u64>> {
        let serves = wire::served_json(&served(&self.worker.host));
        let new = serves != self.announced;
        let mut call = ANNOUNCE.prepare_invoke();
        call.key(&self.keys.workers)
            .key(&self.keys.beats)
            .key(&self.keys.changes);
        for rule in &self.reads_for {
            call.key(self.keys.requests(rule.as_str()));
        }
        call.arg(&self.worker.id).arg(&serves).arg(u8::from(new));
        call.arg(millis(KEEP));
        self.announced = serves;
        let mut commands = self.redis.commands.clone();
        Box::pin(async move { call.invoke_async(&mut commands).await })
    }

    /// Looks for what other workers have let lie, and takes as much as there is room for.
    fn claim(&mut self) {
        if self.tidied.elapsed() >= KEEP {
            self.tidied = Instant::now();
            let tidy = self.tidy("");
            self.under_way
                .push(Box::pin(async move { Done::Noted(tidy.await) }));
        }
        let room = self.bench.room();
        if room == 0 || self.reads_for.is_empty() {
            return;
        }
        let streams = self.reads_for.iter();
        let look = Abandoned {
            commands: self.redis.commands.clone(),
            consumer: self.worker.id.clone(),
            idle: millis(self.worker.limits.claim_after),
            room,
            streams: streams
                .map(|rule| (rule.clone(), self.keys.requests(rule.as_str())))
                .collect(),
        };
        self.under_way
            .push(Box::pin(async move { Done::Claimed(look.claim().await) }));
    }

    /// No more requests: not from those who look for a worker, nor from the read that is waiting.
    fn retire(&mut self) {
        let mut call = RETIRE.prepare_invoke();
        call.key(&self.keys.workers)
            .key(&self.keys.beats)
            .key(&self.keys.changes);
        call.arg(&self.worker.id).arg(millis(KEEP));
        let mut commands = self.redis.commands.clone();
        let mut unblock = redis::cmd("CLIENT");
        unblock.arg("UNBLOCK").arg(self.redis.reader_id);
        self.under_way.push(Box::pin(async move {
            let retired = call.invoke_async::<()>(&mut commands).await;
            // Where that is not allowed, the read ends by itself soon enough.
            let _ = unblock.exec_async(&mut commands).await;
            Done::Noted(retired)
        }));
    }

    async fn leave(mut self) -> Result<(), RedisError> {
        // An announcement may have been under way when it retired.
        self.retire();
        while self.under_way.next().await.is_some() {}
        self.tidy(&self.worker.id).await
    }

    fn tidy(&self, also: &str) -> BoxFuture<'static, RedisResult<()>> {
        let mut call = TIDY.prepare_invoke();
        for rule in &self.reads_for {
            call.key(self.keys.requests(rule.as_str()));
        }
        call.arg(GROUP).arg(millis(KEEP)).arg(also);
        let mut commands = self.redis.commands.clone();
        Box::pin(async move { call.invoke_async(&mut commands).await })
    }
}

/// An entry's id, who has it, since how many milliseconds, and how many have had it.
type Lying = (String, String, u64, u64);

/// A look at what other workers have let lie.
struct Abandoned {
    commands: MultiplexedConnection,
    consumer: String,
    idle: u64,
    room: usize,
    streams: Vec<(RuleId, String)>,
}

impl Abandoned {
    async fn claim(mut self) -> RedisResult<Vec<(Place, Entry, u64)>> {
        let mut pending = Pipeline::with_capacity(self.streams.len());
        for (_, stream) in &self.streams {
            let look = pending.cmd("XPENDING").arg(stream).arg(GROUP);
            look.arg("IDLE")
                .arg(self.idle)
                .arg("-")
                .arg("+")
                .arg(self.room);
        }
        let lying: Vec<Vec<Lying>> = pending.query_async(&mut self.commands).await?;
        let mut claimed = Vec::new();
        for ((rule, stream), entries) in self.streams.iter().zip(lying) {
            let room = self.room.saturating_sub(claimed.len());
            let deliveries: BTreeMap<String, u64> = entries
                .into_iter()
                .take(room)
                .map(|(id, _, _, deliveries)| (id, deliveries))
                .collect();
            if deliveries.is_empty() {
                continue;
            }
            let mut claim = redis::cmd("XCLAIM");
            claim
                .arg(stream)
                .arg(GROUP)
                .arg(&self.consumer)
                .arg(self.idle);
            for id in deliveries.keys() {
                claim.arg(id);
            }
            let taken: Value = claim.query_async(&mut self.commands).await?;
            for entry in wire::read_entries(taken) {
                let had_it = deliveries.get(&entry.id).copied().unwrap_or_default();
                let place = Place {
                    rule: rule.clone(),
                    id: entry.id.clone(),
                };
                claimed.push((place, entry, had_it));
            }
        }
        Ok(claimed)
    }
}

/// The rules of this process.
fn served(host: &Arc<DeepHost>) -> Vec<ServedRule> {
    let rules = host.rules();
    let served = rules.list().map(|(info, ready)| ServedRule {
        id: info.id.clone(),
        version: info.version.clone().into_owned(),
        events: info.events.clone(),
        ready,
    });
    served.collect()
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

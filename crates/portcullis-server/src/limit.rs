//! How often each agent may call each method, and use each door that is limited (C15).

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, RateLimiter as Bucket};
use portcullis_runtime::BoxFuture;

use crate::auth::AgentId;
use crate::method::Operation;

/// A token bucket: so many calls at once, refilled evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Calls a minute in the long run.
    pub per_minute: u32,
    /// Calls at once.
    pub burst: u32,
}

/// The limits in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimits {
    /// Whether there are any.
    pub enabled: bool,
    /// For methods that have none of their own.
    pub default: Quota,
    /// For some methods.
    pub methods: BTreeMap<Operation, Quota>,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            enabled: true,
            default: Quota {
                per_minute: 6_000,
                burst: 1_000,
            },
            methods: BTreeMap::new(),
        }
    }
}

/// Says no to who calls too often. The in-memory one counts for one server; one that several servers
/// share passes the same tests.
pub trait RateLimiter: Send + Sync + 'static {
    /// Takes one call, or says how long to wait for the next.
    fn take<'l>(
        &'l self,
        agent: &'l AgentId,
        operation: Operation,
    ) -> BoxFuture<'l, Result<(), Duration>>;
}

/// Counts in memory: a bucket for each agent and method that has called. Agents are those of the
/// configuration, so there are never more buckets than tokens times methods.
pub struct MemoryLimiter {
    limits: RateLimits,
    clock: DefaultClock,
    buckets: RwLock<HashMap<(AgentId, Operation), Arc<DefaultDirectRateLimiter>>>,
}

impl MemoryLimiter {
    /// With these limits.
    pub fn new(limits: RateLimits) -> Self {
        Self {
            limits,
            clock: DefaultClock::default(),
            buckets: RwLock::default(),
        }
    }

    fn bucket(&self, agent: &AgentId, operation: Operation) -> Arc<DefaultDirectRateLimiter> {
        let key = (agent.clone(), operation);
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get(&key) {
            return Arc::clone(bucket);
        }
        drop(buckets);
        let mut buckets = self.buckets.write().unwrap_or_else(PoisonError::into_inner);
        let quota = self.limits.methods.get(&operation);
        let quota = quota.unwrap_or(&self.limits.default);
        let bucket = buckets.entry(key).or_insert_with(|| {
            let positive = |n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
            let quota = governor::Quota::per_minute(positive(quota.per_minute))
                .allow_burst(positive(quota.burst));
            Arc::new(Bucket::direct(quota))
        });
        Arc::clone(bucket)
    }
}

impl RateLimiter for MemoryLimiter {
    fn take<'l>(
        &'l self,
        agent: &'l AgentId,
        operation: Operation,
    ) -> BoxFuture<'l, Result<(), Duration>> {
        let taken = if self.limits.enabled {
            self.bucket(agent, operation)
                .check()
                .map_err(|until| until.wait_time_from(self.clock.now()))
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(taken))
    }
}

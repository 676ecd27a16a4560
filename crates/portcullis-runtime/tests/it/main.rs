//! What the gateway promises, tested from outside: one binary, a module per promise.

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod breaker;
#[cfg(test)]
mod deep;
#[cfg(test)]
mod disguised;
#[cfg(test)]
mod effects;
#[cfg(test)]
mod fail_closed;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod inbox;
#[cfg(test)]
mod late;
#[cfg(test)]
mod order;
#[cfg(test)]
mod permits;
#[cfg(test)]
mod quarantine;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod sequence;
#[cfg(test)]
mod stream;

//! Everything of Portcullis that knows a wire format.
//!
//! [`Server`] answers CSTP (JSON-RPC), the guard API, A2A packets, the agent card, health and metrics;
//! [`client::Client`] is the other side of it. [`config`] reads F001's file.
//!
//! Invariant: nothing is decided here. Core judges, the store keeps; this crate turns bytes into
//! their questions and their answers into bytes.
//!
//! Invariant: nothing is answered that is not in the evidence log.

mod a2a;
mod alerts;
mod app;
mod approvals;
pub mod auth;
mod callbacks;
mod card;
pub mod client;
pub mod config;
mod cstp;
pub mod decisions;
pub mod deep;
mod deep_metrics;
mod delivery;
mod far;
mod files;
mod guard;
mod http;
pub mod jsonrpc;
pub mod limit;
mod method;
mod metrics;
mod runs;
mod serve;
pub mod telemetry;
mod tls;

pub use cstp::{CheckAnswer, IntentAnswer, new_correlation_id};
pub use far::{DeepPath, FarSide};
pub use files::{GuardrailError, GuardrailFiles};
pub use http::OPENAPI;
pub use method::{Method, Operation};
pub use serve::{Server, StartError};
pub use tls::TlsError;

/// The Rust of the server's guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/server.md")]
struct Guide;

/// And that of the guide to rules that ask a service.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/external-rules.md")]
struct ExternalRules;

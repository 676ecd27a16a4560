//! The deterministic centre of Portcullis: values in, verdict out.
//!
//! An agent's next step arrives as an [`Event`] with the [`Context`] of its run. A [`Policy`],
//! compiled once from a pack or from code, scans the event in one pass, describes it in a
//! [`ContextSnapshot`], and its rules answer with [`Decision`]s, which a [`DecisionPolicy`] resolves
//! into one. The order of these steps, deadlines and effects are `portcullis-runtime`'s.
//!
//! Invariant: nothing here touches files, the network, the clock, randomness or the environment.
//! Time and ids are passed in, so the same input always gives the same verdict.
//!
//! Start with [`pack::load`] for policies from YAML, [`PolicyBuilder`] for policies from code,
//! and [`rules`] for what a rule is.
//!
//! ```
//! use portcullis_core::rules::{RuleInput, RuleSettings, ToolAllowlist};
//! use portcullis_core::{Action, Context, ContextSnapshot, Event, PolicyBuilder};
//!
//! let policy = PolicyBuilder::new("example", "1.0.0")
//!     .rule(RuleSettings::ToolAllowlist(ToolAllowlist::deny(["admin.execute"])))
//!     .compile()?;
//!
//! let event = Event::tool_call_start("run-1", "admin.execute", Default::default());
//! let context = Context::new("run-1");
//! let scan = policy.scan(&event);
//! let signals = policy.signals(&event, &scan);
//! let snapshot = ContextSnapshot::build(&event, &context, policy.tool_risks(), signals);
//! let input = RuleInput { event: &event, context: &context, snapshot: &snapshot };
//! let decision = policy.rules()[0].evaluate(&policy.subject(input, &scan))?;
//! assert_eq!(decision.map(|d| d.action), Some(Action::Stop));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod a2a;
pub mod approval;
pub mod canonical;
pub mod classifier;
mod decision;
pub mod definitions;
pub mod detectors;
mod error_code;
mod evaluation;
mod event;
pub mod evidence;
mod expr;
mod fields;
mod framing;
pub mod guardrails;
mod history;
mod ids;
mod intent;
pub mod memory;
pub mod net;
pub mod pack;
mod policy;
mod redact;
pub mod reference;
mod resolve;
mod route;
pub mod rules;
pub mod scan;
mod signals;
mod snapshot;
mod stream;
mod structured;
pub mod unique;
pub mod views;

pub use decision::{
    Action, Decision, Effect, PauseScope, PauseSpec, RedactionSpec, RetrySpec, RuleCost, Severity,
    StopSpec, TimeoutAnswer,
};
pub use error_code::ErrorCode;
pub use evaluation::{Coverage, Evaluation, Parts, PolicyIdentity, RuleCoverage, RuleOutcome};
pub use event::{Context, Event, EventType, SCHEMA_VERSION, SchemaVersion, Step, Structured};
pub use framing::{
    FramedGuard, FramedRelease, Framing, FramingError, FramingProblem, MAX_FRAME_BYTES,
    MAX_OPEN_TEXTS, TextPath,
};
pub use history::{History, ToolPattern};
pub use ids::{DecisionId, RuleId};
pub use intent::JailbreakIntent;
pub use policy::{BreakerSettings, GatewaySettings, Limits, Mode, Policy, PolicyBuilder};
pub use redact::{
    RedactError, merge as merge_redactions, redact_event, redact_text, redacted_value,
};
pub use resolve::{DecisionPolicy, DefaultDecisionPolicy, nothing_triggered};
pub use route::{DefaultRiskRouter, JAILBREAK_CLASSIFIER, OnTimeout, RiskRouter, Routing};
pub use rules::{CompiledRule, DeepRuleEntry, DeepRuleSettings};
pub use snapshot::{
    AvailableTools, ContextBuilder, ContextSnapshot, DefaultContextBuilder, Signals, SnapshotWire,
    ToolRiskInfo, ToolRiskTier, ToolRisks, TrustBoundary,
};
pub use stream::{MAX_HOLD_BYTES, Released, StreamGuard, Tokens};

/// The Rust of the guide to A2A compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/a2a.md")]
struct A2aGuide;

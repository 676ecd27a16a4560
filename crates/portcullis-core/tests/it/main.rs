//! The crate seen from outside: packs in, verdicts and reports out.
//!
//! Most cases are data, under `cases/` and `fixtures/`; the modules say how they are run.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails, in its helpers too"
)]

mod a2a;
mod a2a_import;
mod a2a_properties;
mod diagnostics;
mod digests;
mod evasions;
mod external;
mod framing;
mod guardrail_properties;
mod guardrails;
mod judge;
mod models;
mod packs;
mod properties;
mod reference;
mod rules;
mod stream;
mod tool_definitions;
mod user_text;

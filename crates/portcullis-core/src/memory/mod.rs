//! What was decided before, and how it turned out.
//!
//! An agent records a [`Decision`]; later somebody says in a [`Review`] what came of it. A [`Query`]
//! finds it again. What is near to what another agent is about to do are its [`Precedents`]: guardrails
//! may ask for them, and [`suggestions`] are made of them. [`Calibration`] holds what agents believed
//! against what happened.
//!
//! Invariant: this is what decisions are and mean. Keeping and finding them is `portcullis-store`'s.

mod calibration;
mod decision;
mod embed;
mod import;
mod intent;
mod precedents;
mod search;

pub use calibration::{Bucket, Calibration, Tendency};
pub use decision::{
    Decision, MAX_ID_CHARS, MAX_ITEMS, MAX_REVIEWS, Outcome, Reason, Review, ReviewRequest, Status,
    id_from_params,
};
pub use embed::{EmbedError, Embedder};
pub use import::{Format, Imported, import};
pub use intent::{AnnouncedIntent, correlation_id_from_params};
pub use precedents::{PRECEDENTS, Precedents, UNRELATED, suggestions};
pub use search::{
    DEFAULT_LIMIT, Filters, ListRequest, MAX_LIMIT, MAX_QUERY_BYTES, Query, Summary,
    calibration_from_params,
};

//! How good a judge of texts is: rates with their intervals, curves, corpora to measure on, and pictures.
//!
//! Everything here takes scores and labels, so that it measures any model in the same way: one of ours, one of
//! somebody else's, or none at all ([`Patterns`]).

mod chart;
mod corpus;
mod curve;
mod patterns;
mod rate;

pub use chart::{Bar, bars, curves};
pub use corpus::{CorpusError, LENGTHS, Row, goals, language, length_bucket, read_rows, set_name};
pub use curve::{Bin, Confusion, Operating, Reliability, Roc, Scored, threshold_at};
pub use patterns::Patterns;
pub use rate::Rate;

/// The false-positive rates at which recall is told.
pub const FALSE_POSITIVE_RATES: [f64; 5] = [0.001, 0.005, 0.01, 0.02, 0.05];

//! What was decided before, and how it turned out.

mod embed;

pub use embed::{EmbedError, Embedder};

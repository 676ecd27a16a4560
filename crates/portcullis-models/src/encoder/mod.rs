//! What encoders of texts have in common: the passes over their layers, and the layers themselves.

mod layer;
mod pass;

pub(crate) use layer::{Layer, Sizes};
pub(crate) use pass::{Keep, Pass, Plain, Scoring};

//! From a text to a place among other texts.

/// Turns texts into vectors: the nearer two of them point, the more alike the texts mean.
pub trait Embedder: Send + Sync {
    /// Which model, and which version of it. Vectors of different names are never compared.
    fn name(&self) -> &str;

    /// How many numbers a vector has.
    fn dimension(&self) -> usize;

    /// Whether it takes microseconds and cannot fail to be reached. Others are kept out of the way of
    /// whoever records a decision: its vector follows later.
    fn is_instant(&self) -> bool {
        false
    }

    /// Whether a text's vector is that of the whole text. A model reads only so much of one; what a service reads is not
    /// known, and taken to be all.
    fn reads_all(&self, _text: &str) -> bool {
        true
    }

    /// A vector of length one for each text, in their order. A text without any meaning to the model
    /// gets all zeros.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{model} gives no vectors: {why}")]
pub struct EmbedError {
    /// The model's name.
    pub model: String,
    /// What is wrong, and what to do about it.
    pub why: String,
}

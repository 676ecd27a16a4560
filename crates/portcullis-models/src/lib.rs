//! Models: embedders, which turn a text into a place among other texts, and classifiers, which tell texts apart.
//!
//! | which | where it runs | a text takes |
//! |---|---|---|
//! | [`BuiltIn`] | in the binary, offline | microseconds |
//! | [`Bert`] | in the process, from a local folder | milliseconds |
//! | [`HttpEmbedder`] | on a server of `OpenAI`'s protocol | as long as the network does |
//!
//! All three are a `portcullis_core::memory::Embedder`. With the feature `hf`, `hf::SequenceClassifier` is a
//! `portcullis_core::classifier::TextClassifier` from a local folder of Hugging Face, milliseconds a text. Each call
//! runs on the thread that makes it; how many do so at once is the caller's to bound.
//!
//! ```
//! use portcullis_core::memory::Embedder;
//! use portcullis_models::BuiltIn;
//!
//! let model = BuiltIn::new();
//! let vectors = model.embed(&["refund a damaged order", "reimburse a broken parcel"])?;
//! let alike: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
//! assert!(alike > 0.3);
//! # Ok::<(), portcullis_core::memory::EmbedError>(())
//! ```
//!
//! Invariant: nothing is downloaded. A model is in the binary, in a folder that somebody put there, or behind a URL
//! that somebody configured.
//! Invariant: no text is refused. Whatever the characters, a text has a vector, be it of zeros, or scores; whatever the
//! bytes of a file or an answer, there is a model or an error.

mod bert;
mod builtin;
mod classifier;
#[cfg_attr(
    not(feature = "hf"),
    expect(
        dead_code,
        unused_imports,
        reason = "classifiers use what BERT does not"
    )
)]
mod encoder;
pub mod evaluation;
#[cfg(feature = "hf")]
pub mod hf;
mod http;
mod linear;
mod load;
mod numeric;
mod pool;
mod tensors;
mod vector;
mod wordpiece;

pub use bert::Bert;
pub use builtin::BuiltIn;
pub use classifier::{PortcullisClassifier, Window};
#[cfg(feature = "hf")]
pub use hf::SequenceClassifier;
pub use http::{HttpEmbedder, HttpSettings};
pub use linear::{
    CrossValidation, Example, LinearClassifier, RecallAt, Sections, TrainError, TrainOptions,
    Trained, train,
};
pub use load::LoadError;
pub use pool::{Answer, Pool, PoolError, PoolOptions};
pub use wordpiece::WordPiece;

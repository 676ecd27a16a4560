//! Models, beginning with embedders: what turns a text into a place among other texts.
//!
//! | which | where it runs | a text takes |
//! |---|---|---|
//! | [`BuiltIn`] | in the binary, offline | microseconds |
//! | [`Bert`] | in the process, from a local folder | milliseconds |
//! | [`HttpEmbedder`] | on a server of `OpenAI`'s protocol | as long as the network does |
//!
//! All three are a `portcullis_core::memory::Embedder`. Each call runs on the thread that makes it; how many do so
//! at once is the caller's to bound.
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
//! Invariant: no text is refused. Whatever the characters, a text has a vector, be it of zeros; whatever the bytes of
//! a file or an answer, there is a model or an error.

mod bert;
mod builtin;
mod http;
mod load;
mod numeric;
mod tensors;
mod vector;
mod wordpiece;

pub use bert::Bert;
pub use builtin::BuiltIn;
pub use http::{HttpEmbedder, HttpSettings};
pub use load::LoadError;
pub use wordpiece::WordPiece;

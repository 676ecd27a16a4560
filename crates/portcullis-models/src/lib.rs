//! Models, beginning with embedders: what turns a text into a place among other texts.
//!
//! | which | where it runs | a text takes |
//! |---|---|---|
//! | [`BuiltIn`] | in the binary, offline | microseconds |
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

mod bert;
mod builtin;
mod load;
mod vector;
mod wordpiece;

pub use bert::Bert;
pub use builtin::BuiltIn;
pub use load::LoadError;
pub use wordpiece::WordPiece;

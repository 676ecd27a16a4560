//! `memory.embedder` where there are no models: decisions are found by their words alone.

use std::fmt;
use std::sync::Arc;

use portcullis_core::memory::{EmbedError, Embedder};
use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::Node;

/// Which model makes vectors of texts.
#[derive(Debug, Clone, Default)]
pub enum EmbedderSettings {
    /// None.
    #[default]
    None,
}

impl fmt::Display for EmbedderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none")
    }
}

impl EmbedderSettings {
    /// What stands in for a model.
    pub fn load(&self) -> Result<Arc<dyn Embedder>, String> {
        Ok(Arc::new(Meaningless))
    }
}

pub(super) fn read(node: &Node, d: &mut Diagnostics) -> Option<EmbedderSettings> {
    d.error(node.place, "this program was built without models")
        .help("leave `embedder` out, or build it with the feature `models`");
    None
}

/// To it, no text means anything.
struct Meaningless;

impl Embedder for Meaningless {
    fn name(&self) -> &'static str {
        "none/1"
    }

    fn dimension(&self) -> usize {
        1
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(vec![vec![0.0]; texts.len()])
    }
}

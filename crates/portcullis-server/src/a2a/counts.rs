//! What is counted of A2A packets.

use portcullis_core::a2a::{ErrorKind, LossinessLevel, Mode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BatchLabels {
    mode: &'static str,
    lossiness: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Packets by what became of them.
pub(crate) struct A2aMetrics {
    batches: Family<BatchLabels, Counter>,
    refused: Family<KindLabel, Counter>,
}

impl A2aMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            batches: Family::default(),
            refused: Family::default(),
        };
        registry.register(
            "a2a_batches",
            "Batches made of A2A packets and recorded, by mode and by how much was lost",
            metrics.batches.clone(),
        );
        registry.register(
            "a2a_refused",
            "A2A packets that no batch was made of, by the kind of error",
            metrics.refused.clone(),
        );
        // What first appears with its first count looks as if it had never grown.
        for mode in Mode::ALL {
            for level in LossinessLevel::ALL {
                let _ = metrics.batches.get_or_create(&labels(mode, level));
            }
        }
        for kind in ErrorKind::ALL.map(ErrorKind::as_str) {
            let _ = metrics.refused.get_or_create(&KindLabel { kind });
        }
        metrics
    }

    /// A batch is in the evidence log.
    pub(crate) fn recorded(&self, mode: Mode, level: LossinessLevel) {
        self.batches.get_or_create(&labels(mode, level)).inc();
    }

    /// A packet was refused.
    pub(crate) fn refused(&self, kind: ErrorKind) {
        let kind = kind.as_str();
        self.refused.get_or_create(&KindLabel { kind }).inc();
    }
}

const fn labels(mode: Mode, level: LossinessLevel) -> BatchLabels {
    BatchLabels {
        mode: mode.as_str(),
        lossiness: level.as_str(),
    }
}

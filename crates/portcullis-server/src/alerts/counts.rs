//! What is counted of alerts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::config::AlertSinkKind;
use crate::delivery::Counts;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SinkLabels {
    sink: &'static str,
    outcome: &'static str,
}

const PASSED_ON: &str = "passed_on";
const REPEATED: &str = "repeated";
const DROPPED: &str = "dropped";
const DELIVERED: &str = "delivered";
const FAILED: &str = "failed";
const HELD_BACK: &str = "held_back";

/// Alerts that came in, and what became of them at each kind of sink.
#[derive(Debug, Clone)]
pub(crate) struct AlertMetrics {
    /// Not counted again when a message stands for several.
    pub(super) passed_on: Counter,
    pub(super) repeated: Counter,
    pub(super) dropped: Counter,
    deliveries: Family<SinkLabels, Counter>,
    waiting: Gauge,
}

impl AlertMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let alerts = Family::<Labels, Counter>::default();
        let deliveries = Family::default();
        let waiting = Gauge::default();
        registry.register(
            "alerts",
            "Alerts by what became of them: passed on to the sinks, held back as the same again, dropped",
            alerts.clone(),
        );
        registry.register(
            "alert_deliveries",
            "Messages of alerts by kind of sink and what came of them; of those held back, the alerts",
            deliveries.clone(),
        );
        registry.register(
            "alerts_waiting",
            "Messages of alerts waiting to be delivered",
            waiting.clone(),
        );
        let alert = |outcome| alerts.get_or_create_owned(&Labels { outcome });
        let metrics = Self {
            passed_on: alert(PASSED_ON),
            repeated: alert(REPEATED),
            dropped: alert(DROPPED),
            deliveries,
            waiting,
        };
        // What first appears with its first count looks as if it had never grown.
        for sink in AlertSinkKind::NAMES {
            let _ = (metrics.sink(sink), metrics.held_back(sink));
        }
        metrics
    }

    /// What is counted of the messages to sinks of a kind.
    pub(super) fn sink(&self, sink: &'static str) -> Counts {
        Counts {
            waiting: self.waiting.clone(),
            delivered: self.delivery(sink, DELIVERED),
            failed: self.delivery(sink, FAILED),
            dropped: self.delivery(sink, DROPPED),
        }
    }

    /// Alerts that only a summary told of.
    pub(super) fn held_back(&self, sink: &'static str) -> Counter {
        self.delivery(sink, HELD_BACK)
    }

    fn delivery(&self, sink: &'static str, outcome: &'static str) -> Counter {
        self.deliveries
            .get_or_create_owned(&SinkLabels { sink, outcome })
    }
}

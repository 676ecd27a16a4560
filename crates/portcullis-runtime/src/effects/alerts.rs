//! Alerts, and where they go.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};

use portcullis_core::{Context, Decision, Evaluation, Event, PolicyIdentity};
use serde::Serialize;

use super::relock;

/// Somebody should look at this.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alert {
    /// The run.
    pub run_id: String,
    /// Whose.
    pub tenant_id: Option<String>,
    /// The stage.
    pub event_type: String,
    /// The tool.
    pub tool_name: Option<String>,
    /// What was decided.
    pub decision: Decision,
    /// Whether it binds.
    pub enforced: bool,
    /// By which policy.
    pub policy: Arc<PolicyIdentity>,
}

/// Where alerts go. Called on the evaluation's own path: hand over, do not send.
pub trait AlertSink: Send + Sync + 'static {
    /// Takes an alert.
    fn alert(&self, alert: Alert);
}

/// Keeps the last alerts in memory.
#[derive(Debug)]
pub struct RecentAlerts {
    capacity: usize,
    alerts: Mutex<VecDeque<Alert>>,
}

impl RecentAlerts {
    /// Keeps at most so many.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            alerts: Mutex::default(),
        }
    }

    /// What there is, oldest first.
    pub fn list(&self) -> Vec<Alert> {
        relock(&self.alerts).iter().cloned().collect()
    }
}

impl AlertSink for RecentAlerts {
    fn alert(&self, alert: Alert) {
        let mut alerts = relock(&self.alerts);
        alerts.push_back(alert);
        if alerts.len() > self.capacity {
            alerts.pop_front();
        }
    }
}

/// Writes each alert as one line of JSON.
#[derive(Debug)]
pub struct JsonLineAlerts<W>(Mutex<W>);

impl<W: Write + Send + 'static> JsonLineAlerts<W> {
    /// Writes here.
    pub fn new(writer: W) -> Self {
        Self(Mutex::new(writer))
    }
}

impl<W: Write + Send + 'static> AlertSink for JsonLineAlerts<W> {
    fn alert(&self, alert: Alert) {
        if let Ok(mut line) = serde_json::to_vec(&alert) {
            line.push(b'\n');
            let mut writer = relock(&self.0);
            // An alert that cannot be written must not undo the decision that it is about.
            let _ = writer.write_all(&line).and_then(|()| writer.flush());
        }
    }
}

pub(crate) fn alert(context: &Context, event: &Event, evaluation: &Evaluation) -> Alert {
    Alert {
        run_id: context.run_id.clone(),
        tenant_id: context.tenant_id.clone(),
        event_type: event.event_type.to_string(),
        tool_name: event.tool_name.clone(),
        decision: evaluation.decision.clone(),
        enforced: evaluation.enforced,
        policy: Arc::clone(&evaluation.policy),
    }
}

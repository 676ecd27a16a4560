//! What a caller hears of a run while it goes on.

use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::trajectory::Guarded;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The model is asked, for the nth time.
    Step(u32),
    /// The next piece of what the model says, as it may be shown.
    Text(String),
    /// What was shown of this step's text is void: the model is asked again, or the text follows anew.
    Discarded,
    /// A tool begins to run.
    ToolStarted {
        /// As the model calls it.
        id: String,
        /// Which tool.
        tool: String,
        /// With what, as it may be shown.
        arguments: Map<String, Value>,
    },
    /// A tool call is answered.
    ToolFinished {
        /// As the model calls it.
        id: String,
        /// Which tool.
        tool: String,
        /// With what, as the model sees it.
        result: Value,
    },
    /// The gate said something other than yes.
    Guarded(Guarded),
    /// The run waits for an approval.
    Waiting {
        /// Its id.
        approval: String,
        /// What the person is asked.
        prompt: String,
    },
}

/// Where events go. The channel is bounded: a run waits for whoever does not read, and goes on without whoever has left.
#[derive(Debug, Clone)]
pub struct Events(Option<mpsc::Sender<RunEvent>>);

impl Events {
    /// Nowhere.
    pub fn ignored() -> Self {
        Self(None)
    }

    /// To a receiver, with room for so many.
    pub fn channel(room: usize) -> (Self, mpsc::Receiver<RunEvent>) {
        let (sender, receiver) = mpsc::channel(room.max(1));
        (Self(Some(sender)), receiver)
    }

    pub(crate) async fn send(&self, event: impl FnOnce() -> RunEvent) {
        if let Some(sender) = &self.0 {
            // An error means that nobody listens any more.
            let _ = sender.send(event()).await;
        }
    }
}

//! Standard output and webhooks.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::message::Message;
use crate::delivery::{Carrier, Delivery, Endpoint, Failure};

/// Posts alerts.
pub(super) struct Webhook(pub(super) Endpoint);

impl Carrier for Webhook {
    type Message = Message;
    type Parcel = Delivery;

    async fn prepare(&self, message: &Arc<Message>) -> Result<Delivery, String> {
        let body = serde_json::to_vec(&message.json).map_err(|error| error.to_string())?;
        Ok(Delivery {
            id: message.id.clone(),
            body: Bytes::from(body),
        })
    }

    async fn send(&mut self, delivery: &Delivery) -> Result<(), Failure> {
        self.0.send(delivery).await
    }
}

type Line = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// Prints alerts, one line each. On a thread of its own, which nobody waits for at the end: one that reads our
/// output and stops reading may hold it up for ever.
pub(super) struct Stdout(SyncSender<Line>);

impl Stdout {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, lines) = sync_channel::<Line>(1);
        let print = move || {
            for (line, done) in lines {
                let mut out = io::stdout().lock();
                let _ = done.send(out.write_all(&line).and_then(|()| out.flush()));
            }
        };
        thread::Builder::new()
            .name("alerts".to_owned())
            .spawn(print)?;
        Ok(Self(sender))
    }
}

impl Carrier for Stdout {
    type Message = Message;
    type Parcel = Vec<u8>;

    async fn prepare(&self, message: &Arc<Message>) -> Result<Vec<u8>, String> {
        let line = serde_json::to_vec(&message.json);
        let mut line = line.map_err(|error| error.to_string())?;
        line.push(b'\n');
        Ok(line)
    }

    async fn send(&mut self, line: &Vec<u8>) -> Result<(), Failure> {
        let (done, printed) = oneshot::channel();
        let gone = || Failure::Final("nobody prints any more".to_owned());
        self.0.try_send((line.clone(), done)).map_err(|_| gone())?;
        let printed = printed.await.map_err(|_| gone())?;
        // Part of the line may be there already.
        printed.map_err(|error| Failure::Final(error.to_string()))
    }
}

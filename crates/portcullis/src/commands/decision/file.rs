//! A memory in a file, without a server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use portcullis_core::memory::{
    AnnouncedIntent, Decision, Filters, ListRequest, Outcome, Query, Review,
};
use portcullis_server::config::EmbedderSettings;
use portcullis_server::jsonrpc::RpcError;
use portcullis_store::memory::{
    Found, Listing, Memory, MemoryError, MemoryState, OpenError, Recorded, SqliteMemory,
    SqliteOptions,
};

use crate::cli::FileArgs;
use crate::commands::check::LIST_HELP;
use crate::output::Failure;

/// How long to wait until all is read. A server can be asked again; a command that is, begins anew.
const PATIENCE: Duration = Duration::from_mins(10);

/// Whether there has to be a database already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// Or it is made.
    OrNew,
    /// And there is no other way.
    Required,
    /// But a server could be asked instead.
    RequiredOrServer,
}

/// A memory that knows why it failed. Who asks a server is not told what is in its log; who asks a file
/// has no log, and has to be told.
pub(super) struct InFile {
    memory: SqliteMemory,
    failed: Mutex<Option<MemoryError>>,
}

impl InFile {
    /// Opens it; `search` is whether anybody is going to search or list.
    pub(super) fn open(args: &FileArgs, existing: Existing, search: bool) -> Result<Self, Failure> {
        let path = &args.memory;
        if existing != Existing::OrNew && !path.exists() {
            let instead = match existing {
                Existing::RequiredOrServer => {
                    "record a decision first, name another file with --memory, or ask a server with --url"
                }
                Existing::OrNew | Existing::Required => {
                    "record a decision first, or name another file with --memory"
                }
            };
            return Err(Failure::Input(anyhow!(
                "there is no memory in {}: {instead}",
                path.display()
            )));
        }
        let options = SqliteOptions {
            search,
            // A server may keep vectors of another model there: it makes them itself.
            embed_in_background: false,
            load_patience: PATIENCE,
            ..SqliteOptions::new(path)
        };
        let embedder = EmbedderSettings::default().load();
        let embedder = embedder.map_err(|why| Failure::Unavailable(anyhow!(why)))?;
        let opened = SqliteMemory::open(options, embedder);
        let memory = opened.map_err(|error| {
            // It says all that its source has to say.
            let said = anyhow!("{error}");
            match error {
                OpenError::Directory { .. }
                | OpenError::NotDatabase { .. }
                | OpenError::Foreign { .. }
                | OpenError::Newer { .. } => Failure::Input(said),
                OpenError::Io { .. }
                | OpenError::Locked { .. }
                | OpenError::Database(_)
                | OpenError::Thread(_) => Failure::Unavailable(said),
            }
        })?;
        Ok(Self {
            memory,
            failed: Mutex::new(None),
        })
    }

    /// Why an answer failed.
    pub(super) fn failure(&self, error: RpcError) -> Failure {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match (failed.take(), error) {
            (Some(MemoryError::NotFound { id }), RpcError::NotFound(_)) => not_found(&id),
            (_, RpcError::InvalidParams(field)) => Failure::Input(field.into()),
            (_, RpcError::NotFound(what)) => Failure::Input(anyhow!("{what}\n  help: {LIST_HELP}")),
            (Some(error), _) => Failure::Unavailable(error.into()),
            (None, error) => Failure::Unavailable(anyhow!("{error}")),
        }
    }

    fn noted<T>(&self, answer: Result<T, MemoryError>) -> Result<T, MemoryError> {
        if let Err(error) = &answer {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some(error.clone());
        }
        answer
    }
}

/// There is no such decision.
pub(super) fn not_found(id: &str) -> Failure {
    let error = MemoryError::NotFound {
        id: crate::output::plain(id),
    };
    Failure::Input(anyhow!("{error}\n  help: {LIST_HELP}"))
}

impl Memory for InFile {
    fn record(&self, decisions: Vec<Decision>) -> Result<Vec<Recorded>, MemoryError> {
        self.noted(self.memory.record(decisions))
    }

    fn review(&self, id: &str, review: Review) -> Result<Decision, MemoryError> {
        self.noted(self.memory.review(id, review))
    }

    fn get(&self, id: &str) -> Result<Option<Decision>, MemoryError> {
        self.noted(self.memory.get(id))
    }

    fn forget(&self, id: &str) -> Result<bool, MemoryError> {
        self.noted(self.memory.forget(id))
    }

    fn list(&self, request: &ListRequest) -> Result<Listing, MemoryError> {
        self.noted(self.memory.list(request))
    }

    fn query(&self, query: &Query) -> Result<Found, MemoryError> {
        self.noted(self.memory.query(query))
    }

    fn track_record(&self, filters: &Filters) -> Result<Vec<(f64, Outcome)>, MemoryError> {
        self.noted(self.memory.track_record(filters))
    }

    fn export(&self, each: &mut dyn FnMut(Decision) -> bool) -> Result<(), MemoryError> {
        self.noted(self.memory.export(each))
    }

    fn announce(&self, intent: AnnouncedIntent) -> Result<u64, MemoryError> {
        self.noted(self.memory.announce(intent))
    }

    fn intent(&self, correlation_id: &str) -> Result<Vec<AnnouncedIntent>, MemoryError> {
        self.noted(self.memory.intent(correlation_id))
    }

    fn quarantine(&self, run_id: String, why: String) -> Result<(), MemoryError> {
        self.noted(self.memory.quarantine(run_id, why))
    }

    fn release(&self, run_id: String) -> Result<(), MemoryError> {
        self.noted(self.memory.release(run_id))
    }

    fn quarantined_run(&self, run_id: &str) -> Result<Option<String>, MemoryError> {
        self.noted(self.memory.quarantined_run(run_id))
    }

    fn quarantined(&self) -> Result<Vec<(String, String)>, MemoryError> {
        self.noted(self.memory.quarantined())
    }

    fn close(&self, patience: Duration) -> Result<(), MemoryError> {
        self.noted(self.memory.close(patience))
    }

    fn state(&self) -> Result<MemoryState, MemoryError> {
        self.noted(self.memory.state())
    }
}

//! One file per command.

pub(crate) mod a2a;
pub(crate) mod approvals;
pub(crate) mod check;
#[cfg(feature = "models")]
pub(crate) mod classifier;
pub(crate) mod completions;
pub(crate) mod decision;
mod deep;
pub(crate) mod eval;
pub(crate) mod evidence;
pub(crate) mod guardrail;
pub(crate) mod intent;
pub(crate) mod policy_diff;
pub(crate) mod policy_explain;
pub(crate) mod policy_lint;
pub(crate) mod policy_test;
pub(crate) mod quarantine;
pub(crate) mod rule;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod sidecar;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod worker;

use std::path::Path;

use portcullis_core::pack::{self, Loaded};
use portcullis_runtime::PackFile;

use crate::output::Failure;

/// Loads a pack, or the built-in one.
fn load(path: Option<&Path>, env: Option<&str>) -> Result<Loaded, Failure> {
    let loaded = match path {
        Some(path) => PackFile::new(path)
            .with_env(env.map(str::to_owned))
            .load()?,
        None => pack::load_built_in(env).map_err(|report| Failure::Input(report.into()))?,
    };
    Ok(loaded)
}

/// A runtime for one thread: commands judge one event at a time.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unavailable(anyhow::Error::from(error).context("cannot start")))
}

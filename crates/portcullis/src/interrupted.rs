//! What a process takes away with it when it is interrupted.

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tokio::signal::unix::{SignalKind, signal};

/// Files that are half written.
static HALF: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Until this is dropped, Ctrl-C and its like remove the file before they end the process. `kill -9` does not.
#[must_use = "when it is dropped, the file stays"]
pub(crate) struct TakenAway(PathBuf);

impl TakenAway {
    pub(crate) fn of(path: &Path) -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            // Then an interrupted process leaves the file, and ends as ever.
            let _ = listen();
        });
        half().push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for TakenAway {
    fn drop(&mut self) {
        half().retain(|path| *path != self.0);
    }
}

fn half() -> MutexGuard<'static, Vec<PathBuf>> {
    HALF.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let entered = runtime.enter();
    let ignored = ignored();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let number = kind.as_raw_value();
        // As `nohup` asks for it: to listen would be to end after all.
        if ignored >> (number - 1) & 1 == 1 {
            continue;
        }
        let mut came = signal(kind)?;
        runtime.spawn(async move {
            came.recv().await;
            // Nobody begins another one now.
            let half = half();
            for path in &*half {
                // It may be in its place already.
                let _ = fs::remove_file(path);
            }
            exit(128 + number);
        });
    }
    drop(entered);
    std::thread::Builder::new()
        .name("interrupted".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(())
}

/// The signals that whoever started this process made it ignore, a bit each. Where nobody says, all: none is taken away
/// from them.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(u64::MAX)
}

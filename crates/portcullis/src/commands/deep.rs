//! What `worker` and `sidecar` share: the rules of a pack, hosted for gateways elsewhere.

use std::io::Write;

use portcullis_server::config::Settings;
use portcullis_server::{FarSide, telemetry};

use super::serve;
use crate::cli::HostArgs;
use crate::output::{Answer, BOLD, DIM, Failure, tell};

/// The configuration, with what the arguments say.
pub(super) fn settings(args: &HostArgs) -> Result<Settings, Failure> {
    let mut settings = serve::read(args.config.as_deref())?;
    if args.policy.is_some() {
        settings.policy.pack.clone_from(&args.policy);
    }
    if args.env.is_some() {
        settings.policy.env.clone_from(&args.env);
    }
    Ok(settings)
}

/// Logs, exports spans, loads the rules, and runs `work` with them until it is done.
pub(super) fn run<W>(
    settings: &Settings,
    log: &str,
    work: impl FnOnce(FarSide) -> W,
) -> Result<Answer, Failure>
where
    W: Future<Output = Result<Answer, Failure>>,
{
    let exporting = telemetry::start(&settings.telemetry, &settings.agent.name, log)
        .map_err(|error| Failure::Input(error.into()))?;
    let runtime = serve::threads()?;
    let side = FarSide::load(&settings.policy, settings.variables.clone())?;
    if side.rules().is_empty() {
        return Err(Failure::Input(anyhow::anyhow!(
            "the policy pack has no deep rule that could be run here: add one to its `async_rules`, such as \
             `rule: http-classifier` (`portcullis rule list` names them)"
        )));
    }
    if !side.warnings().diagnostics.is_empty() {
        tell(side.warnings());
    }
    let worked = runtime.block_on(work(side));
    exporting.finish();
    worked
}

/// The first thing people see: where it is, and what it runs.
pub(super) fn welcome(where_it_is: &str, side: &FarSide) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "{where_it_is}")?;
    for (id, ready) in side.rules() {
        let state = if ready { "ready" } else { "not ready" };
        writeln!(out, "  {BOLD}{id}{BOLD:#} {DIM}{state}{DIM:#}")?;
    }
    out.flush()
}

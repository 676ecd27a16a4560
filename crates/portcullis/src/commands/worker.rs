//! `portcullis worker`

use portcullis_runtime::{RedisSettings, Worker, WorkerLimits};
use portcullis_server::FarSide;
use portcullis_server::config::{ClientTls, DeepPlace, Settings};

use super::{deep, serve};
use crate::cli::WorkerArgs;
use crate::output::{Answer, Failure};

pub(crate) fn run(args: &WorkerArgs) -> Result<Answer, Failure> {
    let settings = deep::settings(&args.host)?;
    let redis = redis(args, &settings)?;
    let mut limits = WorkerLimits::default();
    if let Some(concurrency) = args.host.concurrency {
        limits.concurrency = concurrency as usize;
    }
    deep::run(&settings, &args.host.log, async |side| {
        work(side, &redis, limits).await
    })
}

async fn work(
    side: FarSide,
    redis: &RedisSettings,
    limits: WorkerLimits,
) -> Result<Answer, Failure> {
    let stop = serve::stop_signal()?;
    let worker =
        Worker::new(redis, side.host(), limits).map_err(|error| Failure::Input(error.into()))?;
    deep::welcome(
        &format!("Working for the gateways called `{}`", redis.name),
        &side,
    )
    .map_err(Failure::write)?;
    tokio::select! {
        () = worker.run(stop) => {}
        () = side.watch() => {}
    }
    Ok(Answer::Yes)
}

/// The Redis that the configuration names, or the arguments.
fn redis(args: &WorkerArgs, settings: &Settings) -> Result<RedisSettings, Failure> {
    let (mut redis, tls) = match (&settings.deep.place, &args.redis) {
        (DeepPlace::Redis { settings, tls }, None) => ((**settings).clone(), tls.clone()),
        (_, Some(url)) => (RedisSettings::new(url), ClientTls::default()),
        (_, None) => {
            return Err(Failure::Input(anyhow::anyhow!(
                "no Redis: give one with --redis URL, or a configuration with `deep.redis`"
            )));
        }
    };
    if let Some(name) = &args.name {
        redis.name.clone_from(name);
    }
    let files = tls.load();
    (redis.ca, redis.identity) = files.map_err(|error| Failure::Input(anyhow::anyhow!(error)))?;
    redis
        .check()
        .map_err(|error| Failure::Input(error.into()))?;
    Ok(redis)
}

//! Where deep rules run: what a gateway asks, and what workers and sidecars host.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::pack::diagnostic::Report;
use portcullis_core::pack::{self, Loaded};
use portcullis_core::{Policy, RuleId};
use portcullis_runtime::{
    DeepHost, DeepRules, Gateway, GuardInbox, LoadError, MemoryInbox, PackFile, Reload, Reloader,
    RemoteInbox,
};

use crate::config::{DeepPlace, DeepSettings, PolicySettings, Variables};
use crate::deep;
use crate::telemetry::TraceContext;

/// A gateway's deep rules: in this process, or in others.
pub struct DeepPath {
    inbox: Arc<dyn GuardInbox>,
    place: Place,
}

enum Place {
    Here {
        host: Arc<DeepHost>,
        variables: Variables,
    },
    Elsewhere(Arc<RemoteInbox>),
}

impl DeepPath {
    /// Begins to connect, if the rules are elsewhere. Needs a tokio runtime.
    pub fn start(settings: &DeepSettings, variables: &Variables) -> Result<Self, String> {
        let limits = settings.limits;
        let remote = match &settings.place {
            DeepPlace::Here => {
                let host = DeepHost::new(DeepRules::new()).with_propagation(Arc::new(TraceContext));
                let host = Arc::new(host);
                return Ok(Self {
                    inbox: Arc::new(MemoryInbox::over(Arc::clone(&host), limits)),
                    place: Place::Here {
                        host,
                        variables: variables.clone(),
                    },
                });
            }
            DeepPlace::Redis { settings, tls } => {
                let mut settings = (**settings).clone();
                (settings.ca, settings.identity) = tls.load()?;
                RemoteInbox::over_redis(&settings, limits).map_err(|error| error.to_string())?
            }
            DeepPlace::Sidecar { settings, tls } => {
                let mut settings = (**settings).clone();
                (settings.ca, settings.identity) = tls.load()?;
                RemoteInbox::over_grpc(&settings, limits).map_err(|error| error.to_string())?
            }
        };
        let remote = Arc::new(remote);
        Ok(Self {
            inbox: Arc::clone(&remote) as Arc<dyn GuardInbox>,
            place: Place::Elsewhere(remote),
        })
    }

    /// What the gateway asks.
    pub fn inbox(&self) -> Arc<dyn GuardInbox> {
        Arc::clone(&self.inbox)
    }

    /// Puts a policy in force, its deep rules first.
    pub fn put_in_force(&self, gateway: &Gateway, policy: Policy) -> Result<(), LoadError> {
        if let Place::Here { host, variables } = &self.place {
            host_rules_of(&policy, host, variables)?;
        }
        gateway.replace_policy(policy);
        Ok(())
    }

    /// Why deep rules cannot be asked, if they are elsewhere and cannot.
    pub fn trouble(&self) -> Option<String> {
        match &self.place {
            Place::Here { .. } => None,
            Place::Elsewhere(remote) => remote.trouble(),
        }
    }
}

fn host_rules_of(policy: &Policy, host: &DeepHost, variables: &Variables) -> Result<(), LoadError> {
    let rules = deep::deep_rules(policy, &|name| variables.get(name))
        .map_err(|error| LoadError::Unusable(error.to_string()))?;
    host.replace(rules, policy.tool_risks().clone());
    Ok(())
}

/// What a worker or a sidecar hosts: the deep rules of a policy pack, kept up to date with its file.
pub struct FarSide {
    host: Arc<DeepHost>,
    reloader: Option<Reloader>,
    interval: Duration,
    variables: Variables,
    warnings: Report,
}

impl FarSide {
    /// Loads the pack and builds its deep rules.
    pub fn load(settings: &PolicySettings, variables: Variables) -> Result<Self, LoadError> {
        let PolicySettings { pack, env, .. } = settings;
        let (reloader, loaded) = match pack {
            Some(path) => {
                let file = PackFile::new(path).with_env(env.clone());
                let (reloader, loaded) = Reloader::start(file)?;
                (Some(reloader), loaded)
            }
            None => {
                let loaded = pack::load_built_in(env.as_deref());
                let wrong = |report| LoadError::Invalid(Box::new(report));
                (None, loaded.map_err(wrong)?)
            }
        };
        let Loaded {
            policy, warnings, ..
        } = loaded;
        let host = DeepHost::new(DeepRules::new()).with_propagation(Arc::new(TraceContext));
        host_rules_of(&policy, &host, &variables)?;
        Ok(Self {
            host: Arc::new(host),
            reloader,
            interval: settings.reload_interval,
            variables,
            warnings,
        })
    }

    /// What to run.
    pub fn host(&self) -> Arc<DeepHost> {
        Arc::clone(&self.host)
    }

    /// The rules, and whether each is ready.
    pub fn rules(&self) -> Vec<(RuleId, bool)> {
        let rules = self.host.rules();
        rules
            .list()
            .map(|(info, ready)| (info.id.clone(), ready))
            .collect()
    }

    /// Findings in the pack that do not prevent its use.
    pub fn warnings(&self) -> &Report {
        &self.warnings
    }

    /// Looks at the pack's file every now and then. A changed pack that cannot be used changes nothing. Never ends.
    pub async fn watch(self) {
        let Self {
            host,
            reloader,
            interval,
            variables,
            ..
        } = self;
        let Some(mut reloader) = reloader else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(interval).await;
            let (host, variables) = (Arc::clone(&host), variables.clone());
            // Compiling takes a while, and the thread has evaluations to run.
            let looked = tokio::task::spawn_blocking(move || {
                let reload =
                    reloader.check_with(|policy| host_rules_of(&policy, &host, &variables));
                (reloader, reload)
            });
            let Ok((back, reload)) = looked.await else {
                tracing::error!("looking at the policy pack failed; it is not looked at any more");
                return std::future::pending().await;
            };
            reloader = back;
            match reload {
                Reload::Unchanged => {}
                Reload::Replaced(policy) => {
                    tracing::info!(
                        digest = policy.digest,
                        "the changed pack's rules are at work"
                    );
                }
                Reload::Refused(error) => {
                    tracing::error!("the changed pack is refused, the old rules stay:\n{error}");
                }
            }
        }
    }
}

//! A changed pack comes into force while events are judged; a bad one never does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_core::rules::{RuleSettings, ToolAllowlist};
use portcullis_core::{Action, PolicyBuilder};
use portcullis_runtime::{Gateway, LoadError, PackFile, Reload, Reloader};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::fixtures::{call, fast, judge, patient, verdict};

/// A pack that denies this tool.
fn denying(tool: &str) -> String {
    format!(
        "policy_pack: p\nversion: '1'\ngateway: {{sync: {{timeout_ms: 60000}}}}\nsync_rules:\n  \
         - id: tool-allowlist\n    config: {{denied_tools: [{tool}]}}\n"
    )
}

/// A pack with an error on line 3.
const BAD: &str = "policy_pack: p\nversion: '1'\nsync_rulez: []\n";

struct Setup {
    folder: TempDir,
    gateway: Gateway,
    reloader: Reloader,
}

impl Setup {
    /// A gateway by a pack that denies `rm`, and its reloader.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack.yaml");
        std::fs::write(&path, denying("rm")).unwrap();
        let (reloader, loaded) = Reloader::start(PackFile::new(&path)).unwrap();
        Self {
            folder,
            gateway: Gateway::builder(loaded.policy).build(),
            reloader,
        }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.folder.path().join("pack.yaml"), text).unwrap();
    }

    fn remove(&self) {
        std::fs::remove_file(self.folder.path().join("pack.yaml")).unwrap();
    }

    fn check(&mut self) -> Reload {
        self.reloader.check(&self.gateway)
    }

    async fn denies(&self, tool: &str) -> bool {
        judge(&self.gateway, &call("r", tool)).await.decision.action == Action::Stop
    }
}

#[tokio::test]
async fn a_good_pack_replaces_the_one_in_force() {
    let mut setup = Setup::new();
    assert!(matches!(setup.check(), Reload::Unchanged));
    setup.write(&denying("format"));
    let Reload::Replaced(in_force) = setup.check() else {
        panic!("not replaced");
    };
    assert_eq!(in_force.digest, setup.gateway.policy().identity().digest);
    assert!(setup.denies("format").await && !setup.denies("rm").await);
    assert!(matches!(setup.check(), Reload::Unchanged));
}

#[tokio::test]
async fn a_bad_pack_never_replaces_a_good_one_and_is_reported_once() {
    let mut setup = Setup::new();
    let digest = setup.gateway.policy().identity().digest.clone();
    for text in [
        BAD,
        "",
        "policy_pack: [",
        "policy_pack: p\nversion: '1'\nsync_rules: [{id: nobody}]\n",
        "policy_pack: p\nversion: '1'\nenvironments: {dev: {mode: x}}\n",
    ] {
        setup.write(text);
        let Reload::Refused(error) = setup.check() else {
            panic!("{text:?} was not refused");
        };
        assert!(matches!(error, LoadError::Invalid(_)), "{error}");
        assert!(error.to_string().contains("pack.yaml"), "{error}");
        for _ in 0..3 {
            assert!(matches!(setup.check(), Reload::Unchanged), "{text:?} again");
        }
        assert_eq!(setup.gateway.policy().identity().digest, digest);
        assert!(setup.denies("rm").await);
    }
    setup.write(&denying("format"));
    assert!(matches!(setup.check(), Reload::Replaced(_)));
    assert!(setup.denies("format").await);
}

#[tokio::test]
async fn a_bad_packs_report_says_where() {
    let mut setup = Setup::new();
    setup.write(BAD);
    let Reload::Refused(error) = setup.check() else {
        panic!("not refused");
    };
    let text = error.to_string();
    for part in ["sync_rulez", "sync_rules", ":3:"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[tokio::test]
async fn a_deleted_pack_is_refused_once_and_the_old_one_stays() {
    let mut setup = Setup::new();
    setup.remove();
    let Reload::Refused(error) = setup.check() else {
        panic!("not refused");
    };
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
    assert!(error.to_string().contains("pack.yaml"), "{error}");
    for _ in 0..3 {
        assert!(matches!(setup.check(), Reload::Unchanged));
    }
    assert!(setup.denies("rm").await);
    setup.write(&denying("format"));
    assert!(matches!(setup.check(), Reload::Replaced(_)));
    assert!(setup.denies("format").await);
}

#[tokio::test]
async fn a_pack_larger_than_any_pack_is_refused() {
    let mut setup = Setup::new();
    let mut text = denying("format");
    text.push('#');
    text.extend(std::iter::repeat_n(' ', 16 << 20));
    setup.write(&text);
    let Reload::Refused(error) = setup.check() else {
        panic!("not refused");
    };
    assert!(error.to_string().contains("more than a pack may have"));
    assert!(setup.denies("rm").await);
}

#[test]
fn a_pack_is_loaded_with_its_environment_and_the_embedders_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack.yaml");
    let text = "policy_pack: p\nversion: '1'\nsync_rules: [{id: house-rule, enabled: false}]\n\
                async_rules: [{id: house-model}]\n\
                environments: {prod: {sync_rules: [{id: house-rule}]}}\n";
    std::fs::write(&path, text).unwrap();
    let plain = PackFile::new(&path);
    assert!(plain.load().is_err(), "nobody has a house-rule");
    let file = PackFile {
        custom_rules: vec![fast("house-rule", |_| Ok(None))],
        deep_rules: vec!["house-model".to_owned()],
        ..PackFile::new(&path)
    };
    assert!(file.load().unwrap().policy.rules().is_empty());
    let prod = file.with_env(Some("prod".to_owned())).load().unwrap();
    assert_eq!(prod.policy.rules()[0].id().as_str(), "house-rule");
    let missing = Path::new("no/such/pack.yaml");
    assert!(PackFile::new(missing).load().is_err());
}

/// An evaluation names the policy that it was made by, however often that is replaced meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_evaluation_is_by_exactly_one_policy() {
    let of = |id: &str, denied: &str| {
        PolicyBuilder::new(id, "1")
            .gateway(patient())
            .rule(RuleSettings::ToolAllowlist(ToolAllowlist::deny([denied])))
    };
    let (strict, lax) = (of("strict", "search"), of("lax", "nothing"));
    let strict_digest = strict.clone().compile().unwrap().identity().digest.clone();
    let lax_policy = lax.clone().compile().unwrap();
    let lax_digest = lax_policy.identity().digest.clone();
    let gateway = Arc::new(Gateway::builder(lax_policy).build());
    let done = Arc::new(AtomicBool::new(false));
    let judges: Vec<_> = (0..2)
        .map(|_| {
            let (gateway, done) = (Arc::clone(&gateway), Arc::clone(&done));
            let (strict_digest, lax_digest) = (strict_digest.clone(), lax_digest.clone());
            tokio::spawn(async move {
                let event = call("r", "search");
                let mut seen = (0, 0);
                while !done.load(Ordering::Relaxed) {
                    let evaluation = judge(&gateway, &event).await;
                    let digest = &evaluation.policy.digest;
                    if *digest == strict_digest {
                        assert_eq!(verdict(&evaluation), (Action::Stop, "tool-allowlist"));
                        assert_eq!(evaluation.policy.id, "strict");
                        seen.0 += 1;
                    } else {
                        assert_eq!(*digest, lax_digest);
                        assert_eq!(verdict(&evaluation), (Action::Allow, "__default__"));
                        assert_eq!(evaluation.policy.id, "lax");
                        seen.1 += 1;
                    }
                    tokio::task::yield_now().await;
                }
                seen
            })
        })
        .collect();
    for _ in 0..500 {
        for builder in [&strict, &lax] {
            gateway.replace_policy(builder.clone().compile().unwrap());
            tokio::task::yield_now().await;
        }
    }
    done.store(true, Ordering::Relaxed);
    for judge in judges {
        let (by_strict, by_lax) = judge.await.unwrap();
        assert!(by_strict > 0 && by_lax > 0, "{by_strict} and {by_lax}");
    }
}

#[tokio::test(start_paused = true)]
async fn watching_tells_of_every_change_until_it_is_shut_down() {
    let Setup {
        folder,
        gateway,
        reloader,
    } = Setup::new();
    let gateway = Arc::new(gateway);
    let (tell, mut told) = mpsc::unbounded_channel();
    let (shutdown, stopped) = oneshot::channel::<()>();
    let interval = Duration::from_secs(5);
    let watching = tokio::spawn(reloader.watch(
        Arc::clone(&gateway),
        interval,
        async move {
            let _ = stopped.await;
        },
        move |reload| tell.send(reload).unwrap(),
    ));
    let path = folder.path().join("pack.yaml");
    let before = gateway.policy().identity().digest.clone();

    sleep(7 * interval / 2).await;
    assert!(told.try_recv().is_err(), "nothing has changed");

    std::fs::write(&path, BAD).unwrap();
    sleep(interval / 4).await;
    assert!(told.try_recv().is_err(), "not looked at yet");
    sleep(3 * interval).await;
    assert!(matches!(told.try_recv(), Ok(Reload::Refused(_))));
    assert!(told.try_recv().is_err(), "reported once");
    assert_eq!(gateway.policy().identity().digest, before);

    std::fs::write(&path, denying("format")).unwrap();
    sleep(3 * interval).await;
    let Ok(Reload::Replaced(in_force)) = told.try_recv() else {
        panic!("not replaced");
    };
    assert_eq!(gateway.policy().identity().digest, in_force.digest);
    assert!(told.try_recv().is_err(), "reported once");

    shutdown.send(()).unwrap();
    watching.await.unwrap();
    std::fs::write(&path, denying("rm")).unwrap();
    sleep(3 * interval).await;
    assert_eq!(gateway.policy().identity().digest, in_force.digest);
    assert!(told.recv().await.is_none(), "nobody is watching");
}

//! The shipped dashboard and the guide's table against what a server exports.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use portcullis_server::Method;
use portcullis_server::limit::Quota;
use serde_json::{Value, json};

use crate::harness::Running;

/// What a name on the page, or in a query, ends with beyond the metric's own.
const SUFFIXES: [&str; 4] = ["_total", "_bucket", "_sum", "_count"];

fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).unwrap()
}

/// Every `portcullis_…` in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("portcullis_")
        .filter(|(start, _)| !text[..*start].ends_with(is_name))
        .map(|(start, _)| {
            let name = &text[start..];
            &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())]
        })
        .collect()
}

const GUARDRAIL: &str = "- id: never\n  when: 'true'\n";

/// A page with every metric on it. Those with labels show up with their first sample, so each is made to have one.
async fn page() -> String {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("guardrails.yaml");
    std::fs::write(&file, GUARDRAIL).unwrap();
    let server = Running::with(|settings| {
        settings.policy.guardrails = Some(file.clone());
        settings.policy.reload_interval = Duration::from_millis(20);
        let once = Quota {
            per_minute: 1,
            burst: 1,
        };
        let limits = &mut settings.rate_limits.methods;
        limits.insert(Method::ListGuardrails.into(), once);
    })
    .await;
    let check = json!({"action": {"description": "Deploy"}});
    server.call("cstp.checkGuardrails", &check).await;
    for _ in 0..2 {
        server.call_any("cstp.listGuardrails", &json!({})).await;
    }
    assert_eq!(server.get("/metrics").await.status(), 401);
    let event = json!({"event": {"event_type": "llm_before", "run_id": "r", "text_content": "Hi"}});
    let judged = server.post("/v1/guard/evaluate", event.to_string());
    assert_eq!(judged.send().await.unwrap().status(), 200);
    std::fs::write(&file, format!("{GUARDRAIL}  name: Never\n")).unwrap();
    for _ in 0..1_000 {
        let response = server.get_as_emerson("/metrics").await;
        let page = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
        if page.contains("portcullis_policy_reloads") {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the changed file was never looked at");
}

/// The metrics that a server exports, as `# TYPE` lines name them, and the names of their samples.
async fn exported() -> (BTreeSet<String>, BTreeSet<String>) {
    let mut metrics = BTreeSet::new();
    let mut samples = BTreeSet::new();
    for line in page().await.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            metrics.insert(name.to_owned());
            let endings = match kind {
                "counter" => &SUFFIXES[..1],
                "histogram" => &SUFFIXES[1..],
                _ => &[""],
            };
            samples.extend(endings.iter().map(|ending| format!("{name}{ending}")));
        }
    }
    (metrics, samples)
}

fn dashboard() -> Value {
    serde_json::from_str(&read("docs/grafana/portcullis.json")).unwrap()
}

/// The queries of all panels.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_asks_for_what_the_server_exports() {
    let (_, samples) = exported().await;
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() > 20);
    for query in queries {
        let names = named(query);
        assert!(!names.is_empty(), "{query}");
        for name in names {
            assert!(samples.contains(name), "{name} in {query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_in_the_dashboard_or_in_the_guide() {
    let (metrics, samples) = exported().await;
    let (dashboard, guide) = (read("docs/grafana/portcullis.json"), read("docs/server.md"));
    let shown: BTreeSet<&str> = named(&dashboard).union(&named(&guide)).copied().collect();
    assert!(metrics.len() > 10, "{metrics:?}");
    for metric in &metrics {
        let has = |name: &&str| {
            let endings = SUFFIXES
                .iter()
                .filter_map(|ending| name.strip_suffix(ending));
            *name == metric || endings.into_iter().any(|base| base == metric)
        };
        assert!(shown.iter().any(has), "{metric} is shown nowhere");
    }
    // And the guide's table has no others.
    for line in guide
        .lines()
        .filter(|line| line.starts_with("| `portcullis_"))
    {
        for name in named(line) {
            assert!(samples.contains(name) || metrics.contains(name), "{line}");
        }
    }
}

#[test]
fn the_dashboard_can_be_imported_anywhere() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(
        variables
            .iter()
            .any(|variable| variable["type"] == "datasource" && variable["name"] == "datasource")
    );
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
}

//! A policy for each tenant: the same agent may do different things for different customers.
//!
//! `cargo run -p portcullis-planner --example tenant_policy` runs one task for three tenants. Each has a gateway of
//! its own, made from one pack with an environment for each; a tenant that nobody knows has none, and gets no agent.

#[expect(dead_code, reason = "the planner's tests use the rest")]
#[path = "support/endpoint.rs"]
mod endpoint;

use std::collections::BTreeMap;
use std::error::Error;
use std::future::pending;
use std::sync::Arc;

use portcullis_core::pack::{self, Pack, diagnostic::Report};
use portcullis_planner::{
    Events, OpenAiChat, OpenAiSettings, Outcome, Planner, Task, ToolError, TypedTool,
};
use portcullis_runtime::Gateway;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use endpoint::{Endpoint, Reply};

const POLICY: &str = r"
policy_pack: tenants
version: '1.0.0'
gateway: {sync: {timeout_ms: 1000}}
sync_rules:
  - id: tool-allowlist
    config: {allowed_tools: [report]}
environments:
  acme:
    sync_rules:
      - id: tool-allowlist
        config: {allowed_tools: [report, export]}
  globex: {}
";

#[derive(Deserialize, JsonSchema)]
struct Export {
    table: String,
}

/// A gateway for each tenant, by name.
fn gateways() -> Result<BTreeMap<&'static str, Arc<Gateway>>, Report> {
    ["acme", "globex"]
        .into_iter()
        .map(|tenant| {
            let pack = Pack {
                file: "tenants.yaml",
                text: POLICY,
                env: Some(tenant),
                ..Pack::default()
            };
            let policy = pack::load(&pack)?.policy;
            Ok((tenant, Arc::new(Gateway::builder(policy).build())))
        })
        .collect()
}

/// What an export comes to for this tenant.
async fn export(
    gateways: &BTreeMap<&str, Arc<Gateway>>,
    tenant: &str,
) -> Result<Outcome, Box<dyn Error>> {
    let gateway = gateways.get(tenant);
    let gateway = gateway.ok_or_else(|| format!("there is no tenant `{tenant}`"))?;
    let endpoint = Endpoint::start([
        Reply::call([("export", json!({"table": "orders"}))]),
        Reply::say(["Exported."]),
    ])
    .await?;
    let model = OpenAiChat::new(OpenAiSettings::new(endpoint.base_url(), "scripted"))?;
    let planner = Planner::builder(Arc::new(model), Arc::clone(gateway))
        .tool(TypedTool::new(
            "export",
            "Exports a table.",
            |export: Export| async move { Ok::<_, ToolError>(format!("{}.csv", export.table)) },
        ))
        .build()?;
    let task = Task::new(format!("{tenant}-1"), "Export the orders.").tenant(tenant);
    Ok(planner
        .run(task, Events::ignored(), pending())
        .await
        .outcome)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gateways = gateways()?;
    for tenant in ["acme", "globex", "initech"] {
        match export(&gateways, tenant).await {
            Ok(Outcome::Done { answer }) => println!("{tenant}: {answer}"),
            Ok(Outcome::Stopped(stopped)) => println!("{tenant}: {}", stopped.reason),
            Ok(other) => println!("{tenant}: {other:?}"),
            Err(error) => println!("{tenant}: {error}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::ErrorCode;

    #[tokio::test]
    async fn what_one_tenant_may_do_another_may_not() {
        let gateways = gateways().unwrap();
        let acme = export(&gateways, "acme").await.unwrap();
        assert!(matches!(acme, Outcome::Done { .. }), "{acme:?}");
        match export(&gateways, "globex").await.unwrap() {
            Outcome::Stopped(stopped) => {
                assert_eq!(stopped.error_code, ErrorCode::ToolNotAllowed);
            }
            other => panic!("{other:?}"),
        }
        assert!(export(&gateways, "initech").await.is_err());
    }
}

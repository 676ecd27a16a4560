//! `portcullis policy explain`

use std::fmt::Write as _;
use std::io::Write;

use portcullis_core::{Mode, Policy, RuleCost, ToolRiskTier};
use serde_json::{Value, json};

use crate::cli::{ExplainArgs, Format};
use crate::commands::load;
use crate::output::{Answer, BOLD, Failure, json_line};

pub(crate) fn run(args: &ExplainArgs) -> Result<Answer, Failure> {
    let pack = args.pack.as_deref().or(args.policy.policy.as_deref());
    let policy = load(pack, args.policy.env.as_deref())?.policy;
    let text = match args.format {
        Format::Json => json_line(&to_json(&policy)).map_err(Failure::write)?,
        Format::Text => to_text(&policy),
    };
    anstream::stdout()
        .write_all(text.as_bytes())
        .map_err(Failure::write)?;
    Ok(Answer::Yes)
}

fn to_text(policy: &Policy) -> String {
    let identity = policy.identity();
    let gateway = policy.gateway();
    let mode = match gateway.mode {
        Mode::Enforce => "enforce: decisions bind",
        Mode::Shadow => "shadow: everything is judged, nothing is enforced",
    };
    let fails = |open: bool| {
        if open {
            "the step may happen"
        } else {
            "the run is stopped"
        }
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    line(format!(
        "{BOLD}{} {}{BOLD:#}",
        identity.id, identity.version
    ));
    line(format!("digest   {}", identity.digest));
    line(format!("mode     {mode}"));
    line(format!(
        "fails    when a fast rule fails or overruns {} ms, {}; when a deep rule fails, {}",
        gateway.sync_timeout_ms,
        fails(gateway.sync_fail_open),
        fails(gateway.async_fail_open),
    ));
    line(format!(
        "limits   text over {} bytes stops the run",
        policy.limits().max_text_bytes
    ));
    line(format!(
        "\n{BOLD}Fast rules{BOLD:#}, judged before the step happens"
    ));
    for rule in policy.rules() {
        let kind = if rule.kind() == rule.id().as_str() {
            String::new()
        } else {
            format!(" ({})", rule.kind())
        };
        line(format!(
            "  {:<24} on {}",
            format!("{}{kind}", rule.id()),
            rule.events().names().join(", ")
        ));
    }
    line(format!(
        "  one scan for {} patterns",
        policy.scanner().len()
    ));
    line(format!(
        "\n{BOLD}Deep rules{BOLD:#}, judged behind a deadline"
    ));
    if policy.deep_rules().is_empty() {
        line("  none".to_owned());
    }
    for rule in policy.deep_rules() {
        line(format!(
            "  {:<24} {}",
            rule.id,
            if rule.enabled { "enabled" } else { "disabled" }
        ));
    }
    let router = policy.risk_router();
    line(format!(
        "\n{BOLD}Tools{BOLD:#}, and what happens when deep rules are late"
    ));
    let mut tool = |name: &str, tier: ToolRiskTier| {
        let (wait_ms, late) = router.for_tier(tier);
        let outcome = if wait_ms > 0.0 {
            format!("wait {wait_ms} ms, then {}", late.as_str())
        } else {
            "do not wait".to_owned()
        };
        line(format!("  {name:<24} {:<9} {outcome}", tier.as_str()));
    };
    for (name, tier) in policy.tool_risks().listed() {
        tool(name, tier);
    }
    tool("(any other)", policy.tool_risks().unlisted());
    text
}

fn to_json(policy: &Policy) -> Value {
    let fast = policy.rules().iter().map(|rule| {
        json!({
            "id": rule.id(), "rule": rule.kind(), "version": rule.version(), "cost": RuleCost::Fast,
            "events": rule.events().names(), "fenced": rule.fenced().is_some(),
        })
    });
    let tiers: serde_json::Map<String, Value> = policy
        .tool_risks()
        .listed()
        .into_iter()
        .map(|(tool, tier)| (tool.to_owned(), json!(tier)))
        .collect();
    json!({
        "policy": &**policy.identity(),
        "gateway": policy.gateway(),
        "limits": policy.limits(),
        "rules": fast.collect::<Vec<_>>(),
        "deep_rules": policy.deep_rules(),
        "patterns": policy.scanner().len(),
        "tool_risks": tiers,
        "unlisted_tool_risk": policy.tool_risks().unlisted(),
        "risk_router": policy.risk_router(),
    })
}

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    Body, Compiled, InlineRule, RuleCompiler, RuleError, RuleSettings, RuleSpec, Subject,
    documented,
};
use crate::decision::{Decision, RuleCost, Severity, StopSpec};
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
use crate::scan::EventSet;

documented! {
    /// Stops tools that the policy denies or does not allow.
    ///
    /// Judges `tool_call_start` by the tool's exact name. A denied tool is always stopped
    /// (`TOOL_DENIED`, critical). With an allowlist, every tool that is not on it is stopped too
    /// (`TOOL_NOT_ALLOWED`, high). A tool on both lists is denied.
    ///
    /// ## Configuration
    ///
    /// - `denied_tools`: tools that may never run. Default: none.
    /// - `allowed_tools`: the only tools that may run. Leave it out for no allowlist;
    ///   an empty list allows nothing.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: tool-allowlist
    ///     config:
    ///       denied_tools: [admin.execute, filesystem.delete]
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct ToolAllowlist {
        /// Tools that may never run.
        pub denied_tools: BTreeSet<String>,
        /// The only tools that may run, if there is such a list.
        pub allowed_tools: Option<BTreeSet<String>>,
    }
}

impl ToolAllowlist {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "tool-allowlist",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolCallStart]),
        doc: Self::DOC,
        read: Self::read,
    };

    /// Denies these tools and allows all others.
    pub fn deny<I: IntoIterator<Item: Into<String>>>(tools: I) -> Self {
        Self {
            denied_tools: tools.into_iter().map(Into::into).collect(),
            allowed_tools: None,
        }
    }

    /// Allows these tools and no others.
    pub fn allow_only<I: IntoIterator<Item: Into<String>>>(tools: I) -> Self {
        Self {
            denied_tools: BTreeSet::new(),
            allowed_tools: Some(tools.into_iter().map(Into::into).collect()),
        }
    }

    fn allow(&self, tool: &str) -> bool {
        match &self.allowed_tools {
            // RFC-001 leaves a call without a name alone; an allowlist that it passes would be none.
            None => tool.is_empty() || !self.denied_tools.contains(tool),
            Some(allowed) => allowed.contains(tool) && !self.denied_tools.contains(tool),
        }
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let denied = config.texts("denied_tools", d).unwrap_or_default();
        let allowed = config.texts("allowed_tools", d);
        Some(RuleSettings::ToolAllowlist(Self {
            denied_tools: denied.into_iter().collect(),
            allowed_tools: allowed.map(|tools| tools.into_iter().collect()),
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        Compiled {
            events: compiler.events_or(Self::SPEC.events),
            reads: Parts::TOOL_NAME,
            body: Body::Inline(Box::new(CompiledAllowlist {
                id: compiler.id.clone(),
                tools: self.clone(),
            })),
        }
    }
}

struct CompiledAllowlist {
    id: RuleId,
    tools: ToolAllowlist,
}

fn tool_of<'e>(subject: &Subject<'e>) -> &'e str {
    subject.input.event.tool_name.as_deref().unwrap_or_default()
}

impl InlineRule for CompiledAllowlist {
    fn is_idle(&self, subject: &Subject<'_>) -> bool {
        self.tools.allow(tool_of(subject))
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let tool = tool_of(subject);
        if self.tools.allow(tool) {
            return Ok(None);
        }
        if self.tools.denied_tools.contains(tool) {
            return Ok(Some(
                Decision::stop(
                    self.id.clone(),
                    format!("Tool '{tool}' is denied"),
                    StopSpec::code(ErrorCode::ToolDenied),
                )
                .with_severity(Severity::Critical)
                .with_remediation(
                    "do not call this tool again; reach the goal without it or ask a person",
                ),
            ));
        }
        let Some(allowed) = &self.tools.allowed_tools else {
            return Ok(None);
        };
        Ok(Some(
            Decision::stop(
                self.id.clone(),
                format!("Tool '{tool}' not in allowlist"),
                StopSpec::code(ErrorCode::ToolNotAllowed),
            )
            .with_severity(Severity::High)
            .with_remediation(choices(allowed)),
        ))
    }
}

fn choices(allowed: &BTreeSet<String>) -> String {
    const SHOWN: usize = 10;
    if allowed.is_empty() {
        return "this policy allows no tools".to_owned();
    }
    let names: Vec<&str> = allowed.iter().take(SHOWN).map(String::as_str).collect();
    let more = allowed.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("use an allowed tool: {}{more}", names.join(", "))
}

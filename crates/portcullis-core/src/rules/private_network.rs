use std::ops::ControlFlow;

use serde::Serialize;

use super::arguments::{self, Path};
use super::mask;
use super::response::{Finding, Response};
use super::{
    Body, Compiled, InlineRule, RuleCompiler, RuleError, RuleSettings, RuleSpec, Subject,
    documented,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::net::{Found, HostList, Position, Reach};
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
use crate::scan::EventSet;

documented! {
    /// Stops tool calls that reach private networks and cloud metadata services.
    ///
    /// Judges `tool_call_start`: every string in the arguments. A host in a URL, in an argument named
    /// for hosts (`url`, `endpoint`, `server`, …) or behind `curl`, `ssh`, `ping` and the like is
    /// judged in every notation: decimal, octal, hexadecimal, short forms, IPv6 with an IPv4 address
    /// inside, percent-encoded, look-alike digits, and names such as `127.0.0.1.nip.io`. Elsewhere in
    /// a text only four decimal numbers (`10.0.0.1`) and a local name with a port (`localhost:8080`)
    /// count; a version or a sum is none, nor is `10.1.2.3` behind `version`, `chapter` and the like,
    /// and what servers listen on (`0.0.0.0`, `::`). Nothing is resolved: a public name that answers with
    /// a private address passes.
    ///
    /// Refused are private, loopback, link-local, carrier-grade NAT, multicast, reserved and
    /// unspecified addresses, `localhost`, and names under `.local`, `.internal`, `.corp` and the like
    /// (`EGRESS_PRIVATE_NETWORK`, high), and the metadata services of clouds (critical). A name
    /// without a dot (`http://redis:6379`) is one of the local network where a URL is called: in an
    /// argument named for hosts and behind a command, not in a file's content.
    ///
    /// ## Configuration
    ///
    /// - `allow`: what may be reached all the same: hosts (`db.internal`), everything below a name
    ///   (`*.corp.internal`), addresses and networks (`10.1.0.0/16`). Default: nothing.
    /// - `action`: `stop`, `pause` to ask a person, or `warn` to allow it and raise an alert.
    ///   Default: `stop`.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: private-network
    ///     config:
    ///       allow: [localhost, 127.0.0.0/8]
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct PrivateNetwork {
        /// What may be reached all the same.
        pub allow: HostList,
        /// What is done about a finding.
        pub action: Response,
    }
}

impl PrivateNetwork {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "private-network",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolCallStart]),
        doc: Self::DOC,
        read: Self::read,
    };

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        Some(RuleSettings::PrivateNetwork(Self {
            allow: arguments::read_hosts(config, "allow", d).unwrap_or_default(),
            action: Response::read(config, d),
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        Compiled {
            events: compiler.events_or(Self::SPEC.events),
            reads: Parts::TOOL_ARGS,
            body: Body::Inline(Box::new(CompiledPrivateNetwork {
                id: compiler.id.clone(),
                settings: self.clone(),
            })),
        }
    }
}

struct CompiledPrivateNetwork {
    id: RuleId,
    settings: PrivateNetwork,
}

impl InlineRule for CompiledPrivateNetwork {
    fn is_idle(&self, subject: &Subject<'_>) -> bool {
        !arguments::any_hosts(subject)
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let judged = arguments::hosts(subject, &mut |found, path| match self
            .judge(subject, found, path)
        {
            Some(decision) => ControlFlow::Break(decision),
            None => ControlFlow::Continue(()),
        });
        Ok(judged.break_value())
    }
}

/// What the host reaches from where it stands, if that is not the public internet.
fn reach(found: &Found<'_>, path: &Path<'_>) -> Option<Reach> {
    const ADDRESS: [&str; 6] = ["url", "uri", "host", "hostname", "endpoint", "server"];
    let host = &found.host;
    let is_called = match found.position {
        // `origin: local`, `target: metadata`.
        Position::Key if host.is_word() => return None,
        Position::Key if host.is_dotless() && host.reach() == Some(Reach::Metadata) => {
            return host.reach().filter(|_| arguments::is_under(path, &ADDRESS));
        }
        Position::Argument => true,
        // A file that is written may have `redis://redis:6379` in it.
        Position::Url => arguments::is_for_hosts(path),
        _ => false,
    };
    let dotless = || (is_called && host.is_dotless()).then_some(Reach::LocalName);
    host.reach().or_else(dotless)
}

impl CompiledPrivateNetwork {
    fn judge(&self, subject: &Subject<'_>, found: &Found<'_>, path: &Path<'_>) -> Option<Decision> {
        let reach = reach(found, path)?;
        // `com.example.internal` in quotes may be anything.
        if found.position == Position::Loose && reach == Reach::LocalName {
            return None;
        }
        let allow = &self.settings.allow;
        if allow.contains(&found.host) || allow.contains_ending(&found.host) {
            return None;
        }
        let severity = match reach {
            Reach::Metadata => Severity::Critical,
            _ => Severity::High,
        };
        Some(self.settings.action.decide(Finding {
            rule: self.id.clone(),
            error_code: ErrorCode::EgressPrivateNetwork,
            severity,
            reason: format!(
                "Argument {} names {}: {}",
                mask::path(subject, &path.pointer(), mask::ANY),
                reach.as_str(),
                mask::host(subject, &found.host)
            ),
            remediation: "use a public address, or ask for this one to be allowed by the policy",
        }))
    }
}

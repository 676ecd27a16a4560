use std::ops::ControlFlow;

use serde::Serialize;

use super::arguments;
use super::mask::{self, is_encoded};
use super::response::{Finding, Response};
use super::{
    Body, Compiled, EntityPattern, InlineRule, Lookup, RuleCompiler, RuleError, RuleSettings,
    RuleSpec, Sight, Subject, documented, entities,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::detectors::Kind;
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::net::{Host, HostList};
use crate::pack::configured_families;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
use crate::scan::{EventSet, PatternId};

documented! {
    /// Stops tool calls whose arguments carry a secret out.
    ///
    /// Judges `tool_call_start`: `text_content`, and every string and member name of the arguments, so
    /// URLs (path, query, userinfo, subdomain), headers and bodies alike, and values that are secrets by
    /// the name of their member. Also stops a host whose
    /// labels look like encoded data: two of 24 characters or more, or 60 characters of them
    /// together. The reason names the kind of secret and the argument, never the secret
    /// (`EGRESS_SECRET`, critical).
    ///
    /// A key on its way to its own provider is no leak. Name the provider in `allow_hosts`: when the
    /// call names hosts and all of them are on that list, secrets may pass.
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for. Default: `[rfc]`.
    /// - `patterns`: your own, as `NAME: regular expression`. They add to the families.
    ///   Case matters.
    /// - `evasions`: whether to see through disguises: Unicode compatibility forms, invisible
    ///   characters, escapes and encodings. Default: `false`.
    /// - `allow_hosts`: hosts, names below a host (`*.a.example`), addresses and networks that
    ///   secrets may be sent to. Default: none.
    /// - `action`: `stop`, `pause` to ask a person, or `warn` to allow it and raise an alert.
    ///   Default: `stop`.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: secret-egress
    ///     config:
    ///       allow_hosts: [api.openai.com, api.github.com]
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct SecretEgress {
        /// What to look for, in order.
        pub patterns: Vec<EntityPattern>,
        /// Whether to see through disguises.
        pub evasions: bool,
        /// Hosts that secrets may be sent to.
        pub allow_hosts: HostList,
        /// What is done about a finding.
        pub action: Response,
    }
}

impl SecretEgress {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "secret-egress",
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
        let families = configured_families(config, &["rfc"], d);
        let mut patterns = entities::of_families(Kind::Secrets, &families, d);
        patterns.extend(entities::configured(config, d));
        let allow_hosts = arguments::read_hosts(config, "allow_hosts", d).unwrap_or_default();
        let action = Response::read(config, d);
        Some(RuleSettings::SecretEgress(Self {
            patterns,
            evasions: config.boolean("evasions", d).unwrap_or_default(),
            allow_hosts,
            action,
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(Self::SPEC.events);
        compiler.sees_through(self.evasions, &events);
        let mut patterns = Vec::new();
        for pattern in &self.patterns {
            let spec = pattern.pattern.spec(Kind::Secrets);
            if let Some(id) = compiler.pattern(&spec, &events, pattern.place) {
                patterns.push((id, pattern.entity.clone()));
            }
        }
        Compiled {
            events,
            reads: Parts::TEXT.and(Parts::TOOL_ARGS).and(Parts::RESULT),
            body: Body::Inline(Box::new(CompiledEgress {
                id: compiler.id.clone(),
                sight: Sight::of(self.evasions, Sight::Values),
                lookup: Lookup::new(patterns.iter().map(|(id, _)| *id)),
                patterns,
                allow_hosts: self.allow_hosts.clone(),
                action: self.action,
            })),
        }
    }
}

impl Default for SecretEgress {
    /// RFC-001's patterns, and no host that they may go to.
    fn default() -> Self {
        Self {
            patterns: super::SecretRedaction::default().patterns,
            evasions: false,
            allow_hosts: HostList::default(),
            action: Response::default(),
        }
    }
}

struct CompiledEgress {
    id: RuleId,
    sight: Sight,
    lookup: Lookup,
    patterns: Vec<(PatternId, String)>,
    allow_hosts: HostList,
    action: Response,
}

impl InlineRule for CompiledEgress {
    fn is_idle(&self, subject: &Subject<'_>) -> bool {
        subject.is_plain() && !arguments::any_hosts(subject)
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let mut secrets = subject.candidates(&self.lookup).into_iter();
        let secret = secrets.find_map(|index| {
            let (id, entity) = &self.patterns[index];
            let path = subject.find_path(*id, self.sight, |_| true)?;
            Some((entity, path))
        });
        let reason = match secret {
            Some((entity, path)) if !self.may_go(subject) => {
                format!("Found {entity} in {}", self.masked(subject, &path))
            }
            _ => match self.encoded_host(subject) {
                Some(path) => format!(
                    "The host in {} looks like encoded data",
                    self.masked(subject, &path)
                ),
                None => return Ok(None),
            },
        };
        Ok(Some(self.action.decide(Finding {
            rule: self.id.clone(),
            error_code: ErrorCode::EgressSecret,
            severity: Severity::Critical,
            reason,
            remediation: "leave the secret out of the call; let the tool add its own credentials",
        })))
    }
}

impl CompiledEgress {
    /// Whether the call names hosts, and only such as secrets may be sent to.
    fn may_go(&self, subject: &Subject<'_>) -> bool {
        if self.allow_hosts.is_empty() {
            return false;
        }
        let mut any = false;
        let other = arguments::hosts(subject, &mut |found, _| {
            any = true;
            if self.allow_hosts.contains(&found.host) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        any && other.is_continue()
    }

    /// The path of a host whose name carries data.
    fn encoded_host(&self, subject: &Subject<'_>) -> Option<String> {
        let found = arguments::hosts(subject, &mut |found, path| match &found.host {
            Host::Name(name) | Host::Ending(name)
                if carries_data(name) && !self.allow_hosts.contains(&found.host) =>
            {
                ControlFlow::Break(path.pointer())
            }
            _ => ControlFlow::Continue(()),
        });
        found.break_value()
    }

    /// The path without the secrets in it.
    fn masked(&self, subject: &Subject<'_>, path: &str) -> String {
        mask::path(subject, path, &|id| {
            let first = self.lookup.of(id).min()?;
            Some((first, &self.patterns[first].1))
        })
    }
}

/// Whether so much of a name looks encoded that it carries data to whoever answers for its domain.
fn carries_data(name: &str) -> bool {
    /// A content hash in base32 has 59.
    const TOGETHER: usize = 60;
    const LONG: usize = 24;
    if name.len() < 2 * LONG {
        return false;
    }
    let encoded = name.split('.').filter(|label| is_encoded(label));
    let (long, together) = encoded.fold((0, 0), |(long, together), label| {
        (
            long + usize::from(label.len() >= LONG),
            together + label.len(),
        )
    });
    long >= 2 || together >= TOGETHER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_carry_data_are_told_from_names() {
        for (name, expected) in [
            ("api.example.com", false),
            (
                "my-very-long-service-name-for-production.eu-west-1.example.com",
                false,
            ),
            (
                "internationalization-department.university-of-somewhere.example",
                false,
            ),
            ("d41d8cd98f00b204e9800998ecf8427e.example.com", false),
            (
                "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi.ipfs.dweb.link",
                false,
            ),
            (
                "eu-west-1-prod-cluster-2-node-15.shard-7-of-12-rack-4-row-9.example.com",
                false,
            ),
            ("ec2-203-0-113-25.eu-west-1.compute.amazonaws.com", false),
            (
                "vpce-0a1b2c3d4e5f60718-a1b2c3d4.execute-api.eu-west-1.vpce.amazonaws.com",
                false,
            ),
            (
                "d41d8cd98f00b204e9800998ecf8427e.68656c6c6f20776f726c6420746869.t.example",
                true,
            ),
            (
                "nbswy3dpeb3w64tmmqqhi2djomqgs4y.omvrxezlufyqho33snrsca5dino.t.example",
                true,
            ),
            (
                "7f3a9c1e5b2d8f4a6c0e9b7d5f3a1c8e2b4d6f8a0c2e4b6d8f1a3c5e7b9d0f2.t.example",
                true,
            ),
            (
                "4a6f686e446f6531.39383736353433.726f6f743a783a30.3a303a726f6f743a2f.2f62696e2f62617368.t.example",
                true,
            ),
        ] {
            assert_eq!(carries_data(name), expected, "{name}");
        }
    }
}

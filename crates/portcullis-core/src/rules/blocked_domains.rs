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
use crate::net::{Found, HostList, Position};
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{self, MapReader};
use crate::scan::EventSet;

documented! {
    /// Stops tool calls that name blocked hosts.
    ///
    /// Judges `tool_call_start`: hosts in URLs, in arguments named for hosts, behind `curl` and the
    /// like, and names in quotes or before a path, in whatever notation. A blocked host is stopped
    /// (`EGRESS_BLOCKED_DOMAIN`, high), even if it is also allowed. With `allowed`, so is every other
    /// host in a URL, an argument named for hosts, or a command.
    ///
    /// Of a host that a shell or a template completes (`https://$X.a.example/`), or that no client reads,
    /// the end alone is judged: it is blocked if `*.a.example` is, and on no allowlist.
    ///
    /// `a.example` is that host alone, `*.a.example` is `a.example` and everything below it; addresses
    /// and networks (`192.0.2.0/24`) work too.
    ///
    /// ## Configuration
    ///
    /// - `blocked`: hosts that may not be named. Default: none.
    /// - `allowed`: the only hosts that may be reached. Leave it out for no such list; an empty list
    ///   allows none.
    /// - `families`: built-in lists of hosts that take in whatever is sent to them. `collectors`
    ///   (request bins, out-of-band testing), `tunnels`, `pastes`, `file-drops`, `shorteners`.
    ///   Default: all but `shorteners`.
    /// - `action`: `stop`, `pause` to ask a person, or `warn` to allow it and raise an alert.
    ///   Default: `stop`.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: blocked-domains
    ///     config:
    ///       blocked: ["*.competitor.example"]
    ///       families: [collectors, tunnels, shorteners]
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct BlockedDomains {
        /// Hosts that may not be named.
        pub blocked: HostList,
        /// The only hosts that may be reached, if there is such a list.
        pub allowed: Option<HostList>,
        /// Built-in lists of further hosts that may not be named.
        pub families: Vec<DomainFamily>,
        /// What is done about a finding.
        pub action: Response,
    }
}

/// A built-in list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DomainFamily {
    /// Its name, as packs use it.
    pub name: String,
    /// The hosts.
    pub hosts: HostList,
}

/// Every built-in list: its name and file.
const FAMILIES: [(&str, &str); 5] = [
    (
        "collectors",
        include_str!("../../detectors/domains/collectors.yaml"),
    ),
    (
        "tunnels",
        include_str!("../../detectors/domains/tunnels.yaml"),
    ),
    (
        "pastes",
        include_str!("../../detectors/domains/pastes.yaml"),
    ),
    (
        "file-drops",
        include_str!("../../detectors/domains/file-drops.yaml"),
    ),
    (
        "shorteners",
        include_str!("../../detectors/domains/shorteners.yaml"),
    ),
];

/// What a policy looks for that does not say.
const DEFAULT_FAMILIES: [&str; 4] = ["collectors", "tunnels", "pastes", "file-drops"];

impl DomainFamily {
    fn load(name: &str, place: Place, d: &mut Diagnostics) -> Option<Self> {
        let Some((_, text)) = FAMILIES.iter().find(|(known, _)| *known == name) else {
            d.error(place, format!("unknown domain family `{name}`"))
                .suggest(name, FAMILIES.iter().map(|(known, _)| *known));
            return None;
        };
        let mut own = Diagnostics::default();
        let hosts = yaml::parse(text, &mut own).and_then(|node| {
            let mut map = MapReader::open(&node, "a domain family", &mut own)?;
            for key in ["family", "about", "matches", "passes"] {
                map.require(key, &mut own)?;
            }
            let hosts = arguments::read_hosts(&mut map, "hosts", &mut own);
            map.finish(&mut own);
            hosts
        });
        if hosts.is_none() || own.has_errors() {
            d.error(place, format!("domain family `{name}` is broken"));
        }
        Some(Self {
            name: name.to_owned(),
            hosts: hosts?,
        })
    }
}

impl BlockedDomains {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "blocked-domains",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolCallStart]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn of_families(families: &[(String, Place)], d: &mut Diagnostics) -> Self {
        let mut loaded = Vec::new();
        for (index, (name, place)) in families.iter().enumerate() {
            if families[..index].iter().any(|(known, _)| known == name) {
                d.error(*place, format!("family `{name}` is there twice"))
                    .help("keep one of them");
                continue;
            }
            loaded.extend(DomainFamily::load(name, *place, d));
        }
        Self {
            blocked: HostList::default(),
            allowed: None,
            families: loaded,
            action: Response::default(),
        }
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let place = config.place();
        let families = config
            .placed_texts("families", d)
            .unwrap_or_else(|| default_families(place));
        Some(RuleSettings::BlockedDomains(Self {
            blocked: arguments::read_hosts(config, "blocked", d).unwrap_or_default(),
            allowed: arguments::read_hosts(config, "allowed", d),
            action: Response::read(config, d),
            ..Self::of_families(&families, d)
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        Compiled {
            events: compiler.events_or(Self::SPEC.events),
            reads: Parts::TOOL_ARGS,
            body: Body::Inline(Box::new(CompiledDomains {
                id: compiler.id.clone(),
                settings: self.clone(),
            })),
        }
    }
}

impl Default for BlockedDomains {
    /// The built-in lists, but for shorteners.
    fn default() -> Self {
        let families = default_families(Place::default());
        Self::of_families(&families, &mut Diagnostics::default())
    }
}

fn default_families(place: Place) -> Vec<(String, Place)> {
    let families = DEFAULT_FAMILIES.iter();
    families.map(|name| ((*name).to_owned(), place)).collect()
}

struct CompiledDomains {
    id: RuleId,
    settings: BlockedDomains,
}

impl InlineRule for CompiledDomains {
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

impl CompiledDomains {
    fn judge(&self, subject: &Subject<'_>, found: &Found<'_>, path: &Path<'_>) -> Option<Decision> {
        let host = &found.host;
        let settings = &self.settings;
        let family = || settings.families.iter().find(|f| f.hosts.may_contain(host));
        let reached = matches!(
            found.position,
            Position::Url | Position::Key | Position::Argument
        );
        let why = if settings.blocked.may_contain(host) {
            "a blocked host".to_owned()
        } else if let Some(family) = family() {
            format!("a blocked host [{}]", family.name)
        } else if reached && settings.allowed.as_ref().is_some_and(|a| !a.contains(host)) {
            "a host that is not on the allowlist".to_owned()
        } else {
            return None;
        };
        Some(settings.action.decide(Finding {
            rule: self.id.clone(),
            error_code: ErrorCode::EgressBlockedDomain,
            severity: Severity::High,
            reason: format!(
                "Argument {} names {why}: {}",
                mask::path(subject, &path.pointer(), mask::ANY),
                mask::host(subject, host)
            ),
            remediation: "do not send anything to this host; use one that the policy allows",
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        family: String,
        about: String,
        hosts: Vec<String>,
        matches: Vec<String>,
        passes: Vec<String>,
    }

    #[test]
    fn every_list_does_what_its_examples_say() {
        for (name, text) in FAMILIES {
            let file: File = serde_saphyr::from_str(text).unwrap();
            assert_eq!(file.family, name);
            assert!(
                file.about.ends_with('.') && !file.hosts.is_empty(),
                "{name}"
            );
            let mut diagnostics = Diagnostics::default();
            let family = DomainFamily::load(name, Place::default(), &mut diagnostics).unwrap();
            assert!(!diagnostics.has_errors(), "{name}");
            let hit = |text: &str| {
                let visit = &mut |found: &Found<'_>| {
                    if family.hosts.may_contain(&found.host) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                net::hosts(text, false, visit).is_break()
            };
            for text in &file.matches {
                assert!(hit(text), "{name} misses {text:?}");
            }
            for text in &file.passes {
                assert!(!hit(text), "{name} hits {text:?}");
            }
        }
    }
}

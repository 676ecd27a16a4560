use std::ops::ControlFlow;

use serde::Serialize;

use super::response::Finding;
use super::{
    Body, Compiled, InlineRule, Response, RuleCompiler, RuleError, RuleSettings, RuleSpec, Subject,
    arguments, documented, mask,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::history::{ToolPattern, Trigger};
use crate::ids::RuleId;
use crate::net::{HostList, Position};
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::MapReader;
use crate::scan::EventSet;

documented! {
    /// Forbids a call after something else has happened in the run.
    ///
    /// Judges `tool_call_start`. Once a step of the run is as `after` says, later calls that are as
    /// `then` says are stopped: "after personal data was read, nothing goes to a host that is not
    /// listed". The gateway remembers the steps of a run, in memory and for as many runs as
    /// `max_runs`; a finding counts whether or not it was redacted.
    ///
    /// ## Configuration
    ///
    /// - `after`: what must have happened, any of
    ///   - `rules`: one of these rules of the pack had something to say of an earlier step;
    ///   - `tools`: one of these tools ran. `*` stands for anything, as in `crm.*`. A call that was
    ///     stopped or is to be retried did not run; one that a person holds up may have, and counts.
    /// - `then`: which calls are forbidden from then on
    ///   - `tools`: calls of these tools. Default: of any tool;
    ///   - `hosts_except`: only calls whose arguments name a host that is not on this list
    ///     (`api.example.com`, `*.example.com`, addresses, networks such as `10.0.0.0/8`): in a URL, in
    ///     an argument named for hosts, behind `curl` and the like, before a port, or as four decimal
    ///     numbers. A name that is only quoted may be a file's and does not count.
    /// - `within`: how many steps `after` is remembered for. Default: the whole run.
    /// - `action`: `stop` (the default), `pause` or `warn`.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: secret-redaction
    ///   - id: no-leak-after-secrets
    ///     rule: sequence
    ///     config:
    ///       after:
    ///         rules: [secret-redaction]
    ///         tools: [vault.*]
    ///       then:
    ///         hosts_except: ['*.example.com']
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct Sequence {
        /// Rules that must have had something to say.
        pub after_rules: Vec<RuleId>,
        /// Tools that must have run.
        pub after_tools: Vec<ToolPattern>,
        /// Which calls are forbidden then; `None` for all.
        pub then_tools: Option<Vec<ToolPattern>>,
        /// Hosts that may still be named; with `None` it does not matter.
        pub hosts_except: Option<HostList>,
        /// For how many steps.
        pub within: Option<u64>,
        /// What happens to a forbidden call.
        pub action: Response,
        /// Where each of `after_rules` was named.
        #[serde(skip)]
        pub places: Vec<Place>,
    }
}

impl Sequence {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "sequence",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolCallStart]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        // All keys are asked for before any is given up on, or the rest would count as unknown.
        let (after, then) = (config.require("after", d), config.require("then", d));
        let within = config.count("within", d).map(|steps| steps as u64);
        let action = Response::read(config, d);
        let mut after = MapReader::open(after?, "`after`", d)?;
        let rules = after.placed_texts("rules", d).unwrap_or_default();
        let after_tools = tools(&mut after, d).unwrap_or_default();
        let place = after.place();
        after.finish(d);
        if rules.is_empty() && after_tools.is_empty() {
            d.error(
                place,
                "`after` names no `rules` and no `tools`, so it never holds",
            );
        }
        let mut then = MapReader::open(then?, "`then`", d)?;
        let then_tools = tools(&mut then, d);
        let hosts_except = arguments::read_hosts(&mut then, "hosts_except", d);
        then.finish(d);
        let (after_rules, places) = rules
            .into_iter()
            .map(|(rule, place)| (RuleId::from(rule), place))
            .unzip();
        Some(RuleSettings::Sequence(Self {
            after_rules,
            after_tools,
            then_tools,
            hosts_except,
            within,
            action,
            places,
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        compiler.triggers.push(Trigger {
            rule: compiler.id.clone(),
            rules: self.after_rules.clone(),
            tools: self.after_tools.clone(),
        });
        Compiled {
            events: compiler.events_or(Self::SPEC.events),
            reads: Parts::TOOL_NAME.and(Parts::TOOL_ARGS),
            body: Body::Inline(Box::new(CompiledSequence {
                id: compiler.id.clone(),
                settings: self.clone(),
            })),
        }
    }
}

fn tools(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<Vec<ToolPattern>> {
    let names = map.texts("tools", d)?;
    Some(names.into_iter().map(ToolPattern::new).collect())
}

struct CompiledSequence {
    id: RuleId,
    settings: Sequence,
}

impl InlineRule for CompiledSequence {
    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let Some(steps) = subject.input.context.history.steps_since(&self.id) else {
            return Ok(None);
        };
        if self.settings.within.is_some_and(|within| steps > within) {
            return Ok(None);
        }
        let event = subject.input.event;
        let tool = event.tool_name.as_deref().unwrap_or_default();
        let tools = self.settings.then_tools.as_deref();
        if tools.is_some_and(|tools| !tools.iter().any(|pattern| pattern.matches(tool))) {
            return Ok(None);
        }
        let host = match &self.settings.hosts_except {
            None => None,
            Some(listed) => match unlisted_host(subject, listed) {
                Some(host) => Some(host),
                None => return Ok(None),
            },
        };
        let what = host.map_or_else(
            || format!("Tool '{tool}' may not run"),
            |host| format!("Tool '{tool}' may not reach '{host}'"),
        );
        let ago = if steps == 1 { "one step" } else { "some steps" };
        Ok(Some(self.settings.action.decide(Finding {
            rule: self.id.clone(),
            error_code: ErrorCode::SequenceForbidden,
            severity: Severity::High,
            reason: format!("{what} after what happened {ago} earlier in this run"),
            remediation: "finish without this call, or do it in a run of its own",
        })))
    }
}

fn unlisted_host(subject: &Subject<'_>, listed: &HostList) -> Option<String> {
    let unlisted = arguments::hosts(subject, &mut |found, _| {
        // A name in quotes is a file's more often than a host's.
        if found.position == Position::Loose || listed.contains(&found.host) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(mask::host(subject, &found.host))
        }
    });
    unlisted.break_value()
}

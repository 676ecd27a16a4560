use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    Body, Compiled, InlineRule, Label, RuleCompiler, RuleError, RuleSettings, RuleSpec, Sight,
    Subject, documented,
};
use crate::decision::{Action, Decision, PauseSpec, RuleCost, Severity, StopSpec};
use crate::detectors::signs::{self, Sign};
use crate::detectors::{self, EntryPattern, Kind, Meaning};
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::intent::JailbreakIntent;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{self, MapReader, Node, Yaml};
use crate::pack::{configured_families, read_families};
use crate::scan::{EventSet, PatternId, PatternSpec, Scanner, ScannerBuilder};

documented! {
    /// Acts on unambiguous attacks on the agent's instructions.
    ///
    /// Each pattern has an intent, and the intent decides (RFC-001 appendix A):
    ///
    /// | intent | judged on | action | effects |
    /// |---|---|---|---|
    /// | `jb_override`, `exfil_prompt`, `tool_escalation` | `llm_before` | STOP | `flag_trajectory`, `increment_strike` |
    /// | `social_engineering` | `llm_before` | PAUSE | `flag_trajectory` |
    /// | `indirect_injection` | `tool_call_result` | REDACT the match | `flag_trajectory` |
    ///
    /// If several patterns match, the strongest action decides, then the first pattern in the list.
    /// Severity critical; case is ignored.
    ///
    /// A pattern with a `weight` below 1 is only a sign. Signs within 600 bytes of each other add up,
    /// each pattern once, and are an attack if they reach 1; what it is trying to do is what most of
    /// the weight says. So ordinary talk about prompts, keys and roles passes.
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for. Default: `[rfc]`.
    /// - `patterns`: your own, as a list of `{pattern, intent, weight}` (or `[pattern, intent]`).
    ///   They come after the families. Without `weight`, a match decides alone.
    /// - `evasions`: whether to see through disguises: lookalike and invisible characters, leetspeak,
    ///   spaced-out letters, escapes and encodings. Default: `false`, as RFC-001 has it.
    ///
    /// With `events` on the rule, every pattern is judged on those events instead.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: injection-patterns
    ///     config:
    ///       patterns:
    ///         - pattern: 'i am your developer'
    ///           intent: social_engineering
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct InjectionPatterns {
        /// What to look for, in order.
        pub patterns: Vec<AttackPattern>,
        /// Whether to see through disguises.
        pub evasions: bool,
    }
}

/// One attack to look for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttackPattern {
    /// How to find it; case is ignored.
    #[serde(flatten)]
    pub pattern: EntryPattern,
    /// What a match is trying to do.
    pub intent: JailbreakIntent,
    /// 1 decides alone; less adds up with what stands near it.
    pub weight: f64,
    /// Where it was configured.
    #[serde(skip)]
    pub place: Place,
}

impl InjectionPatterns {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "injection-patterns",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::LlmBefore]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn of_families(families: &[(String, Place)], d: &mut Diagnostics) -> Self {
        let entries = read_families(Kind::Injection, families, d);
        let patterns = entries
            .into_iter()
            .filter_map(|(entry, place)| match entry.meaning {
                Meaning::Attack { intent, weight } => Some(AttackPattern {
                    pattern: entry.pattern,
                    intent,
                    weight,
                    place,
                }),
                _ => None,
            })
            .collect();
        Self {
            patterns,
            evasions: false,
        }
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let families = configured_families(config, &["rfc"], d);
        let mut settings = Self::of_families(&families, d);
        for node in config.list("patterns", d).unwrap_or_default() {
            settings.patterns.extend(read_pattern(node, d));
        }
        settings.evasions = config.boolean("evasions", d).unwrap_or_default();
        Some(RuleSettings::InjectionPatterns(settings))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let mut events = compiler.events.clone().unwrap_or_default();
        let mut patterns = Vec::new();
        for pattern in &self.patterns {
            let judged_on = compiler.events_or(|| default_events(pattern.intent));
            events.extend(&judged_on);
            let spec = pattern.pattern.spec(Kind::Injection);
            if let Some(id) = compiler.pattern(&spec, &judged_on, pattern.place) {
                patterns.push(CompiledAttack {
                    id,
                    intent: pattern.intent,
                    weight: pattern.weight,
                    events: judged_on,
                });
            }
        }
        compiler.sees_through(self.evasions, &events);
        Compiled {
            events,
            reads: Parts::TEXT.and(Parts::TOOL_ARGS).and(Parts::RESULT),
            body: Body::Inline(Box::new(CompiledInjection {
                id: compiler.id.clone(),
                sight: Sight::of(self.evasions, Sight::All),
                patterns,
                settings: self.clone(),
                unspaced: OnceLock::new(),
            })),
        }
    }
}

impl Default for InjectionPatterns {
    /// RFC-001's patterns.
    fn default() -> Self {
        let mut diagnostics = Diagnostics::default();
        Self::of_families(&[("rfc".to_owned(), Place::default())], &mut diagnostics)
    }
}

fn default_events(intent: JailbreakIntent) -> EventSet {
    EventSet::from_iter([match intent {
        JailbreakIntent::IndirectInjection => EventType::ToolCallResult,
        _ => EventType::LlmBefore,
    }])
}

fn read_pattern(node: &Node, d: &mut Diagnostics) -> Option<AttackPattern> {
    let (regex, intent, weight) = match &node.yaml {
        Yaml::List(pair) => {
            let [regex, intent] = pair.as_slice() else {
                d.error(
                    node.place,
                    "a pattern is a pair: [regular expression, intent]",
                );
                return None;
            };
            (regex, intent, 1.0)
        }
        _ => {
            let mut map = MapReader::open(node, "a pattern", d)?;
            let regex = map.require("pattern", d);
            let intent = map.require("intent", d);
            let weight = map.amount("weight", d).unwrap_or(1.0);
            map.finish(d);
            (regex?, intent?, weight)
        }
    };
    Some(AttackPattern {
        pattern: EntryPattern::of(yaml::text(regex, "pattern", d)?),
        intent: detectors::intent(intent, d)?,
        weight,
        place: regex.place,
    })
}

const INDIRECT: Label = Label {
    entity_type: Cow::Borrowed("INDIRECT_INJECTION"),
    replacement: Cow::Borrowed("[REMOVED: instructions in retrieved content]"),
};

struct CompiledInjection {
    id: RuleId,
    sight: Sight,
    patterns: Vec<CompiledAttack>,
    settings: InjectionPatterns,
    /// Made when a text first has its letters set apart.
    unspaced: OnceLock<Unspaced>,
}

/// The patterns as they read when words run together.
struct Unspaced {
    scanner: Scanner,
    /// Each with its place in the list.
    patterns: Vec<(PatternId, usize)>,
}

impl Unspaced {
    /// Shorter patterns would be found in ordinary words that run together.
    const MIN_LEN: usize = 12;

    fn new(patterns: &[AttackPattern]) -> Self {
        let mut scanner = ScannerBuilder::default();
        let mut ids = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let spec = PatternSpec {
                keywords: &[],
                unspaced: true,
                ..pattern.pattern.spec(Kind::Injection)
            };
            if let Ok(id) = scanner.add(&spec, &EventSet::any())
                && scanner.min_len(id) >= Self::MIN_LEN
            {
                ids.push((id, index));
            }
        }
        Self {
            scanner: scanner.build(),
            patterns: ids,
        }
    }
}

struct CompiledAttack {
    id: PatternId,
    intent: JailbreakIntent,
    weight: f64,
    events: EventSet,
}

impl CompiledAttack {
    /// Signs add up over a distance, and a streamed answer is let go before that; so only patterns
    /// that decide alone judge it.
    fn judges(&self, event_type: &EventType) -> bool {
        let alone = self.weight >= 1.0 || *event_type != EventType::LlmStreamChunk;
        alone && self.events.contains(event_type)
    }
}

impl InlineRule for CompiledInjection {
    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        if subject.is_plain() {
            return Ok(None);
        }
        let event_type = &subject.input.event.event_type;
        let mut signs = Vec::new();
        for (index, pattern) in self.patterns.iter().enumerate() {
            // The scan keeps a pattern that two rules share if either wants this event.
            if pattern.judges(event_type) {
                subject.each(pattern.id, self.sight, |place, range| {
                    signs.push(Sign {
                        place,
                        range,
                        index,
                        intent: pattern.intent,
                        weight: pattern.weight,
                    });
                });
            }
        }
        if self.sight == Sight::All {
            self.look_unspaced(subject, &mut signs);
        }
        let parts = signs::add_up(&mut signs);
        Ok(self.judge(subject, &signs, &parts))
    }
}

impl CompiledInjection {
    /// Texts whose letters were set apart.
    fn look_unspaced(&self, subject: &Subject<'_>, signs: &mut Vec<Sign>) {
        let event_type = &subject.input.event.event_type;
        for (place, view) in subject.unspaced() {
            let Unspaced { scanner, patterns } = self
                .unspaced
                .get_or_init(|| Unspaced::new(&self.settings.patterns));
            let text = view.text();
            let candidates = scanner.scan(text, event_type);
            for (id, index) in patterns {
                let pattern = &self.patterns[*index];
                if candidates.contains(*id) && pattern.judges(event_type) {
                    scanner.find_all(*id, text, &candidates, 0..text.len(), |range| {
                        signs.push(Sign {
                            place,
                            range: view.original(range),
                            index: *index,
                            intent: pattern.intent,
                            weight: pattern.weight,
                        });
                    });
                }
            }
        }
    }

    /// The strongest action decides, then the first pattern in the list, then its first match.
    fn judge(
        &self,
        subject: &Subject<'_>,
        signs: &[Sign],
        parts: &[Option<JailbreakIntent>],
    ) -> Option<Decision> {
        let attacks = || {
            let attacks = signs.iter().zip(parts);
            attacks.filter_map(|(sign, intent)| Some((sign, (*intent)?)))
        };
        let (sign, intent) = attacks().min_by_key(|(sign, intent)| {
            (std::cmp::Reverse(intent.default_action()), sign.index)
        })?;
        let excerpt: String = subject.text(sign.place)[sign.range.clone()]
            .chars()
            .take(50)
            .collect();
        let redactions = attacks()
            .filter(|(_, intent)| intent.default_action() == Action::Redact)
            .map(|(sign, _)| subject.redaction(sign.place, sign.range.clone(), &INDIRECT))
            .collect();
        Some(Decision {
            redactions,
            ..self.decide(intent.default_action(), intent, &excerpt)
        })
    }

    fn decide(&self, action: Action, intent: JailbreakIntent, excerpt: &str) -> Decision {
        let id = self.id.clone();
        let name = intent.as_str();
        let reason = format!("Jailbreak pattern [{name}]: '{excerpt}'");
        let mut decision = match action {
            Action::Redact => Decision::redact(id, reason, Vec::new()),
            Action::Pause => {
                let pause = PauseSpec {
                    prompt: format!(
                        "The request may be social engineering: '{excerpt}'. Continue?"
                    ),
                    ..PauseSpec::default()
                };
                Decision::pause(id, reason, pause)
            }
            _ => {
                let stop = StopSpec {
                    user_message: Cow::Borrowed("I can't process that request."),
                    ..StopSpec::code(intent.error_code())
                };
                Decision::stop(id, reason, stop)
            }
        };
        decision.classifier_result = Some(Box::new(Map::from_iter([
            ("intent".to_owned(), Value::from(name)),
            ("method".to_owned(), Value::from("regex")),
        ])));
        decision
            .with_severity(Severity::Critical)
            .with_confidence(1.0)
            .with_effects(intent.default_effects().iter().copied())
    }
}

//! Guardrails, case by case: files of both forms, an action, and the verdict. What a case does not
//! expect must not come.

use std::collections::BTreeMap;
use std::fmt::Write;

use portcullis_core::guardrails::{
    self, Guardrails, Loaded, ProposedAction, Source, Verdict, Violation,
};
use portcullis_core::memory::{Decision, Outcome, Precedents, Review, Summary};
use portcullis_core::pack::diagnostic::Report;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    it: String,
    guardrails: Value,
    #[serde(default)]
    action: Map<String, Value>,
    agent: Option<Value>,
    authenticated: Option<String>,
    #[serde(default)]
    blocks: Vec<String>,
    #[serde(default)]
    warns: Vec<String>,
    #[serde(default)]
    logs: Vec<String>,
    evaluated: Option<usize>,
    /// What the first violation or warning says.
    says: Option<String>,
    suggests: Option<String>,
}

#[test]
fn our_form() {
    check_all(include_str!("cases/guardrails/ours.yaml"));
}

#[test]
fn the_older_form() {
    check_all(include_str!("cases/guardrails/older.yaml"));
}

#[test]
fn scopes_severities_and_messages() {
    check_all(include_str!("cases/guardrails/either.yaml"));
}

fn check_all(file: &str) {
    let cases: Vec<Case> = serde_saphyr::from_str(file).unwrap();
    for case in cases {
        let it = &case.it;
        let guardrails = load(&case.guardrails.to_string());
        let mut action = case.action;
        action
            .entry("description")
            .or_insert_with(|| json!("Do something"));
        let mut params = json!({"action": action});
        if let Some(agent) = case.agent {
            params["agent"] = agent;
        }
        let mut action = propose(&params);
        if let Some(agent) = case.authenticated {
            action = action.authenticated_as(agent);
        }
        let verdict = guardrails.check(&action);
        assert_eq!(ids(&verdict.violations), case.blocks, "{it}: blocks");
        assert_eq!(ids(&verdict.warnings), case.warns, "{it}: warns");
        assert_eq!(verdict.logged, case.logs, "{it}: logs");
        assert_eq!(verdict.allowed, case.blocks.is_empty(), "{it}: allowed");
        if let Some(evaluated) = case.evaluated {
            assert_eq!(verdict.evaluated, evaluated, "{it}: evaluated");
        }
        let first = verdict.violations.iter().chain(&verdict.warnings).next();
        if let Some(says) = case.says {
            assert_eq!(first.unwrap().message, says, "{it}");
        }
        if let Some(suggests) = case.suggests {
            assert_eq!(first.unwrap().suggestion, Some(suggests), "{it}");
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    cases: Vec<FileCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCase {
    name: String,
    params: Value,
    #[serde(default)]
    precedents: Vec<Precedent>,
    expect: Expected,
}

/// A decision like the action.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Precedent {
    outcome: Outcome,
    distance: f32,
}

impl Precedent {
    fn summary(&self) -> Summary {
        let params = json!({"decision": "Something like it"});
        let date = jiff::Timestamp::UNIX_EPOCH;
        let id = || "dec-1".to_owned();
        let mut decision = Decision::from_params(params.as_object().unwrap(), id, date).unwrap();
        decision.reviews.push(Review {
            outcome: self.outcome,
            actual_result: None,
            lessons: None,
            agent: None,
            date,
        });
        Summary::of(&decision).at(self.distance)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    allowed: bool,
    #[serde(default)]
    violations: Vec<String>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    logged: Vec<String>,
}

impl FileCase {
    fn run(&self, guardrails: &Guardrails) -> Verdict {
        let Self {
            name,
            params,
            precedents,
            expect,
        } = self;
        let precedents = Precedents::among(precedents.iter().map(Precedent::summary));
        let action = propose(params).with_precedents(precedents);
        let verdict = guardrails.check(&action);
        assert_eq!(ids(&verdict.violations), expect.violations, "{name}");
        assert_eq!(ids(&verdict.warnings), expect.warnings, "{name}");
        assert_eq!(verdict.logged, expect.logged, "{name}");
        assert_eq!(verdict.allowed, expect.allowed, "{name}");
        verdict
    }
}

/// Each block of cases in the documentation is about the guardrails of the block before.
#[test]
fn the_documentation_does_what_it_says() {
    let page = include_str!("../../../../docs/guardrails.md");
    let blocks = page
        .split("\n```")
        .filter_map(|part| part.strip_prefix("yaml\n"));
    let mut loaded = None;
    let (mut files, mut run) = (0, 0);
    for block in blocks {
        if block.starts_with("cases:") {
            let cases: Cases = serde_saphyr::from_str(block).unwrap();
            for case in cases.cases {
                case.run(loaded.as_ref().unwrap());
                run += 1;
            }
        } else {
            loaded = Some(load(block));
            files += 1;
        }
    }
    assert_eq!((files, run), (11, 27));
}

#[test]
fn the_built_in_guardrails_meet_their_cases() {
    let loaded = built_in();
    let cases: Cases = serde_saphyr::from_str(guardrails::DEFAULT_CASES).unwrap();
    assert!(cases.cases.len() >= 30);
    let mut seen: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for case in cases.cases {
        let FileCase { name, expect, .. } = &case;
        assert_eq!(case.run(&loaded).evaluated, 5, "{name}");
        for guardrail in loaded.iter() {
            let id = &guardrail.id;
            let met = expect.violations.contains(id) || expect.warnings.contains(id);
            seen.entry(id.clone()).or_default()[usize::from(met)] += 1;
        }
    }
    assert!(
        seen.values().all(|seen| seen.iter().all(|n| *n > 1)),
        "{seen:?}"
    );
}

/// The examples of F003 and F004, word for word.
#[test]
fn the_specifications_examples() {
    let guardrails = built_in();
    let mut params = json!({
        "action": {
            "description": "Deploy authentication service to production",
            "category": "architecture",
            "stakes": "high",
            "confidence": 0.85,
            "context": {
                "affectsProduction": true,
                "codeReviewCompleted": true,
                "hasTests": true,
                "ciPassing": true
            }
        },
        "agent": {
            "id": "emerson",
            "url": "https://emerson.example.com"
        }
    });
    let allowed = guardrails.check(&propose(&params));
    assert_eq!(
        json!(allowed),
        json!({"allowed": true, "violations": [], "warnings": [], "logged": [], "evaluated": 5})
    );
    params["action"]["context"]["codeReviewCompleted"] = json!(false);
    let blocked = json!(guardrails.check(&propose(&params)));
    assert_eq!(
        blocked,
        json!({
            "allowed": false,
            "violations": [{
                "guardrailId": "no-production-without-review",
                "name": "Production Requires Review",
                "message": "Production changes require completed code review",
                "severity": "block",
                "suggestion": "Complete code review before deploying"
            }],
            "warnings": [{
                "guardrailId": "prefer-staged-rollout",
                "name": "Staged Rollout Preferred",
                "message": "Consider staged rollout for production changes",
                "severity": "warn",
                "suggestion": "Deploy to 10% of traffic first"
            }],
            "logged": [],
            "evaluated": 5
        })
    );

    let intent = json!({
        "intent": "Deploy authentication service to production",
        "context": "PR #42 approved, all tests passing, CI green",
        "category": "architecture",
        "stakes": "high",
        "confidence": 0.85,
        "agent": {
            "id": "emerson",
            "url": "https://emerson.example.com"
        },
        "correlationId": "550e8400-e29b-41d4-a716-446655440000",
        "metadata": {
            "pr_number": 42,
            "branch": "feat/auth-v2",
            "commit": "abc123"
        }
    });
    let intent = ProposedAction::from_intent(intent.as_object().unwrap()).unwrap();
    assert_eq!(
        intent.correlation_id.as_deref(),
        Some("550e8400-e29b-41d4-a716-446655440000")
    );
    assert_eq!(
        intent.context.as_deref(),
        Some("PR #42 approved, all tests passing, CI green")
    );
    assert_eq!(intent.action.context()["branch"], "feat/auth-v2");
    assert_eq!(intent.action.agent().claimed.as_deref(), Some("emerson"));
    let verdict = guardrails.check(&intent.action);
    assert!(verdict.allowed && verdict.violations.is_empty());
    assert_eq!(ids(&verdict.warnings), ["prefer-staged-rollout"]);
    assert_eq!(verdict.evaluated, 5);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    params: Value,
    field: String,
    error: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllRefused {
    actions: Vec<Refused>,
    intents: Vec<Refused>,
}

#[test]
fn params_that_are_refused_name_the_field() {
    let cases = include_str!("cases/guardrails/refused.yaml");
    let AllRefused { actions, intents } = serde_saphyr::from_str(cases).unwrap();
    for case in actions {
        let error = ProposedAction::from_params(case.params.as_object().unwrap()).unwrap_err();
        assert_eq!((error.field, error.error), (case.field, case.error));
    }
    for case in intents {
        let error = ProposedAction::from_intent(case.params.as_object().unwrap()).unwrap_err();
        assert_eq!((error.field, error.error), (case.field, case.error));
    }
}

#[test]
fn lengths_have_limits() {
    let action = |key: &str, value: Value| {
        let mut params = json!({"action": {"description": "x"}});
        params["action"][key] = value;
        ProposedAction::from_params(params.as_object().unwrap()).map_err(|error| error.to_string())
    };
    let long = |n: usize| json!("x".repeat(n));
    assert!(action("description", long(16 << 10)).is_ok());
    assert_eq!(
        action("description", long((16 << 10) + 1)).unwrap_err(),
        "action.description: is 16385 bytes long, over 16384"
    );
    assert!(action("category", long(1 << 10)).is_ok());
    for key in ["category", "project", "scope"] {
        let error = action(key, long((1 << 10) + 1)).unwrap_err();
        assert_eq!(
            error,
            format!("action.{key}: is 1025 bytes long, over 1024")
        );
    }
    let intent = |id: String| {
        let params = json!({"intent": "x", "correlationId": id});
        ProposedAction::from_intent(params.as_object().unwrap())
    };
    let id = "é".repeat(128);
    assert_eq!(intent(id.clone()).unwrap().correlation_id, Some(id));
    assert_eq!(intent(String::new()).unwrap().correlation_id, None);
    assert_eq!(intent("x".repeat(129)).unwrap_err().field, "correlationId");
}

/// What is read is what was sent, and `null` is as good as nothing.
#[test]
fn params_are_read() {
    let action = propose(&json!({
        "action": {
            "description": " x ", "category": null, "stakes": null, "confidence": 1,
            "context": {"project": "shop", "scope": 3}, "scope": "web",
        },
        "agent": {"id": "a", "url": null, "name": "Anything"},
    }));
    assert_eq!(
        json!(action),
        json!({
            "description": " x ", "category": null, "stakes": "medium", "confidence": 1.0,
            "context": {"project": "shop", "scope": 3}, "project": "shop", "scope": "web",
            "agent": {"id": null, "claimed": "a", "url": null},
        })
    );
    let bare = propose(&json!({"action": {"description": "x"}}));
    assert_eq!(bare, ProposedAction::new("x").unwrap());
}

#[test]
fn the_digest_is_of_what_can_change_a_verdict() {
    let digest = |text: &str| load(text).digest().to_owned();
    let one = "- {id: a, when: context.x == 1, message: m}\n";
    let two = "- {id: b, condition_x: 1}\n";
    let first = digest(&format!("{one}{two}"));
    assert_eq!(first.len(), 64);
    let same = format!("# a comment\nguardrails:\n{one}{two}");
    assert_eq!(digest(&same), first);
    for changed in [
        format!("{two}{one}"),
        one.to_owned(),
        format!("{one}{}", two.replace('1', "'1'")),
        format!("{one}{}", two.replace("condition", "requires")),
        format!("{one}{}", two.replace("1}", "1, action: warn}")),
        format!("{one}{}", two.replace("1}", "1, enabled: false}")),
        format!("{one}{}", two.replace("1}", "1, scope: s}")),
        format!("{}{two}", one.replace("== 1", "== 2")),
        format!("{}{two}", one.replace(": m", ": other")),
    ] {
        assert_ne!(digest(&changed), first, "{changed}");
    }
    let split = guardrails::load(&[source("one.yaml", one), source("two.yaml", two)]);
    assert_eq!(split.unwrap().guardrails.digest(), first);
}

#[test]
fn guardrails_are_listed() {
    let text = "
- id: ours
  name: Ours
  description: What for
  when: context.x == 1 || context.y
  severity: warn
  message: '{x} is not good'
  suggestion: Send another
  scope: [a, b]
- {id: older, condition_stakes: [high, critical], requires_n: '>= 2', action: log, enabled: false}
- {id: both, condition: {cel: context.a || context.b, c.d: 1.0}, requires: {e: '!= x'}}
";
    let guardrails = load(text);
    assert_eq!((guardrails.iter().count(), guardrails.enabled()), (3, 2));
    let listed: Vec<_> = guardrails.iter().collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&listed).unwrap());
}

/// An expression with a loop does not take on more than it can finish: what is too much counts as
/// violated.
#[test]
fn loops_have_an_end() {
    let guardrails = load("- {id: a, when: 'context.list.exists(x, x in context.list && x < 0)'}");
    let check = |count: usize, text: usize| {
        let list: Vec<usize> = (0..count).collect();
        let context = json!({"list": list, "text": "x".repeat(text)});
        guardrails.check(&propose(
            &json!({"action": {"description": "x", "context": context}}),
        ))
    };
    assert!(check(998, 1000).allowed);
    for (count, text) in [(1000, 0), (10, 70_000), (300_000, 0)] {
        let verdict = check(count, text);
        assert_eq!(ids(&verdict.violations), ["a"]);
        let message = &verdict.violations[0].message;
        assert!(message.contains("over 1000 values"), "{message}");
    }
}

pub(crate) fn load(text: &str) -> Guardrails {
    try_load(text)
        .unwrap_or_else(|report| panic!("{report}\nin:\n{text}"))
        .guardrails
}

pub(crate) fn try_load(text: &str) -> Result<Loaded, Box<Report>> {
    guardrails::load(&[source("guardrails.yaml", text)])
        .map_err(|mut reports| Box::new(reports.remove(0)))
}

fn source<'s>(file: &'s str, text: &'s str) -> Source<'s> {
    Source { file, text }
}

fn built_in() -> Guardrails {
    let loaded = guardrails::load_default().unwrap_or_else(|reports| panic!("{}", reports[0]));
    assert!(loaded.warnings.is_empty());
    loaded.guardrails
}

pub(crate) fn propose(params: &Value) -> ProposedAction {
    ProposedAction::from_params(params.as_object().unwrap())
        .unwrap_or_else(|error| panic!("{error} in {params}"))
}

fn ids(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(|v| v.guardrail_id.clone()).collect()
}

/// History is looked up only where it can make a difference.
#[test]
fn precedents_are_wanted_where_nothing_else_settles_it() {
    let guardrails = load(
        "- id: history
  when: action.stakes == 'high' && has(context.live) && precedents.failures > 0
- id: odd
  enabled: false
  when: precedents.count == 0
",
    );
    let wants = |action: Value| guardrails.want_precedents(&propose(&json!({"action": action})));
    assert!(wants(
        json!({"description": "a", "stakes": "high", "context": {"live": 1}})
    ));
    assert!(!wants(
        json!({"description": "a", "stakes": "low", "context": {"live": 1}})
    ));
    assert!(!wants(json!({"description": "a", "stakes": "high"})));
    // What only `cel` can evaluate is asked in the same way.
    let guardrails =
        load("- {id: sum, when: action.stakes == 'high' && precedents.failures + 1 > 2}");
    let wants = |stakes| {
        let action = json!({"description": "a", "stakes": stakes});
        guardrails.want_precedents(&propose(&json!({"action": action})))
    };
    assert!(wants("high"));
    assert!(!wants("low"));
}

/// Verdicts are values that threads may share.
#[test]
fn guardrails_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Guardrails>();
    shared::<Verdict>();
}

/// What a broken file is told; read the snapshot as a user would.
#[test]
fn broken_files() {
    let mut page = String::new();
    let file = include_str!("cases/broken/guardrails.txt");
    let empty = [("an empty file", ""), ("a file of comments", "# to do\n")];
    let cases = file.split("=== ").skip(1);
    for (name, text) in empty
        .into_iter()
        .chain(cases.map(|case| case.split_once('\n').unwrap()))
    {
        let report = try_load(text)
            .err()
            .unwrap_or_else(|| panic!("{name}: this file is fine:\n{text}"));
        for finding in report.diagnostics.sorted() {
            assert!(finding.place.line > 0, "{name}: {finding:?}");
        }
        writeln!(page, "# {name}\n\n{report}").unwrap();
    }
    insta::assert_snapshot!(page);
}

/// Every file is reported on at once, and ids are unique across files.
#[test]
fn several_files() {
    let reports = guardrails::load(&[
        source("one.yaml", "- {id: a, when: \"true\"}\n- {id: b, whn: 1}\n"),
        source("two.yaml", "- {id: c, when: \"true\"}\n"),
        source(
            "three.yaml",
            "- {id: c, when: \"true\"}\n- {id: a, when: 1 ==}\n",
        ),
    ])
    .unwrap_err();
    let pages: Vec<String> = reports.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(pages.join("\n"));
}

#[test]
fn a_file_without_guardrails_is_worth_a_warning() {
    let loaded = guardrails::load(&[source("none.yaml", "guardrails: []\n")]).unwrap();
    assert_eq!(loaded.guardrails.enabled(), 0);
    insta::assert_snapshot!(loaded.warnings[0], @r"
    none.yaml:1:1: warning: this file has no guardrails, so it allows everything
      |
    1 | guardrails: []
      | ^
    ");
}

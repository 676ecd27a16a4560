//! F001's configuration file, and what is said about one that is wrong (C5).

use std::fmt::Write;
use std::time::Duration;

use portcullis_core::a2a::Limits;
use portcullis_server::config::{
    self, AlertSinkKind, CallbackKind, CallbackWhen, EmbedderSettings, Facility, Settings,
};
use portcullis_server::limit::Quota;
use portcullis_server::{Method, Operation};
use proptest::prelude::*;

/// As F001 prints it.
const F001: &str = r#"# config/server.yaml
server:
  host: "0.0.0.0"
  port: 8100
  cors_origins: ["*"]

agent:
  name: "cognition-engines"
  version: "0.7.0"
  url: "https://agent.example.com"

auth:
  enabled: true
  tokens:
    - agent: "emerson"
      token: "${CSTP_TOKEN_EMERSON}"
    - agent: "claude-ops"
      token: "${CSTP_TOKEN_CLAUDE}"
"#;

/// A webhook and a peer.
const CALLBACKS: &str = r#"callbacks:
  queue: 10
  targets:
    - url: https://hooks.example.com/intents
      secret: "${CSTP_TOKEN_EMERSON}"
      when: blocked
    - url: https://peer.example.com
      kind: peer
      token: "${CSTP_TOKEN_CLAUDE}"
"#;

/// Somebody to alert.
const ALERTS: &str = r#"alerts:
  per_minute: 10
  sinks:
    - kind: webhook
      url: https://hooks.example.com/alerts
      secret: "${CSTP_TOKEN_EMERSON}"
    - kind: syslog
      address: udp://127.0.0.1:514
"#;

/// A model somewhere else.
const MEMORY: &str = r#"memory:
  path: memory.db
  embedder:
    url: https://api.example.com/v1
    model: text-embedding-3-small
    api_key: "${CSTP_TOKEN_EMERSON}"
"#;

/// What must not be in any message.
const SECRET: &str = "S3CR3T-0123456789";
const SHORT_SECRET: &str = "S3CR3T-0";

fn variable(name: &str) -> Option<String> {
    match name {
        "CSTP_TOKEN_EMERSON" => Some(format!("{SECRET}-emerson")),
        "CSTP_TOKEN_CLAUDE" => Some(format!("{SECRET}-claude")),
        "SHORT" => Some(SHORT_SECRET.to_owned()),
        "EMPTY" => Some(String::new()),
        "SECRET" => Some(SECRET.to_owned()),
        _ => None,
    }
}

fn load(text: &str) -> Result<Settings, String> {
    config::load("server.yaml", text, &variable).map_err(|report| report.to_string())
}

#[test]
fn f001s_file_loads_as_it_is_printed() {
    let settings = load(F001).unwrap();
    assert_eq!(settings.server.host.to_string(), "0.0.0.0");
    assert_eq!(settings.server.port, 8100);
    assert_eq!(settings.server.cors_origins, ["*"]);
    assert_eq!(settings.agent.name, "cognition-engines");
    assert_eq!(settings.agent.version, "0.7.0");
    assert_eq!(
        settings.agent.url.as_deref(),
        Some("https://agent.example.com")
    );
    assert!(settings.auth.enabled);
    assert_eq!(settings.auth.tokens.len(), 2);
    for (agent, end) in [("emerson", "emerson"), ("claude-ops", "claude")] {
        let header = format!("Bearer {SECRET}-{end}");
        let found = settings.auth.tokens.authenticate(Some(header.as_bytes()));
        assert_eq!(found.unwrap().as_str(), agent);
    }
}

#[test]
fn everything_that_is_left_out_has_its_default() {
    let defaults = format!("{:?}", Settings::default());
    for text in ["", "# nothing\n", "{}", "server: {}\nagent: {}\n", "---\n"] {
        assert_eq!(format!("{:?}", load(text).unwrap()), defaults, "{text:?}");
    }
    let settings = Settings::default();
    assert_eq!(settings.server.port, 8100);
    assert!(settings.server.host.is_loopback());
    assert!(settings.server.cors_origins.is_empty());
}

#[test]
fn every_key_reaches_its_setting() {
    let settings = load(
        "server: {host: localhost, port: 0, max_body_bytes: 1, max_batch: 2, max_connections: 3, max_requests: 4,
                  read_timeout_seconds: 0.5, shutdown_timeout_seconds: 6, tls: {certificate: c.pem, key: k.pem}}
policy: {pack: p.yaml, env: dev, guardrails: g, reload_interval_seconds: 7, allow_none: true}
rate_limits: {enabled: false, default: {per_minute: 8, burst: 9}, methods: {cstp.listGuardrails: {per_minute: 10}, a2a.convert: {per_minute: 11}}}
evidence: {directory: e, durability: os, segment_bytes: 11, checkpoint_every: 12, signing_key: s.key}
memory: {path: m.db, embedder: {url: 'https://api.example.com/v1/', model: m, api_key: '${SECRET}', dimension: 16, timeout_seconds: 17}}
callbacks: {queue: 13, targets: [
  {url: 'https://hooks.example.com/x?y=z', secret: '${SECRET}', when: blocked, timeout_seconds: 14, attempts: 15, retry_seconds: 0.5},
  {url: 'http://peer.example.com', kind: peer, token: '${SECRET}'}, {url: 'http://peer.example.com', kind: peer}]}
alerts: {deduplicate_seconds: 0, per_minute: 18, queue: 19, sinks: [{kind: stdout},
  {kind: syslog, address: 'tcp://[::1]', facility: local7, app_name: gate, attempts: 20, retry_seconds: 21, timeout_seconds: 22},
  {kind: syslog, address: 'unix:/dev/log'},
  {kind: webhook, url: 'https://hooks.example.com/alerts', secret: '${SECRET}'}]}
approvals: {path: a.db, most: 26, keep_days: 27, webhook: {url: 'https://hooks.example.com/approvals', secret: '${SECRET}', attempts: 28}}
a2a: {max_payload_bytes: 23, max_json_depth: 24, max_array_length: 25}
telemetry: {otlp_endpoint: 'http://localhost:4318/', log_format: json}
auth: {tokens: [{agent: a, token: '${SECRET}'}, {agent: b, token: '${CSTP_TOKEN_CLAUDE}'}], operators: [b], roles: {finance: [a, b], duty: [a]}}
",
    )
    .unwrap();
    assert_eq!(settings.auth.operators, ["b"]);
    assert_eq!(settings.auth.roles_of("a"), ["duty", "finance"]);
    assert_eq!(settings.auth.roles_of("b"), ["finance", "admin"]);
    assert!(settings.auth.roles_of("c").is_empty());
    let approvals = &settings.approvals;
    assert_eq!(approvals.path.to_str(), Some("a.db"));
    assert_eq!((approvals.most, approvals.keep_days), (26, 27));
    assert_eq!(approvals.webhook.as_ref().unwrap().attempts, 28);
    assert_eq!(settings.a2a, Limits::new(23, 24, 25).unwrap());
    let alerts = &settings.alerts;
    assert!(alerts.deduplicate.is_zero());
    assert_eq!((alerts.per_minute, alerts.queue), (18, 19));
    let [stdout, tcp, unix, hook] = &alerts.sinks[..] else {
        panic!("four");
    };
    assert!(matches!(stdout.kind, AlertSinkKind::Stdout));
    let AlertSinkKind::Syslog(syslog) = &tcp.kind else {
        panic!("{tcp:?}");
    };
    assert_eq!(syslog.address.to_string(), "tcp://[::1]:601");
    assert_eq!(Some(syslog.facility), Facility::parse("local7"));
    assert_eq!((syslog.app_name.as_str(), tcp.attempts), ("gate", 20));
    let times = (tcp.retry.as_secs(), tcp.timeout.as_secs());
    assert_eq!(times, (21, 22));
    let AlertSinkKind::Syslog(syslog) = &unix.kind else {
        panic!("{unix:?}");
    };
    assert_eq!(syslog.address.to_string(), "unix:/dev/log");
    assert_eq!(Some(syslog.facility), Facility::parse("auth"));
    assert!(matches!(hook.kind, AlertSinkKind::Webhook { .. }));
    let server = &settings.server;
    assert_eq!((server.max_body_bytes, server.max_batch), (1, 2));
    assert_eq!((server.max_connections, server.max_requests), (3, 4));
    assert_eq!(server.read_timeout, Duration::from_millis(500));
    assert_eq!(server.shutdown_timeout, Duration::from_secs(6));
    assert_eq!(server.tls.as_ref().unwrap().key.to_str(), Some("k.pem"));
    let limits = &settings.rate_limits;
    assert_eq!(
        limits.default,
        Quota {
            per_minute: 8,
            burst: 9
        }
    );
    assert_eq!(
        limits.methods[&Method::ListGuardrails.into()],
        Quota {
            per_minute: 10,
            burst: 9
        }
    );
    assert_eq!(limits.methods[&Operation::A2aConvert].per_minute, 11);
    assert!(!limits.enabled && settings.policy.allow_none);
    assert_eq!(settings.policy.env.as_deref(), Some("dev"));
    assert_eq!(settings.policy.reload_interval, Duration::from_secs(7));
    assert_eq!(
        (
            settings.evidence.segment_bytes,
            settings.evidence.checkpoint_every
        ),
        (11, 12)
    );
    assert_eq!(
        settings.telemetry.otlp_endpoint.as_deref(),
        Some("http://localhost:4318")
    );
    let callbacks = &settings.callbacks;
    assert_eq!((callbacks.queue, callbacks.targets.len()), (13, 3));
    let [hook, peer, open] = &callbacks.targets[..] else {
        panic!("three");
    };
    assert_eq!(hook.url.as_str(), "https://hooks.example.com/x?y=z");
    assert!(matches!(hook.kind, CallbackKind::Webhook { .. }));
    assert_eq!((hook.when, hook.attempts), (CallbackWhen::Blocked, 15));
    let times = (hook.timeout, hook.retry);
    assert_eq!(times, (Duration::from_secs(14), Duration::from_millis(500)));
    assert!(matches!(peer.kind, CallbackKind::Peer { token: Some(_) }));
    assert!(matches!(open.kind, CallbackKind::Peer { token: None }));
    assert_eq!((open.when, open.attempts), (CallbackWhen::All, 5));
    assert_eq!(settings.memory.path.to_str(), Some("m.db"));
    let EmbedderSettings::Http(model) = &settings.memory.embedder else {
        panic!("{:?}", settings.memory.embedder);
    };
    assert_eq!(model.base_url, "https://api.example.com/v1");
    assert_eq!((model.model.as_str(), model.dimension), ("m", Some(16)));
    assert_eq!(model.api_key.as_deref(), Some(SECRET));
    assert_eq!(model.timeout, Duration::from_secs(17));
    let shown = format!("{settings:?}");
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn a_memory_finds_by_the_model_that_is_named() {
    let embedder = |text: &str| load(text).unwrap().memory.embedder;
    for text in ["", "memory: {}\n", "memory: {embedder: built-in}\n"] {
        assert!(
            matches!(embedder(text), EmbedderSettings::BuiltIn),
            "{text:?}"
        );
    }
    let folder = embedder("memory: {embedder: {folder: models/minilm}}\n");
    assert_eq!(folder.to_string(), "models/minilm");
    let open = embedder("memory: {embedder: {url: 'http://localhost:11434/v1', model: m}}\n");
    let EmbedderSettings::Http(model) = &open else {
        panic!("{open:?}");
    };
    assert_eq!((&model.api_key, model.dimension), (&None, None));
    assert_eq!(model.timeout, Duration::from_secs(10));
    assert_eq!(open.to_string(), "m of http://localhost:11434/v1");
}

fn with_tokens(tokens: &str) -> String {
    format!("auth:\n  tokens:\n{tokens}")
}

fn with_embedder(embedder: &str) -> String {
    format!("memory:\n  embedder: {embedder}\n")
}

fn with_target(target: &str) -> String {
    format!("callbacks:\n  targets:\n    - {target}\n")
}

fn with_sink(sink: &str) -> String {
    format!("alerts:\n  sinks:\n    - {sink}\n")
}

/// Files that are wrong, each in its own way.
fn wrong() -> Vec<(&'static str, String)> {
    let file = |text: &str| text.to_owned();
    vec![
        (
            "an unset variable",
            F001.replace("CSTP_TOKEN_CLAUDE", "CSTP_TOKEN_CLAUDIA"),
        ),
        (
            "a variable that is not closed",
            F001.replace("CLAUDE}", "CLAUDE"),
        ),
        ("an unknown section", format!("{F001}limits: {{}}\n")),
        (
            "an unknown key",
            F001.replace("cors_origins", "cors_orgins"),
        ),
        (
            "a wrong type",
            F001.replace("enabled: true", "enabled: \"yes\""),
        ),
        ("a section of a wrong type", file("server: 8100\n")),
        (
            "an empty token",
            with_tokens("    - {agent: a, token: \"\"}\n"),
        ),
        (
            "an empty token from a variable",
            with_tokens("    - {agent: a, token: \"${EMPTY}\"}\n"),
        ),
        (
            "a short token",
            with_tokens(&format!("    - agent: a\n      token: {SHORT_SECRET}\n")),
        ),
        (
            "a short token from a variable",
            with_tokens("    - {agent: a, token: \"${SHORT}\"}\n"),
        ),
        (
            "a shared token",
            with_tokens(&format!(
                "    - {{agent: a, token: {SECRET}}}\n    - {{agent: b, token: {SECRET}}}\n"
            )),
        ),
        (
            "a token of nobody",
            with_tokens(&format!("    - token: {SECRET}\n")),
        ),
        (
            "a token with blanks",
            with_tokens(&format!(
                "    - {{agent: a, token: \"{SECRET} {SECRET}\"}}\n"
            )),
        ),
        ("no tokens", file("auth: {tokens: []}\n")),
        ("a bad port", file("server: {port: 65536}\n")),
        ("a port that is text", file("server: {port: \"8100\"}\n")),
        ("a bad host", file("server: {host: example.com}\n")),
        (
            "a bad origin",
            file("server: {cors_origins: [console.example.com]}\n"),
        ),
        ("a bad url", file("agent: {url: agent.example.com}\n")),
        (
            "an unknown method",
            file("rate_limits: {methods: {cstp.checkGuardrail: {per_minute: 1}}}\n"),
        ),
        (
            "a limit of nothing",
            file("rate_limits: {default: {per_minute: 0}}\n"),
        ),
        (
            "a time of nothing",
            file("server: {read_timeout_seconds: 0}\n"),
        ),
        (
            "a durability that is none",
            file("evidence: {durability: maybe}\n"),
        ),
        (
            "half a certificate",
            file("server: {tls: {certificate: c.pem}}\n"),
        ),
        (
            "a key that comes twice",
            file("server:\n  port: 1\n  port: 2\n"),
        ),
        ("broken YAML", file("server:\n  port: [1\nagent: x\n")),
        ("a list", file("- server\n")),
        (
            "a target that is no address",
            with_target("{url: hooks.example.com, secret: \"${SECRET}\"}"),
        ),
        (
            "a target of another scheme",
            with_target("{url: \"file:///etc/passwd\", secret: \"${SECRET}\"}"),
        ),
        (
            "a target with a password",
            with_target(&format!(
                "url: https://me:{SECRET}@hooks.example.com\n      secret: ${{SECRET}}"
            )),
        ),
        (
            "a peer with a query",
            with_target("{url: \"https://peer.example.com?x=y\", kind: peer}"),
        ),
        (
            "a target without an address",
            with_target("secret: ${SECRET}"),
        ),
        (
            "a webhook without a secret",
            with_target("url: https://hooks.example.com/intents"),
        ),
        (
            "a webhook with a short secret",
            with_target(&format!(
                "url: https://hooks.example.com/intents\n      secret: {SHORT_SECRET}"
            )),
        ),
        (
            "a webhook with an unset variable",
            with_target("url: https://hooks.example.com/intents\n      secret: ${HOOK_SECRET}"),
        ),
        (
            "a webhook with a token",
            with_target(&format!(
                "url: https://hooks.example.com/intents\n      secret: ${{SECRET}}\n      token: {SECRET}"
            )),
        ),
        (
            "a peer with a secret",
            with_target(&format!(
                "url: https://peer.example.com\n      kind: peer\n      secret: {SECRET}"
            )),
        ),
        (
            "a kind that is none",
            with_target("url: https://peer.example.com\n      kind: pear\n      token: ${SECRET}"),
        ),
        (
            "an unknown key of a target",
            with_target(
                "url: https://hooks.example.com\n      secret: ${SECRET}\n      timeout: 5",
            ),
        ),
        (
            "a target that is tried never",
            with_target(
                "url: https://hooks.example.com\n      secret: ${SECRET}\n      attempts: 0",
            ),
        ),
        (
            "an unknown key of the memory",
            file("memory: {file: memory.db}\n"),
        ),
        ("a path that is no text", file("memory: {path: 5}\n")),
        ("a model that is none", with_embedder("word2vec")),
        ("no model", with_embedder("{}")),
        (
            "a model in two places",
            with_embedder("{folder: models/minilm, url: \"https://api.example.com/v1\", model: m}"),
        ),
        (
            "a model behind no address",
            with_embedder(&format!("{{url: {SECRET}, model: m}}")),
        ),
        (
            "a model behind a variable that is not set",
            with_embedder("{url: \"${MODEL_URL}\", model: m}"),
        ),
        (
            "a model behind an address with a password",
            with_embedder(&format!(
                "{{url: \"https://me:{SECRET}@api.example.com\", model: m}}"
            )),
        ),
        (
            "a service without its model",
            with_embedder(&format!(
                "{{url: \"https://api.example.com/v1\", api_key: {SECRET}}}"
            )),
        ),
        (
            "a key for a model that is not set",
            MEMORY.replace("CSTP_TOKEN_EMERSON", "EMBEDDINGS_KEY"),
        ),
        (
            "an empty key for a model",
            MEMORY.replace("CSTP_TOKEN_EMERSON", "EMPTY"),
        ),
        (
            "a key for a model, misspelt",
            with_embedder(&format!(
                "{{url: \"https://api.example.com/v1\", model: m, apikey: {SECRET}}}"
            )),
        ),
        (
            "a key for a folder",
            with_embedder(&format!("{{folder: models/minilm, api_key: {SECRET}}}")),
        ),
        (
            "vectors of nothing",
            with_embedder("{url: \"https://api.example.com/v1\", model: m, dimension: 0}"),
        ),
        ("a sink of no kind", with_sink("{url: https://x}")),
        ("a sink of an unknown kind", with_sink("{kind: sislog}")),
        ("a sink that is text", with_sink("stdout")),
        ("a syslog receiver nowhere", with_sink("{kind: syslog}")),
        (
            "a syslog receiver somewhere odd",
            with_sink("{kind: syslog, address: \"http://log.example.com\"}"),
        ),
        (
            "a syslog socket that is not absolute",
            with_sink("{kind: syslog, address: \"unix:log\"}"),
        ),
        (
            "an unknown facility and a bad name",
            with_sink(
                "kind: syslog\n      address: udp://127.0.0.1\n      facility: local8\n      app_name: my gate",
            ),
        ),
        (
            "a webhook for alerts without a secret",
            with_sink("{kind: webhook, url: \"https://hooks.example.com\"}"),
        ),
        (
            "a webhook for alerts with a short secret and no address",
            with_sink(&format!(
                "kind: webhook\n      url: hooks.example.com\n      secret: {SHORT_SECRET}"
            )),
        ),
        (
            "standard output with an address",
            with_sink("{kind: stdout, url: \"https://hooks.example.com\"}"),
        ),
        (
            "alerts that are never sent",
            file("alerts:\n  per_minute: 0\n  deduplicate_seconds: 100000\n"),
        ),
        (
            "an operator without a token",
            with_tokens("    - {agent: a, token: \"${SECRET}\"}\n  operators: [a, b]\n"),
        ),
        (
            "operators without authentication",
            file("auth: {enabled: false, operators: [a]}\n"),
        ),
        (
            "a role of somebody without a token, and one that nobody has",
            with_tokens(
                "    - {agent: a, token: \"${SECRET}\"}\n  roles: {finance: [a, b], duty: []}\n",
            ),
        ),
        (
            "roles that are no lists",
            with_tokens("    - {agent: a, token: \"${SECRET}\"}\n  roles: {finance: a}\n"),
        ),
        (
            "roles without authentication",
            file("auth: {enabled: false, roles: {finance: [a]}}\n"),
        ),
        (
            "a webhook for approvals without a secret",
            file("approvals:\n  webhook: {url: \"https://S3CR3T.example.com/S3CR3T\"}\n"),
        ),
        (
            "approvals that cannot be kept",
            file("approvals: {most: 0, keep: 5, webhook: [1]}\n"),
        ),
        (
            "packets that are too deep",
            file("a2a:\n  max_array_length: 5\n  max_json_depth: 101\n"),
        ),
        ("packets of no bytes", file("a2a: {max_payload_bytes: 0}\n")),
        ("an unknown key of packets", file("a2a: {max_depth: 10}\n")),
        (
            "several mistakes at once",
            file("server: {prot: 1}\nagent: {name: \"\"}\ntelemetry: {log_format: xml}\n"),
        ),
    ]
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let mut all = String::new();
    for (name, text) in wrong() {
        let report = load(&text).expect_err(name);
        assert!(report.contains("server.yaml:"), "{name}: {report}");
        assert!(!report.contains("S3CR3T"), "{name}: {report}");
        let _ = writeln!(all, "== {name}\n{report}");
    }
    insta::assert_snapshot!(all);
}

/// Ways to write a token down, right or wrong: none of them brings it into a report.
#[test]
fn no_way_of_writing_a_token_brings_it_into_a_report() {
    let wrong_elsewhere = "server: {prot: 1}\n";
    for secret in [SECRET, SHORT_SECRET] {
        for text in [
            format!("auth:\n  tokens:\n    - agent: a\n      token: {secret}\n      x: 1\n"),
            format!(
                "auth:\n  tokens:\n    - agent: a\n      token: '{secret}' # mine\n      token: {secret}\n"
            ),
            format!("auth:\n  tokens:\n    - agent: a\n      token:\n        {secret}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      token: |\n        {secret}\n"),
            format!(
                "auth:\n  tokens:\n    - agent: a\n      token: >-\n        {secret}\n        {secret}\n"
            ),
            format!("auth:\n  tokens:\n    - agent: a\n      token : {secret}\n      x: 1\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      ? token\n      : {secret}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      'token': {secret}\n      x: 1\n"),
            format!(
                "{{\"auth\": {{\"tokens\": [{{\"agent\": \"a\", \"token\": \"{secret}\", \"x\": 1}}]}}}}"
            ),
            format!(
                "{{\"auth\": {{\"tokens\": [{{\"agent\": \"a\", \"token\":\n\"{secret}\", \"x\": 1}}]}}}}"
            ),
            format!("auth:\n  tokens:\n    - agent: a\n      tokn: {secret}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      Token: {secret}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      token: {secret}${{NONE}}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      token: {secret} ${{SECRET}}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      token: [{secret}]\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      token: {{{secret}: 1}}\n"),
            format!("auth:\n  tokens:\n    - {secret}\n"),
            format!("auth:\n  tokens:\n    a: {secret}\n"),
            format!("auth:\n  tokens: {secret}\n"),
            format!("auth:\n  token: {secret}\n"),
            format!("auth: {secret}\n"),
            format!(
                "auth:\n  tokens:\n    - agent: a\n      token: &t {secret}\n    - agent: b\n      token: *t\n"
            ),
            format!("auth:\n  tokens:\n    - agent: a\n      token: \"{secret}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n      token: [{secret}\n"),
            format!("auth:\n  tokens:\n    - agent: a\n\ttoken: {secret}\n"),
            format!(
                "auth:\r\n  tokens:\r\n    - agent: a\r\n      token:\r\n        {secret}\r\n      x: 1\r\n"
            ),
            format!("auth:\n  tokens:\n    - agent: a\n      token: !!int {secret}\n"),
            format!("callbacks:\n  targets:\n    - url: x\n      secret: {secret}\n"),
            format!(
                "callbacks:\n  targets:\n    - url: https://{secret}@x\n      secrt: {secret}\n"
            ),
            format!("callbacks:\n  targets:\n    - url: {secret}\n"),
            format!("callbacks:\n  targets:\n    - {secret}\n"),
            format!("callbacks: {secret}\n"),
            format!(
                "alerts:\n  sinks:\n    - kind: webhook\n      url: x\n      secret: {secret}\n"
            ),
            format!("alerts:\n  sinks:\n    - kind: webhook\n      url: https://{secret}@x\n"),
            format!("alert:\n  sinks:\n    - {{kind: {secret}}}\n"),
            format!("alerts: {secret}\n"),
            format!("callback:\n  targets:\n    - url: x\n      Secret: {secret}\n"),
            format!("memory:\n  embedder:\n    url: x\n    api_key: {secret}\n    x: 1\n"),
            format!("memory:\n  embedder:\n    url: x\n    api_key:\n      {secret}\n    x: 1\n"),
            format!("memory:\n  embedder:\n    url: x\n    apikey: |\n      {secret}\n"),
            format!("memory:\n  embedder:\n    url: https://x/v1?key={secret}\n    model: m\n"),
            format!("memory:\n  embedder:\n    url: {secret}\n    model: [{secret}]\n"),
            format!(
                "memory:\n  embedder:\n    url: https://x\n    model: m\n    api_key: [{secret}]\n"
            ),
            format!("memory:\n  embedder:\n    folder: f\n    API_KEY: {secret}\n"),
            format!("memory: {{embeder: {{api_key: {secret}}}}}\n"),
            format!("memory:\n  embedder: {secret}\n"),
            format!("memory:\n  api_key: {secret}\n"),
            format!("{{\"memory\": {{\"embedder\": {{\"api_key\":\n\"{secret}\", \"x\": 1}}}}}}"),
        ] {
            for text in [text.clone(), format!("{wrong_elsewhere}{text}")] {
                let Err(report) = load(&text) else { continue };
                assert!(!report.contains(secret), "{text}\n{report}");
            }
        }
    }
}

proptest! {
    /// Any text is settings or a report that can be read.
    #[test]
    fn loading_is_total(text in "(\\PC|[\\n\\t:{}\\[\\]\"'$&*#-]){0,200}") {
        if let Err(report) = load(&text) {
            prop_assert!(!report.is_empty());
        }
    }

    /// However the file around it is damaged, a token does not get into a report.
    #[test]
    fn a_token_never_gets_into_a_report(
        secret in "Z[a-zA-Z0-9_-]{11,30}Z",
        removed in 0_usize..400,
        length in 0_usize..8,
        junk in "[\\n :{}\\[\\]\"'#&*|>x-]{0,4}",
        file in proptest::sample::select(vec![F001, CALLBACKS, ALERTS, MEMORY]),
    ) {
        let mut text: Vec<char> = file.replace("${CSTP_TOKEN_EMERSON}", &secret).chars().collect();
        let at = removed.min(text.len());
        let end = (at + length).min(text.len());
        text.splice(at..end, junk.chars());
        let text: String = text.into_iter().collect();
        // What is no longer there as a whole cannot be told from other text.
        prop_assume!(text.contains(&secret));
        if let Err(report) = load(&text) {
            prop_assert!(!report.contains(&secret), "{}\n{}", text, report);
        }
    }
}

//! Rules that run a classifier in the process that hosts them: our own, one from Hugging Face, one that you trained.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};
use serde_json::{Map, Value, json};

use super::super::{RuleError, RuleInput};
use super::endpoint::at_most;
use super::reading::{Found, read_threshold};
use super::{DeepSettings, DeepSpec, Reply, Template, VariableText};
use crate::classifier::{Channel, Scores, SoughtLabels};
use crate::decision::{Action, Decision, RedactionSpec, RuleCost, Severity};
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::{Event, EventType, Structured};
use crate::ids::RuleId;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::{MapReader, Node, Yaml};
use crate::scan::EventSet;
use crate::snapshot::{ToolRiskTier, TrustBoundary};

/// The settings of a rule that runs a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelRule {
    /// Which model.
    pub model: Model,
    /// The labels that count. With none: all but those that are known for harmless text.
    pub labels: Vec<String>,
    /// From which score on. With none: what the model's file says, or 0.5.
    pub threshold: Option<f64>,
    /// What the model is given, where it is not simply the event's texts.
    pub input: Option<Template>,
    /// How long a verdict may take, the wait for a thread included.
    pub timeout_ms: usize,
    /// How many texts are judged at the same time.
    pub threads: usize,
    /// How many events may wait.
    pub queue: usize,
    /// What follows.
    pub reply: Reply,
}

/// A model that runs in our own process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Ours, inside the binary.
    BuiltIn,
    /// A sequence classifier of Hugging Face's shape.
    HuggingFace {
        /// Where `config.json`, `tokenizer.json` and `model.safetensors` are.
        folder: VariableText,
        /// Whether the text is preceded by what is known of the run (RFC-001 §8.1).
        context: bool,
    },
    /// What `portcullis classifier train` has written.
    Trained {
        /// Where.
        file: VariableText,
        /// The folder of the embedding model that it was trained with, where that is not the built-in one.
        embedder: Option<VariableText>,
    },
}

const BUILT_IN: &str = " Judges prompts and tool results by our own classifier, which is inside the binary.

 It tells RFC-001's five intents (`jb_override`, `exfil_prompt`, `tool_escalation`, `indirect_injection`,
 `social_engineering`) from harmless text, and knows whether a text comes from the user or from a tool. Under a
 millisecond for 512 characters on one core, and some ten milliseconds more for each stretch of some 700 characters that
 looks suspicious and is looked at again by an encoder, which one of what a tool returns always is: give the `risk_router` a `min_wait_ms` in which your longest texts are
 judged (300 for 50,000 characters of which three or four stretches are suspicious; sixteen of them take most of a second),
 so that every step waits for it. [The model card](model-card.md) has its figures and its
 limits.

 Texts are judged in windows, and the worst of them counts; one in disguise (fancy letters, signs or tags between its words,
 escapes, Base64) is also judged as a person reads it, one that repeats itself also without that, and JSON without its escapes. Of a text of more than 256 KiB the beginning is judged, and of what looks suspicious the sixteen worst
 windows are looked at again. If nothing is found there, or the queue is full,
 or `timeout_ms` is over, the event was not judged: with `async.fail_open: false` that is a STOP, otherwise what the
 risk router wants of rules that do not answer.

 ## Configuration

 - `threshold`: the score from which on a text is an attack. Default: the model's own.
 - `labels`: the intents that count. Default: all five.
 - `threads`: how many texts are judged at the same time. Default: `1`.
 - `queue`: how many events may wait; more are turned away. Default: `64`.
 - `timeout_ms`: how long a verdict may take. Default: `1000`.
 - `action`: `stop` (default), `pause`, `retry`, `redact` (the whole text) or `allow` (with `effects`).
 - `severity`, `effects`, `reason`, `user_message`, `corrective_message`, `max_attempts`, `prompt`,
   `approver_roles`, `scope`, `timeout_s`, `on_timeout`, `remediation`: as for `expression`.

 ## Example

 ```yaml
 risk_router:
   min_wait_ms: 300
   suspicious_rules: [portcullis-classifier]
 async_rules:
   - id: portcullis-classifier
     config:
       severity: high
       effects: [flag_trajectory, increment_strike]
 ```
";

const HUGGING_FACE: &str = " Judges prompts by a jailbreak classifier that you bring.

 With a `folder`, the classifier runs in this process: DeBERTa-v2 and v3, BERT and ModernBERT, such as
 protectai/deberta-v3-base-prompt-injection-v2. Nothing is downloaded: put `config.json`, `tokenizer.json` and
 `model.safetensors` there. Without a `folder`, somebody registers a deep rule of this name, and until then the rule
 counts as unavailable; its settings are theirs.

 The name is RFC-001's, and the risk router insists on it for text that asks for the system prompt or to
 lift restrictions. Texts of fewer than ten characters are not judged. Long ones are judged in overlapping windows of
 512 tokens, eight at most; if nothing is found there and there is more, the event was not judged.

 ## Configuration

 - `folder`: where the model is. `${NAME}` stands for a variable of the process.
 - `model_name`: for people. With `folder`, nothing depends on it.
 - `threshold`: the score from which on a text is an attack. Default: `0.85`.
 - `labels`: the model's labels that count. Default: all but those that are known for harmless text, such as `SAFE`.
 - `context`: whether what is known of the run precedes the text, as `[HIGH_RISK_TOOLS_AVAILABLE]`,
   `[REQUESTS_SYSTEM_INFO]` and `[PRIOR_VIOLATIONS:2]`. Default: `true`, as RFC-001 has it.
 - `device`: `-1`, the CPU. There is no other.
 - `timeout_ms`: how long a verdict may take. Default: `10000`, since a large model takes seconds for a long text.
 - `threads`, `queue`, `action`, and what goes with it: as for `portcullis-classifier`.

 ## Example

 ```yaml
 async_rules:
   - id: hf-jailbreak
     config:
       folder: /models/deberta-v3-base-prompt-injection-v2
       threshold: 0.85
       severity: critical
       effects: [flag_trajectory, increment_strike, emit_alert]
 ```
";

const TRAINED: &str = " Judges prompts by a classifier that you have trained with `portcullis classifier train`.

 A few dozen labelled examples are enough: see [the guide](classifiers.md). Give the `risk_router` a `min_wait_ms`: of a
 RETRY that comes late only the effects are left.

 ## Configuration

 - `file`: what the training wrote. Required. `${NAME}` stands for a variable of the process.
 - `embedder`: the folder of the embedding model that it was trained with, where that is not the built-in one.
 - `labels`: the labels that count. Default: the one that the training was told to look for.
 - `threshold`: the score from which on a text counts. Default: the one that the training chose.
 - `input`: what the classifier is given: a text with placeholders, as in `request` of `http-classifier`.
   Default: the event's texts. It must be what the examples look like, with all their sections. A line of the event's
   that looks like the name of a section is moved in by a space, so that it begins none.
 - `threads`, `queue`, `timeout_ms`, `action`, and what goes with it: as for `portcullis-classifier`.

 ## Example

 ```yaml
 risk_router:
   min_wait_ms: 100
   suspicious_rules: []
 async_rules:
   - id: scope
     rule: custom-classifier
     config:
       file: scope.json
       labels: [out_of_scope]
       input: \"[USER] {text}\\n[LAST_ASSISTANT] {last_assistant}\\n[TASK_SCOPE] metrics\\n[AVAILABLE_TOOLS] {available_tools}\"
       action: retry
       corrective_message: Say kindly that this is not what you are for, and ask what they want to know of their metrics.
 ```
";

/// Of a prompt that is shorter, RFC-001 says nothing.
const SHORTEST_TEXT: usize = 10;

impl ModelRule {
    const TIMEOUT_MS: usize = 1000;
    const SLOW_TIMEOUT_MS: usize = 10_000;
    const LONGEST_TIMEOUT_MS: usize = 60_000;
    const MOST_THREADS: usize = 256;
    const QUEUE: usize = 64;
    const LONGEST_QUEUE: usize = 65_536;

    pub(super) const BUILT_IN: DeepSpec = DeepSpec {
        id: "portcullis-classifier",
        version: "1.0.0",
        cost: RuleCost::Deep,
        events: || EventSet::from_iter([EventType::LlmBefore, EventType::ToolCallResult]),
        doc: BUILT_IN,
        read: |config, d| Self::read(Model::BuiltIn, None, None, config, d),
    };

    pub(super) const HUGGING_FACE: DeepSpec = DeepSpec {
        id: "hf-jailbreak",
        version: "1.0.0",
        cost: RuleCost::Deep,
        events: || EventSet::from_iter([EventType::LlmBefore]),
        doc: HUGGING_FACE,
        read: Self::read_hugging_face,
    };

    pub(super) const TRAINED: DeepSpec = DeepSpec {
        id: "custom-classifier",
        version: "1.0.0",
        cost: RuleCost::Deep,
        events: || EventSet::from_iter([EventType::LlmBefore]),
        doc: TRAINED,
        read: |config, d| {
            let file = config.require("file", d);
            let file = file.and_then(|node| VariableText::read(node, "file", d));
            let embedder = config.get("embedder");
            let embedder = embedder.and_then(|node| VariableText::read(node, "embedder", d));
            let input = config.get("input");
            let input = input.and_then(|node| read_input(node, d));
            // What else is wrong is said even if there is no file.
            let file = file.or_else(|| {
                let _ = Self::read(Model::BuiltIn, None, None, config, d);
                None
            })?;
            Self::read(Model::Trained { file, embedder }, None, input, config, d)
        },
    };

    /// The kind of rule that these are settings of.
    pub(super) fn spec(&self) -> &'static DeepSpec {
        match self.model {
            Model::BuiltIn => &Self::BUILT_IN,
            Model::HuggingFace { .. } => &Self::HUGGING_FACE,
            Model::Trained { .. } => &Self::TRAINED,
        }
    }

    fn read_hugging_face(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<DeepSettings> {
        const THRESHOLD: f64 = 0.85;
        let Some(folder) = config.get("folder") else {
            let members = config.prefixed("");
            let settings = members.map(|(key, _, node)| (key.name.clone(), node.to_json()));
            return Some(DeepSettings::Other(settings.collect()));
        };
        let folder = VariableText::read(folder, "folder", d);
        let context = config.boolean("context", d).unwrap_or(true);
        config.text("model_name", d);
        if let Some(device) = config.get("device")
            && device.yaml != Yaml::Int(-1)
        {
            d.error(device.place, "`device` must be -1: models run on the CPU")
                .help("leave it out; for a GPU, put the model behind a service and use `http-classifier`");
        }
        let model = Model::HuggingFace {
            folder: folder?,
            context,
        };
        Self::read(model, Some(THRESHOLD), None, config, d)
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "every kind of rule is read by a function like this"
    )]
    fn read(
        model: Model,
        threshold: Option<f64>,
        input: Option<Template>,
        config: &mut MapReader<'_>,
        d: &mut Diagnostics,
    ) -> Option<DeepSettings> {
        let timeout_ms = at_most(config, "timeout_ms", Self::LONGEST_TIMEOUT_MS, d);
        let threads = at_most(config, "threads", Self::MOST_THREADS, d);
        let queue = at_most(config, "queue", Self::LONGEST_QUEUE, d);
        Some(DeepSettings::Model(Box::new(Self {
            labels: config.texts("labels", d).unwrap_or_default(),
            threshold: read_threshold(config, "threshold", d).or(threshold),
            input,
            timeout_ms: timeout_ms.unwrap_or(match model {
                Model::HuggingFace { .. } => Self::SLOW_TIMEOUT_MS,
                Model::BuiltIn | Model::Trained { .. } => Self::TIMEOUT_MS,
            }),
            threads: threads.unwrap_or(1),
            queue: queue.unwrap_or(Self::QUEUE),
            reply: Reply::read(config, Action::Stop, d),
            model,
        })))
    }

    /// How bad its findings are.
    pub fn severity(&self) -> Severity {
        self.reply.severity
    }

    /// The parts of an event that it judges.
    pub fn reads(&self, event: &Event) -> Parts {
        if let Some(input) = &self.input {
            return input.sent(event);
        }
        let mut parts = Parts::default();
        if self.is_worth_judging(event.text()) {
            parts = parts.and(Parts::TEXT);
        }
        parts.and(match event.structured() {
            Some(Structured::ToolArgs(_)) => Parts::TOOL_ARGS,
            Some(Structured::Result(_)) => Parts::RESULT,
            None => Parts::default(),
        })
    }

    /// What the model is given of an event; nothing if there is nothing to judge.
    pub fn texts(&self, input: &RuleInput<'_>) -> Vec<(String, Channel)> {
        let event = input.event;
        let channel = match input.snapshot.primary_source {
            TrustBoundary::System | TrustBoundary::User => Channel::User,
            TrustBoundary::Rag | TrustBoundary::Web | TrustBoundary::ToolOutput => Channel::Tool,
        };
        if let Some(template) = &self.input {
            let text = template.fill_text(input);
            return text.into_iter().map(|text| (text, channel)).collect();
        }
        let mut texts = Vec::new();
        if self.is_worth_judging(event.text()) {
            texts.push((format!("{}{}", self.known(input), event.text()), channel));
        }
        // As it stands: a model has seen results of tools as JSON, and what is harmless field by field may not be.
        match event.structured() {
            Some(Structured::ToolArgs(args)) if !args.is_empty() => {
                texts.push((as_read(args), channel));
            }
            Some(Structured::Result(Value::String(text))) => texts.push((text.clone(), channel)),
            Some(Structured::Result(value)) => texts.push((as_read(value), channel)),
            _ => {}
        }
        texts
    }

    fn is_worth_judging(&self, text: &str) -> bool {
        match self.model {
            Model::HuggingFace { .. } => text.chars().nth(SHORTEST_TEXT - 1).is_some(),
            Model::BuiltIn | Model::Trained { .. } => !text.trim().is_empty(),
        }
    }

    /// RFC-001 §8.1's context, in front of the text.
    fn known(&self, input: &RuleInput<'_>) -> String {
        let snapshot = input.snapshot;
        if !matches!(self.model, Model::HuggingFace { context: true, .. }) {
            return String::new();
        }
        let mut known = String::new();
        if snapshot.max_tool_risk >= ToolRiskTier::High {
            known.push_str("[HIGH_RISK_TOOLS_AVAILABLE] ");
        }
        if snapshot.requests_system_info {
            known.push_str("[REQUESTS_SYSTEM_INFO] ");
        }
        if snapshot.previous_violations > 0 {
            let _ = write!(
                known,
                "[PRIOR_VIOLATIONS:{}] ",
                snapshot.previous_violations
            );
        }
        known
    }

    /// What the scores of its texts mean for the event. An error if nothing was found and not all was read.
    pub fn judge(
        &self,
        id: &RuleId,
        input: &RuleInput<'_>,
        verdict: &ModelVerdict<'_>,
    ) -> Result<Option<Decision>, RuleError> {
        let ModelVerdict {
            model,
            labels,
            sought,
            threshold,
            scores,
        } = *verdict;
        let worst = scores.iter().map(|one| (sought.score(one), one));
        let worst = worst.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let Some((score, worst)) = worst.filter(|(score, _)| *score >= threshold) else {
            if scores.iter().all(|one| one.complete) {
                return Ok(None);
            }
            return Err(RuleError(
                "only a part of the text was judged, and nothing was found there: it is longer than the model \
                 reads, or has too many suspicious places".to_owned(),
            ));
        };
        let label = labels.get(sought.likeliest(worst));
        let label = label.map(String::as_str).unwrap_or_default();
        let mut result = Map::new();
        result.insert("model".to_owned(), json!(model));
        result.insert("label".to_owned(), json!(label));
        result.insert("score".to_owned(), json!(score));
        result.insert("threshold".to_owned(), json!(threshold));
        if let Some(intent) = self.intent(label) {
            result.insert("intent".to_owned(), json!(intent));
        }
        let found = Found {
            reason: format!("The classifier says {label}, with a score of {score:.3}"),
            score: Some(f64::from(score)),
            result,
            redactions: self.redactions(input.event),
        };
        let mut decision = self.reply.decide(id, found);
        if let Some(stop) = &mut decision.stop
            && !matches!(self.model, Model::Trained { .. })
        {
            stop.error_code = ErrorCode::JailbreakMlDetected;
        }
        Ok(Some(decision))
    }

    /// RFC-001's name for what was found, where there is one.
    fn intent<'l>(&self, label: &'l str) -> Option<&'l str> {
        match self.model {
            Model::BuiltIn => Some(label),
            Model::HuggingFace { .. } => Some("jb_override"),
            Model::Trained { .. } => None,
        }
    }

    /// Everything that was judged, names of members included: a score is not for a place in it.
    fn redactions(&self, event: &Event) -> Vec<RedactionSpec> {
        if self.reply.action != Action::Redact {
            return Vec::new();
        }
        let mut paths = Vec::new();
        if !event.text().is_empty() {
            paths.push(RedactionSpec::TEXT.to_owned());
        }
        match event.structured() {
            Some(Structured::Result(_)) => paths.push(String::new()),
            Some(Structured::ToolArgs(args)) => {
                let pointer = |name: &String| {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    format!("/{name}")
                };
                paths.extend(args.keys().map(pointer));
            }
            None => {}
        }
        paths.into_iter().map(RedactionSpec::whole).collect()
    }
}

/// What a model has said of an event's texts.
#[derive(Debug, Clone, Copy)]
pub struct ModelVerdict<'v> {
    /// The model's name.
    pub model: &'v str,
    /// Its labels.
    pub labels: &'v [String],
    /// Those that count.
    pub sought: &'v SoughtLabels,
    /// From which score on.
    pub threshold: f32,
    /// One for each text.
    pub scores: &'v [Scores],
}

/// As JSON, but for escapes: nobody reads a text with them, so a line's end or a tab in it would be a disguise.
fn as_read(value: &impl Serialize) -> String {
    let mut json = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut json, Unescaped);
    // It is JSON already, so that nothing in it can fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8_lossy(&json).into_owned()
}

struct Unescaped;

impl Formatter for Unescaped {
    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        writer.write_all(&[match escape {
            CharEscape::Quote => b'"',
            CharEscape::ReverseSolidus => b'\\',
            CharEscape::Solidus => b'/',
            CharEscape::Backspace => 0x08,
            CharEscape::FormFeed => 0x0c,
            CharEscape::LineFeed => b'\n',
            CharEscape::CarriageReturn => b'\r',
            CharEscape::Tab => b'\t',
            CharEscape::AsciiControl(byte) => byte,
        }])
    }
}

/// `input`: one text, with something of the event in it.
fn read_input(node: &Node, d: &mut Diagnostics) -> Option<Template> {
    if !matches!(node.yaml, Yaml::Text(_)) {
        d.error(node.place, "`input` must be a text with placeholders")
            .help("write it as \"[USER] {text}\"");
        return None;
    }
    let template = Template::read(node, "input", d)?;
    if !template.has_content() {
        d.error(
            node.place,
            "`input` has nothing of the event that could be judged",
        )
        .help("put `{text}`, `{tool_args}`, `{result}` or `{event}` in it");
        return None;
    }
    Some(template)
}

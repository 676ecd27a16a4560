use serde::Serialize;
use serde_json::Value;

use super::super::{RuleError, RuleInput, documented};
use super::{DeepSettings, DeepSpec, Endpoint, ExternalRule, Reading, Reply, Template};
use super::{bounded, parse};
use crate::decision::{Action, Decision, RuleCost, Severity};
use crate::evaluation::Parts;
use crate::event::{Event, EventType};
use crate::ids::RuleId;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
use crate::scan::EventSet;

documented! {
    /// Asks any service that takes JSON and answers in JSON.
    ///
    /// The event goes out as `POST`, in the shape that `request` gives it; `response` says where in the
    /// answer the finding is. Redirects are not followed, an answer has at most 1 MiB, and the environment's
    /// proxies are not used. A status other than 2xx, an answer that is not JSON, or one in which something
    /// that `response` names is missing or of another kind, is a failed rule: `gateway.async.fail_open` says
    /// what that means. So is an answer that takes longer than `timeout_ms`. No error repeats a header or
    /// anything that was sent or answered.
    ///
    /// An event that has nothing of what `request` sends, such as one without text for `"{text}"`, is not
    /// sent, and the rule has nothing to say. What `request` does not name is not sent: a rule that is to
    /// judge structured results of tools needs `{result}` or `{event}`.
    ///
    /// ## Configuration
    ///
    /// - `url`: where to ask. Required.
    /// - `headers`: sent with each request.
    /// - `timeout_ms`: how long an answer may take, the wait for a place included. Default: `1000`.
    /// - `max_concurrent`: how many requests may be under way at once; more wait for a place.
    ///   Default: `16`.
    /// - `max_text_bytes`: the most that the texts of one request may measure. A longer one fails the rule:
    ///   nothing is ever cut off. Default: none besides the policy's own limit.
    /// - `ca`: a file of certificates to trust, in PEM form, besides the system's.
    /// - `proxy`: the URL of a proxy to go through.
    /// - `request`: what is sent, JSON with placeholders. Default: `{text: "{text}"}`.
    /// - `response`: what counts in the answer, by JSON Pointer. One of
    ///   - `score` with `threshold` (default `0.5`): a number from 0 to 1 that is at least the threshold.
    ///   - `flagged`: a boolean that is true.
    ///   - `spans`: a list of places in the text, as `{at, start, end, type, score, offsets}`. `at` points to
    ///     the list, the others are names in each item (`start` and `end` by default; `type` and `score` if
    ///     there are any). `offsets` count `code_points` (default), `bytes` or `utf16`.
    ///   - `label` with `labels` on its own.
    ///
    ///   `label` says where a label is, and `labels` which of them, or which types of spans, count.
    /// - `action`: `stop` (default), `pause`, `retry`, `redact` (the spans) or `allow` (with `effects`: the
    ///   step happens, and is flagged).
    /// - `severity`, `effects`, `reason`, `user_message`, `corrective_message`, `max_attempts`, `prompt`,
    ///   `approver_roles`, `scope`, `timeout_s`, `on_timeout`, `remediation`: as for `expression`.
    ///
    /// In `url`, `headers`, `ca` and `proxy`, `${NAME}` stands for a variable of the process that runs the
    /// rule. Its value is neither in the pack nor in the policy's digest, and is not printed.
    ///
    /// A text of `request` that is a placeholder and nothing else becomes the value, whatever its type; among
    /// other text it is written out. `{{` and `}}` are braces.
    ///
    /// | placeholder | |
    /// |---|---|
    /// | `{text}` | `text_content` |
    /// | `{tool_name}`, `{tool_args}` | of a tool's call or answer |
    /// | `{result}` | `payload.result`, the structured answer of a tool |
    /// | `{event_type}`, `{run_id}` | |
    /// | `{event}` | all of the event |
    /// | `{snapshot}` | RFC-001's context snapshot |
    /// | `{available_tools}` | the names of the tools that the agent could use |
    /// | `{last_assistant}`, `{task_scope}` | these fields of the context, where it has them |
    ///
    /// ## Example
    ///
    /// ```yaml
    /// async_rules:
    ///   - id: toxicity
    ///     rule: http-classifier
    ///     events: [llm_before, tool_call_result]
    ///     config:
    ///       url: https://classifier.example.com/v1/score
    ///       headers: {Authorization: "Bearer ${TOXICITY_TOKEN}"}
    ///       timeout_ms: 150
    ///       request: {inputs: "{text} {result}", tool: "{tool_name}"}
    ///       response:
    ///         score: /0/score
    ///         label: /0/label
    ///         labels: [TOXIC]
    ///         threshold: 0.85
    ///       severity: high
    ///       effects: [flag_trajectory]
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct HttpClassifier {
        /// Where to ask.
        pub endpoint: Endpoint,
        /// What.
        pub request: Template,
        /// What the answer means.
        pub response: Reading,
        /// What follows from it.
        pub reply: Reply,
    }
}

impl HttpClassifier {
    pub(super) const SPEC: DeepSpec = DeepSpec {
        id: "http-classifier",
        version: "1.0.0",
        cost: RuleCost::Deep,
        events: || EventSet::from_iter([EventType::LlmBefore, EventType::ToolCallResult]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<DeepSettings> {
        let endpoint = Endpoint::read(config, d);
        let request = match config.get("request") {
            Some(node) => Template::read(node, "request", d),
            None => Some(Template::text()),
        };
        let response = config.require("response", d);
        let response = response.and_then(|node| Reading::read(node, d));
        let reply = Reply::read(config, Action::Stop, d);
        let (request, response) = (request?, response?);
        let place = |config: &mut MapReader<'_>, key: &'static str| {
            config.get(key).map(|node| node.place).unwrap_or_default()
        };
        if response.has_spans() && !request.sends_text() {
            let place = place(config, "request");
            d.error(
                place,
                "`spans` are places in the text, which `request` does not send as it is",
            )
            .help("send a \"{text}\" on its own");
        }
        if reply.action == Action::Redact && !response.has_spans() {
            let place = place(config, "action");
            d.error(place, "`action: redact` needs to know what to redact")
                .help("give `spans` in `response`, or use another action");
        }
        Some(DeepSettings::HttpClassifier(Box::new(Self {
            endpoint: endpoint?,
            request,
            response,
            reply,
        })))
    }
}

impl ExternalRule for HttpClassifier {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn severity(&self) -> Severity {
        self.reply.severity
    }

    fn question(&self, input: &RuleInput<'_>) -> Result<Option<Value>, RuleError> {
        let question = self.request.fill(input);
        question.map(|one| bounded(one, &self.endpoint)).transpose()
    }

    fn reads(&self, event: &Event) -> Parts {
        self.request.sent(event)
    }

    fn judge(
        &self,
        id: &RuleId,
        input: &RuleInput<'_>,
        answer: &[u8],
    ) -> Result<Option<Decision>, RuleError> {
        let found = self.response.judge(&parse(answer)?, input.event.text())?;
        Ok(found.map(|found| self.reply.decide(id, found)))
    }
}

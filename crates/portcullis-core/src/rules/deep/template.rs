use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::super::RuleInput;
use crate::evaluation::Parts;
use crate::event::Event;
use crate::pack::diagnostic::{Diagnostics, Place, suggestion};
use crate::pack::yaml::{Node, Yaml};

/// What is asked about an event: JSON with placeholders in its texts.
#[derive(Debug, Clone)]
pub struct Template {
    /// As it was written.
    source: Value,
    body: Body,
    used: Vec<Placeholder>,
    /// Whether some text is `{text}` and nothing else.
    sends_text: bool,
}

/// Something of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// `text_content`
    Text,
    /// `tool_name`
    ToolName,
    /// `tool_args`
    ToolArgs,
    /// `payload.result`
    Result,
    /// `event_type`
    EventType,
    /// `run_id`
    RunId,
    /// The whole event.
    Event,
    /// RFC-001's context snapshot.
    Snapshot,
    /// The names of the tools that the agent could use.
    AvailableTools,
    /// The context's `last_assistant`: what the agent said before.
    LastAssistant,
    /// The context's `task_scope`: what the agent is for.
    TaskScope,
}

#[derive(Debug, Clone)]
enum Body {
    Fixed(Value),
    /// The value itself, whatever it is.
    Whole(Placeholder),
    /// Texts one after the other.
    Joined(Vec<Piece>),
    List(Vec<Body>),
    Map(Vec<(String, Body)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Value(Placeholder),
}

impl Placeholder {
    /// All of them, with their names.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("text", Self::Text),
        ("tool_name", Self::ToolName),
        ("tool_args", Self::ToolArgs),
        ("result", Self::Result),
        ("event_type", Self::EventType),
        ("run_id", Self::RunId),
        ("event", Self::Event),
        ("snapshot", Self::Snapshot),
        ("available_tools", Self::AvailableTools),
        ("last_assistant", Self::LastAssistant),
        ("task_scope", Self::TaskScope),
    ];

    /// Whether it is what a service judges, and not only what it should know besides.
    fn is_content(self) -> bool {
        matches!(
            self,
            Self::Text | Self::ToolArgs | Self::Result | Self::Event
        )
    }

    fn value(self, input: &RuleInput<'_>) -> Value {
        let RuleInput {
            event,
            context,
            snapshot,
        } = input;
        let known = |name: &str| context.extra.get(name).cloned().unwrap_or_default();
        match self {
            Self::Text => event.text().into(),
            Self::ToolName => event.tool_name.clone().into(),
            Self::ToolArgs => event.tool_args.clone().into(),
            Self::Result => event.payload.get("result").cloned().unwrap_or_default(),
            Self::EventType => event.event_type.as_str().into(),
            Self::RunId => event.run_id.clone().into(),
            Self::Event => serde_json::to_value(event).unwrap_or_default(),
            Self::Snapshot => serde_json::to_value(snapshot.to_wire()).unwrap_or_default(),
            Self::AvailableTools => {
                let names: Vec<_> = snapshot.available_tools.iter().map(|tool| tool.0).collect();
                names.join(", ").into()
            }
            Self::LastAssistant => known("last_assistant"),
            Self::TaskScope => known("task_scope"),
        }
    }

    /// Whether the event has none of it.
    fn is_absent(self, event: &Event) -> bool {
        match self {
            Self::Text => event.text().is_empty(),
            Self::ToolName => event.tool_name.as_ref().is_none_or(String::is_empty),
            Self::ToolArgs => event.tool_args.as_ref().is_none_or(Map::is_empty),
            Self::Result => event.payload.get("result").is_none_or(Value::is_null),
            Self::EventType
            | Self::RunId
            | Self::Event
            | Self::Snapshot
            | Self::AvailableTools
            | Self::LastAssistant
            | Self::TaskScope => false,
        }
    }

    /// The parts of an event that it stands for.
    fn parts(self) -> Parts {
        match self {
            // The snapshot has the user's text, and of the rest only what sort of event it is.
            Self::Text | Self::Snapshot => Parts::TEXT,
            Self::ToolName => Parts::TOOL_NAME,
            Self::ToolArgs => Parts::TOOL_ARGS,
            Self::Result => Parts::RESULT,
            Self::Event => Parts::ALL,
            Self::EventType
            | Self::RunId
            | Self::AvailableTools
            | Self::LastAssistant
            | Self::TaskScope => Parts::default(),
        }
    }
}

impl Template {
    /// `{"text": "{text}"}`
    pub fn text() -> Self {
        Self {
            source: serde_json::json!({"text": "{text}"}),
            body: Body::Map(vec![("text".to_owned(), Body::Whole(Placeholder::Text))]),
            used: vec![Placeholder::Text],
            sends_text: true,
        }
    }

    /// A pack's setting `key`. Every problem is reported where it stands.
    pub(super) fn read(node: &Node, key: &str, d: &mut Diagnostics) -> Option<Self> {
        let mut reader = Reader {
            used: Vec::new(),
            sends_text: false,
            wrong: false,
            d,
        };
        let body = reader.body(node);
        let Reader {
            used,
            sends_text,
            wrong,
            d,
        } = reader;
        if wrong {
            return None;
        }
        if used.is_empty() {
            d.error(node.place, format!("`{key}` has nothing of the event"))
                .help("put a placeholder in it, such as \"{text}\"");
            return None;
        }
        Some(Self {
            source: node.to_json(),
            body,
            used,
            sends_text,
        })
    }

    /// Whether `{text}` is sent as it is, so that offsets into it mean something.
    pub fn sends_text(&self) -> bool {
        self.sends_text
    }

    /// What to send about an event; `None` if it has nothing of what the template is about.
    pub fn fill(&self, input: &RuleInput<'_>) -> Option<Value> {
        self.is_about(input.event).then(|| self.body.fill(input))
    }

    /// The same as one text. A line of the event's that looks like the beginning of a section, such as `[USER]`, is moved
    /// in by a space: only the template's own are sections.
    pub fn fill_text(&self, input: &RuleInput<'_>) -> Option<String> {
        let body = self.is_about(input.event).then_some(&self.body)?;
        let value = |placeholder: &Placeholder| match placeholder.value(input) {
            Value::Null => String::new(),
            Value::String(text) => without_sections(&text),
            value => without_sections(&value.to_string()),
        };
        Some(match body {
            Body::Whole(placeholder) => value(placeholder),
            Body::Joined(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(fixed) => fixed.clone(),
                    Piece::Value(placeholder) => value(placeholder),
                })
                .collect(),
            other => match other.fill(input) {
                Value::String(text) => text,
                value => value.to_string(),
            },
        })
    }

    /// Whether it has something of what is judged, and not only of what should be known besides.
    pub(super) fn has_content(&self) -> bool {
        self.used.iter().any(|one| one.is_content())
    }

    /// Whether a structured result goes out.
    pub fn sends_result(&self) -> bool {
        let has_result = |one: &Placeholder| one.parts().has(Parts::RESULT);
        self.used.iter().any(has_result)
    }

    /// The parts of an event that go out; none if nothing does.
    pub fn sent(&self, event: &Event) -> Parts {
        if !self.is_about(event) {
            return Parts::default();
        }
        let used = self.used.iter().map(|one| one.parts());
        let used = used.fold(Parts::default(), Parts::and);
        used.among(Parts::of(event))
    }

    fn is_about(&self, event: &Event) -> bool {
        let about = |only_content: bool| {
            let used = self.used.iter();
            used.filter(move |one| !only_content || one.is_content())
        };
        let has_content = about(true).next().is_some();
        !about(has_content).all(|one| one.is_absent(event))
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl Body {
    fn fill(&self, input: &RuleInput<'_>) -> Value {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Whole(placeholder) => placeholder.value(input),
            Self::Joined(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(fixed) => text.push_str(fixed),
                        Piece::Value(placeholder) => match placeholder.value(input) {
                            Value::Null => {}
                            Value::String(value) => text.push_str(&value),
                            value => text.push_str(&value.to_string()),
                        },
                    }
                }
                Value::String(text)
            }
            Self::List(items) => items.iter().map(|item| item.fill(input)).collect(),
            Self::Map(members) => members
                .iter()
                .map(|(name, body)| (name.clone(), body.fill(input)))
                .collect(),
        }
    }
}

struct Reader<'d> {
    used: Vec<Placeholder>,
    sends_text: bool,
    wrong: bool,
    d: &'d mut Diagnostics,
}

impl Reader<'_> {
    fn body(&mut self, node: &Node) -> Body {
        match &node.yaml {
            Yaml::Text(text) => self.text(text, node.place),
            Yaml::List(items) => Body::List(items.iter().map(|item| self.body(item)).collect()),
            Yaml::Map(entries) => Body::Map(
                entries
                    .iter()
                    .map(|(key, value)| (key.name.clone(), self.body(value)))
                    .collect(),
            ),
            _ => Body::Fixed(node.to_json()),
        }
    }

    fn text(&mut self, text: &str, place: Place) -> Body {
        let pieces = match pieces(text) {
            Ok(pieces) => pieces,
            Err(Problem { message, help }) => {
                self.wrong = true;
                self.d.error(place, message).help(help);
                Vec::new()
            }
        };
        for piece in &pieces {
            if let Piece::Value(placeholder) = piece
                && !self.used.contains(placeholder)
            {
                self.used.push(*placeholder);
            }
        }
        match pieces.as_slice() {
            [Piece::Value(placeholder)] => {
                self.sends_text |= *placeholder == Placeholder::Text;
                Body::Whole(*placeholder)
            }
            [] => Body::Fixed(Value::String(String::new())),
            [Piece::Text(text)] => Body::Fixed(Value::String(text.clone())),
            _ => Body::Joined(pieces),
        }
    }
}

/// With a space before every bracket at the start of a line that begins a word in capitals.
fn without_sections(text: &str) -> String {
    let begins = |line: &str| {
        let name = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        name.is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_part))
    };
    let lines = text.split_inclusive('\n');
    lines.fold(String::with_capacity(text.len()), |mut moved, line| {
        if begins(line) {
            moved.push(' ');
        }
        moved.push_str(line);
        moved
    })
}

#[derive(Debug, PartialEq)]
struct Problem {
    message: String,
    help: String,
}

/// What a text is made of. `{{` and `}}` are braces.
fn pieces(text: &str) -> Result<Vec<Piece>, Problem> {
    const ESCAPE: &str = "write `{{` and `}}` for braces";
    let mut pieces = Vec::new();
    let mut fixed = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        fixed.push_str(before);
        if let Some(after) = brace.strip_prefix("{{") {
            fixed.push('{');
            rest = after;
        } else if let Some(after) = brace.strip_prefix("}}") {
            fixed.push('}');
            rest = after;
        } else if let Some((name, after)) = brace
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'))
        {
            let names = Placeholder::NAMES;
            let Some((_, placeholder)) = names.iter().find(|(known, _)| *known == name) else {
                return Err(unknown(name, before.ends_with('$')));
            };
            if !fixed.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut fixed)));
            }
            pieces.push(Piece::Value(*placeholder));
            rest = after;
        } else {
            let brace = brace.chars().next().unwrap_or('{');
            return Err(Problem {
                message: format!("a `{brace}` without its other half"),
                help: ESCAPE.to_owned(),
            });
        }
    }
    fixed.push_str(rest);
    if !fixed.is_empty() {
        pieces.push(Piece::Text(fixed));
    }
    Ok(pieces)
}

fn unknown(name: &str, is_variable: bool) -> Problem {
    if is_variable {
        return Problem {
            message: format!("`${{{name}}}` is not filled in here"),
            help: "variables go into `url`, `headers`, `ca` and `proxy`".to_owned(),
        };
    }
    let valid = Placeholder::NAMES.iter().map(|(known, _)| *known);
    Problem {
        message: format!("unknown placeholder `{{{name}}}`"),
        help: suggestion(name, valid),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::event::{Context, EventType};
    use crate::pack::yaml;
    use crate::snapshot::{ContextSnapshot, Signals, ToolRisks};

    fn read(text: &str) -> Result<Template, Diagnostics> {
        let mut d = Diagnostics::default();
        let node = yaml::parse(text, &mut d).unwrap();
        Template::read(&node, "request", &mut d).ok_or(d)
    }

    fn fill(template: &Template, event: &Event) -> Option<Value> {
        let (context, risks) = (Context::new("r"), ToolRisks::default());
        let snapshot = ContextSnapshot::build(event, &context, &risks, Signals::default());
        template.fill(&RuleInput {
            event,
            context: &context,
            snapshot: &snapshot,
        })
    }

    #[test]
    fn placeholders_are_values_alone_and_text_among_text() {
        let template = read(
            r#"{a: "{text}", b: ["{tool_name}", 1, null], c: "{{{tool_name}}}: {tool_args}!",
                d: "{result}", e: "{event_type}/{run_id}", f: "{snapshot}", g: "{event}"}"#,
        )
        .unwrap();
        let args = json!({"x": [1, "y"]});
        let mut event =
            Event::tool_call_start("r", "send", args.as_object().cloned().unwrap_or_default());
        event.payload.insert("result".to_owned(), json!([null]));
        let filled = fill(&template, &event).unwrap();
        assert_eq!(filled["a"], "");
        assert_eq!(filled["b"], json!(["send", 1, null]));
        assert_eq!(filled["c"], r#"{send}: {"x":[1,"y"]}!"#);
        assert_eq!(filled["d"], json!([null]));
        assert_eq!(filled["e"], "tool_call_start/r");
        assert_eq!(filled["f"]["current_tool"], "send");
        assert_eq!(filled["g"]["tool_args"], args);
    }

    #[test]
    fn an_event_without_what_is_judged_is_not_sent() {
        let prompt = Event::llm_before("r", "hello");
        let silent = Event::llm_before("r", "");
        let call = Event::tool_call_start("r", "send", Map::new());
        for (request, event, sent) in [
            ("{a: '{text}'}", &prompt, true),
            ("{a: '{text}'}", &silent, false),
            ("{a: '{text}', b: '{snapshot}'}", &silent, false),
            ("{a: '{text} by {tool_name}'}", &call, false),
            ("{a: '{tool_name}'}", &call, true),
            ("{a: '{tool_name}'}", &prompt, false),
            ("{a: '{text}', b: '{event}'}", &silent, true),
        ] {
            let template = read(request).unwrap();
            assert_eq!(fill(&template, event).is_some(), sent, "{request}");
        }
    }

    #[test]
    fn what_is_sent_is_what_is_there_of_what_is_asked_about() {
        let none = Parts::default();
        let mut answer = Event::llm_before("r", "hello");
        answer.event_type = EventType::ToolCallResult;
        answer.tool_name = Some("send".to_owned());
        answer.payload.insert("result".to_owned(), json!({"a": 1}));
        let prompt = Event::llm_before("r", "hello");
        let silent = Event::llm_before("r", "");
        for (request, event, sent) in [
            ("{a: '{text}'}", &answer, Parts::TEXT),
            ("{a: 'on {text} of {run_id}'}", &answer, Parts::TEXT),
            ("{a: '{result}'}", &answer, Parts::RESULT),
            ("{a: '{result}'}", &prompt, none),
            ("{a: '{text}', b: '{tool_name}'}", &silent, none),
            (
                "{a: '{text}', b: '{tool_name}'}",
                &answer,
                Parts::TEXT.and(Parts::TOOL_NAME),
            ),
            ("{a: '{tool_args}', b: '{text}'}", &prompt, Parts::TEXT),
            ("{a: '{event}'}", &answer, Parts::of(&answer)),
            ("{a: '{snapshot}'}", &answer, Parts::TEXT),
            ("{a: '{run_id}'}", &answer, none),
        ] {
            let template = read(request).unwrap();
            assert_eq!(template.sent(event), sent, "{request}");
        }
        assert!(Parts::of(&answer).has(Parts::RESULT));
    }

    #[test]
    fn only_a_text_on_its_own_can_be_pointed_into() {
        assert!(Template::text().sends_text());
        assert!(read("['{text}', 'to {text}']").unwrap().sends_text());
        assert!(!read("['to {text}']").unwrap().sends_text());
        assert!(!read("['{event}']").unwrap().sends_text());
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_a_problem(text in "[a{}$é ]{0,16}|(\\{|\\}|text|result|x){0,8}") {
            match pieces(&text) {
                // Written back, it reads the same.
                Ok(read) => {
                    let names = Placeholder::NAMES;
                    let written: String = read.iter().map(|piece| match piece {
                        Piece::Text(text) => text.replace('{', "{{").replace('}', "}}"),
                        Piece::Value(one) => {
                            let (name, _) = names.iter().find(|(_, known)| known == one).unwrap();
                            format!("{{{name}}}")
                        }
                    }).collect();
                    prop_assert_eq!(pieces(&written), Ok(read));
                }
                Err(problem) => prop_assert!(!problem.help.is_empty()),
            }
        }

        #[test]
        fn filling_is_total(text: String, tool: Option<String>, result in "\\PC{0,8}") {
            let mut event = Event::llm_before("r", text.clone());
            event.tool_name = tool;
            event.payload.insert("result".to_owned(), json!({"a": result}));
            let template = read(r#"{a: "{text}", b: "<{text}|{tool_name}|{result}>", c: "{event}"}"#).unwrap();
            let filled = fill(&template, &event).unwrap();
            prop_assert_eq!(&filled["a"], &json!(text));
        }
    }
}

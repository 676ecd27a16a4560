//! What an agent proposes to do, checked before any guardrail sees it.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::pack::diagnostic::suggestion;

/// The longest description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// The longest category, project, scope, agent id or agent address, in bytes.
pub const MAX_NAME_BYTES: usize = 1 << 10;

/// The longest `correlationId`, in characters.
pub const MAX_CORRELATION_CHARS: usize = 128;

/// The longest `context` text of an intent, in bytes.
pub const MAX_CONTEXT_TEXT_BYTES: usize = 64 << 10;

/// Members of an action that a key of its context may not stand in for: a caller must not talk its
/// stakes down.
const OWN: &[&str] = &["description", "category", "stakes", "confidence"];

/// A field of a request that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {error}")]
pub struct FieldError {
    /// Its path, such as `action.confidence`.
    pub field: String,
    /// What is wrong with it.
    pub error: String,
}

impl FieldError {
    fn new(field: impl Into<String>, error: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            error: error.into(),
        }
    }
}

/// How much is at stake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stakes {
    /// Little.
    Low,
    /// What nobody thought worth a word.
    #[default]
    Medium,
    /// Much.
    High,
    /// Everything.
    Critical,
}

impl Stakes {
    /// All, from the least.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Stakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Stakes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|stakes| stakes.as_str() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str);
            let nearest = match crate::pack::diagnostic::nearest(text, names) {
                Some(name) => format!(": did you mean `{name}`?"),
                None => String::new(),
            };
            let text = shown(text);
            format!("`{text}` is not one of {}{nearest}", names.join(", "))
        })
    }
}

/// Who proposes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Who it is, as far as somebody has checked: `agent.id` of an expression.
    pub id: Option<String>,
    /// Who it says it is: the request's `agent.id`, and `agent.claimed` of an expression.
    pub claimed: Option<String>,
    /// Where it says it lives.
    pub url: Option<String>,
}

/// What an agent proposes to do. Whatever stands in one is within bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposedAction {
    description: String,
    category: Option<String>,
    stakes: Stakes,
    confidence: Option<f64>,
    context: Map<String, Value>,
    project: Option<String>,
    scope: Option<String>,
    agent: Agent,
}

impl ProposedAction {
    /// An action of medium stakes of which nothing else is known.
    pub fn new(description: impl Into<String>) -> Result<Self, FieldError> {
        Self::described(description.into(), "action.description")
    }

    fn described(description: String, field: &str) -> Result<Self, FieldError> {
        if description.trim().is_empty() {
            return Err(FieldError::new(field, "must say what is to be done"));
        }
        at_most(field, &description, MAX_DESCRIPTION_BYTES)?;
        Ok(Self {
            description,
            category: None,
            stakes: Stakes::default(),
            confidence: None,
            context: Map::new(),
            project: None,
            scope: None,
            agent: Agent::default(),
        })
    }

    /// Reads the `params` of `cstp.checkGuardrails`.
    pub fn from_params(params: &Map<String, Value>) -> Result<Self, FieldError> {
        let mut params = Fields::new(params, "");
        let action = params.object("action")?;
        let agent = read_agent(params.object("agent")?)?;
        params.finish()?;
        let Some(action) = action else {
            return Err(FieldError::new("action", "is missing"));
        };
        let mut action = Fields::new(action, "action.");
        let mut read = Self::described(action.required_text("description")?, "action.description")?;
        read.rest(&mut action, "context")?;
        read.project = action.name("project")?.or(read.project);
        read.scope = action.name("scope")?.or(read.scope);
        action.finish()?;
        read.agent = agent;
        Ok(read)
    }

    /// Reads the `params` of `cstp.announceIntent`.
    pub fn from_intent(params: &Map<String, Value>) -> Result<Intent, FieldError> {
        let mut fields = Fields::new(params, "");
        let intent = fields.required_text("intent")?;
        let mut action = Self::described(intent, "intent")?;
        let context = fields.text("context")?.map(str::to_owned);
        action.rest(&mut fields, "metadata")?;
        action.agent = read_agent(fields.object("agent")?)?;
        let correlation_id = fields.text("correlationId")?.filter(|id| !id.is_empty());
        let correlation_id = correlation_id.map(str::to_owned);
        fields.finish()?;
        if let Some(text) = &context {
            at_most("context", text, MAX_CONTEXT_TEXT_BYTES)?;
        }
        if let Some(id) = &correlation_id
            && id.chars().nth(MAX_CORRELATION_CHARS).is_some()
        {
            return Err(FieldError::new(
                "correlationId",
                format!("is longer than {MAX_CORRELATION_CHARS} characters"),
            ));
        }
        Ok(Intent {
            action,
            correlation_id,
            context,
        })
    }

    /// The members that both methods have under the same names.
    fn rest(&mut self, fields: &mut Fields<'_>, context: &'static str) -> Result<(), FieldError> {
        self.category = fields.name("category")?;
        if let Some(stakes) = fields.text("stakes")? {
            let stakes = stakes.parse();
            self.stakes = stakes.map_err(|error| FieldError::new(fields.path("stakes"), error))?;
        }
        if let Some(confidence) = fields.number("confidence")? {
            self.confidence = Some(probability(confidence, fields.path("confidence"))?);
        }
        let members = fields.object(context)?.cloned().unwrap_or_default();
        self.take_context(members, &fields.path(context))
    }

    /// With a category.
    pub fn with_category(mut self, category: impl Into<String>) -> Result<Self, FieldError> {
        let category = category.into();
        at_most("action.category", &category, MAX_NAME_BYTES)?;
        self.category = Some(category);
        Ok(self)
    }

    /// With other stakes.
    pub fn with_stakes(mut self, stakes: Stakes) -> Self {
        self.stakes = stakes;
        self
    }

    /// With how sure the agent is, from 0 to 1.
    pub fn with_confidence(mut self, confidence: f64) -> Result<Self, FieldError> {
        self.confidence = Some(probability(confidence, "action.confidence".to_owned())?);
        Ok(self)
    }

    /// With what else is known.
    pub fn with_context(mut self, context: Map<String, Value>) -> Result<Self, FieldError> {
        self.take_context(context, "action.context")?;
        Ok(self)
    }

    /// As part of a project.
    pub fn in_project(mut self, project: impl Into<String>) -> Result<Self, FieldError> {
        let project = project.into();
        at_most("action.project", &project, MAX_NAME_BYTES)?;
        self.project = Some(project);
        Ok(self)
    }

    /// Of an agent that somebody has checked to be this one.
    pub fn authenticated_as(mut self, agent: impl Into<String>) -> Self {
        self.agent.id = Some(agent.into());
        self
    }

    /// Takes the context. A `project` or `scope` in it is the action's own unless that says
    /// otherwise: older callers send everything there.
    fn take_context(&mut self, context: Map<String, Value>, path: &str) -> Result<(), FieldError> {
        if let Some(key) = OWN.iter().find(|key| context.contains_key(**key)) {
            return Err(FieldError::new(
                format!("{path}.{key}"),
                format!("would stand in for the action's own `{key}`: leave it out of the context"),
            ));
        }
        let text = |key| match context.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        self.project = self.project.take().or_else(|| text("project"));
        self.scope = self.scope.take().or_else(|| text("scope"));
        self.context = context;
        Ok(())
    }

    /// What is to be done.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The kind of decision.
    pub fn category(&self) -> Option<&str> {
        self.category.as_deref()
    }

    /// How much is at stake.
    pub fn stakes(&self) -> Stakes {
        self.stakes
    }

    /// How sure the agent is, from 0 to 1.
    pub fn confidence(&self) -> Option<f64> {
        self.confidence
    }

    /// What else is known.
    pub fn context(&self) -> &Map<String, Value> {
        &self.context
    }

    /// The project it is part of.
    pub fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// The scope it is part of.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Who proposes it.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }
}

/// What an agent announces that it is going to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// What guardrails judge: the intent's text is its description, the metadata its context.
    pub action: ProposedAction,
    /// What the agent calls it; an empty one is none.
    pub correlation_id: Option<String>,
    /// What else the agent says, for people and for the search.
    pub context: Option<String>,
}

fn read_agent(agent: Option<&Map<String, Value>>) -> Result<Agent, FieldError> {
    let Some(agent) = agent else {
        return Ok(Agent::default());
    };
    // Further members are welcome: agents describe themselves in many ways, and none of it is
    // believed.
    let mut fields = Fields::new(agent, "agent.");
    Ok(Agent {
        id: None,
        claimed: fields.name("id")?,
        url: fields.name("url")?,
    })
}

fn probability(value: f64, field: String) -> Result<f64, FieldError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(FieldError::new(
        field,
        format!("must be from 0 to 1, and is {value}"),
    ))
}

fn at_most(field: &str, text: &str, bytes: usize) -> Result<(), FieldError> {
    if text.len() <= bytes {
        return Ok(());
    }
    let error = format!("is {} bytes long, over {bytes}", text.len());
    Err(FieldError::new(field, error))
}

/// Reads an object member by member; a `null` is as good as nothing.
struct Fields<'p> {
    members: &'p Map<String, Value>,
    prefix: &'static str,
    asked: Vec<&'static str>,
}

impl<'p> Fields<'p> {
    fn new(members: &'p Map<String, Value>, prefix: &'static str) -> Self {
        Self {
            members,
            prefix,
            asked: Vec::new(),
        }
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn get(&mut self, key: &'static str) -> Option<&'p Value> {
        self.asked.push(key);
        self.members.get(key).filter(|value| !value.is_null())
    }

    fn text(&mut self, key: &'static str) -> Result<Option<&'p str>, FieldError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "text", other)),
        }
    }

    fn required_text(&mut self, key: &'static str) -> Result<String, FieldError> {
        let text = self.text(key)?;
        text.map(str::to_owned)
            .ok_or_else(|| FieldError::new(self.path(key), "is missing"))
    }

    /// A short text.
    fn name(&mut self, key: &'static str) -> Result<Option<String>, FieldError> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        at_most(&self.path(key), text, MAX_NAME_BYTES)?;
        Ok(Some(text.to_owned()))
    }

    fn number(&mut self, key: &'static str) -> Result<Option<f64>, FieldError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(key, "a number", value)),
            },
        }
    }

    fn object(&mut self, key: &'static str) -> Result<Option<&'p Map<String, Value>>, FieldError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(other) => Err(self.wrong(key, "an object", other)),
        }
    }

    fn wrong(&self, key: &str, wanted: &str, found: &Value) -> FieldError {
        let error = format!("expected {wanted}, found {}", kind(found));
        FieldError::new(self.path(key), error)
    }

    /// Refuses what nobody asked for: a misspelt `confidence` must not pass for none.
    fn finish(self) -> Result<(), FieldError> {
        let unknown = self
            .members
            .keys()
            .find(|key| !self.asked.contains(&key.as_str()));
        match unknown {
            None => Ok(()),
            Some(key) => {
                let advice = suggestion(key, self.asked.iter().copied());
                let error = format!("is not a known field: {advice}");
                Err(FieldError::new(self.path(&shown(key)), error))
            }
        }
    }
}

/// What kind of JSON it is.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A caller's text as an error may repeat it.
fn shown(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_control());
    visible.take(64).collect()
}

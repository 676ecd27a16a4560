//! What an agent proposes to do, checked before any guardrail sees it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fields::{FieldError, Fields, at_most, one_of, probability};
use crate::memory::Precedents;

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

/// How much is at stake.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
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
        one_of(text, &Self::ALL, Self::as_str)
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
    #[serde(skip)]
    precedents: Precedents,
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
            precedents: Precedents::default(),
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
        self.stakes = fields.parsed("stakes", str::parse)?.unwrap_or_default();
        self.confidence = fields.probability("confidence")?;
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

    /// Like these decisions.
    pub fn with_precedents(mut self, precedents: Precedents) -> Self {
        self.precedents = precedents;
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

    /// What was decided in like cases: nothing, if nobody has looked.
    pub fn precedents(&self) -> &Precedents {
        &self.precedents
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

impl Intent {
    /// Announced by an agent that somebody has checked to be this one.
    pub fn announced_by(mut self, agent: impl Into<String>) -> Self {
        self.action = self.action.authenticated_as(agent);
        self
    }
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

//! Tools: what a model may call.

use std::marker::PhantomData;
use std::sync::Arc;

use portcullis_runtime::{BoxFuture, PermittedCall};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::chat::ToolDefinition;

/// Something that a model may call. It takes a call that was permitted, and no other kind exists.
pub trait Tool: Send + Sync {
    /// As the model sees it.
    fn definition(&self) -> ToolDefinition;

    /// Does it. An error goes back to the model, which may try again.
    fn call(&self, call: PermittedCall) -> BoxFuture<'_, Result<Value, ToolError>>;
}

/// Why a tool did not do it, for the model to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// Says what to do differently, if anything.
    pub message: String,
}

impl ToolError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// A tool made of an async function over a type of one's own. The model gets the type's JSON Schema, and what it sends
/// is read into the type before the function sees it.
///
/// ```
/// use portcullis_planner::{Tool, ToolError, TypedTool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Weather {
///     /// A city, in English.
///     city: String,
/// }
///
/// let weather = TypedTool::new("weather", "The weather in a city, now.", |args: Weather| async move {
///     Ok::<_, ToolError>(format!("It rains in {}.", args.city))
/// });
/// assert_eq!(weather.definition().parameters["required"][0], "city");
/// ```
pub struct TypedTool<A, F> {
    definition: ToolDefinition,
    run: F,
    arguments: PhantomData<fn(A)>,
}

impl<A, F> TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema,
{
    /// A tool of this name that does this.
    pub fn new(name: impl Into<String>, description: impl Into<String>, run: F) -> Self {
        Self {
            definition: ToolDefinition {
                name: name.into(),
                description: description.into(),
                parameters: schema_of::<A>(),
            },
            run,
            arguments: PhantomData,
        }
    }
}

impl<A, R, F, O> Tool for TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema,
    R: Serialize,
    F: Fn(A) -> O + Send + Sync,
    O: Future<Output = Result<R, ToolError>> + Send + 'static,
{
    fn definition(&self) -> ToolDefinition {
        self.definition.clone()
    }

    fn call(&self, call: PermittedCall) -> BoxFuture<'_, Result<Value, ToolError>> {
        let arguments = Value::Object(call.into_arguments());
        let running = serde_path_to_error::deserialize(arguments)
            .map(&self.run)
            .map_err(|error| {
                let path = error.path().to_string();
                let place = if path == "." { "" } else { &path };
                ToolError::new(format!("bad arguments: {place} {}", error.inner()))
            });
        Box::pin(async move {
            let result = running?.await?;
            serde_json::to_value(result)
                .map_err(|error| ToolError::new(format!("the result is no JSON: {error}")))
        })
    }
}

/// What a tool is called that there is not. What the model wrote in its place would be repeated unjudged.
pub(crate) const UNKNOWN_TOOL: &str = "unknown_tool";

/// Whether it can be a tool's name.
pub(crate) fn is_name(name: &str) -> bool {
    let in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:/".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(in_names)
}

/// The tools of a planner, in the order in which the model sees them.
#[derive(Clone, Default)]
pub(crate) struct Tools {
    pub(crate) definitions: Vec<ToolDefinition>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Tools {
    /// Says no if there is one of this name already.
    pub(crate) fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), String> {
        let definition = tool.definition();
        if definition.name.is_empty() {
            return Err("a tool has no name".to_owned());
        }
        if definition.name == UNKNOWN_TOOL {
            return Err(format!("`{UNKNOWN_TOOL}` means a tool that there is not"));
        }
        if self.get(&definition.name).is_some() {
            return Err(format!("two tools have the name `{}`", definition.name));
        }
        self.definitions.push(definition);
        self.tools.push(tool);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let place = self.definitions.iter().position(|tool| tool.name == name)?;
        self.tools.get(place)
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let definitions = self.definitions.iter();
        definitions.map(|tool| tool.name.as_str()).collect()
    }
}

/// What a provider needs of a type's schema: everything in one place, and no name that means nothing to a model.
fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("title");
    schema.to_value()
}

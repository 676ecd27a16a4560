use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde::Serialize;
use serde_json::Value;

use super::{
    Body, Compiled, InlineRule, RuleCompiler, RuleError, RuleSettings, RuleSpec, Subject,
    documented,
};
use crate::decision::{Decision, RetrySpec, RuleCost, Severity};
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place, suggestion};
use crate::pack::yaml::{MapReader, Node, Yaml};
use crate::redact::push_pointer;
use crate::scan::{self, EventSet};

documented! {
    /// Checks tool arguments against a JSON Schema per tool.
    ///
    /// Judges `tool_call_start`. Arguments that do not fit give RETRY with a corrective message
    /// that lists every problem by JSON Pointer, so that the model can mend the call. A tool
    /// without a schema is not judged. Severity medium.
    ///
    /// Schemas are draft 2020-12 unless `$schema` says otherwise. `$ref` reaches inside the schema
    /// only: nothing is fetched. `pattern` is Rust's `regex`, which has no look-around and takes
    /// linear time whatever the arguments.
    ///
    /// ## Configuration
    ///
    /// - `schemas`: a JSON Schema for each tool, by name. Required.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: schema-validation
    ///     config:
    ///       schemas:
    ///         send_email:
    ///           type: object
    ///           required: [to, subject]
    ///           properties:
    ///             to: {type: string, pattern: '@example\.com$'}
    /// ```
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct SchemaValidation {
        /// A schema for each tool.
        pub schemas: BTreeMap<String, Value>,
        /// Where each was configured, part by part: by tool, then by JSON Pointer.
        #[serde(skip)]
        pub places: BTreeMap<String, BTreeMap<String, Place>>,
    }
}

impl SchemaValidation {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "schema-validation",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolCallStart]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let node = config.require("schemas", d)?;
        let Yaml::Map(entries) = &node.yaml else {
            d.error(
                node.place,
                "`schemas` must map a tool's name to a JSON Schema",
            );
            return None;
        };
        let mut settings = Self::default();
        for (tool, schema) in entries {
            settings.schemas.insert(tool.name.clone(), schema.to_json());
            let mut places = BTreeMap::from([(String::new(), tool.place)]);
            note_places(schema, &mut String::new(), &mut places);
            settings.places.insert(tool.name.clone(), places);
        }
        Some(RuleSettings::SchemaValidation(settings))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let mut validators = BTreeMap::new();
        for (tool, schema) in &self.schemas {
            let built = jsonschema::options()
                .with_pattern_options(PatternOptions::regex())
                .build(schema);
            match built {
                Ok(validator) => {
                    validators.insert(tool.clone(), validator);
                }
                Err(error) => self.refuse(tool, &error, compiler.diagnostics),
            }
        }
        Compiled {
            events: compiler.events_or(Self::SPEC.events),
            reads: Parts::TOOL_NAME.and(Parts::TOOL_ARGS),
            body: Body::Inline(Box::new(CompiledSchemas {
                id: compiler.id.clone(),
                validators,
            })),
        }
    }
}

impl SchemaValidation {
    fn refuse(&self, tool: &str, error: &ValidationError<'_>, d: &mut Diagnostics) {
        let (why, help) = explain(error);
        let pointer = match error.kind() {
            ValidationErrorKind::Referencing(_) => self.reference(tool, &error.to_string()),
            _ => error.instance_path().to_string(),
        };
        let places = self.places.get(tool);
        let place = places.and_then(|places| places.get(&pointer).or_else(|| places.get("")));
        let at = if pointer.is_empty() {
            String::new()
        } else {
            format!(" at {pointer}")
        };
        let message = format!("the schema of `{tool}` is not usable{at}: {why}");
        d.error(place.copied().unwrap_or_default(), message).help = help;
    }

    /// The pointer to the reference that the error speaks of; it does not say where that is.
    fn reference(&self, tool: &str, error: &str) -> String {
        let schema = &self.schemas[tool];
        let places = self.places.get(tool).into_iter().flatten();
        places
            .map(|(pointer, _)| pointer)
            .filter(|pointer| pointer.ends_with("/$ref") || pointer.ends_with("/$schema"))
            .find(|pointer| {
                let target = schema.pointer(pointer).and_then(Value::as_str);
                target.is_some_and(|target| error.contains(target.trim_start_matches('#')))
            })
            .cloned()
            .unwrap_or_default()
    }
}

/// What is wrong with a schema, and what to do about it.
fn explain(error: &ValidationError<'_>) -> (String, Option<String>) {
    const TYPES: [&str; 7] = [
        "array", "boolean", "integer", "null", "number", "object", "string",
    ];
    let value: &Value = error.instance();
    match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => {
            let pattern = value.as_str().unwrap_or_default();
            let why = match scan::compile(pattern, 1 << 20) {
                Err(error) => error.to_string(),
                Ok(_) => "not a usable regular expression".to_owned(),
            };
            (format!("pattern `{pattern}`: {why}"), None)
        }
        ValidationErrorKind::AnyOf { .. }
            if error.instance_path().to_string().ends_with("/type") =>
        {
            let names = match value {
                Value::Array(names) => names.as_slice(),
                name => std::slice::from_ref(name),
            };
            let mut names = names.iter().filter_map(Value::as_str);
            let wrong = names.find(|name| !TYPES.contains(name)).unwrap_or_default();
            (
                format!("{value} is not a type or a list of types"),
                Some(suggestion(wrong, TYPES)),
            )
        }
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => (
            format!("`{uri}` is not part of it"),
            Some("nothing is fetched: copy it into `$defs`".to_owned()),
        ),
        ValidationErrorKind::Referencing(ReferencingError::UnknownSpecification {
            specification,
        }) => (
            format!("`{specification}` is not a draft of JSON Schema"),
            Some("leave it out, or name a published draft".to_owned()),
        ),
        _ => (error.to_string(), None),
    }
}

/// Notes where each value of a schema stands.
fn note_places(node: &Node, pointer: &mut String, places: &mut BTreeMap<String, Place>) {
    let length = pointer.len();
    let mut note = |name: &str, place: Place, node: &Node| {
        push_pointer(pointer, name);
        places.insert(pointer.clone(), place);
        note_places(node, pointer, places);
        pointer.truncate(length);
    };
    match &node.yaml {
        Yaml::Map(entries) => {
            for (key, value) in entries {
                note(&key.name, value.place, value);
            }
        }
        Yaml::List(items) => {
            for (index, item) in items.iter().enumerate() {
                note(&index.to_string(), item.place, item);
            }
        }
        _ => {}
    }
}

struct CompiledSchemas {
    id: RuleId,
    validators: BTreeMap<String, Validator>,
}

impl InlineRule for CompiledSchemas {
    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        /// A model mends a few problems at a time; the rest would only fill its context.
        const SHOWN: usize = 10;
        let event = subject.input.event;
        let tool = event.tool_name.as_deref().unwrap_or_default();
        let Some(validator) = self.validators.get(tool) else {
            return Ok(None);
        };
        let args = Value::Object(event.tool_args.clone().unwrap_or_default());
        let problems: Vec<String> = validator
            .iter_errors(&args)
            .take(SHOWN + 1)
            .map(|error| {
                let at = error.instance_path().to_string();
                let at = if at.is_empty() { "(arguments)" } else { &at };
                format!("- {at}: {}", error.masked())
            })
            .collect();
        if problems.is_empty() {
            return Ok(None);
        }
        let shown = problems.len().min(SHOWN);
        let more = if problems.len() > SHOWN {
            "\n- …"
        } else {
            ""
        };
        let corrective_message = format!(
            "The arguments of '{tool}' do not fit its schema:\n{}{more}",
            problems[..shown].join("\n"),
        );
        let retry = RetrySpec {
            corrective_message,
            ..RetrySpec::default()
        };
        let count = if problems.len() > SHOWN {
            format!("more than {SHOWN}")
        } else {
            problems.len().to_string()
        };
        Ok(Some(
            Decision::retry(
                self.id.clone(),
                format!("Arguments of '{tool}' have {count} problem(s)"),
                retry,
            )
            .with_severity(Severity::Medium)
            .with_remediation("mend the listed arguments and call the tool again"),
        ))
    }
}

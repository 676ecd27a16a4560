use std::collections::BTreeMap;

use jsonschema::{PatternOptions, Validator};
use serde::Serialize;
use serde_json::Value;

use super::{
    Body, Compiled, InlineRule, RuleCompiler, RuleError, RuleSettings, RuleSpec, Subject,
    documented,
};
use crate::decision::{Decision, RetrySpec, RuleCost, Severity};
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{MapReader, Yaml};
use crate::scan::EventSet;

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
        /// Where each was configured.
        #[serde(skip)]
        pub places: BTreeMap<String, Place>,
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
            settings.places.insert(tool.name.clone(), tool.place);
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
                Err(error) => {
                    let place = self.places.get(tool).copied().unwrap_or_default();
                    compiler.diagnostics.error(
                        place,
                        format!("the schema of `{tool}` is not usable: {error}"),
                    );
                }
            }
        }
        Compiled {
            events: compiler.events_or(Self::SPEC.events),
            body: Body::Inline(Box::new(CompiledSchemas {
                id: compiler.id.clone(),
                validators,
            })),
        }
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

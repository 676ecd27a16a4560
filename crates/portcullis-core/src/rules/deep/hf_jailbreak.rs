use super::{DeepSettings, DeepSpec};
use crate::decision::RuleCost;
use crate::event::EventType;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
use crate::scan::EventSet;

const DOC: &str = " Judges prompts by a jailbreak classifier that you bring.

 The name is RFC-001's, and the risk router insists on it for text that asks for the system prompt or to
 lift restrictions. Nothing of it is built in: somebody registers a deep rule of this name, and until
 then the rule counts as unavailable.

 ## Configuration

 Whatever the classifier's author wants to know. RFC-001 has

 - `model_name`: which weights.
 - `threshold`: the score from which a text counts as an attack.

 ## Example

 ```yaml
 async_rules:
   - id: hf-jailbreak
     config:
       model_name: protectai/deberta-v3-base-prompt-injection-v2
       threshold: 0.85
 ```
";

pub(super) const SPEC: DeepSpec = DeepSpec {
    id: "hf-jailbreak",
    version: "1.0.0",
    cost: RuleCost::Deep,
    events: || EventSet::from_iter([EventType::LlmBefore]),
    doc: DOC,
    read,
};

#[expect(
    clippy::unnecessary_wraps,
    reason = "every kind of rule is read by a function like this"
)]
fn read(config: &mut MapReader<'_>, _: &mut Diagnostics) -> Option<DeepSettings> {
    let members = config.prefixed("");
    Some(DeepSettings::Other(
        members
            .map(|(key, _, node)| (key.name.clone(), node.to_json()))
            .collect(),
    ))
}

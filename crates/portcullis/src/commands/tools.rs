//! `portcullis tools pin` and `portcullis tools check`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::path::Path;

use portcullis_core::rules::{RuleSettings, ToolDefinitions};
use portcullis_core::{Action, Context, Event, PolicyBuilder, definitions, unique};
use portcullis_runtime::{Gateway, read_pack};
use serde_json::Value;

use crate::cli::{CheckArgs, Format, PinArgs};
use crate::commands::runtime;
use crate::lines;
use crate::output::{Answer, BOLD, DIM, Failure, json_line, plain, printable, style, tell};

pub(crate) fn pin(args: &PinArgs) -> Result<Answer, Failure> {
    let listing = read_listing(args.listing.as_deref())?;
    let pins = definitions::pins(&listing).map_err(|error| Failure::Input(error.into()))?;
    let text = match args.format {
        Format::Json => json_line(&pins).map_err(Failure::write)?,
        Format::Text => to_yaml(&pins).map_err(Failure::write)?,
    };
    // A pin says that somebody has read the definition.
    for finding in judge(listing, None)?.shown {
        tell(format_args!("warning: {}", plain(&finding.reason)));
    }
    print(&text)
}

pub(crate) fn check(args: &CheckArgs) -> Result<Answer, Failure> {
    let pins = match &args.pins {
        None => None,
        Some(path) => {
            let text = read_pack(path)?;
            let pins = definitions::read_pins(&path.to_string_lossy(), &text);
            Some(pins.map_err(|report| Failure::Input(report.into()))?)
        }
    };
    let listing = read_listing(args.listing.as_deref())?;
    let definitions = definitions::of(&listing).len();
    let Findings { shown, count } = judge(listing, pins)?;
    let mut text = String::new();
    for finding in &shown {
        match args.format {
            Format::Json => text += &json_line(&finding.json).map_err(Failure::write)?,
            Format::Text => text += &finding.to_text(),
        }
    }
    if args.format == Format::Text {
        let gap = if count == 0 { "" } else { "\n" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{gap}{definitions} checked, {count} found");
    }
    if shown.len() < count {
        let shown = shown.len();
        tell(format_args!(
            "the first {shown} of {count} findings are shown"
        ));
    }
    print(&text)?;
    Ok(if count == 0 { Answer::Yes } else { Answer::No })
}

/// A listing longer than this is none.
const MAX_BYTES: u64 = 16 << 20;

fn read_listing(path: Option<&Path>) -> Result<Value, Failure> {
    let mut bytes = Vec::new();
    let mut input = lines::open(path)?.take(MAX_BYTES + 1);
    input.read_to_end(&mut bytes).map_err(Failure::read)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the listing has more than {MAX_BYTES} bytes");
        return Err(Failure::Input(anyhow::anyhow!(message)));
    }
    unique::value(&bytes).map_err(|error| {
        Failure::Input(anyhow::anyhow!(
            "the listing is no JSON that can be used: {error}"
        ))
    })
}

/// What the gate would find: all that it lists, and how many there are.
struct Findings {
    shown: Vec<Found>,
    count: usize,
}

struct Found {
    action: Action,
    reason: String,
    remediation: String,
    json: Value,
}

impl Found {
    /// One of the findings that the rule lists.
    fn listed(json: &Value) -> Self {
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Self {
            action: match json["action"].as_str() {
                Some("warn") => Action::Allow,
                Some("pause") => Action::Pause,
                _ => Action::Stop,
            },
            reason: text("reason"),
            remediation: text("remediation"),
            json: json.clone(),
        }
    }

    fn to_text(&self) -> String {
        let color = style(self.action);
        format!(
            "{color}{:<7}{color:#} {BOLD}{}{BOLD:#}\n        {DIM}{}{DIM:#}\n",
            match self.action {
                Action::Allow => "WARN",
                action => action.as_str(),
            },
            plain(&self.reason),
            plain(&self.remediation),
        )
    }
}

/// Sends the listing through a gate with this one rule.
fn judge(listing: Value, pins: Option<BTreeMap<String, String>>) -> Result<Findings, Failure> {
    let rule = ToolDefinitions {
        pins,
        ..ToolDefinitions::default()
    };
    let policy = PolicyBuilder::new("tools", "1")
        .rule(RuleSettings::ToolDefinitions(rule))
        .compile()
        .map_err(|report| Failure::Input(report.into()))?;
    let gateway = Gateway::builder(policy).build();
    let event = Event::tool_definitions("tools", listing);
    let evaluation = runtime()?.block_on(gateway.evaluate(&mut Context::new("tools"), &event));
    let decision = evaluation.decision;
    let result = decision.classifier_result.as_ref();
    let listed = result.and_then(|result| result.get("findings")?.as_array());
    let shown = match listed {
        Some(listed) => listed.iter().map(Found::listed).collect(),
        None if decision.action == Action::Allow => Vec::new(),
        // Too large, say.
        None => vec![Found {
            action: decision.action,
            reason: decision.reason.to_string(),
            remediation: decision
                .remediation
                .clone()
                .unwrap_or_default()
                .into_owned(),
            json: serde_json::to_value(&decision).unwrap_or_default(),
        }],
    };
    let count = result.and_then(|result| result.get("count")?.as_u64());
    let count = count.and_then(|count| usize::try_from(count).ok());
    Ok(Findings {
        count: count.unwrap_or(shown.len()),
        shown,
    })
}

fn to_yaml(pins: &BTreeMap<String, String>) -> io::Result<String> {
    let mut text = "pins:\n".to_owned();
    for (name, digest) in pins {
        text.push_str("  ");
        // A JSON string is a YAML string, whatever is in it. What nobody would see in it is written out: somebody is to
        // read the pins.
        for c in serde_json::to_string(name)?.chars() {
            // Writing to a String cannot fail.
            let _ = match c {
                _ if printable(c) == c => write!(text, "{c}"),
                '\0'..='\u{ffff}' => write!(text, "\\u{:04x}", u32::from(c)),
                _ => write!(text, "\\U{:08x}", u32::from(c)),
            };
        }
        let _ = writeln!(text, ": {digest}");
    }
    Ok(text)
}

fn print(text: &str) -> Result<Answer, Failure> {
    anstream::stdout()
        .write_all(text.as_bytes())
        .map_err(Failure::write)?;
    Ok(Answer::Yes)
}

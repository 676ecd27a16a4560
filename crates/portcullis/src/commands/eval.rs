//! `portcullis eval`

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::pack::Loaded;
use portcullis_core::{Action, Evaluation, Event, Policy, Step, redact_event};
use portcullis_runtime::{Gateway, JsonLineAlerts, PackFile, Reload, Reloader};
use portcullis_server::DeepPath;
use portcullis_server::config::{DeepSettings, Variables};
use serde::Serialize;

use crate::cli::{EvalArgs, Format};
use crate::commands::{load, runtime};
use crate::lines::{self, BadLine, Steps};
use crate::output::{Answer, BOLD, DIM, Failure, RED, json_line, plain, style, tell};

pub(crate) fn run(args: &EvalArgs) -> Result<Answer, Failure> {
    let (loaded, mut watch) = Watch::load(args)?;
    if !loaded.warnings.diagnostics.is_empty() {
        tell(&loaded.warnings);
    }
    // Rules that ask a service do so from here: the same events get the same verdicts as from the server.
    let variables = Variables::new(|name| std::env::var(name).ok());
    let deep = DeepPath::start(&DeepSettings::default(), &variables)
        .map_err(|error| Failure::Unavailable(anyhow::anyhow!(error)))?;
    let gateway = Gateway::builder(Policy::absent())
        .inbox(deep.inbox())
        .alerts(Arc::new(JsonLineAlerts::new(io::stderr())))
        .build();
    deep.put_in_force(&gateway, loaded.policy)?;
    let mut steps = Steps::new(lines::open(args.events.as_deref())?, args.max_line_bytes);
    let runtime = runtime()?;
    let mut printer = Printer::new(args.format);
    let mut answer = Answer::Yes;
    loop {
        let item = steps.next().map_err(Failure::read)?;
        let Some(item) = item else {
            printer.summary().map_err(Failure::write)?;
            return Ok(answer);
        };
        watch.look(&gateway, &deep);
        let printed = match item.step {
            Ok(Step { mut context, event }) => {
                let evaluation = runtime.block_on(gateway.evaluate(&mut context, &event));
                printer.evaluation(event, &evaluation, args.apply)
            }
            Err(bad) => {
                answer = Answer::BadInput;
                printer.bad_line(&bad)
            }
        };
        printed.map_err(Failure::write)?;
    }
}

/// Looks at the pack's file now and then, if asked to.
struct Watch {
    reloader: Option<Reloader>,
    last: Instant,
}

impl Watch {
    const EVERY: Duration = Duration::from_millis(500);

    fn load(args: &EvalArgs) -> Result<(Loaded, Self), Failure> {
        let (path, env) = (args.policy.policy.as_deref(), args.policy.env.as_deref());
        let (reloader, loaded) = match path.filter(|_| args.watch) {
            Some(path) => {
                let file = PackFile::new(path).with_env(env.map(str::to_owned));
                let (reloader, loaded) = Reloader::start(file)?;
                (Some(reloader), loaded)
            }
            None => (None, load(path, env)?),
        };
        let watch = Self {
            reloader,
            last: Instant::now(),
        };
        Ok((loaded, watch))
    }

    fn look(&mut self, gateway: &Gateway, deep: &DeepPath) {
        let Some(reloader) = &mut self.reloader else {
            return;
        };
        if self.last.elapsed() < Self::EVERY {
            return;
        }
        self.last = Instant::now();
        match reloader.check_with(|policy| deep.put_in_force(gateway, policy)) {
            Reload::Unchanged => {}
            Reload::Replaced(policy) => {
                let digest = &policy.digest[..12];
                tell(format_args!("policy {digest} is now in force"));
            }
            Reload::Refused(error) => {
                tell(format_args!("{error}\nthe policy stays as it was"));
            }
        }
    }
}

/// Writes each result at once: whoever waits for the answer waits for this line.
struct Printer {
    format: Format,
    json: io::Stdout,
    text: anstream::Stdout,
    counts: HashMap<Action, u64>,
}

impl Printer {
    fn new(format: Format) -> Self {
        Self {
            format,
            json: io::stdout(),
            text: anstream::stdout(),
            counts: HashMap::new(),
        }
    }

    fn evaluation(&mut self, event: Event, evaluation: &Evaluation, apply: bool) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'e> {
            #[serde(flatten)]
            evaluation: &'e Evaluation,
            /// `null` when nothing may go on.
            #[serde(skip_serializing_if = "Option::is_none")]
            event: Option<serde_json::Value>,
        }
        *self.counts.entry(evaluation.decision.action).or_default() += 1;
        match self.format {
            Format::Json => {
                let event = match may_go_on(event, evaluation) {
                    _ if !apply => None,
                    event => Some(serde_json::to_value(event)?),
                };
                self.write_json(&Line { evaluation, event })
            }
            Format::Text => self.row(event, evaluation),
        }
    }

    fn bad_line(&mut self, bad: &BadLine) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'e> {
            error: &'e BadLine,
        }
        match self.format {
            Format::Json => self.write_json(&Line { error: bad }),
            Format::Text => {
                let field = bad
                    .field
                    .as_ref()
                    .map(|field| format!("{field}: "))
                    .unwrap_or_default();
                writeln!(
                    self.text,
                    "{RED}line {}:{RED:#} {field}{}",
                    bad.line, bad.message
                )
            }
        }
    }

    fn row(&mut self, event: Event, evaluation: &Evaluation) -> io::Result<()> {
        let decision = &evaluation.decision;
        let color = style(decision.action);
        let what = match &event.tool_name {
            Some(tool) => format!("{} {tool}", event.event_type),
            None => event.event_type.to_string(),
        };
        let what = plain(&what);
        let shadow = if evaluation.enforced {
            ""
        } else {
            " (not enforced)"
        };
        writeln!(
            self.text,
            "{color}{:<7}{color:#} {what:<34} {BOLD}{}{BOLD:#}{shadow}  {}  {DIM}{} µs{DIM:#}",
            decision.action,
            decision.rule_id,
            plain(&decision.reason),
            evaluation.elapsed_us,
        )?;
        if decision.action == Action::Redact {
            let event = redacted(event, evaluation);
            if let Some(text) = event.text_content {
                writeln!(self.text, "        {DIM}{}{DIM:#}", excerpt(&text))?;
            }
        } else if let Some(help) = &decision.remediation {
            writeln!(self.text, "        {DIM}{}{DIM:#}", excerpt(help))?;
        }
        self.text.flush()
    }

    fn summary(&mut self) -> io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        let counts: Vec<String> = Action::ALL
            .iter()
            .rev()
            .filter_map(|action| {
                let count = self.counts.get(action)?;
                let color = style(*action);
                Some(format!("{count} {color}{action}{color:#}"))
            })
            .collect();
        writeln!(self.text, "\n{}", counts.join(", "))
    }

    fn write_json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let line = json_line(value)?;
        let mut out = self.json.lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }
}

/// The event as it may go on: not at all after a STOP.
fn may_go_on(event: Event, evaluation: &Evaluation) -> Option<Event> {
    (evaluation.decision.action != Action::Stop).then(|| redacted(event, evaluation))
}

/// The event with its redactions applied. If a redaction cannot be applied, everything it could have been in is
/// withheld.
fn redacted(mut event: Event, evaluation: &Evaluation) -> Event {
    if redact_event(&mut event, &evaluation.decision.redactions).is_err() {
        event.text_content = None;
        event.tool_args = None;
        event.payload.clear();
    }
    event
}

/// One line of a longer text.
fn excerpt(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut line: String = plain(text).chars().take(WIDTH).collect();
    if text.chars().nth(WIDTH).is_some() {
        line.push('…');
    }
    line
}

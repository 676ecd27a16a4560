//! `portcullis policy lint`

use std::io::Write;
use std::path::{Path, PathBuf};

use portcullis_core::Policy;
use portcullis_core::pack::diagnostic::{Level, Report};
use portcullis_core::pack::{self, Loaded, Pack};
use portcullis_runtime::{LoadError, PackFile};
use serde_json::{Value, json};

use crate::cli::{Format, LintArgs};
use crate::output::{Answer, Failure, GREEN, json_line, tell};

pub(crate) fn run(args: &LintArgs) -> Result<Answer, Failure> {
    let mut answer = Answer::Yes;
    let built_in = [PathBuf::from("policies/default.yaml")];
    let packs = if args.packs.is_empty() {
        &built_in[..]
    } else {
        &args.packs
    };
    for path in packs {
        let loaded = if args.packs.is_empty() {
            load_built_in(path)
        } else {
            PackFile::new(path).load()
        };
        let (report, policy) = match loaded {
            Ok(loaded) => (
                loaded.warnings,
                Some((loaded.policy, loaded.environments.len())),
            ),
            Err(LoadError::Invalid(report)) => (*report, None),
            Err(error) => {
                // The others may be wrong as well.
                tell(Failure::from(error));
                answer = Answer::BadInput;
                continue;
            }
        };
        let fine = policy.is_some() && (report.diagnostics.is_empty() || !args.deny_warnings);
        if !fine {
            answer = answer.max(Answer::No);
        }
        let printed = match args.format {
            Format::Json => {
                let digest = policy.map(|(policy, _)| policy.identity().digest.clone());
                json_line(&to_json(path, &report, digest.as_deref()))
            }
            Format::Text if fine => Ok(format!(
                "{report}{}: {GREEN}ok{GREEN:#}{}\n",
                path.display(),
                policy.as_ref().map(summary).unwrap_or_default()
            )),
            Format::Text => Ok(report.to_string()),
        };
        let mut out = anstream::stdout();
        printed
            .and_then(|text| out.write_all(text.as_bytes()))
            .map_err(Failure::write)?;
    }
    Ok(answer)
}

fn load_built_in(path: &Path) -> Result<Loaded, LoadError> {
    pack::load(&Pack {
        file: &path.to_string_lossy(),
        text: pack::DEFAULT,
        ..Pack::default()
    })
    .map_err(|report| LoadError::Invalid(Box::new(report)))
}

fn summary((policy, environments): &(Policy, usize)) -> String {
    let deep = policy.deep_rules().iter().filter(|rule| rule.enabled);
    let deep = match deep.count() {
        0 => String::new(),
        count => format!("{count} deep, "),
    };
    format!(
        " ({} rules, {deep}{environments} environments, digest {})",
        policy.rules().len(),
        &policy.identity().digest[..12],
    )
}

fn to_json(path: &Path, report: &Report, digest: Option<&str>) -> Value {
    let findings: Vec<Value> = report
        .diagnostics
        .sorted()
        .into_iter()
        .map(|finding| {
            json!({
                "level": finding.level.as_str(),
                "line": finding.place.line,
                "column": finding.place.column,
                "message": finding.message,
                "help": finding.help,
            })
        })
        .collect();
    let errors = report
        .diagnostics
        .sorted()
        .iter()
        .filter(|f| f.level == Level::Error)
        .count();
    json!({"file": path, "ok": errors == 0, "digest": digest, "findings": findings})
}

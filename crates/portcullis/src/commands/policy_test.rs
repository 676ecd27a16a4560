//! `portcullis policy test`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use portcullis_core::pack::cases::{self, Case, DEFAULT_CASES};
use portcullis_runtime::{CaseResult, Gateway, read_pack, run_case};
use serde_json::json;

use crate::cli::{Format, TestArgs};
use crate::commands::{load, runtime};
use crate::output::{Answer, BOLD, Failure, GREEN, RED, json_line};

pub(crate) fn run(args: &TestArgs) -> Result<Answer, Failure> {
    let (file, text) = match (&args.pack, &args.cases) {
        (_, Some(path)) => (path.clone(), read_pack(path)?),
        (Some(pack), None) => {
            let path = beside(pack);
            let text = read_pack(&path).map_err(|error| {
                let help = "keep the cases of a pack there, or name them with --cases";
                Failure::Input(anyhow::anyhow!("{error}: {help}"))
            })?;
            (path, text)
        }
        (None, None) => (
            PathBuf::from("policies/default.cases.yaml"),
            DEFAULT_CASES.to_owned(),
        ),
    };
    let cases = cases::parse(&file.to_string_lossy(), &text)
        .map_err(|report| Failure::Input(report.into()))?;
    if cases.is_empty() {
        return Err(Failure::Input(anyhow::anyhow!(
            "{} has no cases",
            file.display()
        )));
    }
    let runtime = runtime()?;
    let mut failed = 0;
    for case in &cases {
        let env = case.env.as_deref().or(args.env.as_deref());
        let gateway = Gateway::builder(load(args.pack.as_deref(), env)?.policy).build();
        let result = runtime.block_on(run_case(&gateway, case));
        failed += usize::from(!result.passed());
        print(args.format, &file, case, &result).map_err(Failure::write)?;
    }
    if args.format == Format::Text {
        let passed = cases.len() - failed;
        let summary = writeln!(anstream::stdout(), "\n{passed} passed, {failed} failed");
        summary.map_err(Failure::write)?;
    }
    Ok(if failed == 0 { Answer::Yes } else { Answer::No })
}

/// `strict.yaml` → `strict.cases.yaml`
fn beside(pack: &Path) -> PathBuf {
    pack.with_extension("cases.yaml")
}

fn print(format: Format, file: &Path, case: &Case, result: &CaseResult) -> io::Result<()> {
    let mut out = anstream::stdout();
    if format == Format::Json {
        let mismatches: Vec<_> = result
            .mismatches
            .iter()
            .map(|m| json!({"field": m.field, "expected": m.expected, "got": m.got}))
            .collect();
        let line = json!({
            "file": file, "line": case.line, "case": case.name,
            "passed": result.passed(), "mismatches": mismatches, "evaluation": result.evaluation,
        });
        return out.write_all(json_line(&line)?.as_bytes());
    }
    if result.passed() {
        return writeln!(out, "{GREEN}ok{GREEN:#}    {}", case.name);
    }
    writeln!(
        out,
        "{RED}FAIL{RED:#}  {BOLD}{}{BOLD:#}  ({}:{})",
        case.name,
        file.display(),
        case.line
    )?;
    for mismatch in &result.mismatches {
        writeln!(out, "        {}", mismatch.field)?;
        writeln!(
            out,
            "          {RED}- expected  {}{RED:#}",
            mismatch.expected
        )?;
        writeln!(
            out,
            "          {GREEN}+ got       {}{GREEN:#}",
            mismatch.got
        )?;
    }
    writeln!(
        out,
        "        because: {}",
        result.evaluation.decision.reason
    )
}

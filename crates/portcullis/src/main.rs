//! The `portcullis` command: arguments, printing, exit codes. What it does is in the libraries.

mod cli;
mod commands;
mod interrupted;
mod lines;
mod output;
mod whole;

use std::process::ExitCode;

use clap::Parser;

use cli::{
    Cli, Command, EvidenceCommand, GuardrailCommand, PolicyCommand, RuleCommand, TokenCommand,
    ToolsCommand,
};
use output::Failure;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => commands::serve::run(&args),
        Command::Worker(args) => commands::worker::run(&args),
        Command::Sidecar(args) => commands::sidecar::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Intent(args) => commands::intent::run(&args),
        Command::Decision(command) => commands::decision::run(&command),
        Command::Guardrail(GuardrailCommand::Lint(args)) => commands::guardrail::lint(&args),
        Command::Guardrail(GuardrailCommand::List(args)) => commands::guardrail::list(&args),
        Command::Quarantine(command) => commands::quarantine::run(&command),
        Command::Approvals(command) => commands::approvals::run(&command),
        Command::A2a(command) => commands::a2a::run(&command),
        Command::Evidence(EvidenceCommand::Verify(args)) => commands::evidence::verify(&args),
        Command::Evidence(EvidenceCommand::Show(args)) => commands::evidence::show(&args),
        Command::Evidence(EvidenceCommand::Tail(args)) => commands::evidence::tail(&args),
        Command::Token(TokenCommand::New(args)) => commands::token::new(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Scan(args) => commands::scan::run(&args),
        #[cfg(feature = "models")]
        Command::Classifier(command) => commands::classifier::run(&command),
        Command::Policy(PolicyCommand::Lint(args)) => commands::policy_lint::run(&args),
        Command::Policy(PolicyCommand::Test(args)) => commands::policy_test::run(&args),
        Command::Policy(PolicyCommand::Explain(args)) => commands::policy_explain::run(&args),
        Command::Policy(PolicyCommand::Diff(args)) => commands::policy_diff::run(&args),
        Command::Rule(RuleCommand::List(args)) => commands::rule::list(&args),
        Command::Rule(RuleCommand::Explain(args)) => commands::rule::explain(&args),
        Command::Tools(ToolsCommand::Pin(args)) => commands::tools::pin(&args),
        Command::Tools(ToolsCommand::Check(args)) => commands::tools::check(&args),
        Command::Completions(args) => commands::completions::run(&args),
    };
    match done {
        Ok(answer) => answer.into(),
        // Whoever reads our output has seen enough.
        Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&failure);
            failure.code().into()
        }
    }
}

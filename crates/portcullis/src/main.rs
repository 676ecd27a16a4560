//! The `portcullis` command: arguments, printing, exit codes. What it does is in the libraries.

mod cli;
mod commands;
mod lines;
mod output;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, PolicyCommand, RuleCommand, ToolsCommand};
use output::Failure;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Eval(args) => commands::eval::run(&args),
        Command::Scan(args) => commands::scan::run(&args),
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
            anstream::eprintln!("{failure}");
            failure.code().into()
        }
    }
}

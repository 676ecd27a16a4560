//! `portcullis completions`

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::output::{Answer, Failure};

pub(crate) fn run(args: &CompletionsArgs) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "portcullis", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script).map_err(Failure::write)?;
    Ok(Answer::Yes)
}

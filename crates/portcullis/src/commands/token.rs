//! `portcullis token new`

use std::io::Write;

use portcullis_server::auth::{Token, Tokens};
use serde_json::json;

use crate::cli::{Format, TokenNewArgs};
use crate::output::{Answer, BOLD, DIM, Failure, json_line};

pub(crate) fn new(args: &TokenNewArgs) -> Result<Answer, Failure> {
    let (token, text) = Token::generate();
    // The same check as in the configuration, so that what is printed here can be used there.
    Tokens::default()
        .add(&args.agent, &token)
        .map_err(|error| Failure::Input(error.into()))?;
    let variable = variable(&args.agent);
    let printed = match args.format {
        Format::Json => {
            json_line(&json!({"agent": args.agent, "token": text, "variable": variable}))
                .and_then(|line| anstream::stdout().write_all(line.as_bytes()))
        }
        Format::Text => writeln!(
            anstream::stdout(),
            "{BOLD}{text}{BOLD:#}\n\n\
             {DIM}# for the agent, and for the server's environment; it is shown only now{DIM:#}\n\
             export {variable}={text}\n\n\
             {DIM}# for the server's configuration{DIM:#}\n\
             auth:\n  tokens:\n    - agent: {}\n      token: \"${{{variable}}}\"",
            // JSON's texts are YAML's too, quotes and all.
            serde_json::Value::from(args.agent.as_str())
        ),
    };
    printed.map_err(Failure::write)?;
    Ok(Answer::Yes)
}

/// The variable that F001's example would use for this agent.
fn variable(agent: &str) -> String {
    let name: String = agent
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    format!("CSTP_TOKEN_{name}")
}

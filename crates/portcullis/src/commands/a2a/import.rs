//! `portcullis a2a import`

use portcullis_core::a2a::{self, ErrorKind, ImportOptions, Limits};

use super::problem::Problem;
use super::stream::{Answers, Stream, Work, print};
use super::{Source, limits};
use crate::cli::{A2aImportArgs, Format};
use crate::output::{Answer, Failure};

pub(crate) fn run(args: &A2aImportArgs) -> Result<Answer, Failure> {
    let limits = limits(&args.limits).map_err(|error| Problem::from(error).failure())?;
    let import = Import {
        agent: args.agent.clone(),
        limits,
    };
    let source = Source::open(args.traffic.as_deref())?;
    if args.ndjson {
        let stream = Stream {
            source,
            format: Format::Json,
            recorder: None,
        };
        return Ok(stream.run(args.stream, import)?.answer);
    }
    let traffic = source.read_whole(args.limits.bytes)?;
    let traffic = traffic.map_err(Problem::failure)?;
    let mut answers = Answers::now();
    let imported = import.one(&traffic, &mut answers);
    imported.map_err(Problem::failure)?;
    print(&answers, Format::Json).map_err(Failure::write)?;
    Ok(Answer::Yes)
}

/// Makes packets. Errors go to standard error, so that there is nothing but packets for whoever reads them.
struct Import {
    agent: Option<String>,
    limits: Limits,
}

impl Import {
    fn one(&self, traffic: &[u8], answers: &mut Answers) -> Result<(), Problem> {
        let options = ImportOptions {
            agent: self.agent.as_deref(),
            limits: self.limits,
        };
        for packet in a2a::import(traffic, &options)? {
            serde_json::to_writer(&mut answers.out, &packet).map_err(|error| {
                let message = format!("the packet cannot be written: {error}");
                Problem::new(ErrorKind::Infrastructure, message)
            })?;
            answers.out.push(b'\n');
        }
        Ok(())
    }
}

impl Work for Import {
    fn max_bytes(&self) -> usize {
        self.limits.max_payload_bytes()
    }

    fn line(&self, _: u64, text: &[u8], answers: &mut Answers) -> Result<(), Problem> {
        self.one(text, answers)
    }

    fn refuse(&self, line: u64, problem: &Problem, answers: &mut Answers) {
        problem.write(Some(line), Format::Text, &mut answers.err);
    }
}

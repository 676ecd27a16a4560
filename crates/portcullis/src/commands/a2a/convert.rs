//! `portcullis a2a convert`

use portcullis_core::a2a::{Adapter, Input, write_answer};

use super::problem::Problem;
use super::record::{Notary, Recorder, Unrecorded};
use super::stream::{Answers, Stream, Tally, Work, print};
use super::{Source, limits, summary};
use crate::cli::{ConvertArgs, Format};
use crate::output::{Answer, Failure};

pub(crate) fn run(args: &ConvertArgs) -> Result<Answer, Failure> {
    let convert = match Convert::new(args) {
        Ok(convert) => convert,
        Err(problem) => return refuse(problem, args.format),
    };
    let source = Source::open(args.packet.as_deref())?;
    let recorder = args.record.as_deref().map(Recorder::open);
    let recorder = match recorder.transpose()?.transpose() {
        Ok(recorder) => recorder,
        Err(problem) => return refuse(problem, args.format),
    };
    if !args.ndjson {
        return one(&convert, source, recorder, args);
    }
    let stream = Stream {
        source,
        format: args.format,
        recorder,
    };
    let tally = stream.run(args.stream, convert)?;
    if args.format == Format::Text {
        end(&tally)?;
    }
    Ok(tally.answer)
}

/// Converts all of the input as one packet.
fn one(
    convert: &Convert,
    source: Source,
    recorder: Option<Recorder>,
    args: &ConvertArgs,
) -> Result<Answer, Failure> {
    let mut answers = Answers::now();
    let packet = match source.read_whole(args.limits.bytes)? {
        Ok(packet) => packet,
        Err(problem) => return refuse(problem, args.format),
    };
    if let Err(problem) = convert.packet(None, &packet, &mut answers) {
        return refuse(problem, args.format);
    }
    if let Some(recorder) = &recorder
        && let Some(failed) = recorder.append(&mut answers).pop()
    {
        return refuse(failed.problem, args.format);
    }
    print(&answers, args.format).map_err(Failure::write)?;
    if let Some(recorder) = recorder {
        recorder.close()?;
    }
    Ok(Answer::Yes)
}

/// Answers with an error and nothing else: to programs where they look for an answer, to people where they look for
/// errors.
fn refuse(problem: Problem, format: Format) -> Result<Answer, Failure> {
    if format == Format::Text {
        return Err(problem.failure());
    }
    let mut answers = Answers::default();
    problem.write(None, format, &mut answers.out);
    print(&answers, format).map_err(Failure::write)?;
    Ok(problem.answer())
}

fn end(tally: &Tally) -> Result<(), Failure> {
    let mut answers = Answers::default();
    summary::end(tally, &mut answers.out);
    print(&answers, Format::Text).map_err(Failure::write)
}

/// Converts packets as the flags say.
struct Convert {
    adapter: Adapter,
    protocol_version: Option<String>,
    format: Format,
    ndjson: bool,
    notary: Option<Notary>,
}

impl Convert {
    fn new(args: &ConvertArgs) -> Result<Self, Problem> {
        Ok(Self {
            adapter: Adapter::with_limits(args.mode, limits(&args.limits)?),
            protocol_version: args.protocol_version.clone(),
            format: args.format,
            ndjson: args.ndjson,
            notary: args.record.is_some().then(Notary::new).transpose()?,
        })
    }

    /// Appends the answer to a packet, if it is not an error.
    fn packet(
        &self,
        line: Option<u64>,
        payload: &[u8],
        answers: &mut Answers,
    ) -> Result<(), Problem> {
        let batch = self.adapter.convert(Input {
            protocol_version: self.protocol_version.as_deref(),
            ..Input::json(payload)
        })?;
        let start = answers.out.len();
        if self.format == Format::Json && self.notary.is_none() {
            write_answer(&Ok(batch), &mut answers.out);
            answers.out.push(b'\n');
            return Ok(());
        }
        let sealed = batch.seal();
        match (self.format, self.ndjson) {
            (Format::Json, _) => {
                sealed.write_answer(&mut answers.out);
                answers.out.push(b'\n');
            }
            (Format::Text, true) => summary::row(&batch, &sealed, &mut answers.out)?,
            (Format::Text, false) => summary::page(&batch, &sealed, &mut answers.out)?,
        }
        if let Some(notary) = &self.notary {
            answers.unrecorded.push(Unrecorded {
                line,
                body: notary.entry(&sealed, answers.read_at)?,
                answer: start..answers.out.len(),
            });
        }
        Ok(())
    }
}

impl Work for Convert {
    fn max_bytes(&self) -> usize {
        self.adapter.limits().max_payload_bytes()
    }

    fn line(&self, line: u64, text: &[u8], answers: &mut Answers) -> Result<(), Problem> {
        self.packet(Some(line), text, answers)
    }

    fn refuse(&self, line: u64, problem: &Problem, answers: &mut Answers) {
        problem.write(Some(line), self.format, &mut answers.out);
    }
}

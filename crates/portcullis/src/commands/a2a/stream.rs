//! Lines in, answers out: on all cores, in order, in the same memory however many there are.
//!
//! One thread reads blocks of lines and hands block k to worker k mod N. Whoever writes asks the workers in the same
//! turn, so that nothing has to be sorted. All channels are bounded: if the output is slow, so is reading.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use jiff::Timestamp;
use portcullis_core::a2a::ConvertError;

use super::Source;
use super::blocks::{BLOCK, Block, Blocks};
use super::problem::Problem;
use super::record::{Recorder, Unrecorded};
use crate::cli::{Format, StreamArgs};
use crate::output::{Answer, Failure};

/// What is done with a line.
pub(super) trait Work: Send + Sync + 'static {
    /// How long a line may be.
    fn max_bytes(&self) -> usize;

    /// Answers a line that is not blank. What it has put into `out` does not count if it fails.
    fn line(&self, line: u64, text: &[u8], answers: &mut Answers) -> Result<(), Problem>;

    /// Says what is wrong with a line.
    fn refuse(&self, line: u64, problem: &Problem, answers: &mut Answers);
}

/// What came of the lines of a block.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// What goes to standard output.
    pub(super) out: Vec<u8>,
    /// What goes to standard error.
    pub(super) err: Vec<u8>,
    /// What has to be in the evidence log before.
    pub(super) unrecorded: Vec<Unrecorded>,
    /// When the block was read.
    pub(super) read_at: Timestamp,
    pub(super) tally: Tally,
}

/// How it went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    /// How many lines were not blank.
    pub(super) lines: u64,
    /// How many of them got an error.
    pub(super) refused: u64,
    /// What the worst of them makes the command end with.
    pub(super) answer: Answer,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            lines: 0,
            refused: 0,
            answer: Answer::Yes,
        }
    }
}

impl Tally {
    pub(super) fn refuse(&mut self, answer: Answer) {
        self.refused += 1;
        self.answer = self.answer.max(answer);
    }

    fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.refused += other.refused;
        self.answer = self.answer.max(other.answer);
    }
}

/// How a stream is read and written.
pub(super) struct Stream {
    pub(super) source: Source,
    pub(super) format: Format,
    pub(super) recorder: Option<Recorder>,
}

impl Stream {
    /// Works on every line.
    pub(super) fn run(self, args: StreamArgs, work: impl Work) -> Result<Tally, Failure> {
        let progress = Progress::new(args, self.source.bytes);
        let mut pipeline = Pipeline::start(threads(args), self.source, work)?;
        let mut tally = Tally::default();
        loop {
            let mut job = match pipeline.next() {
                Some(Step::Job(job)) => job,
                Some(Step::End(Ok(()))) => break,
                Some(Step::End(Err(error))) => return Err(Failure::read_of("the input", error)),
                None => {
                    let error = anyhow!("a thread that converts has stopped: please report it");
                    return Err(Failure::Unavailable(error));
                }
            };
            if let Some(recorder) = &self.recorder {
                recorder.record(&mut job.answers, self.format);
            }
            tally.add(job.answers.tally);
            let written = if job.answers.err.is_empty() {
                // Where progress is shown, standard output is elsewhere.
                print(&job.answers, self.format)
            } else {
                progress.hide(|| print(&job.answers, self.format))
            };
            written.map_err(Failure::write)?;
            progress.show(job.block.bytes(), tally.lines);
            pipeline.reuse(job);
        }
        progress.end();
        if let Some(recorder) = self.recorder {
            recorder.close()?;
        }
        Ok(tally)
    }
}

/// Writes at once: somebody may be waiting for it.
pub(super) fn print(answers: &Answers, format: Format) -> io::Result<()> {
    if !answers.err.is_empty() {
        // Nobody need read what was refused: the exit code says that something was.
        let _ = anstream::stderr().write_all(&answers.err);
    }
    match format {
        Format::Json => {
            let mut out = io::stdout().lock();
            out.write_all(&answers.out)?;
            out.flush()
        }
        Format::Text => {
            let mut out = anstream::stdout().lock();
            out.write_all(&answers.out)?;
            out.flush()
        }
    }
}

fn threads(args: StreamArgs) -> usize {
    match args.threads {
        Some(threads) => threads.into(),
        None => thread::available_parallelism().map_or(1, Into::into),
    }
}

/// A block on its way.
#[derive(Default)]
struct Job {
    block: Block,
    answers: Answers,
}

/// What comes next, in order.
enum Step {
    Job(Box<Job>),
    /// Nothing more can be read.
    End(io::Result<()>),
}

/// The threads that read and work. They are not waited for: one of them may be reading from somebody who says nothing.
struct Pipeline {
    workers: Vec<Receiver<Step>>,
    turn: usize,
    used: Sender<Box<Job>>,
}

impl Pipeline {
    fn start(threads: usize, source: Source, work: impl Work) -> Result<Self, Failure> {
        let blocks = Blocks::new(source.reader, work.max_bytes());
        let work = Arc::new(work);
        let (mut to_work, mut workers) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (job, jobs) = sync_channel(1);
            let (done, results) = sync_channel(1);
            let work = Arc::clone(&work);
            spawn("a2a-work", move || worker(&*work, &jobs, &done))?;
            to_work.push(job);
            workers.push(results);
        }
        // No more jobs than fit into the other channels are ever in this one.
        let (used, reusable) = mpsc::channel();
        spawn("a2a-read", move || reader(blocks, &to_work, &reusable))?;
        Ok(Self {
            workers,
            turn: 0,
            used,
        })
    }

    /// The next block's answers; `None` if the thread that had it is no more.
    fn next(&mut self) -> Option<Step> {
        let step = self.workers[self.turn].recv().ok()?;
        self.turn = (self.turn + 1) % self.workers.len();
        Some(step)
    }

    fn reuse(&self, job: Box<Job>) {
        // At the end of the input there is nothing to reuse it for.
        let _ = self.used.send(job);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map(drop).map_err(|error| {
        Failure::Unavailable(anyhow::Error::from(error).context("cannot start a thread"))
    })
}

/// Reads until the end, or until nobody wants more.
fn reader<R: Read>(
    mut blocks: Blocks<R>,
    workers: &[SyncSender<Step>],
    reusable: &Receiver<Box<Job>>,
) {
    for worker in workers.iter().cycle() {
        let mut job = reusable.try_recv().unwrap_or_default();
        let step = match blocks.next(&mut job.block) {
            Ok(true) => {
                job.answers.begin();
                Step::Job(job)
            }
            Ok(false) => Step::End(Ok(())),
            Err(error) => Step::End(Err(error)),
        };
        let is_end = matches!(step, Step::End(_));
        if worker.send(step).is_err() || is_end {
            return;
        }
    }
}

fn worker(work: &impl Work, jobs: &Receiver<Step>, done: &SyncSender<Step>) {
    for mut step in jobs {
        if let Step::Job(job) = &mut step {
            answer(work, &job.block, &mut job.answers);
        }
        if done.send(step).is_err() {
            return;
        }
    }
}

fn answer(work: &impl Work, block: &Block, answers: &mut Answers) {
    let mut line = block.first_line;
    let mut rest = block.lines();
    while !rest.is_empty() {
        let (mut text, after) = split_line(rest);
        if line == 1 {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if !text.trim_ascii_start().is_empty() {
            answers.tally.lines += 1;
            let start = answers.out.len();
            if let Err(problem) = work.line(line, text, answers) {
                answers.out.truncate(start);
                refuse(work, line, &problem, answers);
            }
        }
        rest = after;
        line += 1;
    }
    if let Some(bytes) = block.too_long {
        answers.tally.lines += 1;
        let error = ConvertError::TooLarge {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            limit: work.max_bytes(),
        };
        refuse(work, line, &error.into(), answers);
    }
}

fn refuse(work: &impl Work, line: u64, problem: &Problem, answers: &mut Answers) {
    work.refuse(line, problem, answers);
    answers.tally.refuse(problem.answer());
}

/// The first line without its end, and the others.
fn split_line(lines: &[u8]) -> (&[u8], &[u8]) {
    let mut after = lines;
    // As fast as memory is read, which looking at one byte after the other is not. A slice can always be read.
    let length = io::BufRead::skip_until(&mut after, b'\n').unwrap_or(lines.len());
    let line = &lines[..length];
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    (line.strip_suffix(b"\r").unwrap_or(line), after)
}

impl Answers {
    /// None yet.
    pub(super) fn now() -> Self {
        let mut answers = Self::default();
        answers.begin();
        answers
    }

    /// None yet, in the memory of those before.
    fn begin(&mut self) {
        self.out.clear();
        // What is answered is a few times as long as what was read; one long packet must not count for good.
        self.out.shrink_to(16 * BLOCK);
        self.err.clear();
        self.unrecorded.clear();
        self.read_at = Timestamp::now();
        self.tally = Tally::default();
    }
}

/// Shown on a terminal only, and not if the answers are.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(args: StreamArgs, bytes: Option<u64>) -> Self {
        let is_seen = io::stderr().is_terminal() && !io::stdout().is_terminal();
        if args.no_progress || !is_seen {
            return Self(None);
        }
        let (bar, template) = match bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{msg} packets {wide_bar} {bytes}/{total_bytes} {eta}",
            ),
            None => (
                ProgressBar::new_spinner(),
                "{spinner} {msg} packets {bytes} {bytes_per_sec}",
            ),
        };
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(Some(bar))
    }

    /// Writes without it in the way.
    fn hide<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn show(&self, bytes: u64, packets: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
            bar.set_message(HumanCount(packets).to_string());
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

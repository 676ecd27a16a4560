//! A classifier at work on threads of its own.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use portcullis_core::classifier::{Channel, ClassifyError, Sample, Scores, TextClassifier};

/// How many questions a thread takes at once, if there are enough for all threads. Some models take less time for several
/// together than one by one.
const AT_ONCE: usize = 8;
/// And how long their texts may be together, so that a short one does not wait for long ones.
const BYTES_AT_ONCE: usize = 16 << 10;

/// How much a pool may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// How many texts are judged at the same time.
    pub threads: usize,
    /// How many questions may wait. More are turned away at once.
    pub queue: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            queue: 64,
        }
    }
}

/// Judges texts on threads of its own, so that nobody else's work waits for a model's.
///
/// Load is shed at both ends: what finds the queue full is turned away, and what has waited past its deadline is
/// not judged any more. Dropping the pool ends its threads once they are done with what they have begun.
pub struct Pool {
    shared: Arc<Shared>,
    classifier: Arc<dyn TextClassifier>,
}

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is no room.
    #[error("{0} questions wait already")]
    Full(usize),
    /// Its time was up before its turn came.
    #[error("its turn did not come in time")]
    Late,
    /// The pool is no more.
    #[error("the classifier is shutting down")]
    Closed,
    /// The model has failed.
    #[error(transparent)]
    Failed(#[from] ClassifyError),
}

/// What becomes of a question.
pub type Answer = Result<Vec<Scores>, PoolError>;

struct Shared {
    state: Mutex<State>,
    /// Somebody has asked, or all is over.
    news: Condvar,
    queue: usize,
    threads: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Question>,
    closed: bool,
}

struct Question {
    texts: Vec<(String, Channel)>,
    deadline: Instant,
    answer: Box<dyn FnOnce(Answer) + Send>,
}

impl Pool {
    /// Starts the threads.
    pub fn start(classifier: Arc<dyn TextClassifier>, options: PoolOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            news: Condvar::new(),
            queue: options.queue.max(1),
            threads: options.threads.max(1),
        });
        // Dropped on the way out, it ends the threads that were started.
        let pool = Self { shared, classifier };
        for _ in 0..pool.shared.threads {
            let (shared, classifier) = (Arc::clone(&pool.shared), Arc::clone(&pool.classifier));
            thread::Builder::new()
                .name("classifier".to_owned())
                .spawn(move || shared.work(&*classifier))?;
        }
        Ok(pool)
    }

    /// The classifier.
    pub fn classifier(&self) -> &dyn TextClassifier {
        &*self.classifier
    }

    /// Asks. `answer` is called once, on a thread of the pool or the one that drops it; or not at all if this turns the
    /// question away.
    pub fn submit(
        &self,
        texts: Vec<(String, Channel)>,
        deadline: Instant,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), PoolError> {
        let mut state = self.shared.lock();
        if state.waiting.len() >= self.shared.queue {
            return Err(PoolError::Full(self.shared.queue));
        }
        state.waiting.push_back(Question {
            texts,
            deadline,
            answer: Box::new(answer),
        });
        drop(state);
        self.shared.news.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.shared.news.notify_all();
        for question in waiting {
            question.answer(Err(PoolError::Closed));
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("classifier", &self.classifier.name())
            .field("queue", &self.shared.queue)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, so what it guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, classifier: &dyn TextClassifier) {
        while let Some(questions) = self.next() {
            let now = Instant::now();
            let (late, questions): (Vec<_>, Vec<_>) = questions
                .into_iter()
                .partition(|question| question.deadline <= now);
            for question in late {
                question.answer(Err(PoolError::Late));
            }
            judge(classifier, questions);
        }
    }

    /// What waits longest. Nothing when all is over.
    fn next(&self) -> Option<Vec<Question>> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.closed {
            let woken = self.news.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let most = state.waiting.len().div_ceil(self.threads).min(AT_ONCE);
        let mut bytes = 0;
        let fits = |question: &&Question| {
            let texts = question.texts.iter();
            bytes += texts.map(|(text, _)| text.len()).sum::<usize>();
            bytes <= BYTES_AT_ONCE
        };
        let count = state.waiting.iter().take(most).take_while(fits).count();
        let count = count.max(1).min(state.waiting.len());
        (count > 0).then(|| state.waiting.drain(..count).collect())
    }
}

fn judge(classifier: &dyn TextClassifier, questions: Vec<Question>) {
    let texts = questions.iter().flat_map(|question| &question.texts);
    let mut answer = match classify(classifier, texts) {
        Ok(scores) => scores.into_iter(),
        // Nobody pays for somebody else's text.
        Err(_) if questions.len() > 1 => {
            for question in questions {
                judge(classifier, vec![question]);
            }
            return;
        }
        Err(error) => {
            for question in questions {
                question.answer(Err(PoolError::Failed(error.clone())));
            }
            return;
        }
    };
    for question in questions {
        let scores = answer.by_ref().take(question.texts.len()).collect();
        question.answer(Ok(scores));
    }
}

/// A model that panics has failed, and is asked again next time.
fn classify<'q>(
    classifier: &dyn TextClassifier,
    texts: impl Iterator<Item = &'q (String, Channel)>,
) -> Result<Vec<Scores>, ClassifyError> {
    let samples: Vec<Sample<'_>> = texts
        .map(|(text, channel)| Sample {
            text,
            channel: *channel,
        })
        .collect();
    let failed = |why: String| ClassifyError {
        model: classifier.name().to_owned(),
        why,
    };
    let judged = catch_unwind(AssertUnwindSafe(|| classifier.classify(&samples)));
    let scores = judged.map_err(|panic| failed(format!("panicked: {}", message(&*panic))))??;
    let (given, count) = (scores.len(), samples.len());
    if given != count {
        return Err(failed(format!("it gave {given} verdicts on {count} texts")));
    }
    let labels = classifier.labels().len();
    if !scores.iter().all(|one| one.is_sound(labels)) {
        return Err(failed(format!(
            "it gave something else than a probability for each of {labels} labels"
        )));
    }
    Ok(scores)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a word")
}

impl Question {
    /// A caller that panics on its answer takes nobody else's with it.
    fn answer(self, answer: Answer) {
        let _ = catch_unwind(AssertUnwindSafe(|| (self.answer)(answer)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Judges when it is told to, and says how many texts it was given.
    struct Told {
        label: String,
        begun: Mutex<Sender<usize>>,
        go: Mutex<Receiver<()>>,
    }

    impl TextClassifier for Told {
        fn name(&self) -> &'static str {
            "told"
        }

        fn labels(&self) -> &[String] {
            std::slice::from_ref(&self.label)
        }

        fn classify(&self, samples: &[Sample<'_>]) -> Result<Vec<Scores>, ClassifyError> {
            self.begun.lock().unwrap().send(samples.len()).unwrap();
            let _ = self.go.lock().unwrap().recv();
            assert!(samples.iter().all(|sample| sample.text != "panic"), "asked");
            let of = |sample: &Sample<'_>| Scores {
                windows: vec![vec![match sample.text {
                    "no number" => f32::NAN,
                    text => text.len() as f32 / 10.0,
                }]],
                complete: true,
            };
            let few = usize::from(samples.iter().any(|sample| sample.text == "few"));
            Ok(samples.iter().skip(few).map(of).collect())
        }
    }

    struct Setup {
        pool: Pool,
        begun: Receiver<usize>,
        go: Sender<()>,
        answers: (Sender<Answered>, Receiver<Answered>),
    }

    /// Which question, and what became of it.
    type Answered = (usize, Answer);

    fn setup(queue: usize) -> Setup {
        let (begun, go) = (channel(), channel());
        let told = Told {
            label: "length".to_owned(),
            begun: Mutex::new(begun.0),
            go: Mutex::new(go.1),
        };
        let options = PoolOptions { threads: 1, queue };
        Setup {
            pool: Pool::start(Arc::new(told), options).unwrap(),
            begun: begun.1,
            go: go.0,
            answers: channel(),
        }
    }

    impl Setup {
        fn ask(&self, which: usize, texts: &[&str], wait: Duration) -> Result<(), PoolError> {
            let texts = texts
                .iter()
                .map(|text| ((*text).to_owned(), Channel::User))
                .collect();
            let sender = self.answers.0.clone();
            self.pool
                .submit(texts, Instant::now() + wait, move |answer| {
                    sender.send((which, answer)).unwrap();
                })
        }

        fn answered(&self) -> (usize, Result<Vec<f32>, PoolError>) {
            let (which, answer) = self.answers.1.recv().unwrap();
            let numbers = |scores: Vec<Scores>| scores.into_iter().map(|one| one.windows[0][0]);
            (which, answer.map(|scores| numbers(scores).collect()))
        }
    }

    const LONG: Duration = Duration::from_hours(1);

    #[test]
    fn what_waits_is_judged_together_and_answered_apart() {
        let pool = setup(8);
        pool.ask(0, &["a"], LONG).unwrap();
        assert_eq!(pool.begun.recv(), Ok(1));
        pool.ask(1, &["bb", "ccc"], LONG).unwrap();
        pool.ask(2, &[], LONG).unwrap();
        pool.ask(3, &["dddd"], LONG).unwrap();
        pool.go.send(()).unwrap();
        assert_eq!(pool.begun.recv(), Ok(3));
        pool.go.send(()).unwrap();
        let found: Vec<_> = (0..4).map(|_| pool.answered()).collect();
        assert_eq!(
            found,
            [
                (0, Ok(vec![0.1])),
                (1, Ok(vec![0.2, 0.3])),
                (2, Ok(vec![])),
                (3, Ok(vec![0.4])),
            ]
        );
    }

    #[test]
    fn a_full_queue_turns_away_and_a_late_question_is_not_judged() {
        let pool = setup(2);
        pool.ask(0, &["a"], LONG).unwrap();
        assert_eq!(pool.begun.recv(), Ok(1));
        pool.ask(1, &["b"], Duration::ZERO).unwrap();
        pool.ask(2, &["c"], LONG).unwrap();
        assert_eq!(pool.ask(3, &["d"], LONG), Err(PoolError::Full(2)));
        pool.go.send(()).unwrap();
        assert_eq!(pool.begun.recv(), Ok(1));
        pool.go.send(()).unwrap();
        assert_eq!(pool.answered(), (0, Ok(vec![0.1])));
        assert_eq!(pool.answered(), (1, Err(PoolError::Late)));
        assert_eq!(pool.answered(), (2, Ok(vec![0.1])));
    }

    #[test]
    fn a_model_that_panics_or_miscounts_fails_and_goes_on() {
        let pool = setup(8);
        for (which, text) in ["panic", "few", "no number", "a"].into_iter().enumerate() {
            pool.ask(which, &[text], LONG).unwrap();
            pool.begun.recv().unwrap();
            pool.go.send(()).unwrap();
            let said = match pool.answered().1 {
                Ok(numbers) => format!("{numbers:?}"),
                Err(error) => error.to_string(),
            };
            let expected = [
                "told does not judge: panicked: asked",
                "told does not judge: it gave 0 verdicts on 1 texts",
                "told does not judge: it gave something else than a probability for each of 1 labels",
                "[0.1]",
            ];
            assert_eq!(said, expected[which]);
        }
    }

    #[test]
    fn one_text_that_cannot_be_judged_fails_nobody_else() {
        let pool = setup(8);
        pool.ask(0, &["a"], LONG).unwrap();
        assert_eq!(pool.begun.recv(), Ok(1));
        pool.ask(1, &["panic"], LONG).unwrap();
        pool.ask(2, &["bb"], LONG).unwrap();
        for texts in [2, 1, 1] {
            pool.go.send(()).unwrap();
            assert_eq!(pool.begun.recv(), Ok(texts));
        }
        pool.go.send(()).unwrap();
        assert_eq!(pool.answered(), (0, Ok(vec![0.1])));
        assert!(matches!(pool.answered(), (1, Err(PoolError::Failed(_)))));
        assert_eq!(pool.answered(), (2, Ok(vec![0.2])));
    }

    #[test]
    fn who_waits_when_it_ends_is_told_so() {
        let Setup {
            pool,
            begun,
            go,
            answers,
        } = setup(8);
        for which in 0..2 {
            let sender = answers.0.clone();
            let texts = vec![("a".to_owned(), Channel::User)];
            let answer = move |answer: Answer| sender.send((which, answer)).unwrap();
            pool.submit(texts, Instant::now() + LONG, answer).unwrap();
            if which == 0 {
                begun.recv().unwrap();
            }
        }
        drop(pool);
        assert_eq!(answers.1.recv().unwrap(), (1, Err(PoolError::Closed)));
        go.send(()).unwrap();
        assert!(matches!(answers.1.recv().unwrap(), (0, Ok(_))));
    }
}

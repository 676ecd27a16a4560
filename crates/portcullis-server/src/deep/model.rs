//! One deep rule and the classifier that it runs.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::classifier::{SoughtLabels, TextClassifier, is_harmless};
use portcullis_core::rules::{Model, ModelRule, ModelVerdict, RuleError, RuleInfo, RuleInput};
use portcullis_core::{Decision, DeepRuleEntry};
use portcullis_models::{
    Bert, LinearClassifier, Pool, PoolError, PoolOptions, PortcullisClassifier,
};
use portcullis_runtime::{BoxFuture, DeepError, DeepRule};
use tokio::sync::oneshot;

use super::DeepRuleProblem;

/// A score from which on a text counts, where neither the pack nor the model says one.
const THRESHOLD: f32 = 0.5;

/// A deep rule that runs a classifier in this process.
pub(super) struct ClassifierRule {
    info: RuleInfo,
    settings: ModelRule,
    pool: Pool,
    sought: SoughtLabels,
    threshold: f32,
}

impl ClassifierRule {
    pub(super) fn build(
        entry: &DeepRuleEntry,
        settings: &ModelRule,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, DeepRuleProblem> {
        let (classifier, default) = load(&settings.model, variable)?;
        let labels = match settings.labels.as_slice() {
            [] => &default,
            labels => labels,
        };
        let sought = SoughtLabels::of(&*classifier, labels)?;
        refuse_harmless(settings)?;
        #[expect(clippy::cast_possible_truncation, reason = "scores are no finer")]
        let threshold = settings.threshold.map(|threshold| threshold as f32);
        let threshold = threshold.or(classifier.threshold()).unwrap_or(THRESHOLD);
        let options = PoolOptions {
            threads: settings.threads,
            queue: settings.queue,
        };
        Ok(Self {
            info: RuleInfo {
                id: entry.id.clone(),
                version: entry.version().unwrap_or_default().into(),
                events: entry.events.clone(),
                severity: settings.severity(),
            },
            settings: settings.clone(),
            pool: Pool::start(classifier, options).map_err(DeepRuleProblem::Thread)?,
            sought,
            threshold,
        })
    }

    async fn judge(&self, input: RuleInput<'_>) -> Result<Option<Decision>, DeepError> {
        let texts = self.settings.texts(&input);
        if texts.is_empty() {
            return Ok(None);
        }
        let limit = Duration::from_millis(self.settings.timeout_ms as u64);
        let (sender, receiver) = oneshot::channel();
        let asked = self
            .pool
            .submit(texts, Instant::now() + limit, move |answer| {
                // Whoever asked may have given up.
                let _ = sender.send(answer);
            });
        asked.map_err(unanswered)?;
        let late = || {
            let limit = limit.as_millis();
            DeepError::NotAsked(format!("the classifier took longer than {limit} ms"))
        };
        let answer = tokio::time::timeout(limit, receiver).await;
        let answer = answer.map_err(|_| late())?;
        let scores = answer.unwrap_or(Err(PoolError::Closed));
        let scores = scores.map_err(unanswered)?;
        let classifier = self.pool.classifier();
        let verdict = ModelVerdict {
            model: classifier.name(),
            labels: classifier.labels(),
            sought: &self.sought,
            threshold: self.threshold,
            scores: &scores,
        };
        // What is wrong is the event's length or shape, not the model.
        let unfit = |error: RuleError| DeepError::NotAsked(error.0);
        self.settings
            .judge(&self.info.id, &input, &verdict)
            .map_err(unfit)
    }
}

impl DeepRule for ClassifierRule {
    fn info(&self) -> RuleInfo {
        self.info.clone()
    }

    fn evaluate<'a>(
        &'a self,
        input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(self.judge(input))
    }
}

impl fmt::Debug for ClassifierRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifierRule")
            .field("id", &self.info.id)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// No time and no room say nothing of the rule, and are no reason to allow where the policy fails closed; a model that fails
/// has failed.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn unanswered(error: PoolError) -> DeepError {
    let why = error.to_string();
    match error {
        PoolError::Full(_) | PoolError::Closed | PoolError::Late => DeepError::NotAsked(why),
        PoolError::Failed(_) => DeepError::Failed(why),
    }
}

/// Refuses to stop what is harmless and let attacks pass. What somebody has trained may look for anything.
fn refuse_harmless(settings: &ModelRule) -> Result<(), DeepRuleProblem> {
    let harmless = settings.labels.iter().find(|label| is_harmless(label));
    match (&settings.model, harmless) {
        (Model::BuiltIn | Model::HuggingFace { .. }, Some(label)) => {
            Err(DeepRuleProblem::Harmless(label.clone()))
        }
        _ => Ok(()),
    }
}

/// The classifier, and the labels that count for it if the pack names none.
fn load(
    model: &Model,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Arc<dyn TextClassifier>, Vec<String>), DeepRuleProblem> {
    Ok(match model {
        Model::BuiltIn => (Arc::new(PortcullisClassifier::built_in()?), Vec::new()),
        Model::HuggingFace { folder, .. } => {
            let folder = folder.fill(variable)?;
            (hugging_face(Path::new(&folder))?, Vec::new())
        }
        Model::Trained { file, embedder } => {
            let file = file.fill(variable)?;
            let classifier = match embedder {
                None => LinearClassifier::load(Path::new(&file))?,
                Some(folder) => {
                    let embedder = Bert::load(Path::new(&folder.fill(variable)?))?;
                    LinearClassifier::load_with(Path::new(&file), Arc::new(embedder))?
                }
            };
            let positive = classifier.positive().to_vec();
            (Arc::new(classifier), positive)
        }
    })
}

#[cfg(feature = "hf")]
fn hugging_face(folder: &Path) -> Result<Arc<dyn TextClassifier>, DeepRuleProblem> {
    use portcullis_models::SequenceClassifier;
    use portcullis_models::hf::Options;

    let classifier = SequenceClassifier::load(folder, Options::default())?;
    Ok(Arc::new(classifier))
}

#[cfg(not(feature = "hf"))]
fn hugging_face(_: &Path) -> Result<Arc<dyn TextClassifier>, DeepRuleProblem> {
    Err(DeepRuleProblem::NoRunner("hf"))
}

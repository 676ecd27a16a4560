//! Deep rules of a policy that this process can run on its own: those that ask a service over HTTP, and those that run
//! a classifier.
//!
//! ```no_run
//! use portcullis_core::Policy;
//! use portcullis_runtime::Gateway;
//! use portcullis_server::deep::{DeepRuleError, deep_rules};
//!
//! # fn example(policy: Policy) -> Result<Gateway, DeepRuleError> {
//! let rules = deep_rules(&policy, &|name| std::env::var(name).ok())?;
//! let gateway = Gateway::builder(policy).deep_rules(rules).build();
//! # Ok(gateway)
//! # }
//! ```

#[cfg(feature = "models")]
mod model;
mod service;

use std::sync::Arc;

#[cfg(feature = "models")]
use portcullis_core::classifier::LabelError;
use portcullis_core::rules::{DeepSettings, UnsetVariable};
use portcullis_core::{Policy, RuleId};
#[cfg(feature = "models")]
use portcullis_models::LoadError;
use portcullis_runtime::{DeepRule, DeepRules};

use crate::tls::TlsError;
#[cfg(feature = "models")]
use model::ClassifierRule;
use service::ServiceRule;

/// Builds the policy's enabled rules that ask a service or run a classifier. `variable` gives the values of
/// `${NAME}` in their settings. Rules of other kinds are left to whoever has their code.
///
/// Models are loaded, which takes as long as reading their files; a file that is none is an error here. Nothing is
/// connected to yet: a service that is down is noticed when it is asked, and its rule fails.
pub fn deep_rules(
    policy: &Policy,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<DeepRules, DeepRuleError> {
    let mut rules = DeepRules::new();
    for entry in policy.deep_rules().iter().filter(|entry| entry.enabled) {
        let rule: Result<Arc<dyn DeepRule>, _> = match &entry.settings {
            DeepSettings::Other(_) => continue,
            #[cfg(not(feature = "models"))]
            DeepSettings::Model(_) => Err(DeepRuleProblem::NoRunner("models")),
            #[cfg(feature = "models")]
            DeepSettings::Model(settings) => {
                let rule = ClassifierRule::build(entry, settings, variable);
                rule.map(|rule| Arc::new(rule) as _)
            }
            DeepSettings::HttpClassifier(_) | DeepSettings::Presidio(_) => {
                match ServiceRule::build(entry, variable) {
                    Some(rule) => rule.map(|rule| Arc::new(rule) as _),
                    None => continue,
                }
            }
        };
        rules.register(rule.map_err(|problem| DeepRuleError {
            rule: entry.id.clone(),
            problem,
        })?);
    }
    Ok(rules)
}

/// Why a rule cannot be built. It shows no value of a variable.
#[derive(Debug, thiserror::Error)]
#[error("deep rule `{rule}`: {problem}")]
pub struct DeepRuleError {
    /// Which.
    pub rule: RuleId,
    /// What is wrong.
    pub problem: DeepRuleProblem,
}

/// What is wrong with a deep rule's settings where it is to run.
#[derive(Debug, thiserror::Error)]
pub enum DeepRuleProblem {
    /// A variable that they refer to has no value.
    #[error("{0}: export it before starting")]
    Variable(#[from] UnsetVariable),
    /// An address is none once its variables are filled in.
    #[error("`{key}` is not an http or https URL: {why}")]
    Url {
        /// Which setting.
        key: &'static str,
        /// Why not.
        why: String,
    },
    /// A header cannot be sent once its variables are filled in.
    #[error("header `{0}` has characters that a header cannot carry")]
    Header(String),
    /// The certificates of `ca` cannot be used.
    #[error("`ca`: {0}")]
    Certificates(#[from] TlsError),
    /// The model cannot be loaded.
    #[cfg(feature = "models")]
    #[error("{0}")]
    Model(#[from] LoadError),
    /// This program was built without what runs it.
    #[error("this program was built without what runs the rule: build it with the feature `{0}`")]
    NoRunner(&'static str),
    /// It is not clear which of the model's labels count.
    #[cfg(feature = "models")]
    #[error("`labels`: {0}")]
    Labels(#[from] LabelError),
    /// What is harmless is to be found.
    #[cfg(feature = "models")]
    #[error(
        "`labels`: `{0}` stands for harmless text, which would be stopped, and attacks would pass: name the labels that are \
         to be found, or leave `labels` out"
    )]
    Harmless(String),
    /// There is no thread for it.
    #[cfg(feature = "models")]
    #[error("no thread for the classifier: {0}")]
    Thread(std::io::Error),
    /// There is no client for it.
    #[error("no HTTP client: {0}")]
    Client(String),
}

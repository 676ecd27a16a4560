//! Deep rules of a policy that this process can run on its own: those that ask a service over HTTP.
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

mod service;

use std::sync::Arc;

use portcullis_core::rules::UnsetVariable;
use portcullis_core::{Policy, RuleId};
use portcullis_runtime::DeepRules;

use crate::tls::TlsError;
use service::ServiceRule;

/// Builds the policy's enabled rules that ask a service. `variable` gives the values of `${NAME}` in
/// their settings. Rules of other kinds are left to whoever has their models or their code.
///
/// Nothing is connected to yet: a service that is down is noticed when it is asked, and its rule fails.
pub fn deep_rules(
    policy: &Policy,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<DeepRules, DeepRuleError> {
    let mut rules = DeepRules::new();
    for entry in policy.deep_rules().iter().filter(|entry| entry.enabled) {
        if let Some(rule) = ServiceRule::build(entry, variable) {
            let rule = rule.map_err(|problem| DeepRuleError {
                rule: entry.id.clone(),
                problem,
            })?;
            rules.register(Arc::new(rule));
        }
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
    /// There is no client for it.
    #[error("no HTTP client: {0}")]
    Client(String),
}

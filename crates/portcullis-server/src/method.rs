//! The methods of CSTP: the one list that the dispatcher, the agent card and the limits go by; and what is limited
//! and counted beside them.

/// A method that agents can call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// F004: say what one is about to do, and hear what speaks for and against it.
    AnnounceIntent,
    /// F003: may this be done?
    CheckGuardrails,
    /// How well agents know what they know.
    GetCalibration,
    /// All that is known of a decision.
    GetDecision,
    /// All that was announced under a correlation id.
    GetIntent,
    /// Decisions, the latest first.
    ListDecisions,
    /// What the guardrails are.
    ListGuardrails,
    /// Decisions like something, the nearest first.
    QueryDecisions,
    /// Remember a decision.
    RecordDecision,
    /// Say what came of one.
    ReviewDecision,
}

impl Method {
    /// All of them, in the order in which the agent card names them.
    pub const ALL: &'static [Self] = &[
        Self::AnnounceIntent,
        Self::CheckGuardrails,
        Self::GetCalibration,
        Self::GetDecision,
        Self::GetIntent,
        Self::ListDecisions,
        Self::ListGuardrails,
        Self::QueryDecisions,
        Self::RecordDecision,
        Self::ReviewDecision,
    ];

    /// As it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnnounceIntent => "cstp.announceIntent",
            Self::CheckGuardrails => "cstp.checkGuardrails",
            Self::GetCalibration => "cstp.getCalibration",
            Self::GetDecision => "cstp.getDecision",
            Self::GetIntent => "cstp.getIntent",
            Self::ListDecisions => "cstp.listDecisions",
            Self::ListGuardrails => "cstp.listGuardrails",
            Self::QueryDecisions => "cstp.queryDecisions",
            Self::RecordDecision => "cstp.recordDecision",
            Self::ReviewDecision => "cstp.reviewDecision",
        }
    }

    /// What it does, in a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::AnnounceIntent => {
                "Announce an action before taking it: guardrails, precedents and suggestions in one answer"
            }
            Self::CheckGuardrails => {
                "Check an intended action against the guardrails: allowed or blocked, by which, and what to do instead"
            }
            Self::GetCalibration => {
                "Compare how sure agents were with how it turned out: Brier score, buckets, advice"
            }
            Self::GetDecision => "Show a decision, why it was taken and what came of it",
            Self::GetIntent => "Show all that was announced under a correlation id",
            Self::ListDecisions => "List decisions, the latest first",
            Self::ListGuardrails => "List the guardrails that checks go by",
            Self::QueryDecisions => "Find decisions by meaning and by words, the nearest first",
            Self::RecordDecision => "Remember a decision, with its reasons",
            Self::ReviewDecision => "Say what came of a decision, and what was learned",
        }
    }

    /// What it is about, in a word.
    pub const fn subject(self) -> &'static str {
        match self {
            Self::AnnounceIntent
            | Self::CheckGuardrails
            | Self::GetIntent
            | Self::ListGuardrails => "guardrails",
            Self::GetCalibration
            | Self::GetDecision
            | Self::ListDecisions
            | Self::QueryDecisions
            | Self::RecordDecision
            | Self::ReviewDecision => "decisions",
        }
    }

    /// The method of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|method| method.name() == name)
            .copied()
    }
}

/// What agents are limited in, each for itself: a method, or a door of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A method of CSTP.
    Cstp(Method),
    /// `POST /v1/a2a/convert`
    A2aConvert,
    /// `POST /v1/a2a/import`
    A2aImport,
}

impl Operation {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let methods = Method::ALL.iter().copied().map(Self::Cstp);
        methods.chain([Self::A2aConvert, Self::A2aImport])
    }

    /// As the configuration and the metrics call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cstp(method) => method.name(),
            Self::A2aConvert => "a2a.convert",
            Self::A2aImport => "a2a.import",
        }
    }

    /// The operation of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|operation| operation.name() == name)
    }
}

impl From<Method> for Operation {
    fn from(method: Method) -> Self {
        Self::Cstp(method)
    }
}

//! The methods of CSTP: the one list that the dispatcher, the agent card and the limits go by.

/// A method that agents can call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// F004: say what one is about to do, and hear what speaks for and against it.
    AnnounceIntent,
    /// F003: may this be done?
    CheckGuardrails,
    /// What the guardrails are.
    ListGuardrails,
}

impl Method {
    /// All of them, in the order in which the agent card names them.
    pub const ALL: &'static [Self] = &[
        Self::AnnounceIntent,
        Self::CheckGuardrails,
        Self::ListGuardrails,
    ];

    /// As it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnnounceIntent => "cstp.announceIntent",
            Self::CheckGuardrails => "cstp.checkGuardrails",
            Self::ListGuardrails => "cstp.listGuardrails",
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
            Self::ListGuardrails => "List the guardrails that checks go by",
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

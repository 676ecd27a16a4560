//! Who is calling: bearer tokens, each of one agent.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Shorter tokens can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;
/// Longer ones are no tokens; hashing them would only take time.
const MAX_TOKEN_BYTES: usize = 4096;
const MAX_AGENT_CHARS: usize = 128;

/// The name of an agent that has shown its token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Whoever calls while authentication is off.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token as it is written in the configuration. Shows nothing of itself.
#[derive(Clone)]
pub struct Token(Box<str>);

impl Token {
    /// A new one, which nobody can guess, and its text.
    pub fn generate() -> (Self, String) {
        let half = || uuid::Uuid::new_v4().simple().to_string();
        let text = format!("pc_{}{}", half(), half());
        (Self(text.as_str().into()), text)
    }

    /// Takes what could be sent in a header.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        match text {
            "" => Err(TokenError::Empty),
            _ if text.len() < MIN_TOKEN_BYTES => Err(TokenError::Short),
            _ if text.len() > MAX_TOKEN_BYTES => Err(TokenError::Long),
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => Err(TokenError::Characters),
            _ => Ok(Self(text.into())),
        }
    }

    /// The text, for whoever has to send it or sign with it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why a token cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It would let in whoever sends none.
    #[error("it is empty, and an empty token never authenticates")]
    Empty,
    /// It could be guessed.
    #[error("it is shorter than {MIN_TOKEN_BYTES} characters, so it could be guessed")]
    Short,
    /// It is no token.
    #[error("it is longer than {MAX_TOKEN_BYTES} characters")]
    Long,
    /// It cannot be sent.
    #[error("it has blanks or characters that a header cannot carry")]
    Characters,
    /// Two agents could not be told apart.
    #[error("agent `{0}` has the same token, so the two could not be told apart")]
    Shared(String),
    /// The name cannot be recorded.
    #[error(
        "`{0}` is not a name for an agent: up to {MAX_AGENT_CHARS} characters, none of them a blank or a control character"
    )]
    Agent(String),
}

/// The tokens that let somebody in. Only their digests are kept.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Vec<(AgentId, [u8; 32])>,
}

impl Tokens {
    /// Lets an agent in by this token. An agent may have several, so that they can be changed without
    /// a gap.
    pub fn add(&mut self, agent: &str, token: &Token) -> Result<(), TokenError> {
        let blank = |c: char| c.is_whitespace() || c.is_control();
        if agent.is_empty() || agent.chars().count() > MAX_AGENT_CHARS || agent.contains(blank) {
            return Err(TokenError::Agent(agent.to_owned()));
        }
        let digest = digest(&token.0);
        if let Some((other, _)) = self.known.iter().find(|(_, known)| *known == digest) {
            return Err(TokenError::Shared(other.to_string()));
        }
        self.known.push((AgentId(agent.into()), digest));
        Ok(())
    }

    /// Whether nobody can come in.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whose they are.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|(agent, _)| agent.as_str())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whose token an `Authorization` header carries. Takes the same time whichever it is, or none.
    pub fn authenticate(&self, header: Option<&[u8]>) -> Result<AgentId, AuthError> {
        let header = header.ok_or(AuthError::Missing)?;
        let token = bearer(header).ok_or(AuthError::NotBearer)?;
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::Unknown);
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (agent, known) in &self.known {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(agent);
            }
        }
        found.cloned().ok_or(AuthError::Unknown)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.agents()).finish()
    }
}

/// Why nobody was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There is no header.
    #[error("no Authorization header: send `Authorization: Bearer <token>`")]
    Missing,
    /// It has another scheme.
    #[error("Invalid authorization header: send `Authorization: Bearer <token>`")]
    NotBearer,
    /// Nobody has this token.
    #[error("Invalid token")]
    Unknown,
}

impl AuthError {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Missing, Self::NotBearer, Self::Unknown];

    /// For metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotBearer => "not_bearer",
            Self::Unknown => "unknown_token",
        }
    }
}

/// What follows `Bearer`, in whatever case that is written.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "0123456789abcdef";

    fn tokens() -> Tokens {
        let mut tokens = Tokens::default();
        let token = Token::parse(GOOD).unwrap();
        tokens.add("emerson", &token).unwrap();
        tokens
    }

    #[test]
    fn the_token_says_who_is_calling() {
        for header in ["Bearer ", "bearer ", "BEARER ", "Bearer   "] {
            let header = format!("{header}{GOOD}");
            let agent = tokens().authenticate(Some(header.as_bytes()));
            assert_eq!(agent.unwrap().as_str(), "emerson", "{header}");
        }
    }

    #[test]
    fn nothing_else_lets_anybody_in() {
        let long = format!("Bearer {}", "x".repeat(5000));
        for (header, error) in [
            ("", AuthError::NotBearer),
            ("Bearer", AuthError::NotBearer),
            ("Bearer ", AuthError::Unknown),
            ("Bearer    ", AuthError::Unknown),
            ("Basic 0123456789abcdef", AuthError::NotBearer),
            ("0123456789abcdef", AuthError::NotBearer),
            ("Bearer 0123456789abcde", AuthError::Unknown),
            ("Bearer 0123456789abcdef0", AuthError::Unknown),
            ("Bearer 0123456789ABCDEF", AuthError::Unknown),
            (&long, AuthError::Unknown),
        ] {
            let answer = tokens().authenticate(Some(header.as_bytes()));
            assert_eq!(answer.unwrap_err(), error, "{header}");
        }
        assert_eq!(tokens().authenticate(None).unwrap_err(), AuthError::Missing);
        assert!(Tokens::default().authenticate(Some(b"Bearer ")).is_err());
    }

    #[test]
    fn tokens_that_cannot_be_good_are_refused() {
        for (token, error) in [
            ("", TokenError::Empty),
            ("short", TokenError::Short),
            ("0123456789 abcdef", TokenError::Characters),
            ("0123456789äbcdefgh", TokenError::Characters),
        ] {
            assert_eq!(Token::parse(token).unwrap_err(), error, "{token}");
        }
        let token = Token::parse(GOOD).unwrap();
        let mut tokens = tokens();
        assert_eq!(
            tokens.add("claude-ops", &token).unwrap_err(),
            TokenError::Shared("emerson".to_owned())
        );
        for name in ["", "a b", "a\nb"] {
            let other = Token::parse("fedcba9876543210").unwrap();
            assert!(tokens.add(name, &other).is_err(), "{name}");
        }
    }

    #[test]
    fn nothing_shows_a_token() {
        let shown = format!("{:?} {:?}", tokens(), Token::parse(GOOD).unwrap());
        assert!(!shown.contains(GOOD), "{shown}");
    }
}

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::{self, MapReader, Node, Yaml};

/// Where a service is, and how it is asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Endpoint {
    /// Of `http` or `https`.
    pub url: VariableText,
    /// Sent with every request.
    pub headers: Vec<Header>,
    /// How long an answer may take, the wait for a place included.
    pub timeout_ms: usize,
    /// How many requests may be under way at once.
    pub max_concurrent: usize,
    /// The most that the texts of one request may measure.
    pub max_text_bytes: Option<usize>,
    /// A file of certificates to trust, in PEM form, besides the system's.
    pub ca: Option<VariableText>,
    /// A proxy to go through.
    pub proxy: Option<VariableText>,
}

impl Endpoint {
    const TIMEOUT_MS: usize = 1000;
    const LONGEST_TIMEOUT_MS: usize = 60_000;
    const MAX_CONCURRENT: usize = 16;
    const MOST_CONCURRENT: usize = 1024;

    /// With the defaults.
    pub fn new(url: VariableText) -> Self {
        Self {
            url,
            headers: Vec::new(),
            timeout_ms: Self::TIMEOUT_MS,
            max_concurrent: Self::MAX_CONCURRENT,
            max_text_bytes: None,
            ca: None,
            proxy: None,
        }
    }

    pub(super) fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<Self> {
        let url = config.require("url", d);
        let url = url.and_then(|node| read_url(node, "url", d));
        let headers = read_headers(config, d);
        let timeout_ms = at_most(config, "timeout_ms", Self::LONGEST_TIMEOUT_MS, d);
        let max_concurrent = at_most(config, "max_concurrent", Self::MOST_CONCURRENT, d);
        let max_text_bytes = config.count("max_text_bytes", d);
        let ca = config.get("ca");
        let ca = ca.and_then(|node| VariableText::read(node, "ca", d));
        let proxy = config.get("proxy");
        let proxy = proxy.and_then(|node| read_url(node, "proxy", d));
        Some(Self {
            headers,
            timeout_ms: timeout_ms.unwrap_or(Self::TIMEOUT_MS),
            max_concurrent: max_concurrent.unwrap_or(Self::MAX_CONCURRENT),
            max_text_bytes,
            ca,
            proxy,
            url: url?,
        })
    }
}

/// A header of every request. Its value is not printed, and a policy's digest depends on its hash only.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// Such as `Authorization`.
    pub name: String,
    /// Such as `Bearer ${TOKEN}`.
    pub value: VariableText,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut hasher = Sha256::new();
        hasher.update((self.name.len() as u64).to_be_bytes());
        hasher.update(&self.name);
        hasher.update(&self.value.0);
        let hash = hasher.finalize();
        let hash = hash.first_chunk().copied().unwrap_or_default();
        let hash = format!("{:016x}", u64::from_be_bytes(hash));
        (&self.name, hash).serialize(serializer)
    }
}

/// A text with `${NAME}` in it, for variables that are known where the rule is built. The pack and its
/// digest have the names, never the values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct VariableText(String);

/// A variable that is needed and not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the variable `{0}` is not set")]
pub struct UnsetVariable(pub String);

impl VariableText {
    /// The text, or what is wrong with it.
    pub fn new(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                return Err("has a `${` that is never closed".to_owned());
            };
            if !is_name(name) {
                // What it says instead may be the secret itself.
                return Err("has a `${…}` that no variable can be called".to_owned());
            }
            rest = after;
        }
        Ok(Self(text))
    }

    pub(super) fn read(node: &Node, key: &str, d: &mut Diagnostics) -> Option<Self> {
        match Self::new(yaml::text(node, key, d)?) {
            Ok(text) => Some(text),
            Err(problem) => {
                d.error(node.place, format!("`{key}` {problem}"))
                    .help("write a variable as ${NAME}, with letters, digits and `_`");
                None
            }
        }
    }

    /// Whether it refers to a variable.
    pub fn has_variables(&self) -> bool {
        self.0.contains("${")
    }

    /// The text with the values of its variables.
    pub fn fill(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, UnsetVariable> {
        let mut filled = String::with_capacity(self.0.len());
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            filled.push_str(before);
            let value = variable(name).ok_or_else(|| UnsetVariable(name.to_owned()))?;
            filled.push_str(&value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A URL, as far as it is known before its variables are.
fn read_url(node: &Node, key: &str, d: &mut Diagnostics) -> Option<VariableText> {
    let url = checked_url(node, key, d);
    // Keys are given in queries, too.
    if url.as_ref().is_none_or(|url| url.0.contains('?')) {
        conceal(node, d);
    }
    url
}

fn checked_url(node: &Node, key: &str, d: &mut Diagnostics) -> Option<VariableText> {
    let url = VariableText::read(node, key, d)?;
    let text = url.0.as_str();
    let scheme = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let rest = match scheme {
        Some(rest) => rest,
        None if text.starts_with("${") => text,
        None => {
            d.error(node.place, format!("`{key}` must be an http or https URL"))
                .help("write it as https://classifier.example.com/v1/score");
            return None;
        }
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || text.contains(char::is_whitespace) || text.contains('#') {
        d.error(node.place, format!("`{key}` is not the URL of a service"))
            .help("it has a host, no white space and no `#`");
        return None;
    }
    if authority.contains('@') {
        d.error(
            node.place,
            format!("`{key}` has a user or a password in it"),
        )
        .help("send a header: `headers: {Authorization: \"Basic ${NAME}\"}`");
        return None;
    }
    Some(url)
}

fn read_headers(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Vec<Header> {
    let Some(node) = config.get("headers") else {
        return Vec::new();
    };
    let Yaml::Map(entries) = &node.yaml else {
        conceal(node, d);
        d.error(node.place, "`headers` must map a name to a value");
        return Vec::new();
    };
    let mut headers: Vec<Header> = Vec::new();
    for (key, node) in entries {
        let name = key.name.as_str();
        let other = |c: char| !c.is_ascii_alphanumeric() && !"!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || name.contains(other) {
            // A value that is taken for part of the name is not shown either.
            let shown = name.split(other).next().unwrap_or_default();
            let rest = if shown == name { "" } else { "…" };
            d.conceal(key.place);
            conceal(node, d);
            d.error(
                key.place,
                format!("`{shown}{rest}` is not the name of a header"),
            );
            continue;
        }
        if !is_variable(node) {
            d.conceal(key.place);
            conceal(node, d);
        }
        if let Some(own) = OWN_HEADERS
            .iter()
            .find(|own| name.eq_ignore_ascii_case(own))
        {
            d.error(key.place, format!("`{own}` is ours to send"))
                .help("leave it out");
            continue;
        }
        if headers
            .iter()
            .any(|known| known.name.eq_ignore_ascii_case(name))
        {
            d.error(key.place, format!("header `{name}` is there twice"))
                .help("keep one of them");
            continue;
        }
        let Some(value) = VariableText::read(node, name, d) else {
            continue;
        };
        if value.0.chars().any(char::is_control) {
            d.error(
                key.place,
                format!("header `{name}` has a control character"),
            );
            continue;
        }
        if is_secret(name) && !value.has_variables() {
            d.warning(
                key.place,
                format!("header `{name}` has its secret in the pack"),
            )
            .help("write `${NAME}`: it is filled in when the rule is built");
        }
        headers.push(Header {
            name: name.to_owned(),
            value,
        });
    }
    headers
}

/// Whether the value leaves what is secret in it to a variable.
fn is_variable(node: &Node) -> bool {
    let Yaml::Text(text) = &node.yaml else {
        return false;
    };
    VariableText::new(text.as_str()).is_ok_and(|text| text.has_variables())
}

/// Keeps all of a value out of reports.
fn conceal(node: &Node, d: &mut Diagnostics) {
    d.conceal(node.place);
    match &node.yaml {
        Yaml::List(items) => items.iter().for_each(|item| conceal(item, d)),
        Yaml::Map(entries) => {
            for (key, value) in entries {
                d.conceal(key.place);
                conceal(value, d);
            }
        }
        _ => {}
    }
}

/// What requests have already.
const OWN_HEADERS: [&str; 6] = [
    "Content-Type",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Accept",
    "Host",
];

fn is_secret(header: &str) -> bool {
    let name = header.to_ascii_lowercase();
    ["authorization", "cookie", "key", "token", "secret"]
        .iter()
        .any(|sign| name.contains(sign))
}

pub(super) fn at_most(
    config: &mut MapReader<'_>,
    key: &'static str,
    most: usize,
    d: &mut Diagnostics,
) -> Option<usize> {
    let value = config.count(key, d)?;
    if value > most {
        let place = config.get(key).map(|node| node.place).unwrap_or_default();
        d.error(
            place,
            format!("`{key}` must be at most {most}, not {value}"),
        );
        return None;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variables_are_filled_in_once_and_missed_by_name() {
        let text = VariableText::new("a ${X} b ${Y}${X}").unwrap();
        let known = |name: &str| (name != "Z").then(|| format!("<${{{name}}}>"));
        assert_eq!(text.fill(&known).unwrap(), "a <${X}> b <${Y}><${X}>");
        let unset = VariableText::new("${X} ${Z}").unwrap().fill(&known);
        assert_eq!(
            unset.unwrap_err().to_string(),
            "the variable `Z` is not set"
        );
        for wrong in ["${", "${}", "${1}", "${a b}", "x ${A} ${"] {
            assert!(VariableText::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_header_shows_no_value() {
        let header = |value: &str| Header {
            name: "Authorization".to_owned(),
            value: VariableText::new(value).unwrap(),
        };
        let shown = format!("{:?}", header("Bearer hunter2"));
        assert_eq!(shown, "Authorization: …");
        let json = |value| serde_json::to_string(&header(value)).unwrap();
        assert!(!json("hunter2").contains("hunter2"));
        assert_ne!(json("hunter2"), json("hunter3"));
    }

    proptest! {
        #[test]
        fn any_text_is_filled_or_refused(text in "[a${}A_1 é]{0,24}", value in ".{0,8}") {
            if let Ok(text) = VariableText::new(&text) {
                let filled = text.fill(&|_| Some(value.clone())).unwrap();
                prop_assert!(text.has_variables() || filled == text.0);
            }
        }
    }
}

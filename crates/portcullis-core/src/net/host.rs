//! One host: a name or an address, however it is spelt.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;
use std::fmt;

use unicode_normalization::UnicodeNormalization;

use super::address::{self, Reach, parse_v4, parse_v6};
use super::command;

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host<'t> {
    /// A name in lower case, without trailing dots.
    Name(Cow<'t, str>),
    /// An IPv4 address.
    V4 {
        /// As browsers and the C library read it.
        address: Ipv4Addr,
        /// As clients read it that do not know octal, where that differs.
        decimal: Option<Ipv4Addr>,
    },
    /// An IPv6 address.
    V6(Ipv6Addr),
    /// The end of a name whose beginning is put in by a shell or a template, or that no client reads:
    /// `.b.example` of `$(id).b.example`. Empty if nothing of it is known.
    Ending(Cow<'t, str>),
}

/// Names that a resolver answers with a local address: these, and everything below them.
const LOCAL: [&str; 9] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "lan",
    "svc",
    "home.arpa",
    "ip6-localhost",
    "ip6-loopback",
];

/// Endings that companies, routers and service meshes give the names of their own network, and whole names there.
/// Each by itself is a word.
const BELOW: [&str; 10] = [
    "corp",
    "home",
    "intranet",
    "intra",
    "private",
    "consul",
    "fritz.box",
    "kubernetes.default",
    "loopback",
    "broadcasthost",
];

/// Public names that always answer with a loopback address, as does everything below them.
const LOOPBACK: [&str; 7] = [
    "localtest.me",
    "lvh.me",
    "vcap.me",
    "lacolhost.com",
    "fuf.me",
    "localho.st",
    "local.gd",
];

/// Public names below which a name says what address to answer with.
const WILDCARD: [&str; 7] = [
    "nip.io",
    "sslip.io",
    "xip.io",
    "traefik.me",
    "backname.io",
    "1u.ms",
    "rbndr.us",
];

/// The metadata services' own names.
const METADATA: [&str; 8] = [
    "metadata",
    "instance-data",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
];

/// The first letters of local names. Most words are settled by that.
const INITIALS: u32 = initials(&LOCAL) | initials(&METADATA);

const fn initials(names: &[&str]) -> u32 {
    let (mut initials, mut place) = (0, 0);
    while place < names.len() {
        initials |= command::initial(names[place]);
        place += 1;
    }
    initials
}

impl<'t> Host<'t> {
    /// Reads a host as a client would: percent-encoding, look-alike digits and dots, and every
    /// notation of an address. `None` if no client could.
    pub fn parse(raw: &'t str) -> Option<Self> {
        if let Some(inner) = raw.strip_prefix('[') {
            return parse_v6(inner.strip_suffix(']')?).map(Self::V6);
        }
        let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        if raw.bytes().all(plain) {
            let name = raw.trim_end_matches('.');
            return match classify(name)? {
                Some(host) => Some(host),
                None => Some(Self::Name(Cow::Borrowed(name))),
            };
        }
        let mut name = normalise(raw);
        if name.contains(is_forbidden) {
            return None;
        }
        name.truncate(name.trim_end_matches('.').len());
        match classify(&name)? {
            Some(host) => Some(host),
            None => Some(Self::Name(Cow::Owned(name))),
        }
    }

    /// What can be read of a host's end.
    pub(super) fn ending(raw: &'t str) -> Self {
        let raw = raw.trim_end_matches('.');
        let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        if raw.bytes().all(plain) && !raw.contains("..") {
            return Self::Ending(Cow::Borrowed(raw));
        }
        let mut name = normalise(raw);
        let last = name.char_indices().rfind(|(_, c)| is_forbidden(*c));
        let start = last.map_or(0, |(at, c)| at + c.len_utf8());
        let gap = name.rfind("..").map_or(0, |at| at + 1);
        name.drain(..start.max(gap));
        Self::Ending(Cow::Owned(name))
    }

    /// What the host reaches, if that is not the public internet.
    pub fn reach(&self) -> Option<Reach> {
        match self {
            Self::Name(name) => reach_of_name(name),
            Self::Ending(end) => reach_of_name(end.trim_start_matches('.')),
            _ => self.addresses().find_map(address::reach),
        }
    }

    /// Every address that the host is, to one client or another.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let (first, second) = match self {
            Self::Name(_) | Self::Ending(_) => (None, None),
            Self::V4 { address, decimal } => (Some(IpAddr::V4(*address)), decimal.map(IpAddr::V4)),
            Self::V6(address) => (Some(IpAddr::V6(*address)), None),
        };
        first.into_iter().chain(second)
    }

    /// Whether it is what a server listens on.
    pub(super) fn is_unspecified(&self) -> bool {
        self.addresses().any(|address| address.is_unspecified())
    }

    /// Whether a word in whatever case is such a name.
    pub(super) fn is_local_word(word: &str) -> bool {
        let mut local = LOCAL.iter().chain(&METADATA);
        command::initial(word) & INITIALS != 0 && local.any(|name| name.eq_ignore_ascii_case(word))
    }

    /// Whether it is a name without a dot, which no public resolver answers.
    pub(crate) fn is_dotless(&self) -> bool {
        matches!(self, Self::Name(name) if !name.contains('.'))
    }

    /// Whether it is a word of English besides, and as a name by itself resolves to nothing.
    pub(crate) fn is_word(&self) -> bool {
        const WORDS: [&str; 5] = ["internal", "lan", "local", "localdomain", "svc"];
        matches!(self, Self::Name(name) if WORDS.contains(&&**name))
    }

    /// Whether it is a name that no public resolver knows by itself.
    pub(super) fn is_known_single_label(&self) -> bool {
        matches!(self, Self::Name(name) if LOCAL.contains(&&**name) || METADATA.contains(&&**name))
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ending(end) => write!(f, "*{end}"),
            Self::V4 { address, decimal } => {
                write!(f, "{address}")?;
                decimal.map_or(Ok(()), |other| write!(f, " or {other}"))
            }
            Self::V6(address) => write!(f, "{address}"),
        }
    }
}

/// Whether `name` is `suffix` or below it.
pub(super) fn is_under(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// `None` if this is no host; `Some(None)` if it is a name.
#[expect(clippy::option_option, reason = "no host, a name, or an address")]
fn classify(name: &str) -> Option<Option<Host<'static>>> {
    let last = name.rsplit('.').next().filter(|last| !last.is_empty())?;
    let digits = last.strip_prefix("0x");
    let numeric = digits.map_or_else(
        || last.bytes().all(|b| b.is_ascii_digit()),
        |digits| digits.bytes().all(|b| b.is_ascii_hexdigit()),
    );
    if !numeric {
        let gap = name.starts_with('.') || name.contains("..");
        return (!gap).then_some(None);
    }
    let (address, decimal) = parse_v4(name)?;
    Some(Some(Host::V4 { address, decimal }))
}

fn reach_of_name(name: &str) -> Option<Reach> {
    let under = |list: &[&str]| list.iter().any(|suffix| is_under(name, suffix));
    if METADATA.contains(&name) {
        return Some(Reach::Metadata);
    }
    if under(&LOCAL) || name.contains('.') && under(&BELOW) {
        return Some(Reach::LocalName);
    }
    if under(&LOOPBACK) {
        return Some(Reach::Loopback);
    }
    let suffix = WILDCARD.iter().find(|suffix| is_under(name, suffix))?;
    carried(name.strip_suffix(suffix)?)
}

/// What an address written into a name reaches: `10.0.0.1.`, `app-10-0-0-1.`, `0a000001.`, `--1.`
fn carried(prefix: &str) -> Option<Reach> {
    let mut window = [None; 4];
    let pieces = prefix
        .split(['.', '-'])
        .map(|piece| piece.parse::<u8>().ok());
    let mut quads = pieces.filter_map(|piece| {
        window.rotate_left(1);
        window[3] = piece;
        let [Some(a), Some(b), Some(c), Some(d)] = window else {
            return None;
        };
        Some(IpAddr::from([a, b, c, d]))
    });
    quads.find_map(address::reach).or_else(|| {
        prefix.split('.').find_map(|label| {
            let hex = (label.len() == 8).then(|| u32::from_str_radix(label, 16).ok());
            let hex = hex.flatten().map(|bits| IpAddr::V4(bits.into()));
            let dashed = || parse_v6(&label.replace('-', ":")).map(IpAddr::V6);
            hex.or_else(dashed).and_then(address::reach)
        })
    })
}

/// Lower case, percent-encoding undone, look-alikes made plain.
fn normalise(raw: &str) -> String {
    let decoded = decode(raw);
    let mut name = String::with_capacity(decoded.len());
    for c in decoded.chars() {
        if is_ignored(c) {
            continue;
        }
        match ascii_of(c) {
            Some(number) if number >= 10 => {
                name.push_str(&number.to_string());
            }
            Some(digit) => name.push(char::from(b'0' + digit)),
            None => name.extend(letter_of(c).to_lowercase()),
        }
    }
    name
}

/// What no host has in it.
pub(super) fn is_forbidden(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(c, '!'..=',' | '/' | ':'..='@' | '['..='^' | '`' | '{'..='~')
}

/// The text with `%41` for `A` and so on undone.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let hex = hex.filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

/// Soft hyphen, zero-width characters and variation selectors: IDNA drops them.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{2064}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}')
}

/// The number that a look-alike stands for: superscript, subscript, circled, mathematical.
fn ascii_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    let from = |first: u32, value: u32| u8::try_from(code - first + value).ok();
    match code {
        0xb2..=0xb3 => from(0xb2, 2),
        0xb9 => Some(1),
        0x2070 | 0x24ea => Some(0),
        0x2074..=0x2079 => from(0x2074, 4),
        0x2080..=0x2089 => from(0x2080, 0),
        0x2460..=0x2473 => from(0x2460, 1),
        0x1d7ce..=0x1d7ff => u8::try_from((code - 0x1d7ce) % 10).ok(),
        0x1fbf0..=0x1fbf9 => from(0x1fbf0, 0),
        _ => None,
    }
}

/// The letter or mark that a look-alike stands for; itself if it is none.
fn letter_of(c: char) -> char {
    let code = u32::from(c);
    let ascii = match code {
        // Ideographic and halfwidth full stops, one dot leader.
        0x3002 | 0xff61 | 0x2024 => Some(u32::from('.')),
        // Fullwidth forms.
        0xff01..=0xff5e => Some(code - 0xff01 + 0x21),
        // Circled letters.
        0x24b6..=0x24cf => Some(code - 0x24b6 + u32::from('a')),
        0x24d0..=0x24e9 => Some(code - 0x24d0 + u32::from('a')),
        // Mathematical alphabets, one after the other: capital letters, then small ones.
        0x1d400..=0x1d6a3 => Some((code - 0x1d400) % 26 + u32::from('a')),
        _ => None,
    };
    ascii
        .and_then(char::from_u32)
        .unwrap_or_else(|| compatible(c))
}

/// The one letter that Unicode says a sign is compatible with: `ℓ` is an `l`.
fn compatible(c: char) -> char {
    let mut plain = std::iter::once(c).nfkc();
    match (plain.next(), plain.next()) {
        (Some(letter), None) if letter.is_ascii_alphabetic() => letter,
        _ => c,
    }
}

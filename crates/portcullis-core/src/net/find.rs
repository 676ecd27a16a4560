//! Finds the hosts in a text.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use super::command::{self, Arguments};
use super::host::{Host, decode, is_forbidden};
use super::insert;

/// A host in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'t> {
    /// Which.
    pub host: Host<'t>,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
    /// What makes it one.
    pub position: Position,
}

/// What makes a piece of text a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// It is a URL's.
    Url,
    /// The text is a host by the name it goes under, such as `endpoint`.
    Key,
    /// It is an argument of `curl`, `ssh`, `ping` and the like.
    Argument,
    /// A port follows.
    Port,
    /// Four decimal numbers with dots between them.
    Quad,
    /// A name in quotes, before a path or after `=`. It may be something else.
    Loose,
}

/// What a visitor is handed, host by host; it may break off.
pub(super) type Visit<'v, B> = dyn FnMut(&Found<'_>) -> ControlFlow<B> + 'v;

/// Visits the hosts in a text. `is_host` says that the text goes under a name for hosts, so that a bare
/// number or name is one. A host that clients read differently is visited once for each reading.
///
/// Takes time linear in the text.
pub fn hosts<B>(
    text: &str,
    is_host: bool,
    visit: &mut dyn FnMut(&Found<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    hosts_if(text, &|| is_host, visit)
}

/// The same, where telling whether the text goes under such a name takes longer than telling that it
/// makes no difference.
pub(crate) fn hosts_if<B>(
    text: &str,
    is_host: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(&Found<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let start = text.len() - text.trim_start_matches(|c: char| c <= ' ').len();
    let mut finder = Finder {
        text,
        start,
        visit,
        named: false,
        inserted: None,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b',');
    if text.bytes().all(plain) {
        // Only its name can make a host of it.
        return if could_be_host(text) {
            finder.whole(is_host)
        } else {
            ControlFlow::Continue(())
        };
    }
    finder.whole(is_host)?;
    let mut commands = command::Regions::default();
    finder.command(0, &mut commands)?;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b':' => {
                finder.url(at)?;
                finder.port(at)?;
            }
            b'.' => finder.dotted(at)?,
            b'%' => finder.encoded_url(at)?,
            b'/' => finder.device(at)?,
            _ if command::starts_after(byte) => finder.command(at + 1, &mut commands)?,
            _ => {}
        }
    }
    ControlFlow::Continue(())
}

/// Whether a text may have a host in it, told at a glance: it may say yes too often. `bare` says that a word by itself
/// counts, which may go under a name for hosts, or be a command whose arguments are elsewhere.
pub(crate) fn may_hold_host(text: &str, bare: bool) -> bool {
    let kinds = text
        .bytes()
        .fold(0, |kinds, b| kinds | KINDS[usize::from(b)]);
    if kinds & OTHER != 0 {
        return true;
    }
    if kinds & SPACE == 0 {
        let may_be = || kinds & DIGIT != 0 || Host::is_local_word(text);
        return bare && (may_be() || command::is_plain_command(text));
    }
    // Of several words only the first can make hosts of the others.
    let text = text.trim_ascii_end();
    match text.bytes().position(|byte| byte == b' ') {
        Some(end @ 1..) => command::may_begin_with(&text[..end]),
        _ => true,
    }
}

/// What a text is made of, by [`KINDS`]. Letters, `_`, `-` and `,` count as nothing.
const SPACE: u8 = 1;
const DIGIT: u8 = 2;
const OTHER: u8 = 4;

static KINDS: [u8; 256] = {
    let mut kinds = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b' ' => SPACE,
            b'0'..=b'9' => DIGIT,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'-' | b',' => 0,
            _ => OTHER,
        };
        byte += 1;
    }
    kinds
};

/// Schemes whose URLs have a host however many slashes they have.
const SPECIAL: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];

/// Schemes in which what looks like a host is none.
const HOSTLESS: [&str; 10] = [
    "file", "s3", "s3a", "s3n", "gs", "dbfs", "data", "content", "package", "chrome",
];

/// No scheme that matters is longer.
const LONGEST_SCHEME: usize = 16;

/// No host is longer, even with every character percent-encoded.
const LONGEST_HOST: usize = 3 * 256;

struct Finder<'v, 't, B> {
    text: &'t str,
    /// Past the blanks that it starts with.
    start: usize,
    visit: &'v mut Visit<'v, B>,
    /// Of the command that is read: whether it names a host, and where all of one is put in.
    named: bool,
    inserted: Option<Range<usize>>,
}

impl<B> Finder<'_, '_, B> {
    /// A host as a URL has it: every reading of it.
    fn emit(&mut self, raw: &str, span: Range<usize>, position: Position) -> ControlFlow<B> {
        self.named = true;
        let mut visit = |host: Option<Host<'_>>| match host {
            Some(host) => (self.visit)(&Found {
                host,
                span: span.clone(),
                position,
            }),
            None => ControlFlow::Continue(()),
        };
        let (name, rest) = raw.split_at(name_end(raw));
        if rest.is_empty() {
            let named = raw.contains(char::is_alphanumeric);
            return visit(Host::parse(raw).or_else(|| named.then(|| Host::ending(raw))));
        }
        visit(Host::parse(name))?;
        if let Some(end) = insert::end(raw) {
            let without = insert::without(raw);
            if without.len() > name.len() {
                visit(Host::parse(&without))?;
            }
            return visit(Some(Host::ending(&raw[end..])));
        }
        visit(names_more(rest).then(|| Host::ending(rest)))
    }

    /// Every host that an authority may have.
    fn emit_authority(
        &mut self,
        authority: &str,
        span: Range<usize>,
        position: Position,
    ) -> ControlFlow<B> {
        for from in host_starts(authority) {
            self.emit(host_of(&authority[from..]), span.clone(), position)?;
        }
        ControlFlow::Continue(())
    }

    /// The text as one host, if it goes under a name for hosts or can be nothing else.
    fn whole(&mut self, is_host: &dyn Fn() -> bool) -> ControlFlow<B> {
        let text = self.text.trim_matches(|c: char| c <= ' ');
        if text.is_empty() || text.len() > LONGEST_HOST || text.contains(char::is_whitespace) {
            return ControlFlow::Continue(());
        }
        let start = self.start;
        let at = start..start + text.len();
        if let Some(rest) = text.strip_prefix("//").or_else(|| text.strip_prefix(r"\\")) {
            return self.authority(rest, at.start + 2, Position::Url);
        }
        let bare_port = text.rsplit_once(':').is_some_and(|(host, port)| {
            let number = |b: u8| b.is_ascii_hexdigit() || matches!(b, b'.' | b'x' | b'X');
            host.contains(['.', 'x', 'X']) && host.bytes().all(number) && is_port(port)
        });
        if bare_port || text.contains("::") {
            let position = if is_host() {
                Position::Key
            } else {
                Position::Port
            };
            return self.bare(text, at, position);
        }
        if text.contains("://") || !could_be_host(text) || !is_host() {
            return ControlFlow::Continue(());
        }
        // `x@name` under `address` is a mailbox.
        if text.contains('@') && !text.contains(['/', ':']) {
            return ControlFlow::Continue(());
        }
        self.bare(text, at, Position::Key)
    }

    /// `[user@]host[:port][/path]`, where only something else tells that it is one.
    fn bare(&mut self, token: &str, span: Range<usize>, position: Position) -> ControlFlow<B> {
        let authority = &token[..authority_end(token)];
        // A network has no port, and no user.
        let address = !authority.contains([':', '@']) || authority.parse::<Ipv6Addr>().is_ok();
        let network = position == Position::Key && token[authority.len()..] == *"/0" && address;
        let listens = network || position == Position::Port;
        let mut visit = |host: Option<Host<'_>>| match host {
            Some(host) if !(listens && host.is_unspecified()) => (self.visit)(&Found {
                host,
                span: span.clone(),
                position,
            }),
            _ => ControlFlow::Continue(()),
        };
        for from in host_starts(authority) {
            let host = &authority[from..];
            let portless = &host[..port_start(host)];
            match insert::end(portless) {
                Some(end) => {
                    // What is put in may be nothing.
                    let without = insert::without(host);
                    let whole = bare_host(&without);
                    let rest = &portless[end..];
                    let ending = (whole.is_some() || names_more(rest)).then(|| Host::ending(rest));
                    if ending.is_none() {
                        self.inserted = Some(span.clone());
                    }
                    self.named |= ending.is_some();
                    visit(whole)?;
                    visit(ending)?;
                }
                None => {
                    let host = bare_host(host);
                    self.named |= host.is_some();
                    visit(host)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// A URL whose `:` is here.
    fn url(&mut self, at: usize) -> ControlFlow<B> {
        let text = self.text;
        let before = &text.as_bytes()[at.saturating_sub(LONGEST_SCHEME)..at];
        let letters = before.iter().rev();
        let length = letters
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
            .count();
        let scheme = &text[at - length..at];
        let is = |known: &&str| known.eq_ignore_ascii_case(scheme);
        let rest = &text[at + 1..];
        let authority = rest.trim_start_matches(['/', '\\']);
        let slashes = rest.len() - authority.len();
        let special = SPECIAL.iter().any(is);
        if (slashes < 2 && !special) || HOSTLESS.iter().any(is) {
            return ControlFlow::Continue(());
        }
        let (authority, start) = if special {
            (authority, at + 1 + slashes)
        } else {
            (&rest[2..], at + 3)
        };
        if slashes == 0 {
            // `http:10.1` has a host, `http:8080` hardly.
            let end = authority.find(|c| c == ':' || ends_authority(c));
            let token = &authority[..end.unwrap_or(authority.len())];
            return self.bare(token, start..start + token.len(), Position::Url);
        }
        // Alone, a URL may hold what would end it elsewhere; blanks in it are dropped.
        if at - length == self.start {
            let end = authority.find(['/', '\\', '?', '#']);
            let whole = &authority[..end.unwrap_or(authority.len())];
            if whole.contains(['\t', '\r', '\n', '"', '\'', '<', '>', '`', ' ']) {
                let joined = whole.replace(['\t', '\r', '\n'], "");
                for from in host_starts(&joined) {
                    let host = &joined[from..];
                    let host = host_of(&host[..authority_end(host)]);
                    self.emit(host, start..start + whole.len(), Position::Url)?;
                }
            }
        }
        self.authority(authority, start, Position::Url)
    }

    /// The host of an authority that starts here.
    fn authority(&mut self, text: &str, start: usize, position: Position) -> ControlFlow<B> {
        let end = authority_end(text);
        let authority = &text[..end];
        for from in host_starts(authority) {
            let host = host_of(&authority[from..]);
            let span = start + from..start + from + host.len();
            self.emit(host, span, position)?;
        }
        // Some clients end the authority here and some do not: `http://a.example\@127.1/`.
        let rest = &text[end..];
        let Some(second) = rest.get(1..).and_then(|rest| rest.strip_prefix('@')) else {
            return ControlFlow::Continue(());
        };
        if !rest.starts_with(['\\', '#', '?']) {
            return ControlFlow::Continue(());
        }
        let host = host_of(&second[..authority_end(second)]);
        let start = start + end + 2;
        self.emit(host, start..start + host.len(), position)
    }

    /// A URL inside another's query: `%3A%2F%2F`.
    fn encoded_url(&mut self, at: usize) -> ControlFlow<B> {
        const MARK: &str = "%3a%2f%2f";
        let rest = self.text.get(at..at + MARK.len());
        if !rest.is_some_and(|mark| mark.eq_ignore_ascii_case(MARK)) {
            return ControlFlow::Continue(());
        }
        let start = at + MARK.len();
        let rest = &self.text[start..];
        let mut codes = rest.match_indices('%');
        let path = codes.find(|(at, _)| {
            let code = rest.get(*at..at + 3).unwrap_or_default();
            ["%2f", "%3f", "%23"]
                .iter()
                .any(|end| end.eq_ignore_ascii_case(code))
        });
        let rest = &rest[..path.map_or(rest.len(), |(at, _)| at)];
        let end = authority_end(rest);
        let decoded = decode(&rest[..end]);
        let authority = &decoded[..authority_end(&decoded)];
        self.emit_authority(authority, start..start + end, Position::Url)
    }

    /// A name or a bracketed address whose port follows this `:`.
    fn port(&mut self, at: usize) -> ControlFlow<B> {
        let bytes = self.text.as_bytes();
        let after = &bytes[at + 1..];
        let digits = after.iter().take(6).take_while(|b| b.is_ascii_digit());
        let digits = digits.count();
        let ended = after.get(digits).is_none_or(|b| !b.is_ascii_alphanumeric());
        if !(1..=5).contains(&digits) || !ended {
            return ControlFlow::Continue(());
        }
        let back = &bytes[at.saturating_sub(LONGEST_HOST)..at];
        let start = if back.ends_with(b"]") {
            let Some(open) = back.iter().rev().take(64).position(|b| *b == b'[') else {
                return ControlFlow::Continue(());
            };
            at - open - 1
        } else {
            at - back.iter().rev().take_while(|b| is_name_byte(**b)).count()
        };
        let token = &self.text[start..at];
        let alphabetic = token.ends_with(|c: char| c.is_ascii_alphabetic());
        if token.starts_with('[') || alphabetic {
            return self.bare(token, start..at, Position::Port);
        }
        ControlFlow::Continue(())
    }

    /// `/dev/tcp/HOST/PORT`, which the shell opens.
    fn device(&mut self, at: usize) -> ControlFlow<B> {
        let rest = &self.text[at..];
        let devices = ["/dev/tcp/", "/dev/udp/"];
        let Some(device) = devices.iter().find(|device| rest.starts_with(**device)) else {
            return ControlFlow::Continue(());
        };
        self.authority(&rest[device.len()..], at + device.len(), Position::Argument)
    }

    /// A token whose first dot is here: four numbers, or a name that may be a host's.
    fn dotted(&mut self, at: usize) -> ControlFlow<B> {
        let bytes = self.text.as_bytes();
        let back = bytes[at.saturating_sub(LONGEST_HOST)..at].iter().rev();
        let back = back
            .take_while(|b| is_name_byte(**b) && **b != b'.')
            .count();
        let mut start = at - back;
        if bytes[..start].ends_with(b".") {
            return ControlFlow::Continue(());
        }
        if bytes[..start].ends_with(b"%") {
            start = (start + 2).min(at);
        }
        let length = bytes[at..].iter().take(LONGEST_HOST);
        let length = length.take_while(|b| is_name_byte(**b)).count();
        let token = self.text[start..at + length].trim_end_matches(['.', '-', '_']);
        let end = start + token.len();
        if token.ends_with(|c: char| c.is_ascii_digit()) {
            return self.quads(start..end);
        }
        let quoted = |b: u8| matches!(b, b'"' | b'\'' | b'`');
        let before = start.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(end).copied();
        // `$(id).b.example`, `$X.b.example`.
        let inserted = match before {
            Some(b'}' | b')' | b'`') => start == at,
            before => before == Some(b'$'),
        };
        let announced = match (before, after) {
            _ if inserted => after.is_none_or(|b| quoted(b) || b" /:;|&)".contains(&b)),
            // Part of a path.
            (Some(b'/'), _) => false,
            (_, Some(b'/')) | (Some(b'='), _) | (None, None) => true,
            (Some(before), Some(after)) => quoted(before) && quoted(after),
            _ => false,
        };
        let letters = token.rsplit('.').next().unwrap_or_default();
        let top = letters.len() >= 2 && letters.bytes().all(|b| b.is_ascii_alphabetic());
        if announced && top && inserted {
            if !names_more(&self.text[at + 1..end]) {
                return ControlFlow::Continue(());
            }
            return (self.visit)(&Found {
                host: Host::ending(&self.text[at..end]),
                span: at..end,
                position: Position::Loose,
            });
        }
        if announced && top {
            return self.emit(token, start..end, Position::Loose);
        }
        ControlFlow::Continue(())
    }

    /// The addresses in a token that ends with a digit.
    fn quads(&mut self, token: Range<usize>) -> ControlFlow<B> {
        let (before, after) = (&self.text[..token.start], &self.text[token.end..]);
        // No other private address begins with a number as small as a version's.
        let is_version =
            |quad: &Ipv4Addr| quad.octets()[0] == 10 && announces_version(before, after);
        let mut offset = token.start;
        for piece in self.text[token].split(['-', '_']) {
            if let Some(quad) = quad(piece).filter(|quad| !is_version(quad)) {
                self.emit_quad(quad, piece, offset)?;
            }
            offset += piece.len() + 1;
        }
        ControlFlow::Continue(())
    }

    fn emit_quad(&mut self, quad: Ipv4Addr, piece: &str, start: usize) -> ControlFlow<B> {
        // 255.255.255.0 is a netmask, 0.0.0.0 what a server listens on.
        let bits = u32::from(quad);
        if quad.octets()[0] == 0
            || bits.leading_ones() >= 8 && bits.leading_ones() + bits.trailing_zeros() >= 32
        {
            return ControlFlow::Continue(());
        }
        self.emit(piece, start..start + piece.len(), Position::Quad)
    }

    /// The arguments of a command that starts here.
    fn command(&mut self, at: usize, regions: &mut command::Regions) -> ControlFlow<B> {
        let Some(inside) = regions.enter(at) else {
            return ControlFlow::Continue(());
        };
        let Some(mut arguments) = Arguments::of(self.text, at, inside) else {
            return ControlFlow::Continue(());
        };
        (self.named, self.inserted) = (false, None);
        while let Some((word, span)) = arguments.next() {
            let unquoted = matches!(word, Cow::Owned(_));
            self.argument(&word, unquoted, span)?;
        }
        regions.leave(inside, arguments.end());
        // `curl $URL`: nothing is known of where it goes.
        match self.inserted.take() {
            Some(span) if !self.named && arguments.need_host() => (self.visit)(&Found {
                host: Host::ending(""),
                span,
                position: Position::Argument,
            }),
            _ => ControlFlow::Continue(()),
        }
    }

    fn argument(&mut self, word: &str, unquoted: bool, span: Range<usize>) -> ControlFlow<B> {
        match word.find("://") {
            Some(at) => {
                self.named = true;
                let rest = word[at + 3..].trim_start_matches(['/', '\\']);
                let authority = &rest[..authority_end(rest)];
                let dotless = || Host::parse(host_of(authority)).is_some_and(|h| h.is_dotless());
                // The text itself is searched for URLs. This one has only just come out of its quotes, or only a
                // command makes a host of its name.
                if unquoted || dotless() {
                    return self.emit_authority(authority, span, Position::Argument);
                }
                ControlFlow::Continue(())
            }
            None => self.bare(word, span, Position::Argument),
        }
    }
}

/// Where an authority ends. What is put in is part of it, whatever it has in it.
fn authority_end(text: &str) -> usize {
    /// So many are seen through, so that hundreds of URLs that each stand in one do not read all the others.
    const MOST_INSERTED: usize = 8;
    let (mut at, mut inserted) = (0, 0);
    let may_end = |c: char| ends_authority(c) || matches!(c, '$' | '{');
    while let Some(end) = text[at..].find(may_end) {
        at += end;
        let rest = &text[at..];
        let seen_through = at < LONGEST_HOST && inserted < MOST_INSERTED;
        at += match seen_through.then(|| insert::length(rest)).flatten() {
            Some(length) => {
                inserted += 1;
                length
            }
            None if rest.starts_with(['$', '{']) => 1,
            None => return at,
        };
    }
    text.len()
}

/// A path, a query, a fragment, a blank or a quote.
fn ends_authority(c: char) -> bool {
    matches!(c, '/' | '\\' | '?' | '#' | '"' | '\'' | '<' | '>' | '`') || c.is_whitespace()
}

/// Where the host of an authority may start: behind the last `@` that is not part of what a shell puts in, and behind
/// the last one for clients that have no shell.
fn host_starts(authority: &str) -> impl Iterator<Item = usize> {
    let (mut at, mut start) = (0, 0);
    let end = authority.len();
    for insertion in insert::each(authority).chain(std::iter::once(end..end)) {
        let before = authority.get(at..insertion.start).unwrap_or_default();
        start = before.rfind('@').map_or(start, |found| at + found + 1);
        at = insertion.end;
    }
    let last = authority.rfind('@').map_or(0, |found| found + 1);
    std::iter::once(start).chain((last != start).then_some(last))
}

/// The host of an authority without userinfo: no port, and no punctuation that the surrounding text added.
fn host_of(authority: &str) -> &str {
    let host = &authority[..port_start(authority)];
    let kept = match insert::end(host) {
        Some(end) => end,
        None if host.starts_with('[') => host.find(']').map_or(host.len(), |at| at + 1),
        None => 0,
    };
    &host[..kept + host[kept..].trim_end_matches(is_no_name).len()]
}

/// Where the port of an authority starts, with its colon.
fn port_start(authority: &str) -> usize {
    let closed = authority.starts_with('[').then(|| authority.find(']'));
    let mut at = closed.flatten().unwrap_or_default();
    for insertion in insert::each(authority) {
        let before = authority.get(at..insertion.start).unwrap_or_default();
        if let Some(colon) = before.find(':') {
            return at + colon;
        }
        at = at.max(insertion.end);
    }
    let colon = authority[at..].find(':');
    colon.map_or(authority.len(), |colon| at + colon)
}

/// Where what may be a name or an address ends: at what no host has in it.
fn name_end(host: &str) -> usize {
    let end = if host.starts_with('[') {
        host.find(']').map(|at| at + 1)
    } else {
        host.find(is_no_name)
    };
    end.unwrap_or(host.len())
}

/// A percent sign may encode what a name has.
fn is_no_name(c: char) -> bool {
    c != '%' && is_forbidden(c)
}

/// Whether a name goes on behind such a sign. No top-level name is a number or has one in it: to every
/// client `good.example,then` is nothing, and `good.example+.b.example` below `b.example`.
fn names_more(rest: &str) -> bool {
    let mut labels = rest.split('.').skip(1);
    labels.any(|label| label.starts_with(char::is_alphabetic))
}

/// The host that stands where one may stand, with its port and with nothing put in.
fn bare_host(host: &str) -> Option<Host<'_>> {
    if host.starts_with('[') {
        return plausible(&host[..name_end(host)]);
    }
    if host.matches(':').nth(1).is_some() {
        return super::address::parse_v6(host).map(Host::V6);
    }
    let portless = &host[..port_start(host)];
    let (name, rest) = portless.split_at(name_end(portless));
    let found = plausible(name)?;
    if rest.is_empty() {
        return Some(found);
    }
    names_more(rest).then(|| Host::ending(rest))
}

/// Whether this can be a host at all. Most texts are words.
fn could_be_host(text: &str) -> bool {
    let in_words = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b',');
    !text.bytes().all(in_words) || Host::is_local_word(text)
}

/// What is read here, if it is plausible.
fn plausible(raw: &str) -> Option<Host<'_>> {
    Host::parse(raw).filter(|host| is_plausible(raw, host))
}

/// Whether what stands where a host may stand is one. A small number is a count or a port, and a word
/// without a dot is a word.
fn is_plausible(raw: &str, host: &Host<'_>) -> bool {
    match host {
        Host::Name(name) => name.contains('.') || host.is_known_single_label(),
        Host::V4 { address, .. } => {
            let one_number = !raw.contains('.') && !raw.contains(['x', 'X']);
            !one_number || address.octets()[0] != 0 || raw == "0"
        }
        Host::V6(_) | Host::Ending(_) => true,
    }
}

/// Whether what stands around four numbers says that they are a version or a heading's.
fn announces_version(before: &str, after: &str) -> bool {
    const WORDS: [&str; 8] = [
        "version", "ver", "release", "build", "chapter", "section", "clause", "appendix",
    ];
    let between = [' ', '=', ':', '"', '\'', '\\', '('];
    let named = before.trim_end_matches(between);
    let rest = named.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let word = &named[rest.len()..];
    // `version=10.0.0.5; curl $version` gives a variable its value, `--version=10.0.0.5 -y` none.
    let ended = after.is_empty() || after.starts_with([',', '"', '\'', '\\', '\n', '\r']);
    if before[named.len()..].starts_with('=') && !rest.ends_with('-') && !ended {
        return false;
    }
    word.ends_with("Version") || WORDS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// Four decimal numbers from 0 to 255.
fn quad(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        *octet = part.parse().ok().filter(|_| digits)?;
    }
    parts.next().is_none().then(|| octets.into())
}

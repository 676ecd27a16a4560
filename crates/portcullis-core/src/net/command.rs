//! Shell commands that reach the network, and their arguments.

use std::borrow::Cow;
use std::ops::Range;

use super::insert;

/// Commands whose arguments are hosts, with the options whose values are not. Names that are also
/// everyday words, such as `host`, are left out. Sorted.
const COMMANDS: &[(&str, &[&str])] = &[
    ("Invoke-RestMethod", &["-OutFile", "-TimeoutSec"]),
    ("Invoke-WebRequest", &["-OutFile", "-TimeoutSec"]),
    ("aria2c", &["-o", "-d"]),
    ("curl", CURL),
    ("dig", &[]),
    ("drill", &[]),
    ("fping", PING),
    ("ftp", &[]),
    ("getent", &[]),
    ("git", GIT),
    ("hping3", PING),
    ("irm", &["-OutFile", "-TimeoutSec"]),
    ("iwr", &["-OutFile", "-TimeoutSec"]),
    ("lftp", &["-e", "-c", "-u", "-p"]),
    ("lynx", &[]),
    ("mongosh", &["--eval", "-f", "--file"]),
    ("mtr", PING),
    ("mysql", &[]),
    ("nc", &["-w", "-i", "-p"]),
    ("ncat", &["-w", "-i", "-p"]),
    ("netcat", &["-w", "-i", "-p"]),
    ("nmap", &["-T", "-oN", "-oX", "-oG"]),
    ("nslookup", &[]),
    ("openssl", &[]),
    ("ping", PING),
    ("ping6", PING),
    ("psql", &[]),
    ("redis-cli", &["-i"]),
    ("rsync", COPY),
    ("scp", COPY),
    ("sftp", SFTP),
    ("socat", &["-t", "-T"]),
    ("ssh", &["-i", "-p", "-o", "-F"]),
    ("swaks", &["--body", "--header", "--attach"]),
    ("telnet", &[]),
    ("tftp", &[]),
    ("tracepath", PING),
    ("traceroute", PING),
    ("w3m", &[]),
    ("wget", WGET),
    ("xh", &["-o", "--output"]),
    ("xhs", &["-o", "--output"]),
];

const CURL: &[&str] = &[
    "-m",
    "--max-time",
    "--connect-timeout",
    "--retry-delay",
    "--retry-max-time",
    "--retry",
    "-d",
    "--data",
    "--data-raw",
    "--data-binary",
    "--data-urlencode",
    "--json",
    "-H",
    "--header",
    "-A",
    "--user-agent",
    "-F",
    "--form",
    "-o",
    "--output",
    "-w",
    "--write-out",
    "-X",
    "--request",
    "-b",
    "--cookie",
    "-c",
    "--cookie-jar",
    "-T",
    "--upload-file",
    "--limit-rate",
    "-y",
    "-Y",
];
const WGET: &[&str] = &[
    "-T",
    "--timeout",
    "-w",
    "--wait",
    "-O",
    "-o",
    "-P",
    "--header",
    "-U",
    "--user-agent",
    "--post-data",
    "--post-file",
    "--body-data",
    "-t",
    "--tries",
];
const PING: &[&str] = &["-i", "-W", "-w", "-s", "-c", "-t", "-q", "-m", "-f"];
const COPY: &[&str] = &["-i", "-P", "-p", "-o", "-l", "-F"];
const SFTP: &[&str] = &[
    "-i", "-P", "-o", "-l", "-F", "-b", "-B", "-c", "-D", "-R", "-S",
];
const GIT: &[&str] = &["-C", "-c", "-m", "--message", "-F", "-b", "-o"];

/// Words that may stand before a command.
const PREFIXES: [&str; 24] = [
    "sudo",
    "doas",
    "nice",
    "ionice",
    "setsid",
    "stdbuf",
    "busybox",
    "toybox",
    "powershell",
    "pwsh",
    "env",
    "exec",
    "command",
    "nohup",
    "time",
    "timeout",
    "xargs",
    "then",
    "do",
    "else",
    "if",
    "while",
    "!",
    "proxychains",
];

/// Their options that take a value.
const PREFIX_OPTIONS: [&str; 10] = [
    "-u", "--user", "-g", "--group", "-D", "--chdir", "-k", "-s", "-I", "-a",
];

/// Whether a word names a command that reaches the network, with or without its folder.
pub(crate) fn is_network_command(word: &str) -> bool {
    lookup(word).is_some()
}

/// Whether a word of letters, digits, `_`, `-` and `,` names such a command.
pub(super) fn is_plain_command(word: &str) -> bool {
    named(word).is_some()
}

/// Whether a command line may begin with such a word.
pub(super) fn may_begin_with(word: &str) -> bool {
    is_plain_command(word) || PREFIXES.contains(&word)
}

/// Whether a command may start after this byte.
pub(super) fn starts_after(byte: u8) -> bool {
    matches!(
        byte,
        b'|' | b';' | b'&' | b'\n' | b'(' | b'{' | b'`' | b'"' | b'\''
    )
}

/// What has been read as the arguments of a command. A text is read so at most twice: once from the
/// outermost commands, and once from those inside their quotes.
#[derive(Debug, Default)]
pub(super) struct Regions {
    outer: usize,
    inner: usize,
}

impl Regions {
    /// Whether a command that starts here is inside another's arguments; `None` if it has been read.
    pub(super) fn enter(&self, at: usize) -> Option<bool> {
        match (at >= self.outer, at >= self.inner) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        }
    }

    pub(super) fn leave(&mut self, inside: bool, end: usize) {
        if inside {
            self.inner = end;
        } else {
            self.outer = end;
        }
    }
}

/// A command that reaches the network.
#[derive(Debug, Clone, Copy)]
struct Command {
    /// Options whose value is no host.
    options: &'static [&'static str],
    sign: Sign,
    /// Whether it is of no use without a host.
    needs_host: bool,
}

/// What tells a host from a file.
#[derive(Debug, Clone, Copy)]
enum Sign {
    None,
    /// `HOST:FILE`.
    Colon,
    /// `USER@HOST:FILE`.
    User,
}

impl Sign {
    fn is_in(self, word: &str) -> bool {
        match self {
            Self::None => true,
            Self::Colon => word.contains(':'),
            Self::User => {
                let rest = word.split_once('@').map_or("", |(_, rest)| rest);
                rest.contains(':')
            }
        }
    }
}

/// Reads up to the command's name, past `sudo` and the like.
fn network_command(words: &mut Words<'_>) -> Option<Command> {
    const MOST: usize = 8;
    let mut takes_value = false;
    for seen in 0..MOST {
        let (word, _) = words.next()?;
        if let Some(command) = lookup(&word) {
            return Some(command);
        }
        if std::mem::take(&mut takes_value) {
            continue;
        }
        takes_value = seen > 0 && PREFIX_OPTIONS.contains(&&*word);
        let option = seen > 0 && word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if !PREFIXES.contains(&&*word) && !word.contains('=') && !option {
            return None;
        }
    }
    None
}

fn lookup(word: &str) -> Option<Command> {
    let folder = word.bytes().rposition(|byte| matches!(byte, b'/' | b'\\'));
    let name = folder.map_or(word, |end| &word[end + 1..]);
    named(name.strip_suffix(".exe").unwrap_or(name))
}

/// The command of this very name.
fn named(name: &str) -> Option<Command> {
    let beginning = *BEGINNINGS.get(name.len())?;
    if beginning & initial(name) == 0 {
        return None;
    }
    let place = COMMANDS.binary_search_by_key(&name, |(known, _)| known);
    Some(Command {
        options: COMMANDS[place.ok()?].1,
        sign: match name {
            "scp" | "rsync" => Sign::Colon,
            "git" => Sign::User,
            _ => Sign::None,
        },
        needs_host: !matches!(
            name,
            "getent" | "mongosh" | "mysql" | "openssl" | "psql" | "redis-cli" | "socat"
        ),
    })
}

/// With which letters the commands of each length begin. Most words are settled by that.
static BEGINNINGS: [u32; 18] = {
    let mut beginnings = [0; 18];
    let mut place = 0;
    while place < COMMANDS.len() {
        let name = COMMANDS[place].0;
        beginnings[name.len()] |= initial(name);
        place += 1;
    }
    beginnings
};

/// A bit for the first letter, the same for both cases.
pub(super) const fn initial(name: &str) -> u32 {
    match name.as_bytes().first() {
        Some(byte) => 1 << (*byte & 31),
        None => 0,
    }
}

/// The arguments of a command that may be hosts.
pub(super) struct Arguments<'t> {
    command: Command,
    words: Words<'t>,
    after_option: bool,
}

impl<'t> Arguments<'t> {
    /// The arguments of the command that starts here, if it reaches the network.
    pub(super) fn of(text: &'t str, at: usize, nested: bool) -> Option<Self> {
        /// Every quote may start a command, so that looking for its name must not take long.
        const HEAD: usize = 256;
        let next = text.as_bytes().get(at).copied().unwrap_or_default();
        // That byte has its own turn. But the name may be in quotes: `'cu'rl`.
        let quote = |b: u8| matches!(b, b'"' | b'\'');
        let before = at.checked_sub(1).map(|at| text.as_bytes()[at]);
        if starts_after(next) && (!quote(next) || before.is_some_and(quote)) {
            return None;
        }
        let head = &text[..text.floor_char_boundary(at + HEAD)];
        let quoted = before.is_some_and(quote);
        let mut words = Words::new(head, at, nested, quoted);
        let command = network_command(&mut words)?;
        Some(Self {
            command,
            words: Words::new(text, words.at, nested, quoted),
            after_option: false,
        })
    }

    pub(super) fn next(&mut self) -> Option<(Cow<'t, str>, Range<usize>)> {
        loop {
            let (word, span) = self.words.next()?;
            let after_option = std::mem::take(&mut self.after_option);
            if self.command.options.contains(&&*word) {
                self.words.next();
                continue;
            }
            if word.starts_with('-') {
                self.after_option = true;
                let value = value_of(&word).filter(|value| self.command.sign.is_in(value));
                match value {
                    Some(value) => return Some((Cow::Owned(value.to_owned()), span)),
                    None => continue,
                }
            }
            // `-c 0` is a count, `nc 0 80` is not.
            let blank = |text: &str| text.contains(char::is_whitespace);
            let several = || blank(&word) && blank(&insert::without(&word));
            if after_option && word == "0" || several() {
                continue;
            }
            let word = without_protocol(word);
            if !self.command.sign.is_in(&word) {
                continue;
            }
            return Some((word, span));
        }
    }

    pub(super) fn end(&self) -> usize {
        self.words.at
    }

    /// Whether one of them must be a host, whatever it looks like.
    pub(super) fn need_host(&self) -> bool {
        self.command.needs_host
    }
}

/// `--proxy=HOST`, `-xHOST`, `-hHOST`.
fn value_of(option: &str) -> Option<&str> {
    if let Some((_, value)) = option.split_once('=') {
        return Some(value);
    }
    let glued = option
        .strip_prefix("-h")
        .or_else(|| option.strip_prefix("-x"))?;
    glued
        .starts_with(|c: char| c.is_ascii_digit())
        .then_some(glued)
}

/// `TCP4:HOST:PORT` as `socat` has it.
fn without_protocol(word: Cow<'_, str>) -> Cow<'_, str> {
    let rest = word.split_once(':').filter(|(protocol, _)| {
        let name = protocol.split(['4', '6', '-']).next().unwrap_or_default();
        ["tcp", "udp", "ssl", "openssl", "sctp"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
    });
    match rest {
        Some((_, rest)) => Cow::Owned(rest.to_owned()),
        None => word,
    }
}

/// The words of a command, quotes and backslashes taken off, up to where the command ends.
struct Words<'t> {
    text: &'t str,
    at: usize,
    /// Inside quotes, further ones part words like blanks.
    inside: bool,
    /// Inside another command's arguments, so that commands further in are left for their own turn.
    nested: bool,
}

impl<'t> Words<'t> {
    fn new(text: &'t str, at: usize, nested: bool, quoted: bool) -> Self {
        Self {
            text,
            at,
            inside: nested || quoted,
            nested,
        }
    }

    fn next(&mut self) -> Option<(Cow<'t, str>, Range<usize>)> {
        let mut redirected = false;
        loop {
            redirected |= self.skip_blanks();
            let start = self.at;
            let plain = self.skip_word();
            if self.at == start {
                return None;
            }
            // A redirection's target is a file.
            if std::mem::take(&mut redirected) {
                continue;
            }
            let word = &self.text[start..self.at];
            let word = if plain {
                Cow::Borrowed(word)
            } else {
                Cow::Owned(word.replace(['"', '\'', '\\'], ""))
            };
            return Some((word, start..self.at));
        }
    }

    /// Skips blanks and the marks of redirections; says whether there was one.
    fn skip_blanks(&mut self) -> bool {
        let mut redirected = false;
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'<' | b'>' => redirected = true,
                b'&' if redirected => {}
                _ if self.is_blank(byte) => {}
                _ => break,
            }
            self.at += 1;
        }
        redirected
    }

    /// Skips to the end of the word; says whether it had neither quotes nor backslashes.
    fn skip_word(&mut self) -> bool {
        /// So many brackets of a word that close nowhere near are tried, so that no byte is read for each of hundreds.
        const TRIES: usize = 8;
        let bytes = self.text.as_bytes();
        let mut quote = None;
        let mut plain = true;
        let mut tries = 0;
        while let Some(&byte) = bytes.get(self.at) {
            match (quote, byte) {
                (None, b'$' | b'{' | b'`') if !self.nested && tries < TRIES => {
                    if let Some(length) = insert::length(&self.text[self.at..]) {
                        self.at += length;
                        continue;
                    }
                    tries += 1;
                    if byte == b'`' {
                        break;
                    }
                }
                (Some(open), _) if byte == open => quote = None,
                (None, _) if self.is_blank(byte) => break,
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    plain = false;
                }
                (None, b'\\') => {
                    plain = false;
                    self.at += 1;
                }
                (None, b'|' | b';' | b'&' | b'\n' | b'(' | b')' | b'}' | b'`' | b'<' | b'>') => {
                    break;
                }
                _ => {}
            }
            self.at += 1;
        }
        // A backslash may have stood before the end, or before a character of several bytes.
        self.at = self.text.ceil_char_boundary(self.at);
        plain
    }

    fn is_blank(&self, byte: u8) -> bool {
        matches!(byte, b' ' | b'\t' | b'\r') || self.inside && matches!(byte, b'"' | b'\'')
    }
}

#[cfg(test)]
mod tests {
    use super::COMMANDS;

    #[test]
    fn commands_are_sorted() {
        assert!(COMMANDS.is_sorted_by_key(|(name, _)| name));
    }
}

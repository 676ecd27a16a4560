//! Alerts as syslog messages (RFC 5424), over UDP (RFC 5426), TCP with octet counting (RFC 6587) or a Unix
//! socket.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Severity;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};

use super::message::Message;
use crate::config::{SyslogAddress, SyslogSettings};
use crate::delivery::{Carrier, Failure};

/// What every receiver should take in one packet.
const MAX_BYTES: usize = 2048;
/// The longest value in the structured data, as it is written. All of them together, and the longest header, leave
/// room for a message: what is cut off is never structured data.
const MAX_VALUE_BYTES: usize = 128;
/// Names of our own need a number of ours; this one is set aside for those who have none (RFC 5612).
const DATA_ID: &str = "portcullis@32473";

/// Sends to one receiver.
pub(super) struct Syslog {
    settings: SyslogSettings,
    timeout: Duration,
    host: String,
    connection: Option<Connection>,
}

enum Connection {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
}

impl Syslog {
    pub(super) fn new(settings: SyslogSettings, timeout: Duration) -> Self {
        Self {
            settings,
            timeout,
            host: host(),
            connection: None,
        }
    }

    async fn attempt(&mut self, line: &[u8]) -> io::Result<()> {
        // Nobody answers over TCP, so a receiver that hung up is found out by listening.
        let gone = match &self.connection {
            Some(Connection::Tcp(stream)) => hung_up(stream),
            _ => false,
        };
        let mut connection = match self.connection.take().filter(|_| !gone) {
            Some(connection) => connection,
            None => Connection::open(&self.settings.address).await?,
        };
        connection.write(line).await?;
        self.connection = Some(connection);
        Ok(())
    }
}

impl Carrier for Syslog {
    type Message = Message;
    type Parcel = Vec<u8>;

    async fn prepare(&self, message: &Arc<Message>) -> Result<Vec<u8>, String> {
        let line = line(&self.settings, &self.host, std::process::id(), message);
        Ok(match self.settings.address {
            SyslogAddress::Tcp(_) => {
                let mut framed = format!("{} ", line.len()).into_bytes();
                framed.extend(line);
                framed
            }
            SyslogAddress::Udp(_) | SyslogAddress::Unix(_) => line,
        })
    }

    async fn send(&mut self, line: &Vec<u8>) -> Result<(), Failure> {
        // Half a message may have been written by then, so the connection goes with it.
        match tokio::time::timeout(self.timeout, self.attempt(line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::again(&error)),
            Err(_) => Err(Failure::again(&"it took too long")),
        }
    }
}

impl Connection {
    async fn open(address: &SyslogAddress) -> io::Result<Self> {
        Ok(match address {
            SyslogAddress::Udp(to) => {
                let to = tokio::net::lookup_host(to).await?.next();
                let to = to.ok_or_else(|| io::Error::other("the host has no address"))?;
                let any: SocketAddr = match to {
                    SocketAddr::V4(_) => ([0; 4], 0).into(),
                    SocketAddr::V6(_) => ([0; 16], 0).into(),
                };
                let socket = UdpSocket::bind(any).await?;
                socket.connect(to).await?;
                Self::Udp(socket)
            }
            SyslogAddress::Tcp(to) => Self::Tcp(TcpStream::connect(to).await?),
            SyslogAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Self::Unix(socket)
            }
        })
    }

    async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(line).await.map(drop),
            Self::Unix(socket) => socket.send(line).await.map(drop),
            Self::Tcp(stream) => {
                stream.write_all(line).await?;
                stream.flush().await
            }
        }
    }
}

fn hung_up(stream: &TcpStream) -> bool {
    let mut rest = [0; 64];
    loop {
        match stream.try_read(&mut rest) {
            // It has nothing to say, and says something: never mind.
            Ok(1..) => {}
            Ok(0) => return true,
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// The machine's name, if it can be told.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().take(255).collect();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return "-".to_owned();
    }
    name
}

/// A whole message, no longer than it may be.
fn line(settings: &SyslogSettings, host: &str, process: u32, message: &Message) -> Vec<u8> {
    let priority = u32::from(settings.facility.code()) * 8 + severity(message.severity);
    let id = match message.rule_id {
        Some(_) => "alert",
        None => "held-back",
    };
    let mut line = format!(
        "<{priority}>1 {} {host} {} {process} {id} [{DATA_ID}",
        message.at, settings.app_name
    );
    for name in [
        "id",
        "run_id",
        "tenant_id",
        "rule_id",
        "action",
        "event_type",
        "tool_name",
        "decision_id",
    ] {
        if let Some(value) = message.text(name) {
            parameter(&mut line, name, value);
        }
    }
    if let Some(enforced) = message.json["enforced"].as_bool() {
        let _ = write!(line, " enforced=\"{enforced}\"");
    }
    let _ = write!(line, " count=\"{}\"] ", message.count);
    let text = text(message);
    // Whoever reads ASCII shows the mark as three odd characters.
    if !text.is_ascii() {
        line.push('\u{feff}');
    }
    line.push_str(&text);
    line.truncate(line.floor_char_boundary(MAX_BYTES));
    line.into_bytes()
}

/// What people read.
fn text(message: &Message) -> String {
    let part = |name| message.text(name).unwrap_or_default();
    let mut text = match &message.rule_id {
        Some(rule_id) => {
            let mut text = format!("{} by {rule_id}: {}", part("action"), part("reason"));
            if message.count > 1 {
                let _ = write!(text, " ({} times)", message.count);
            }
            if message.json["enforced"] == false {
                text.push_str(" (not enforced)");
            }
            text
        }
        None => format!("{} alerts were held back", message.count),
    };
    // A line break could pass for the next message.
    text.retain(|c| c != '\u{feff}');
    text.replace(char::is_control, " ")
}

fn parameter(line: &mut String, name: &str, value: &str) {
    let _ = write!(line, " {name}=\"");
    let mut left = MAX_VALUE_BYTES;
    for c in value.chars() {
        let c = if c.is_control() { ' ' } else { c };
        let escaped = matches!(c, '"' | '\\' | ']');
        let Some(rest) = left.checked_sub(c.len_utf8() + usize::from(escaped)) else {
            break;
        };
        left = rest;
        if escaped {
            line.push('\\');
        }
        line.push(c);
    }
    line.push('"');
}

const fn severity(severity: Severity) -> u32 {
    match severity {
        Severity::Critical => 2,
        Severity::High => 3,
        Severity::Medium => 4,
        Severity::Low => 5,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Facility;

    fn settings() -> SyslogSettings {
        SyslogSettings {
            address: SyslogAddress::Udp("127.0.0.1:514".to_owned()),
            facility: Facility::parse("auth").unwrap(),
            app_name: "portcullis".to_owned(),
        }
    }

    fn message(run_id: &str, reason: &str, count: u64) -> Message {
        Message {
            id: "i".to_owned(),
            at: Timestamp::from_second(1_700_000_000).unwrap(),
            severity: Severity::Critical,
            count,
            rule_id: Some("injection-patterns".to_owned()),
            json: json!({
                "id": "i", "run_id": run_id, "tenant_id": Value::Null, "rule_id": "injection-patterns",
                "action": "STOP", "reason": reason, "enforced": count > 1,
            }),
        }
    }

    fn written(message: &Message) -> String {
        String::from_utf8(line(&settings(), "host", 7, message)).unwrap()
    }

    #[test]
    fn an_alert_is_a_message_of_rfc_5424() {
        assert_eq!(
            written(&message("r\"1]\\\n", "Why\nnot", 1)),
            "<34>1 2023-11-14T22:13:20Z host portcullis 7 alert [portcullis@32473 id=\"i\" run_id=\"r\\\"1\\]\\\\ \" \
             rule_id=\"injection-patterns\" action=\"STOP\" enforced=\"false\" count=\"1\"] \
             STOP by injection-patterns: Why not (not enforced)"
        );
        // What is not ASCII is marked as UTF-8.
        let line = written(&message("r", "Täuschung", 3));
        assert!(line.ends_with("] \u{feff}STOP by injection-patterns: Täuschung (3 times)"));
    }

    /// The values of the structured data and what follows it, if it is closed.
    fn parsed(data: &str) -> Option<(Vec<(String, String)>, &str)> {
        let mut rest = data.strip_prefix("[portcullis@32473")?;
        let mut values = Vec::new();
        loop {
            if let Some(message) = rest.strip_prefix("] ") {
                return Some((values, message));
            }
            let (name, after) = rest.strip_prefix(' ')?.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next()? {
                    (_, '\\') => value.push(chars.next()?.1),
                    (end, '"') => break end,
                    (_, ']') => return None,
                    (_, c) => value.push(c),
                }
            };
            values.push((name.to_owned(), value));
            rest = after.get(end + 1..)?;
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        "\\PC{0,300}|[\\n\\]\"\\\\]{0,300}|[😀𝄞]{0,200}|[a-z]{0,20}"
    }

    proptest! {
        /// Whatever an alert says, it is one message, of a bounded size, with the fields where they belong.
        #[test]
        fn nothing_breaks_a_message(
            run_id in any_text(), tenant_id in any_text(), event_type in any_text(), tool_name in any_text(),
            rule_id in any_text(), reason in "\\PC{0,3000}",
        ) {
            let mut message = message(&run_id, &reason, 2);
            let told = [
                ("run_id", &run_id), ("tenant_id", &tenant_id), ("event_type", &event_type),
                ("tool_name", &tool_name), ("rule_id", &rule_id),
            ];
            for (name, value) in told {
                message.json[name] = value.as_str().into();
            }
            let uuid = "0190a3f0-0000-7000-8000-000000000000";
            for name in ["id", "decision_id"] {
                message.json[name] = uuid.into();
            }
            let mut settings = settings();
            settings.app_name = "a".repeat(48);
            let line = line(&settings, &"h".repeat(255), u32::MAX, &message);
            let line = String::from_utf8(line).unwrap();
            prop_assert!(line.len() <= MAX_BYTES);
            prop_assert!(!line.contains(char::is_control));
            let (_, data) = line.split_once(" alert ").unwrap();
            let parsed = parsed(data);
            prop_assert!(parsed.is_some(), "{}", data);
            let (values, text) = parsed.unwrap();
            let text = text.trim_start_matches('\u{feff}');
            prop_assert!(text.starts_with("STOP by "));
            for (name, told) in told {
                let (_, value) = values.iter().find(|(known, _)| known == name).unwrap();
                let told = told.replace(char::is_control, " ");
                prop_assert!(told.starts_with(value.as_str()), "{} {}", name, value);
                // Nothing short is cut.
                prop_assert!(*value == told || value.len() > MAX_VALUE_BYTES / 2 - 4);
            }
            prop_assert_eq!(values.last().unwrap(), &("count".to_owned(), "2".to_owned()));
        }
    }
}

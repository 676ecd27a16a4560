//! Alerts to a real syslog daemon: Debian's rsyslog, unprivileged, in a folder of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portcullis_server::config::{
    AlertSinkKind, AlertSinkSettings, Facility, SyslogAddress, SyslogSettings,
};
use tempfile::TempDir;

use crate::alerts::{PACK, alerting, call};
use crate::harness::eventually;

/// A daemon that writes down what it has understood of each message.
struct Daemon {
    folder: TempDir,
    child: Option<Child>,
    port: u16,
}

impl Daemon {
    async fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let config = format!(
            r#"global(workDirectory="{path}" maxMessageSize="8k" parser.escapeControlCharactersOnReceive="on")
module(load="imudp")
module(load="imtcp")
module(load="imuxsock" SysSock.Use="off")
template(name="parts" type="string" string="%inputname%|%pri%|%protocol-version%|%app-name%|%msgid%|%structured-data%|%msg%\n")
ruleset(name="keep") {{ action(type="omfile" file="{path}/messages" template="parts") }}
input(type="imudp" address="127.0.0.1" port="{port}" ruleset="keep")
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="keep")
input(type="imuxsock" Socket="{path}/log" UseSpecialParser="off" ruleset="keep")
"#
        );
        std::fs::write(folder.path().join("rsyslog.conf"), config).unwrap();
        let mut daemon = Self {
            folder,
            child: None,
            port,
        };
        daemon.run().await;
        daemon
    }

    /// Starts it, again if it was stopped.
    async fn run(&mut self) {
        let child = Command::new(rsyslogd())
            .args(["-n", "-iNONE", "-f"])
            .arg(self.folder.path().join("rsyslog.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let (port, socket) = (self.port, self.folder.path().join("log"));
        eventually("the daemon listens", async || {
            socket.exists() && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(self.folder.path().join("log"));
        }
    }

    /// What it has written down about alerts, in no order.
    fn messages(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("messages"));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    async fn has(&self, count: usize) -> Vec<String> {
        let what = format!("{count} messages");
        eventually(&what, async || self.messages().len() >= count).await;
        let mut messages = self.messages();
        messages.sort();
        messages
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn sink(address: &str) -> AlertSinkSettings {
    let syslog = SyslogSettings {
        facility: Facility::parse("local3").unwrap(),
        app_name: "gate".to_owned(),
        ..SyslogSettings::new(SyslogAddress::parse(address).unwrap())
    };
    AlertSinkSettings {
        retry: Duration::from_millis(50),
        attempts: 100,
        ..AlertSinkSettings::new(AlertSinkKind::Syslog(syslog))
    }
}

fn rsyslogd() -> PathBuf {
    let known = ["/usr/sbin/rsyslogd", "/sbin/rsyslogd", "/usr/bin/rsyslogd"];
    let found = known.iter().find(|path| Path::new(path).exists());
    let found = found.expect("this test needs rsyslogd: install Debian's package `rsyslog`");
    PathBuf::from(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_understands_alerts_over_udp_tcp_and_its_socket() {
    let daemon = Daemon::start().await;
    let (port, socket) = (daemon.port, daemon.folder.path().join("log"));
    let sinks = [
        format!("udp://127.0.0.1:{port}"),
        format!("tcp://localhost:{port}"),
        format!("unix:{}", socket.display()),
    ]
    .map(|address| sink(&address));
    let server = alerting(PACK, |settings| settings.alerts.sinks = sinks.into()).await;
    let odd = "r\"1]\\ 2";
    call(&server, odd, "rm").await;
    call(&server, "r", "curl").await;
    let messages = daemon.has(6).await;
    for (message, input) in messages
        .iter()
        .zip(["imtcp", "imtcp", "imudp", "imudp", "imuxsock", "imuxsock"])
    {
        assert!(message.starts_with(&format!("{input}|")), "{messages:#?}");
    }
    // Facility local3 is 19: critical is 154, notice 157.
    for pair in messages.chunks(2) {
        let [rm, curl] = pair else { panic!() };
        let parts: Vec<&str> = rm.splitn(7, '|').collect();
        assert_eq!(parts[1..5], ["154", "1", "gate", "alert"], "{rm}");
        assert!(parts[5].starts_with("[portcullis@32473 id=\""), "{rm}");
        let escaped =
            "run_id=\"r\\\"1\\]\\\\ 2\" tenant_id=\"acme\" rule_id=\"no-rm\" action=\"STOP\"";
        assert!(parts[5].contains(escaped), "{rm}");
        assert!(parts[5].ends_with("enforced=\"true\" count=\"1\"]"), "{rm}");
        assert_eq!(
            parts[6].trim_start(),
            "STOP by no-rm: Deletes files",
            "{rm}"
        );
        let parts: Vec<&str> = curl.splitn(7, '|').collect();
        assert_eq!(parts[1], "157", "{curl}");
        let text = parts[6].trim_start().trim_start_matches('\u{feff}');
        assert_eq!(text, "STOP by no-curl: Calls “out”", "{curl}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_was_away_gets_what_waited() {
    let mut daemon = Daemon::start().await;
    let sink = sink(&format!("tcp://127.0.0.1:{}", daemon.port));
    let server = alerting(PACK, |settings| settings.alerts.sinks = vec![sink]).await;
    call(&server, "first", "rm").await;
    daemon.has(1).await;
    daemon.stop();
    for run in ["second", "third"] {
        call(&server, run, "rm").await;
    }
    daemon.run().await;
    let messages = daemon.has(3).await;
    for run in ["first", "second", "third"] {
        let count = messages
            .iter()
            .filter(|message| message.contains(run))
            .count();
        assert_eq!(count, 1, "{run}: {messages:#?}");
    }
}

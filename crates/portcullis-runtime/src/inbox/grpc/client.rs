//! The inbox of a gateway whose deep rules are in a sidecar.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use super::credentials::ShowToken;
use super::observe::{Observer, Sight};
use super::requests::Requests;
use super::wire::guard_sidecar_client::GuardSidecarClient;
use super::{BearerToken, GrpcError, MAX_MESSAGE_BYTES, TlsIdentity, stream, unary, with_causes};
use crate::inbox::InboxLimits;
use crate::inbox::remote::{Link, RemoteInbox};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Which sidecar, and how to talk to it.
#[derive(Debug, Clone)]
pub struct GrpcSettings {
    /// `http://host:port`, `https://host:port` or `unix:path`.
    pub url: String,
    /// With https: who signed the sidecar's certificate, as PEM. Otherwise it is one of the authorities that the system trusts.
    pub ca: Option<String>,
    /// With https: the name in the certificate, if it is not the host of the address.
    pub server_name: Option<String>,
    /// With https: the certificate to show to the sidecar, if it wants one.
    pub identity: Option<TlsIdentity>,
    /// The token to show to the sidecar, if it wants one.
    pub token: Option<BearerToken>,
    /// The largest message in either direction. A larger request is refused here, and never sent.
    pub max_message_bytes: usize,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// After so long without a sign of life the sidecar is asked for one, and after as long again it is given up.
    pub keep_alive: Duration,
    /// How many calls at once, if the sidecar knows no streams.
    pub unary_calls: usize,
}

impl GrpcSettings {
    /// The sidecar at this address, without TLS authority or token of its own.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca: None,
            server_name: None,
            identity: None,
            token: None,
            max_message_bytes: MAX_MESSAGE_BYTES,
            connect_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(2),
            unary_calls: 64,
        }
    }

    /// Whether it can be used: the address, and what goes with it.
    pub fn check(&self) -> Result<(), GrpcError> {
        self.endpoint().map(|_| ())
    }

    fn endpoint(&self) -> Result<Endpoint, GrpcError> {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        if !matches!(scheme, "http" | "https" | "unix") {
            let why = "is http://host:port, https://host:port or unix:path";
            return Err(GrpcError::setting("url", why));
        }
        let secured = [
            ("ca", self.ca.is_some()),
            ("server_name", self.server_name.is_some()),
            ("identity", self.identity.is_some()),
        ];
        if let Some((field, _)) = secured.iter().find(|(_, is_set)| *is_set)
            && scheme != "https"
        {
            return Err(GrpcError::setting(field, "is for a url with https"));
        }
        // Of a text without any, rustls would make an authority that nobody trusts.
        if self.ca.as_ref().is_some_and(|ca| !ca.contains(CERTIFICATE)) {
            let why = format!("has no certificate: it is PEM, and begins with {CERTIFICATE}");
            return Err(GrpcError::setting("ca", why));
        }
        let endpoint = Endpoint::from_shared(self.url.clone())
            .map_err(|error| GrpcError::setting("url", with_causes(&error)))?
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(self.keep_alive)
            .keep_alive_timeout(self.keep_alive)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(super::STREAM_WINDOW)
            .initial_connection_window_size(super::CONNECTION_WINDOW);
        if scheme != "https" {
            return Ok(endpoint);
        }
        endpoint
            .tls_config(self.tls())
            .map_err(|error| GrpcError::setting("ca, server_name or identity", with_causes(&error)))
    }

    fn tls(&self) -> ClientTlsConfig {
        let tls = ClientTlsConfig::new().timeout(self.connect_timeout);
        let tls = match &self.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
            None => tls.with_native_roots(),
        };
        let tls = match &self.server_name {
            Some(name) => tls.domain_name(name),
            None => tls,
        };
        match &self.identity {
            Some(identity) => tls.identity(identity.to_tonic()),
            None => tls,
        }
    }
}

impl RemoteInbox {
    /// An inbox whose rules are in a gRPC sidecar. It connects, and connects again, for as long as it lives; until it has,
    /// its rules are not ready. Needs a tokio runtime.
    pub fn over_grpc(settings: &GrpcSettings, limits: InboxLimits) -> Result<Self, GrpcError> {
        let caller = Caller {
            endpoint: settings.endpoint()?,
            settings: settings.clone(),
        };
        Ok(Self::start(limits, |link| caller.run(link)))
    }
}

/// A client that shows the token.
pub(super) type Client = GuardSidecarClient<InterceptedService<Channel, ShowToken>>;

/// Why a connection is of no more use.
pub(super) struct Lost {
    why: String,
    /// Whether what was under way may be to blame.
    blame: Blame,
}

/// Whether what the sidecar had may be what ended the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// It was ended in good order, or never began.
    No,
    /// The sidecar takes nothing more: no, if it is shutting down.
    UnlessDraining,
    /// It broke, or the sidecar failed.
    Yes,
}

impl Lost {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            blame: Blame::No,
        }
    }

    pub(super) fn because(status: &Status) -> Self {
        let cause = std::error::Error::source(status);
        let said = match status.code() {
            _ if cause.is_some() => "the connection to the sidecar is lost".to_owned(),
            Code::Unauthenticated => "the sidecar does not take the token".to_owned(),
            Code::PermissionDenied => "the sidecar refuses this gateway".to_owned(),
            Code::Unimplemented => "this is no Portcullis sidecar".to_owned(),
            code => format!("the sidecar cannot be asked ({code})"),
        };
        let detail = match cause {
            Some(cause) => with_causes(cause),
            None => status.message().to_owned(),
        };
        Self {
            why: if detail.is_empty() {
                said
            } else {
                format!("{said}: {detail}")
            },
            blame: match cause {
                Some(cause) if says_goodbye(cause) => Blame::No,
                None if status.code() == Code::Unavailable => Blame::UnlessDraining,
                _ => Blame::Yes,
            },
        }
    }

    /// Only one request can be to blame, and that is known already.
    pub(super) fn blameless(self) -> Self {
        Self {
            blame: Blame::No,
            ..self
        }
    }
}

/// Whether the other side ended the connection in good order, with HTTP/2's GOAWAY. The error does not say so but in its text.
fn says_goodbye(cause: &(dyn std::error::Error + 'static)) -> bool {
    with_causes(cause).contains("connection error received: not a result of an error")
}

/// Keeps up a connection.
struct Caller {
    endpoint: Endpoint,
    settings: GrpcSettings,
}

impl Caller {
    async fn run(self, mut link: Link) {
        let mut requests = Requests::new(self.settings.max_message_bytes);
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            let Lost { why, .. } = self.connection(&mut link, &mut requests).await;
            tracing::debug!(url = self.settings.url, why, "no connection to the sidecar");
            link.down(why);
            let pause = backoff.after(started.elapsed());
            giving_up(&link, sleep(pause)).await;
        }
    }

    /// One connection, from its beginning to its end.
    async fn connection(&self, link: &mut Link, requests: &mut Requests) -> Lost {
        let (channel, sight) = match giving_up(link, self.connect()).await {
            Ok(connected) => connected,
            Err(lost) => return lost,
        };
        let client = self.client(channel.clone());
        requests.far_limit(sight.max_request_bytes);
        link.up(sight.served());
        requests.send_again(link);
        let mut observer = Observer::start(client.clone(), channel, sight);
        let lost = match stream::run(client.clone(), link, requests, &mut observer).await {
            stream::Ended::Lost(lost) => lost,
            stream::Ended::Unknown => {
                requests.start_over(link);
                let calls = self.settings.unary_calls.max(1);
                unary::run(&client, calls, link, requests, &mut observer).await
            }
        };
        let blamed = match lost.blame {
            Blame::Yes => true,
            Blame::UnlessDraining => observer.sees_any_ready(),
            Blame::No => false,
        };
        if blamed {
            requests.broke();
        }
        lost
    }

    async fn connect(&self) -> Result<(Channel, Sight), Lost> {
        let channel = timeout(self.settings.connect_timeout, self.endpoint.connect());
        let channel = match channel.await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                let why = with_causes(&error);
                return Err(Lost::new(format!("the sidecar cannot be reached: {why}")));
            }
            Err(_) => {
                let limit = self.settings.connect_timeout;
                return Err(Lost::new(format!(
                    "the sidecar cannot be reached within {limit:?}"
                )));
            }
        };
        let sight = Sight::of(&mut self.client(channel.clone())).await;
        let sight = sight.map_err(|status| Lost::because(&status))?;
        Ok((channel, sight))
    }

    fn client(&self, channel: Channel) -> Client {
        let token = ShowToken(self.settings.token.clone());
        GuardSidecarClient::with_interceptor(channel, token)
            .max_decoding_message_size(self.settings.max_message_bytes)
            .max_encoding_message_size(self.settings.max_message_bytes)
    }
}

/// How often requests are looked at that have waited too long.
pub(super) const GIVE_UP_EVERY: Duration = Duration::from_millis(250);

/// Does something that takes time, and gives up requests meanwhile.
async fn giving_up<T>(link: &Link, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(GIVE_UP_EVERY) => link.give_up(),
        }
    }
}

/// How long to wait before the next connection: twice as long each time, and never the same for all who wait.
struct Backoff {
    pause: Duration,
    random: RandomState,
    attempt: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            pause: Self::SHORTEST,
            random: RandomState::new(),
            attempt: 0,
        }
    }
}

impl Backoff {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);
    /// A connection that lasted so long was a good one.
    const GOOD: Duration = Duration::from_secs(5);

    /// After a connection that lasted so long.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= Self::GOOD {
            self.pause = Self::SHORTEST;
        }
        self.attempt = self.attempt.wrapping_add(1);
        let percent = 50 + self.random.hash_one(self.attempt) % 51;
        let pause = self.pause * percent as u32 / 100;
        self.pause = (self.pause * 2).min(Self::LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_named() {
        let ca = Some("not PEM".to_owned());
        let of = |url: &str| GrpcSettings::new(url);
        for (settings, named) in [
            (of("localhost:50051"), "url: "),
            (of("ftp://localhost"), "url: "),
            (of("http://"), "url: "),
            (
                GrpcSettings {
                    ca: ca.clone(),
                    ..of("http://a:1")
                },
                "ca: is for a url with https",
            ),
            (
                GrpcSettings {
                    ca,
                    ..of("https://a:1")
                },
                "ca: has no certificate",
            ),
        ] {
            let error = settings.endpoint().unwrap_err().to_string();
            assert!(error.starts_with(named), "{error}");
        }
        for url in [
            "http://localhost:1",
            "https://localhost:1",
            "unix:/run/sidecar.sock",
        ] {
            assert!(of(url).endpoint().is_ok(), "{url}");
        }
    }

    #[test]
    fn pauses_grow_and_shrink_again_after_a_good_connection() {
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            let pause = backoff.after(Duration::ZERO);
            assert!(pause >= Backoff::SHORTEST / 2 && pause <= Backoff::LONGEST);
        }
        assert!(backoff.after(Duration::ZERO) >= Backoff::LONGEST / 2);
        assert!(backoff.after(Backoff::GOOD) <= Backoff::SHORTEST);
    }
}

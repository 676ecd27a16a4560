//! The sidecar: deep rules, served to gateways over gRPC.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::credentials::CheckToken;
use super::wire;
use super::wire::guard_sidecar_server::{GuardSidecar, GuardSidecarServer};
use super::{BearerToken, GrpcError, MAX_MESSAGE_BYTES, TlsIdentity, with_causes};
use crate::deep::{DeepAnswer, DeepHost, DeepRequest, DeepResponse};
use crate::inbox::remote::ServedRule;

/// How a sidecar serves.
#[derive(Debug, Clone)]
pub struct SidecarSettings {
    /// Without: in plain text, for a loopback address or a network that is trusted.
    pub tls: Option<SidecarTls>,
    /// What gateways must show. Readiness is open to all.
    pub token: Option<BearerToken>,
    /// Evaluations under way in all. What is more is turned away.
    pub in_flight: usize,
    /// Evaluations under way for one stream. What is more waits in the connection.
    pub in_flight_per_stream: usize,
    /// How long one evaluation may take, if its gateway does not say less.
    pub evaluation: Duration,
    /// The largest message in either direction.
    pub max_message_bytes: usize,
    /// After so long without a sign of life a gateway is asked for one, and after as long again it is given up.
    pub keep_alive: Duration,
    /// How long evaluations under way have when the sidecar shuts down.
    pub drain: Duration,
}

impl Default for SidecarSettings {
    fn default() -> Self {
        Self {
            tls: None,
            token: None,
            in_flight: 4096,
            in_flight_per_stream: 2048,
            evaluation: Duration::from_secs(30),
            max_message_bytes: MAX_MESSAGE_BYTES,
            keep_alive: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// The sidecar's side of TLS.
#[derive(Debug, Clone)]
pub struct SidecarTls {
    /// What it shows.
    pub identity: TlsIdentity,
    /// Who signs the certificates of gateways, as PEM. Without it they need none.
    pub client_ca: Option<String>,
}

/// Serves the rules of `host` until `shutdown` comes to an end. What is under way then is finished, for a while.
pub async fn serve(
    listener: TcpListener,
    settings: SidecarSettings,
    host: Arc<DeepHost>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), GrpcError> {
    let (stage, watched) = watch::channel(Stage::Serving);
    let places = u32::try_from(settings.in_flight).unwrap_or(u32::MAX).max(1);
    let room = Arc::new(Semaphore::new(places as usize));
    let sidecar = Sidecar {
        host: Arc::clone(&host),
        settings: Arc::new(settings.clone()),
        room: Arc::clone(&room),
        stage: watched.clone(),
    };
    let service = GuardSidecarServer::new(sidecar)
        .max_decoding_message_size(settings.max_message_bytes)
        .max_encoding_message_size(settings.max_message_bytes);
    let service = InterceptedService::new(service, CheckToken(settings.token.clone()));
    let health = Health::new();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let mut over = watched.clone();
    let serving = server(&settings)?
        .add_service(service)
        .add_service(health.server())
        .serve_with_incoming_shutdown(incoming, async move {
            reached(&mut over, Stage::Over).await;
        });
    let life = async {
        tokio::select! {
            () = shutdown => {}
            () = health.follow(&host) => {}
        }
        // Gateways hear of it before the connection ends, and the connection lasts until they have their answers.
        stage.send_replace(Stage::Draining);
        health.say(ServingStatus::NotServing).await;
        let _ = timeout(settings.drain, room.acquire_many(places)).await;
        stage.send_replace(Stage::Over);
        health.end().await;
        tokio::time::sleep(CLOSING).await;
    };
    tokio::select! {
        served = serving => served.map_err(GrpcError::Serve),
        // Somebody does not close the connection.
        () = life => Ok(()),
    }
}

/// How long connections have to close once nothing is under way.
const CLOSING: Duration = Duration::from_secs(1);

/// Calls at once over one connection.
const CALLS: u32 = 1024;

fn server(settings: &SidecarSettings) -> Result<Server, GrpcError> {
    let server = Server::builder()
        .http2_keepalive_interval(Some(settings.keep_alive))
        .http2_keepalive_timeout(Some(settings.keep_alive))
        .max_concurrent_streams(CALLS)
        .initial_stream_window_size(super::STREAM_WINDOW)
        .initial_connection_window_size(super::CONNECTION_WINDOW);
    let Some(tls) = &settings.tls else {
        return Ok(server);
    };
    let config = ServerTlsConfig::new()
        .identity(tls.identity.to_tonic())
        .timeout(HANDSHAKE);
    let config = match &tls.client_ca {
        Some(ca) => config.client_ca_root(Certificate::from_pem(ca)),
        None => config,
    };
    server
        .tls_config(config)
        .map_err(|error| GrpcError::setting("tls", with_causes(&error)))
}

const HANDSHAKE: Duration = Duration::from_secs(5);

/// Where in its life the sidecar is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    Serving,
    /// What is under way is finished, and nothing new is begun.
    Draining,
    /// Nothing is waited for any more.
    Over,
}

/// Waits until the sidecar is there, or is no more.
async fn reached(stage: &mut watch::Receiver<Stage>, there: Stage) {
    let _ = stage.wait_for(|stage| *stage >= there).await;
}

/// What load balancers and gateways are told.
struct Health(HealthReporter);

impl Health {
    /// For the whole process, and by name.
    const SERVICES: [&str; 2] = ["", "portcullis.deep.v1.GuardSidecar"];

    /// How often the rules are looked at.
    const EVERY: Duration = Duration::from_millis(250);

    fn new() -> Self {
        Self(HealthReporter::new())
    }

    fn server(
        &self,
    ) -> tonic_health::pb::health_server::HealthServer<tonic_health::server::HealthService> {
        let service = tonic_health::server::HealthService::from_health_reporter(self.0.clone());
        tonic_health::pb::health_server::HealthServer::new(service)
    }

    /// It serves while at least one of its rules can judge.
    async fn follow(&self, host: &DeepHost) {
        let mut ticks = interval(Self::EVERY);
        let mut said = None;
        loop {
            ticks.tick().await;
            let can_judge = host.rules().list().any(|(_, ready)| ready);
            if said.replace(can_judge) != Some(can_judge) {
                let status = if can_judge {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                self.say(status).await;
            }
        }
    }

    async fn say(&self, status: ServingStatus) {
        for service in Self::SERVICES {
            self.0.set_service_status(service, status).await;
        }
    }

    /// Ends the streams of those who watch.
    async fn end(&self) {
        let mut reporter = self.0.clone();
        for service in Self::SERVICES {
            reporter.clear_service_status(service).await;
        }
    }
}

#[derive(Clone)]
struct Sidecar {
    host: Arc<DeepHost>,
    settings: Arc<SidecarSettings>,
    room: Arc<Semaphore>,
    stage: watch::Receiver<Stage>,
}

#[tonic::async_trait]
impl GuardSidecar for Sidecar {
    async fn describe(
        &self,
        _request: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeResponse>, Status> {
        let serving = self.serves();
        let rules = self.host.rules();
        let rules = rules.list().map(|(info, ready)| ServedRule {
            id: info.id.clone(),
            version: info.version.to_string(),
            events: info.events.clone(),
            ready: ready && serving,
        });
        Ok(Response::new(wire::DescribeResponse {
            rules: rules.map(Into::into).collect(),
            max_request_bytes: self.settings.max_message_bytes as u64,
        }))
    }

    async fn evaluate(
        &self,
        request: Request<wire::EvaluateRequest>,
    ) -> Result<Response<wire::EvaluateResponse>, Status> {
        let message = request.into_inner();
        let limit = self.limit(&message);
        let request = message
            .into_request(&self.host.risks())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        if !self.serves() {
            return Err(shutting_down());
        }
        let Some(_room) = self.room() else {
            let why = format!("{} evaluations are under way", self.settings.in_flight);
            return Err(Status::resource_exhausted(why));
        };
        let mut stage = self.stage.clone();
        tokio::select! {
            response = self.host.evaluate(&request, limit) => {
                Ok(Response::new(fitting(response, self.settings.max_message_bytes)))
            }
            () = reached(&mut stage, Stage::Over) => Err(shutting_down()),
        }
    }

    type EvaluateStreamStream =
        Pin<Box<dyn Stream<Item = Result<wire::EvaluateResponse, Status>> + Send>>;

    async fn evaluate_stream(
        &self,
        request: Request<Streaming<wire::EvaluateRequest>>,
    ) -> Result<Response<Self::EvaluateStreamStream>, Status> {
        if !self.serves() {
            return Err(shutting_down());
        }
        let conversation = Conversation {
            sidecar: self.clone(),
            incoming: Some(request.into_inner()),
            under_way: JoinSet::new(),
            ended: false,
        };
        let responses = stream::unfold(conversation, async |mut conversation| {
            let response = Conversation::next(&mut conversation).await?;
            Some((response, conversation))
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

impl Sidecar {
    fn serves(&self) -> bool {
        *self.stage.borrow() == Stage::Serving
    }

    fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    fn limit(&self, message: &wire::EvaluateRequest) -> Duration {
        let own = self.settings.evaluation;
        message.ttl().map_or(own, |ttl| ttl.min(own))
    }
}

/// One stream of requests, and the evaluations that they have led to. These end with it: nobody is left to tell.
struct Conversation {
    sidecar: Sidecar,
    /// None once no more is read.
    incoming: Option<Streaming<wire::EvaluateRequest>>,
    under_way: JoinSet<(wire::EvaluateResponse, OwnedSemaphorePermit)>,
    ended: bool,
}

impl Conversation {
    async fn next(&mut self) -> Option<Result<wire::EvaluateResponse, Status>> {
        let at_once = self.sidecar.settings.in_flight_per_stream.max(1);
        let mut stage = self.sidecar.stage.clone();
        while !self.ended {
            let reading = self.incoming.is_some();
            if !reading && self.under_way.is_empty() {
                break;
            }
            let takes_more = self.under_way.len() < at_once;
            let stops_at = if reading {
                Stage::Draining
            } else {
                Stage::Over
            };
            tokio::select! {
                Some(done) = self.under_way.join_next() => match done {
                    // The room is given back with the answer in hand: a sidecar that shuts down waits for it.
                    Ok((response, _room)) => return Some(Ok(response)),
                    Err(error) => tracing::error!(%error, "an evaluation was lost"),
                },
                message = read(self.incoming.as_mut()), if reading && takes_more => match message {
                    Ok(Some(message)) => {
                        if let Some(response) = self.take(message) {
                            return Some(Ok(response));
                        }
                    }
                    // The gateway will ask nothing more; it may still listen.
                    Ok(None) => self.incoming = None,
                    Err(status) => {
                        self.ended = true;
                        return Some(Err(status));
                    }
                },
                () = reached(&mut stage, stops_at) => {
                    self.incoming = None;
                    if stops_at == Stage::Over {
                        self.ended = true;
                        return Some(Err(shutting_down()));
                    }
                }
            }
        }
        None
    }

    /// Begins an evaluation, or says at once why not.
    fn take(&mut self, message: wire::EvaluateRequest) -> Option<wire::EvaluateResponse> {
        let limit = self.sidecar.limit(&message);
        let asked = wire::EvaluateResponse {
            correlation_id: message.correlation_id.clone(),
            ..wire::EvaluateResponse::default()
        };
        let Some(room) = self.sidecar.room() else {
            return Some(wire::EvaluateResponse {
                overloaded: true,
                ..asked
            });
        };
        let rules = message.rules.clone();
        let request = match message.into_request(&self.sidecar.host.risks()) {
            Ok(request) => request,
            Err(error) => {
                let why = format!("the request cannot be read: {error}");
                let answers = rules.into_iter().map(|rule_id| wire::Answer {
                    rule_id,
                    said: Some(wire::answer::Said::Failed(why.clone())),
                });
                return Some(wire::EvaluateResponse {
                    answers: answers.collect(),
                    ..asked
                });
            }
        };
        let (host, max_bytes) = (
            Arc::clone(&self.sidecar.host),
            self.sidecar.settings.max_message_bytes,
        );
        self.under_way
            .spawn(judge(host, request, limit, max_bytes, room));
        None
    }
}

async fn read(
    incoming: Option<&mut Streaming<wire::EvaluateRequest>>,
) -> Result<Option<wire::EvaluateRequest>, Status> {
    match incoming {
        Some(incoming) => incoming.message().await,
        None => Ok(None),
    }
}

async fn judge(
    host: Arc<DeepHost>,
    request: DeepRequest,
    limit: Duration,
    max_bytes: usize,
    room: OwnedSemaphorePermit,
) -> (wire::EvaluateResponse, OwnedSemaphorePermit) {
    let response = host.evaluate(&request, limit).await;
    (fitting(response, max_bytes), room)
}

/// The response as a message. One that is too large would end the stream for all.
fn fitting(response: DeepResponse, max_bytes: usize) -> wire::EvaluateResponse {
    let rules: Vec<_> = response.answers.iter().map(|(id, _)| id.clone()).collect();
    let message = wire::EvaluateResponse::from(response);
    let bytes = message.encoded_len();
    if bytes <= max_bytes {
        return message;
    }
    let why = format!("the answer has {bytes} bytes, and {max_bytes} may be sent");
    let failed = |id| (id, DeepAnswer::Failed(why.clone()));
    wire::EvaluateResponse::from(DeepResponse {
        correlation_id: message.correlation_id,
        run_id: message.run_id,
        answers: rules.into_iter().map(failed).collect(),
    })
}

fn shutting_down() -> Status {
    Status::unavailable("the sidecar is shutting down")
}

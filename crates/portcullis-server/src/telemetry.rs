//! Log lines, and spans for OpenTelemetry.

use std::io::IsTerminal;

use axum::http::{HeaderMap, HeaderName};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use portcullis_runtime::Propagation;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::config::{LogFormat, TelemetrySettings};
use crate::tls;

/// Why nothing is logged or exported.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// What to log cannot be understood.
    #[error("the log filter `{filter}` cannot be used: {error}; write a level such as `info`")]
    Filter {
        /// As it was given.
        filter: String,
        /// Why.
        error: tracing_subscriber::filter::ParseError,
    },
    /// Spans cannot be exported.
    #[error("spans cannot be exported: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// Somebody logs already.
    #[error("logging is set up already")]
    Twice,
}

/// Keeps exporting; [`Exporting::finish`] sends what is left.
#[derive(Debug, Default)]
#[must_use = "spans are lost when this is dropped unfinished"]
pub struct Exporting(Option<SdkTracerProvider>);

impl Exporting {
    /// Sends what is left.
    pub fn finish(self) {
        if let Some(provider) = self.0
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Logs to stderr by `filter` (such as `info` or `portcullis_server=debug`), and exports spans of requests
/// where the settings say so.
pub fn start(
    settings: &TelemetrySettings,
    agent: &str,
    filter: &str,
) -> Result<Exporting, TelemetryError> {
    let logged = EnvFilter::try_new(filter).map_err(|error| TelemetryError::Filter {
        filter: filter.to_owned(),
        error,
    })?;
    let lines = match settings.log_format {
        LogFormat::Text => fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
        LogFormat::Json => fmt::layer().json().with_writer(std::io::stderr).boxed(),
    };
    let provider = settings
        .otlp_endpoint
        .as_deref()
        .map(|endpoint| provider(endpoint, agent))
        .transpose()?;
    let spans = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("portcullis"))
            // Ours alone: an exporter that traces its own requests never ends.
            .with_filter(
                Targets::new()
                    .with_target("portcullis_server", LevelFilter::DEBUG)
                    .with_target("portcullis_runtime", LevelFilter::DEBUG),
            )
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(logged))
        .with(spans)
        .try_init()
        .map_err(|_| TelemetryError::Twice)?;
    Ok(Exporting(provider))
}

/// Makes a span part of its caller's trace, if the caller says which (W3C `traceparent`).
pub(crate) fn join_trace(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() || !headers.contains_key(TRACEPARENT) {
        return;
    }
    let parent = TraceContextPropagator::new().extract(&Headers(headers));
    // Fails where nobody exports spans.
    let _ = span.set_parent(parent);
}

/// Carries traces to deep rules in other processes, and takes up those that come from one.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceContext;

impl Propagation for TraceContext {
    fn carry(&self, span: &Span) -> Option<String> {
        let mut carried = Carried::default();
        TraceContextPropagator::new().inject_context(&span.context(), &mut carried);
        carried.0
    }

    fn adopt(&self, span: &Span, traceparent: &str) {
        if span.is_disabled() {
            return;
        }
        let carried = Carried(Some(traceparent.to_owned()));
        let parent = TraceContextPropagator::new().extract(&carried);
        // Fails where nobody exports spans.
        let _ = span.set_parent(parent);
    }
}

/// A `traceparent` on its own.
#[derive(Default)]
struct Carried(Option<String>);

const TRACEPARENT: &str = "traceparent";

impl Extractor for Carried {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.as_deref().filter(|_| key == TRACEPARENT)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

impl Injector for Carried {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACEPARENT {
            self.0 = Some(value);
        }
    }
}

struct Headers<'h>(&'h HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

fn provider(endpoint: &str, agent: &str) -> Result<SdkTracerProvider, TelemetryError> {
    tls::choose_provider();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .build()?;
    let resource = Resource::builder()
        .with_service_name(agent.to_owned())
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

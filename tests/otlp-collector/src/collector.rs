//! The collector: a gRPC listener for spans, and an HTTP one that shows them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::span::Span;

/// Spans kept; the oldest leave first.
const SPANS_MAX: usize = 20_000;

/// Where it listens.
#[derive(Clone, Copy, Debug, Parser)]
#[command(name = "otlp-collector", about = "Takes traces over OTLP/gRPC and shows them as JSON")]
pub struct Config {
    /// Where processes send their spans; port 0 takes a free one.
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], 4317)))]
    pub listen: SocketAddr,
    /// Where spans are shown; port 0 takes a free one.
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], 4318)))]
    pub http_listen: SocketAddr,
}

/// A running collector; dropping it ends it.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    http_address: SocketAddr,
    kept: Kept,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
struct Kept(Arc<RwLock<VecDeque<Span>>>);

#[derive(Deserialize)]
struct Asked {
    trace: Option<String>,
}

impl Collector {
    /// Starts to collect.
    ///
    /// # Errors
    /// Says which address is taken.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let bind = async |address: SocketAddr| {
            TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
        };
        let (listener, http) = (bind(config.listen).await?, bind(config.http_listen).await?);
        let (address, http_address) = (listener.local_addr()?, http.local_addr()?);
        let (kept, stop, mut tasks) = (Kept::default(), CancellationToken::new(), JoinSet::new());
        let (service, ended) = (TraceServiceServer::new(kept.clone()), stop.clone());
        tasks.spawn(async move {
            let server = Server::builder().add_service(service);
            let incoming = TcpIncoming::from(listener);
            drop(server.serve_with_incoming_shutdown(incoming, ended.cancelled_owned()).await);
        });
        let router = Router::new()
            .route("/spans", get(show))
            .route("/health", get(async || StatusCode::OK))
            .with_state(kept.clone());
        let ended = stop.clone();
        tasks.spawn(async move {
            drop(axum::serve(http, router).with_graceful_shutdown(ended.cancelled_owned()).await);
        });
        Ok(Self { address, http_address, kept, stop, tasks })
    }

    /// Returns where processes send their spans.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where spans are shown.
    #[must_use]
    pub const fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Lists the spans of a trace, or all, oldest first.
    #[must_use]
    pub fn spans(&self, trace: Option<&str>) -> Vec<Span> {
        self.kept.list(trace)
    }

    /// Waits until a listener has ended, or `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = self.tasks.join_next() => {}
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Kept {
    fn list(&self, trace: Option<&str>) -> Vec<Span> {
        let spans = self.0.read();
        let wanted = spans.iter().filter(|span| trace.is_none_or(|trace| span.trace_id == trace));
        let mut wanted: Vec<Span> = wanted.cloned().collect();
        wanted.sort_by_key(|span| span.start_ns);
        wanted
    }
}

async fn show(State(kept): State<Kept>, Query(asked): Query<Asked>) -> Json<Vec<Span>> {
    Json(kept.list(asked.trace.as_deref()))
}

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let mut kept = self.0.write();
        for of_process in request.into_inner().resource_spans {
            let resource = of_process.resource.as_ref();
            let spans = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
            kept.extend(spans.map(|span| Span::of(span, resource)));
        }
        let surplus = kept.len().saturating_sub(SPANS_MAX);
        kept.drain(..surplus);
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

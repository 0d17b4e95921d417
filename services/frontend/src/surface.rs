//! The HTTP surface: which path does what, for whom.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tracing::Instrument;
use wire::command::Command;

use crate::access::Access;
use crate::answer::{self, Answer};
use crate::api_error::ApiError;
use crate::call::Call;
use crate::chat::Kind;
use crate::commands::check_origin;
use crate::headers;
use crate::request_body::{Held, Unread};
use crate::request_id::REQUEST_ID;
use crate::server::Handler;
use crate::shared::Shared;

/// One listener's view of a frontend.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) shared: Arc<Shared>,
    pub(crate) access: Access,
    /// Whether clients' requests are served, or only operators'.
    pub(crate) serves_clients: bool,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route<'a> {
    Client(ForClients<'a>),
    Operator(ForOperators<'a>),
    Live,
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForClients<'a> {
    Generate(Kind),
    Models,
    Model(&'a str),
    Explain,
    Proxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForOperators<'a> {
    Explain(&'a str),
    Workers,
    Load,
    Index,
    Tree,
    Metrics,
    Command(&'a str, Command),
}

impl<'a> Route<'a> {
    fn of(method: &Method, path: &'a str) -> Result<Self, ApiError> {
        use ForClients as C;
        use ForOperators as O;
        let get = *method == Method::GET || *method == Method::HEAD;
        let post = *method == Method::POST;
        let (allowed, route) = match path {
            "/v1/chat/completions" => (post, Self::Client(C::Generate(Kind::Chat))),
            "/v1/completions" => (post, Self::Client(C::Generate(Kind::Completion))),
            "/v1/models" => (get, Self::Client(C::Models)),
            "/v1/explain" => (post, Self::Client(C::Explain)),
            "/admin/workers" => (get, Self::Operator(O::Workers)),
            "/admin/load" => (get, Self::Operator(O::Load)),
            "/admin/index" => (get, Self::Operator(O::Index)),
            "/admin/index/tree" => (get, Self::Operator(O::Tree)),
            "/metrics" => (get, Self::Operator(O::Metrics)),
            "/health/live" => (get, Self::Live),
            "/health/ready" | "/health" => (get, Self::Ready),
            path => match (path.strip_prefix("/v1/models/"), path.strip_prefix("/v1/explain/")) {
                (Some(model), _) => (get, Self::Client(C::Model(model))),
                (_, Some(id)) => (get, Self::Operator(O::Explain(id))),
                _ if path.starts_with("/admin/workers/") => {
                    let (worker, command) = command_of(path).ok_or_else(|| not_found(path))?;
                    (post, Self::Operator(O::Command(worker, command)))
                }
                _ if path.starts_with("/v1/") => (true, Self::Client(C::Proxy)),
                _ => return Err(not_found(path)),
            },
        };
        if allowed {
            return Ok(route);
        }
        let message = format!("method {method} is not allowed for {path}");
        Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message))
    }

    /// Returns the route's name in metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Client(ForClients::Generate(Kind::Chat)) => "chat",
            Self::Client(ForClients::Generate(Kind::Completion)) => "completions",
            Self::Client(ForClients::Models | ForClients::Model(_)) => "models",
            Self::Client(ForClients::Explain) | Self::Operator(ForOperators::Explain(_)) => "explain",
            Self::Client(ForClients::Proxy) => "proxy",
            Self::Operator(ForOperators::Metrics) => "metrics",
            Self::Operator(_) => "admin",
            Self::Live | Self::Ready => "health",
        }
    }
}

/// Reads `/admin/workers/{worker}/drain` and `…/resume`.
fn command_of(path: &str) -> Option<(&str, Command)> {
    let (worker, verb) = path.strip_prefix("/admin/workers/")?.split_once('/')?;
    match verb {
        "drain" if !worker.is_empty() => Some((worker, Command::Drain)),
        "resume" if !worker.is_empty() => Some((worker, Command::Resume)),
        _ => None,
    }
}

fn not_found(path: &str) -> ApiError {
    ApiError::not_found("not_found", format!("there is nothing at {path}"))
}

impl Handler for Surface {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let id = self.shared.ids.of(&parts.headers);
        let (name, route) = match Route::of(&parts.method, parts.uri.path()) {
            Ok(route) => (route.name(), Ok(route)),
            Err(error) => ("none", Err(error)),
        };
        let span = tracing::info_span!("request", request_id = %id, route = name);
        headers::adopt_trace(&span, &parts.headers);
        let answering = Answering { in_flight: Some(InFlight::begin(&self.shared)), route: name };
        let handled = async {
            match route {
                Ok(route) => self.answer(route, &parts, &id, body).await,
                Err(error) => Err(Unread { error, rest: Some(body) }),
            }
        };
        let mut response = match handled.instrument(span.clone()).await {
            Ok(response) => response,
            Err(unread) => {
                span.in_scope(|| log(&unread.error));
                unread.response()
            }
        };
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let in_flight = answering.done(response.status());
        response.body_mut().hold(in_flight);
        response
    }
}

impl Surface {
    async fn answer(
        &self,
        route: Route<'_>,
        parts: &Parts,
        id: &str,
        body: Incoming,
    ) -> Result<Response<Answer>, Unread> {
        let refused = |error| Unread { error, rest: None };
        match route {
            Route::Client(route) if self.serves_clients => {
                let caller = match self.access.caller(&parts.headers) {
                    Ok(caller) => caller,
                    Err(error) => return Err(Unread { error, rest: Some(body) }),
                };
                let arrived = self.shared.clock.now();
                let Held { bytes, share, allowance } = self.shared.bodies.read(body).await?;
                let call = Call { id: id.to_owned(), caller, parts, arrived, allowance };
                let answer = self.serve(route, &call, bytes).await.map_err(refused);
                // From its first byte on, an answer needs the request no more.
                drop((share, call));
                answer
            }
            Route::Operator(route) if self.access.operator(&parts.headers) => {
                self.observe(route, parts).await.map_err(refused)
            }
            Route::Client(_) | Route::Operator(_) => {
                Err(Unread { error: not_found(parts.uri.path()), rest: Some(body) })
            }
            Route::Live => Ok(answer::json(&serde_json::json!({"status": "live"}))),
            Route::Ready => self.shared.show_ready().map_err(refused),
        }
    }

    async fn serve(
        &self,
        route: ForClients<'_>,
        call: &Call<'_>,
        body: Bytes,
    ) -> Result<Response<Answer>, ApiError> {
        let shared = &self.shared;
        match route {
            ForClients::Generate(kind) => Box::pin(shared.generate(kind, call, body)).await,
            ForClients::Models => Ok(answer::json(&shared.list_models())),
            ForClients::Model(name) => shared.show_model(name).map(|model| answer::json(&model)),
            ForClients::Explain => Ok(answer::json(&Box::pin(shared.explain_body(call, body)).await?)),
            ForClients::Proxy => Box::pin(shared.proxy(call, body)).await,
        }
    }

    async fn observe(&self, route: ForOperators<'_>, parts: &Parts) -> Result<Response<Answer>, ApiError> {
        let shared = &self.shared;
        match route {
            ForOperators::Explain(id) => {
                let record = shared.records.find(id).ok_or_else(|| unknown_request(id, &shared.id))?;
                Ok(answer::json(&record.explain()))
            }
            ForOperators::Workers => Ok(answer::json(&shared.show_workers())),
            ForOperators::Load => Ok(answer::json(&shared.show_load())),
            ForOperators::Index => Ok(answer::json(&shared.show_index().await)),
            ForOperators::Command(worker, command) => {
                check_origin(&parts.headers)?;
                Ok(answer::json(&shared.command(worker, command).await?))
            }
            ForOperators::Tree => Ok(answer::json(&shared.show_tree(parts.uri.query()).await?)),
            ForOperators::Metrics => {
                let text = shared.metrics.text(&shared.sample());
                Ok(answer::typed(Bytes::from(text), "text/plain; version=0.0.4; charset=utf-8"))
            }
        }
    }
}

/// Names the frontend that made the request's name, if another one did.
fn unknown_request(id: &str, own: &str) -> ApiError {
    let made = id.rsplit_once('-').filter(|(_, count)| count.len() == 16);
    let message = match made {
        Some((frontend, _)) if frontend != own => {
            format!(
                "request {id} is not among those this frontend ({own}) remembers: ask frontend {frontend}"
            )
        }
        Some(_) | None => format!("request {id} is not among those this frontend remembers"),
    };
    ApiError::not_found("request_not_found", message)
}

/// Logs what the client is not told. Clients' own faults are not worth a line of their own above debug, nor is the
/// absence of workers: the directory logs each one that goes.
fn log(error: &ApiError) {
    let (status, code, cause) = (error.status.as_u16(), error.code, error.cause.as_deref());
    if error.status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(status, code, cause, "request failed");
    } else if error.status.is_server_error() && !matches!(code, "starting" | "draining" | "no_worker") {
        tracing::warn!(status, code, cause, "request failed");
    } else {
        tracing::debug!(status, code, cause, "request refused");
    }
}

/// Counts a request however it ends: a client that leaves drops the future that holds this.
struct Answering {
    in_flight: Option<InFlight>,
    route: &'static str,
}

impl Answering {
    /// Counts the answer; the request is in flight until its body is sent.
    fn done(mut self, status: StatusCode) -> Option<InFlight> {
        let in_flight = self.in_flight.take();
        if let Some(InFlight(shared)) = &in_flight {
            shared.metrics.answered(self.route, status.as_u16());
        }
        in_flight
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        /// As proxies note a client that closed the connection.
        const CLIENT_GONE: u16 = 499;
        if let Some(InFlight(shared)) = &self.in_flight {
            shared.metrics.answered(self.route, CLIENT_GONE);
            shared.metrics.cancelled();
        }
    }
}

/// A request whose answer has not been sent to its end.
struct InFlight(Arc<Shared>);

impl InFlight {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.metrics.began();
        Self(Arc::clone(shared))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.metrics.ended();
    }
}

//! The contract of [`crate::Engine`].

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;

use super::{Clause, PATIENCE, Violation};
use crate::Engine;
use crate::engine::memory::{Reply, Then};
use crate::engine::{Endpoint, Error, Request, Response};

/// Makes engines that answer by script, and a client of them.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Returns the client under test.
    fn client(&self) -> &dyn Engine;
    /// Starts an engine that gives one answer to every request, `/health` included.
    async fn engine(&self, reply: Reply) -> Endpoint;
    /// Counts the exchanges that the client broke off before the answer's end.
    async fn cancelled(&self) -> u64;
}

/// Runs the whole suite.
///
/// # Errors
/// The first clause that does not hold.
pub async fn check(harness: &dyn Harness) -> Result<(), Violation> {
    any_status_is_an_answer(harness).await?;
    bodies_stream(harness).await?;
    a_drop_cancels(harness).await?;
    failures(harness).await?;
    questions(harness).await
}

fn post() -> Request {
    Request {
        method: Method::POST,
        path: PathAndQuery::from_static("/v1/completions"),
        headers: HeaderMap::new(),
        body: vec![Bytes::from_static(b"{"), Bytes::from_static(b"}")],
    }
}

async fn any_status_is_an_answer(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("any status is a response");
    for status in [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::SERVICE_UNAVAILABLE] {
        let engine = harness.engine(Reply::json(status, "{\"a\":1}")).await;
        let response = clause.ok(clause.soon(harness.client().forward(&engine, post())).await?)?;
        clause.same(&response.status, &status)?;
        let content_type = response.headers.get("content-type").map(|value| value.as_bytes().to_vec());
        clause.same(&content_type, &Some(b"application/json".to_vec()))?;
        let body = clause.ok(response.body.collect().await)?.to_bytes();
        clause.same(&body, &Bytes::from_static(b"{\"a\":1}"))?;
    }
    Ok(())
}

async fn bodies_stream(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("what has come of a body is there although the rest is not");
    let engine = harness.engine(Reply::events(&["data: 1\n\n"]).then(Then::Hang)).await;
    let mut response: Response = clause.ok(clause.soon(harness.client().forward(&engine, post())).await?)?;
    let mut seen = Vec::new();
    while seen.len() < 9 {
        let Some(frame) = clause.soon(response.body.frame()).await? else { break };
        seen.extend_from_slice(clause.ok(frame)?.data_ref().map_or(&[][..], |data| data));
    }
    clause.same(&seen, &b"data: 1\n\n".to_vec())?;
    clause.never(response.body.frame()).await
}

async fn a_drop_cancels(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("dropping a body cancels the exchange");
    let before = harness.cancelled().await;
    let engine = harness.engine(Reply::events(&["data: 1\n\n"]).then(Then::Hang)).await;
    let response = clause.ok(clause.soon(harness.client().forward(&engine, post())).await?)?;
    drop(response);
    let seen = async {
        while harness.cancelled().await <= before {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    clause.soon(seen).await
}

async fn failures(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("a refused connection is told as such, and that nothing was sent");
    let engine = harness.engine(Reply::events(&[]).then(Then::Refuse)).await;
    match clause.soon(harness.client().forward(&engine, post())).await? {
        Err(error) => clause.holds(error.refused() && error.unsent(), format!("{error:?}"))?,
        Ok(response) => return Err(clause.violated(format!("answered {}", response.status))),
    }
    let clause = Clause("a connection that breaks before the head is an error");
    let engine = harness.engine(Reply::events(&[]).then(Then::Break)).await;
    match clause.soon(harness.client().forward(&engine, post())).await? {
        Err(error) => clause.holds(matches!(error, Error::Broken { .. }), format!("{error:?}"))?,
        Ok(response) => return Err(clause.violated(format!("answered {}", response.status))),
    }
    let clause = Clause("a connection that breaks in the body is an error of the body");
    let engine = harness.engine(Reply::events(&["data: 1\n\n"]).then(Then::Break)).await;
    let response = clause.ok(clause.soon(harness.client().forward(&engine, post())).await?)?;
    match clause.soon(response.body.collect()).await? {
        Err(error) => clause.holds(matches!(error, Error::Broken { .. }), format!("{error:?}")),
        Ok(_) => Err(clause.violated("the body ended in good order")),
    }
}

async fn questions(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("an engine is asked about itself");
    let client = harness.client();
    let up = harness.engine(Reply::json(StatusCode::OK, "")).await;
    clause.ok(client.health(&up, PATIENCE).await)?;
    let down = harness.engine(Reply::json(StatusCode::SERVICE_UNAVAILABLE, "")).await;
    let health = client.health(&down, PATIENCE).await;
    clause.holds(matches!(health, Err(Error::Status { status: 503, .. })), format!("{health:?}"))?;
    let metrics = harness.engine(Reply::json(StatusCode::OK, "process_start_time_seconds 2.5\n")).await;
    clause.same(&clause.ok(client.status(&metrics, PATIENCE).await)?.started_ms, &Some(2500))?;
    let models = harness.engine(Reply::json(StatusCode::OK, r#"{"data":[{"id":"m"}]}"#)).await;
    clause.same(&clause.ok(client.models(&models, PATIENCE).await)?.len(), &1)?;
    let nonsense = client.models(&metrics, PATIENCE).await;
    clause.holds(matches!(nonsense, Err(Error::Unreadable { .. })), format!("{nonsense:?}"))
}

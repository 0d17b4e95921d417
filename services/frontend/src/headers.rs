//! Which headers pass, which are set, and which are for operators.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use identity::{Rank, WorkerId};
use placement::Policy;

use crate::access::Caller;
use crate::api_error::ApiError;
use crate::record::Record;
use crate::request_id::REQUEST_ID;

const WORKER: HeaderName = HeaderName::from_static("x-sightline-worker");
const RANK: HeaderName = HeaderName::from_static("x-sightline-rank");
const POLICY: HeaderName = HeaderName::from_static("x-sightline-policy");
const SESSION: HeaderName = HeaderName::from_static("x-sightline-session");
const PROMPT_TOKENS: HeaderName = HeaderName::from_static("x-sightline-prompt-tokens");
const CACHED_TOKENS: HeaderName = HeaderName::from_static("x-sightline-cached-tokens");
const REASON: HeaderName = HeaderName::from_static("x-sightline-reason");
const FALLBACK: HeaderName = HeaderName::from_static("x-sightline-fallback");
const ENGINE_RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What a request's headers ask of routing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) direct: Option<(WorkerId, Option<Rank>)>,
    pub(crate) policy: Option<Policy>,
    pub(crate) session: Option<u64>,
}

impl Wishes {
    /// Reads them; all but the session are for operators.
    pub(crate) fn read(headers: &HeaderMap, caller: &Caller) -> Result<Self, ApiError> {
        let steering = [WORKER, RANK, POLICY].into_iter().find(|name| headers.contains_key(name));
        if let (false, Some(name)) = (caller.steers, steering) {
            let message = format!("header `{name}` is for operators");
            return Err(
                ApiError::new(StatusCode::FORBIDDEN, "operator_required", message).param(name.as_str())
            );
        }
        let rank = match text(headers, &RANK)? {
            Some(rank) => Some(Rank(rank.parse().map_err(|_| wrong(&RANK, "a small number"))?)),
            None => None,
        };
        let direct = text(headers, &WORKER)?.map(|worker| (WorkerId::new(worker), rank));
        if direct.is_none() && rank.is_some() {
            return Err(wrong(&RANK, "beside `x-sightline-worker`, whose rank it is"));
        }
        let policy = match text(headers, &POLICY)? {
            Some(name) => Some(name.parse().map_err(|error: placement::UnknownPolicy| {
                ApiError::bad_request("invalid_value", error.to_string()).param(POLICY.as_str())
            })?),
            None => None,
        };
        let session = text(headers, &SESSION)?.map(|name| session(&caller.tenant, name));
        Ok(Self { direct, policy, session })
    }
}

/// Names a session; two tenants' sessions are two, however they are called.
fn session(tenant: &str, name: &str) -> u64 {
    if tenant.is_empty() {
        return actors::scheduler::session(name);
    }
    // Header values hold no 0x1f.
    actors::scheduler::session(&format!("{tenant}\x1f{name}"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match value.to_str() {
        Ok(value) if !value.is_empty() && value.len() <= 256 => Ok(Some(value)),
        Ok(_) | Err(_) => Err(wrong(name, "1 to 256 ASCII characters")),
    }
}

fn wrong(name: &HeaderName, expected: &str) -> ApiError {
    ApiError::bad_request("invalid_value", format!("header `{name}` must be {expected}")).param(name.as_str())
}

/// Headers of the client's request that an engine must not see: those of this hop, those that are set anew, and
/// `accept-encoding`, since usage is read in passing.
fn withheld(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 9] = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::EXPECT,
        header::ACCEPT_ENCODING,
        header::COOKIE,
        REQUEST_ID,
        ENGINE_RANK,
        TRACEPARENT,
    ];
    NAMES.contains(name) || name.as_str().starts_with("x-sightline-")
}

/// Says whether the client's `connection` header keeps a header on this hop (RFC 9110 §7.6.1).
fn of_this_hop(client: &HeaderMap, name: &HeaderName) -> bool {
    let lines = client.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    *name == header::CONNECTION
        || lines.flat_map(|line| line.split(',')).any(|it| it.trim().eq_ignore_ascii_case(name.as_str()))
}

/// Builds the headers for the engine; hop-by-hop ones by their own name are the adapter's to drop. What a client's
/// `connection` header names is left out here, and the header with it: further on it would name headers that are set
/// anew.
pub(crate) fn upstream(client: &HeaderMap, request_id: &str, keep_authorization: bool) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(client.len() + 4);
    for (name, value) in client {
        if !withheld(name)
            && !of_this_hop(client, name)
            && (keep_authorization || name != header::AUTHORIZATION)
        {
            headers.append(name, value.clone());
        }
    }
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(traceparent) = client.get(TRACEPARENT) {
        headers.insert(TRACEPARENT, traceparent.clone());
    }
    headers
}

/// Names the current span to the engine as what its own are part of; without an exporter the client's stays.
pub(crate) fn set_trace(headers: &mut HeaderMap) {
    let current = telemetry::current_traceparent().and_then(|it| HeaderValue::from_str(&it).ok());
    if let Some(traceparent) = current {
        headers.insert(TRACEPARENT, traceparent);
    }
}

/// Names the rank to the engine.
pub(crate) fn set_rank(headers: &mut HeaderMap, rank: Rank) {
    headers.insert(ENGINE_RANK, HeaderValue::from(rank.0));
}

/// Adds to a response what operators see of its routing.
pub(crate) fn describe(headers: &mut HeaderMap, record: &Record) {
    let Some(decision) = record.decision.as_ref() else { return };
    let holder = &decision.choice().holder;
    if let Ok(worker) = HeaderValue::from_str(holder.worker.as_str()) {
        headers.insert(WORKER, worker);
    }
    headers.insert(RANK, HeaderValue::from(holder.rank.0));
    headers.insert(REASON, HeaderValue::from_static(decision.reason.as_str()));
    if let Some(predicted) = record.predicted {
        headers.insert(PROMPT_TOKENS, HeaderValue::from(predicted.prompt_tokens));
        headers.insert(CACHED_TOKENS, HeaderValue::from(predicted.cached_tokens));
    }
    if let Some(fallback) = record.fallback {
        headers.insert(FALLBACK, HeaderValue::from_static(fallback));
    }
}

/// Makes a request's span a child of the trace its headers name.
pub(crate) fn adopt_trace(span: &tracing::Span, headers: &HeaderMap) {
    if let Some(traceparent) = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()) {
        telemetry::set_parent(span, traceparent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn what_is_ours_does_not_reach_the_engine() {
        let client = map(&[
            ("host", "a"),
            ("authorization", "Bearer x"),
            ("x-sightline-policy", "kv"),
            ("x-session-id", "s"),
            ("accept-encoding", "gzip"),
            ("x-data-parallel-rank", "9"),
            ("connection", "close, X-Data-Parallel-Rank, x-request-id"),
            ("x-hop", "h"),
            ("connection", "x-hop"),
        ]);
        let mut sent = upstream(&client, "id-1", false);
        set_rank(&mut sent, Rank(1));
        let expected = map(&[("x-session-id", "s"), ("x-request-id", "id-1"), ("x-data-parallel-rank", "1")]);
        assert_eq!(sent, expected);
        assert!(upstream(&client, "id-1", true).contains_key("authorization"));
    }

    fn caller(tenant: &str, steers: bool) -> Caller {
        Caller { tenant: tenant.to_owned(), operator: steers, steers }
    }

    #[test]
    fn wishes_are_checked() {
        let read = |pairs: &[_]| Wishes::read(&map(pairs), &caller("", true));
        let wishes = read(&[("x-sightline-worker", "w1"), ("x-sightline-policy", "random")]).unwrap();
        assert_eq!(wishes.direct, Some((WorkerId::new("w1"), None)));
        assert_eq!(wishes.policy, Some(Policy::Random));
        for (name, value) in [
            ("x-sightline-policy", "best"),
            ("x-sightline-rank", "-1"),
            ("x-sightline-rank", "0"),
            ("x-sightline-worker", ""),
        ] {
            assert!(read(&[(name, value)]).is_err(), "{name}");
        }
    }

    #[test]
    fn steering_is_for_operators() {
        for name in ["x-sightline-policy", "x-sightline-rank", "x-sightline-worker"] {
            let error = Wishes::read(&map(&[(name, "kv")]), &caller("t", false)).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), ("operator_required", Some(name)));
        }
    }

    #[test]
    fn sessions_are_of_their_tenant() {
        let read = |tenant| {
            Wishes::read(&map(&[("x-sightline-session", "s")]), &caller(tenant, false)).unwrap().session
        };
        let all = [read(""), read("a"), read("b")];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2] && all[0].is_some(), "{all:?}");
        assert_eq!(read("a"), read("a"));
    }
}

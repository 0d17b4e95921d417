//! vLLM's rules for ZMQ endpoints: which side binds, and where further ranks are.

/// Which side of a connection an engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It waits for subscribers.
    Bind,
    /// It calls the one subscriber.
    Connect,
}

/// Says what vLLM does with a publisher endpoint: wildcards, IPv6 and `ipc:` are bound, the rest is connected to.
#[must_use]
pub(crate) fn side(endpoint: &str) -> Side {
    let binds = endpoint.contains('*')
        || endpoint.contains("::")
        || endpoint.starts_with("ipc://")
        || endpoint.starts_with("inproc://");
    if binds { Side::Bind } else { Side::Connect }
}

/// Returns the endpoint of a data-parallel rank: the port plus the rank, except that port 0 stays the system's choice.
/// Endpoints other than `tcp:` get a suffix instead, as vLLM has for `inproc:`.
///
/// # Errors
/// Fails if a `tcp:` endpoint has no port, or if the sum is not a port.
pub(crate) fn for_rank(endpoint: &str, rank: u32) -> Result<String, InvalidEndpoint> {
    let invalid = || InvalidEndpoint { endpoint: endpoint.to_owned(), rank };
    if !endpoint.starts_with("tcp://") {
        return Ok(if rank == 0 { endpoint.to_owned() } else { format!("{endpoint}_dp{rank}") });
    }
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    if port == 0 || rank == 0 {
        return Ok(endpoint.to_owned());
    }
    let port = u32::from(port) + rank;
    if port > u32::from(u16::MAX) {
        return Err(invalid());
    }
    Ok(format!("{host}:{port}"))
}

/// Spells a bind endpoint for the socket library, which knows no `*`.
#[must_use]
pub(crate) fn bindable(endpoint: &str) -> String {
    endpoint.replace("tcp://*:", "tcp://0.0.0.0:")
}

/// An endpoint that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {endpoint} has no usable port for rank {rank}")]
pub(crate) struct InvalidEndpoint {
    /// As configured.
    pub(crate) endpoint: String,
    /// The rank it was asked for.
    pub(crate) rank: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wildcards_ipv6_and_local_transports_are_bound() {
        let check = |endpoint, expected| assert_eq!(side(endpoint), expected, "{endpoint}");
        check("tcp://*:5557", Side::Bind);
        check("tcp://[::]:5557", Side::Bind);
        check("ipc:///tmp/kv", Side::Bind);
        check("tcp://127.0.0.1:5557", Side::Connect);
        check("tcp://0.0.0.0:5557", Side::Connect);
        check("tcp://router:5557", Side::Connect);
    }

    #[test]
    fn ranks_have_consecutive_ports() {
        let check = |endpoint, rank, expected: Option<&str>| {
            assert_eq!(for_rank(endpoint, rank).ok().as_deref(), expected, "{endpoint} {rank}");
        };
        check("tcp://*:5557", 0, Some("tcp://*:5557"));
        check("tcp://*:5557", 3, Some("tcp://*:5560"));
        check("tcp://127.0.0.1:0", 3, Some("tcp://127.0.0.1:0"));
        check("ipc:///tmp/kv", 2, Some("ipc:///tmp/kv_dp2"));
        check("tcp://*", 1, None);
        check("tcp://*:65535", 1, None);
    }
}

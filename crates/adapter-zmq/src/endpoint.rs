//! vLLM's rules for its event endpoints, seen from the agent.

/// How the agent reaches an engine's publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The engine binds: connect to it.
    Connect(String),
    /// The engine connects: bind and wait for it.
    Bind(String),
}

impl Attach {
    /// Answers to an engine's configured publisher endpoint, as `/kv_event_sources` or its command line gives it.
    ///
    /// `host` is where the engine runs; it stands in for wildcards.
    #[must_use]
    pub fn to_engine(endpoint: &str, host: &str) -> Self {
        if engine_binds(endpoint) {
            Self::Connect(dialled(endpoint, host))
        } else {
            Self::Bind(bindable(endpoint))
        }
    }

    /// Answers to an endpoint and whether the agent is the one to bind.
    #[must_use]
    pub fn configured(endpoint: &str, bind: bool, host: &str) -> Self {
        if bind { Self::Bind(bindable(endpoint)) } else { Self::Connect(dialled(endpoint, host)) }
    }

    /// Returns the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        match self {
            Self::Connect(endpoint) | Self::Bind(endpoint) => endpoint,
        }
    }
}

/// Tells whether vLLM binds its publisher to an endpoint, rather than connecting: the rule of releases 0.10.2 to 0.33.
#[must_use]
pub fn engine_binds(endpoint: &str) -> bool {
    endpoint.contains('*')
        || endpoint.contains("::")
        || endpoint.starts_with("ipc://")
        || endpoint.starts_with("inproc://")
}

/// Computes a data-parallel rank's endpoint: its port, published and replayed, is `rank` above rank 0's.
///
/// Returns none where the endpoint has no port to add to, or the sum is none.
#[must_use]
pub fn rank_endpoint(endpoint: &str, rank: u16) -> Option<String> {
    if rank == 0 {
        return Some(endpoint.to_owned());
    }
    let (head, port) = endpoint.rsplit_once(':')?;
    let port = port.parse::<u16>().ok()?.checked_add(rank)?;
    Some(format!("{head}:{port}"))
}

/// Puts a host in place of a wildcard, so that the endpoint can be connected to.
#[must_use]
pub fn dialled(endpoint: &str, host: &str) -> String {
    replace_host(endpoint, &["*", "0.0.0.0", "[::]", "::"], host)
}

/// Spells a wildcard as an address that can be bound.
fn bindable(endpoint: &str) -> String {
    replace_host(endpoint, &["*"], "0.0.0.0")
}

fn replace_host(endpoint: &str, wildcards: &[&str], host: &str) -> String {
    let parts = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':'));
    match parts {
        Some((from, port)) if wildcards.contains(&from) => format!("tcp://{host}:{port}"),
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vllm_binds_by_its_rule() {
        for (endpoint, binds) in [
            ("tcp://*:5557", true),
            ("tcp://127.0.0.1:5557", false),
            ("tcp://[::]:5557", true),
            ("ipc:///tmp/kv", true),
            ("inproc://kv", true),
            ("tcp://agent:5557", false),
        ] {
            assert_eq!(engine_binds(endpoint), binds, "{endpoint}");
        }
    }

    #[test]
    fn the_agent_does_the_opposite() {
        let connect = |endpoint: &str| Attach::Connect(endpoint.to_owned());
        let bind = |endpoint: &str| Attach::Bind(endpoint.to_owned());
        assert_eq!(Attach::to_engine("tcp://*:5557", "gpu7"), connect("tcp://gpu7:5557"));
        assert_eq!(Attach::to_engine("tcp://[::]:5557", "gpu7"), connect("tcp://gpu7:5557"));
        assert_eq!(Attach::to_engine("ipc:///run/kv", "gpu7"), connect("ipc:///run/kv"));
        assert_eq!(Attach::to_engine("tcp://10.0.0.1:5557", "gpu7"), bind("tcp://10.0.0.1:5557"));
        assert_eq!(Attach::configured("tcp://*:5557", true, "gpu7"), bind("tcp://0.0.0.0:5557"));
        assert_eq!(Attach::configured("tcp://*:5557", false, "gpu7"), connect("tcp://gpu7:5557"));
    }

    #[test]
    fn ranks_count_ports_up() {
        for (endpoint, rank, expected) in [
            ("tcp://*:5557", 0, Some("tcp://*:5557")),
            ("tcp://*:5557", 1, Some("tcp://*:5558")),
            ("tcp://[::1]:5557", 3, Some("tcp://[::1]:5560")),
            ("tcp://h:65535", 1, None),
            ("ipc:///run/kv", 0, Some("ipc:///run/kv")),
            ("ipc:///run/kv", 1, None),
        ] {
            assert_eq!(rank_endpoint(endpoint, rank).as_deref(), expected, "{endpoint} {rank}");
        }
    }
}

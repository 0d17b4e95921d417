//! What can happen to a cluster: how each fault begins, how it is healed, and what it excuses.

use crate::bus_proxy::Link;
use crate::chat::Failure;
use crate::disorder::Odds;
use crate::load::Failed;
use crate::processes::{Cluster, answers};

/// A fault of the matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) fault: Fault,
    /// Messages logged as WARN or ERROR that the fault explains.
    pub(crate) explains: &'static [&'static str],
    /// Whether no request runs from before the fault until after it is healed.
    pub(crate) idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Servers { nats: bool, etcd: bool },
    FrontendKilled { etcd_down: bool },
    AgentKilled,
    EngineKilled,
    EngineReplaced,
    EngineHung,
    FrontendCutOff(Link),
    BusDisordered(Odds),
}

/// The frontend that is killed.
const FRONTEND: usize = 0;
/// The worker whose engine or agent is killed.
const WORKER: usize = 2;
const NATS_LOST: &str = "bus disconnected";
const ETCD_LOST: &str = "workers are not watched, trying again";
const LEASE_LOST: &str = "the frontend's lease was lost, registering again";
const ETCD_LATE: &str = "etcd does not answer yet, trying on";
const ENGINE_LOST: &[&str] = &["worker failed", "answer ended early"];
const FIFTH: Odds = Odds { dropped: 20, doubled: 20, delayed: 20 };

pub(crate) const CASES: [Case; 13] = [
    case("nats down", Fault::Servers { nats: true, etcd: false }, &[NATS_LOST]),
    case("etcd down", Fault::Servers { nats: false, etcd: true }, &[ETCD_LOST, LEASE_LOST]),
    case(
        "nats and etcd down",
        Fault::Servers { nats: true, etcd: true },
        &[NATS_LOST, ETCD_LOST, LEASE_LOST],
    ),
    case("frontend killed", Fault::FrontendKilled { etcd_down: false }, &[]),
    case(
        "frontend restarted without etcd",
        Fault::FrontendKilled { etcd_down: true },
        &[ETCD_LOST, LEASE_LOST, ETCD_LATE],
    ),
    case("agent killed", Fault::AgentKilled, &[]),
    case("engine killed", Fault::EngineKilled, ENGINE_LOST),
    Case { idle: true, ..case("idle engine replaced", Fault::EngineReplaced, &[]) },
    case("engine hung", Fault::EngineHung, &[]),
    case("frontend cut off from nats", Fault::FrontendCutOff(Link::Cut), &[NATS_LOST]),
    case("frontend's link to nats silent", Fault::FrontendCutOff(Link::Silent), &[NATS_LOST]),
    case("bus messages lost, doubled, out of order", Fault::BusDisordered(FIFTH), &[]),
    case(
        "bus messages mostly lost",
        Fault::BusDisordered(Odds { dropped: 80, doubled: 10, delayed: 50 }),
        &[],
    ),
];

const fn case(name: &'static str, fault: Fault, explains: &'static [&'static str]) -> Case {
    Case { name, fault, explains, idle: false }
}

/// Waits until something listens at a URL.
async fn listens(url: &str) {
    let (_, port) = url.rsplit_once(':').unwrap();
    answers(port.parse().unwrap()).await;
}

impl Fault {
    pub(crate) async fn begin(self, cluster: &mut Cluster) {
        match self {
            Self::Servers { nats, etcd } => {
                if nats {
                    cluster.nats.kill();
                }
                if etcd {
                    cluster.etcd.kill();
                }
            }
            Self::FrontendKilled { etcd_down } => {
                if etcd_down {
                    cluster.etcd.kill();
                }
                cluster.replicas[FRONTEND].kill();
                if etcd_down {
                    cluster.replicas[FRONTEND].start();
                }
            }
            Self::AgentKilled => cluster.agents[WORKER].kill(),
            Self::EngineKilled => cluster.engines[WORKER].kill(),
            Self::EngineReplaced => {
                cluster.engines[WORKER].kill();
                cluster.engines[WORKER].start();
            }
            Self::EngineHung => cluster.engines[WORKER].freeze(),
            Self::FrontendCutOff(link) => cluster.proxies[0].set(link),
            Self::BusDisordered(odds) => {
                cluster.proxies.iter().for_each(|proxy| proxy.set(Link::Disordered(odds)));
            }
        }
    }

    /// Ends the fault; whoever was gone listens again when this returns.
    pub(crate) async fn heal(self, cluster: &mut Cluster) {
        match self {
            Self::Servers { nats, etcd } => {
                if nats {
                    cluster.nats.start();
                }
                if etcd {
                    cluster.etcd.start();
                }
                answers(cluster.nats_port).await;
                answers(cluster.etcd_port).await;
            }
            Self::FrontendKilled { etcd_down: true } => {
                cluster.etcd.start();
                answers(cluster.etcd_port).await;
            }
            Self::FrontendKilled { etcd_down: false } => {
                cluster.replicas[FRONTEND].start();
                listens(&cluster.indexes[FRONTEND]).await;
            }
            Self::AgentKilled => {
                cluster.agents[WORKER].start();
                listens(&cluster.agent_urls[WORKER]).await;
            }
            Self::EngineKilled => {
                cluster.engines[WORKER].start();
                cluster.engine_answers(WORKER).await;
            }
            Self::EngineReplaced => cluster.engine_answers(WORKER).await,
            Self::EngineHung => cluster.engines[WORKER].thaw(),
            Self::FrontendCutOff(_) | Self::BusDisordered(_) => {
                cluster.proxies.iter().for_each(|proxy| proxy.set(Link::Whole));
            }
        }
    }

    /// Says whether a failed request was in flight on the process that was killed.
    pub(crate) fn excuses(self, failed: &Failed) -> bool {
        match self {
            Self::FrontendKilled { .. } => {
                failed.frontend == FRONTEND
                    && matches!(failed.failure, Failure::Broken(_) | Failure::CutOff { .. })
            }
            Self::EngineKilled => {
                matches!(&failed.failure, Failure::CutOff { worker, .. } if *worker == format!("w{WORKER}"))
            }
            Self::Servers { .. }
            | Self::AgentKilled
            | Self::EngineReplaced
            | Self::EngineHung
            | Self::FrontendCutOff(_)
            | Self::BusDisordered(_) => false,
        }
    }

    /// The worker whose cache is lost with its engine.
    pub(crate) fn forgets(self) -> Option<String> {
        matches!(self, Self::EngineKilled | Self::EngineReplaced).then(|| format!("w{WORKER}"))
    }
}

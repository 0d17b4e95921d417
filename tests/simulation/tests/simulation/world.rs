//! A cluster, its clients, and the time in which it lives.

mod events;
mod traffic;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use identity::{Holder, Incarnation};
use ports::engine::memory::MemoryEngine;
use ports::{Clock, InMemoryBus, InMemoryRegistry, TokioClock};
use tokio::time::sleep;

use crate::agents::{AgentNode, Town};
use crate::chronicle::Chronicle;
use crate::dice::Dice;
use crate::engine::SimEngine;
use crate::frontend::FrontendNode;
use crate::incident::{self, Planned, STORM};
use crate::invariant::{self, Broken};
use crate::prompts::Prompts;
use crate::weather::{Sky, Trace};

use traffic::Traffic;

const ENGINES: usize = 3;
const FRONTENDS: usize = 3;
const STEP: Duration = Duration::from_millis(10);
/// Time after the last fault by which everything is true again.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// Time in which idle frontends tell each other so.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// Time after which nothing is expected any more that nobody saw come: what others' notices promise counts for 30 s.
const PENDING_MAX: Duration = Duration::from_secs(33);
/// Time after its agent's death by which a card is gone.
const LEASE: Duration = Duration::from_secs(12);
/// Unix time at which every world begins, in milliseconds.
const EPOCH_MS: u64 = 1_790_000_000_000;

/// Worlds of this process: names of nodes are unique in it.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// What a world came to.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// How long after the last fault everything was true.
    pub(crate) settled: Duration,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) sent: BTreeMap<String, (u64, u64)>,
}

pub(crate) struct World {
    seed: u64,
    run: u64,
    began: Duration,
    town: Town,
    prompts: Arc<Prompts>,
    engines: Vec<SimEngine>,
    /// One per engine, and then second ones.
    agents: Vec<AgentNode>,
    frontends: Vec<FrontendNode>,
    traffic: Traffic,
    trace: Trace,
    chronicle: Chronicle,
    dice: Dice,
    /// Whether engines buffer so much that no history is lost.
    complete: bool,
    planned: Vec<Planned>,
    /// What ends, and when.
    ending: Vec<(Duration, Planned)>,
    /// When the last card that nobody can know for his own is gone.
    leased_until: Duration,
    latest: Vec<BTreeMap<Holder, Incarnation>>,
    log: Vec<String>,
}

/// Plays a seed; the error tells what was broken, and what had happened until then.
pub(crate) async fn play(seed: u64) -> Result<Report, Broken> {
    let mut world = World::new(seed).await;
    let outcome = world.run().await;
    outcome.map_err(|broken| format!("{broken}\nat {:?}, after:\n  {}", world.now(), world.log.join("\n  ")))
}

impl World {
    async fn new(seed: u64) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::from_wall(EPOCH_MS));
        let town = Town {
            registry: InMemoryRegistry::new(Arc::clone(&clock)),
            bus: InMemoryBus::new(),
            http: MemoryEngine::default(),
            clock,
        };
        let mut dice = Dice::of(seed, "world");
        let complete = dice.chance(700);
        let (trace, chronicle) = (Trace::default(), Chronicle::default());
        let prompts = Arc::new(Prompts::new());
        let replay_max = if complete { 100_000 } else { 1 + dice.index(20) };
        let engines: Vec<SimEngine> = (0..ENGINES)
            .map(|number| SimEngine::new(&format!("w{number}"), &prompts, seed, replay_max))
            .collect();
        let sky = |name: &str| Sky::new(name, seed, &trace, &chronicle);
        let agents = ["a", "s"].iter().flat_map(|kind| {
            engines.iter().map(|engine| {
                let name = engine.worker.replace('w', kind);
                let dice = Dice::of(seed, &format!("{name}/id"));
                AgentNode::new(&name, engine, (sky(&name), dice), &town)
            })
        });
        let agents = agents.collect();
        let frontend = |number: usize| {
            let name = format!("f{number}");
            FrontendNode::new(&name, sky(&name), &town)
        };
        let frontends = (0..FRONTENDS).map(frontend).collect();
        let planned = incident::plan(&mut Dice::of(seed, "incidents"));
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let traffic = Traffic::new(Dice::of(seed, "traffic"));
        let latest = vec![BTreeMap::new(); FRONTENDS];
        let mut world = Self {
            seed,
            run,
            began: town.clock.now(),
            town,
            prompts,
            engines,
            agents,
            frontends,
            traffic,
            trace,
            chronicle,
            dice,
            complete,
            planned,
            ending: Vec::new(),
            leased_until: Duration::ZERO,
            latest,
            log: Vec::new(),
        };
        world.begin().await;
        world
    }

    async fn begin(&mut self) {
        for engine in &self.engines {
            engine.listen(&self.town.http);
            engine.start(self.town.clock.wall_ms(), true);
        }
        for agent in &mut self.agents[..ENGINES] {
            agent.start(&self.town).await;
        }
        for number in 0..FRONTENDS {
            self.start_frontend(number).await;
        }
    }

    async fn start_frontend(&mut self, number: usize) {
        let seed = self.seed ^ (number as u64 + 1) << 40;
        self.latest[number].clear();
        self.frontends[number].start(&self.town, self.run, seed).await;
    }

    fn now(&self) -> Duration {
        self.town.clock.now() - self.began
    }

    fn note(&mut self, what: &impl Debug) {
        self.log.push(format!("{:>8.3} {what:?}", self.now().as_secs_f64()));
    }

    async fn run(&mut self) -> Result<Report, Broken> {
        while self.now() < STORM {
            self.weather_the_storm().await?;
        }
        self.heal().await;
        let healed = self.now();
        self.note(&"healed");
        let settled = self.settle(healed.max(self.leased_until)).await?;
        self.rest().await?;
        let sent = self.trace.nodes();
        let (requests, failed) = self.traffic.figures();
        Ok(Report { settled, requests, failed, sent })
    }

    async fn weather_the_storm(&mut self) -> Result<(), Broken> {
        sleep(STEP).await;
        self.happen().await;
        self.traffic.go_on(&self.frontends, &self.engines, &self.prompts, self.town.clock.now());
        if self.dice.chance(5) {
            self.engines[self.dice.index(ENGINES)].forget_one();
        }
        if self.dice.chance(100) {
            self.always()?;
        }
        Ok(())
    }

    /// What holds at all times.
    fn always(&mut self) -> Result<(), Broken> {
        self.chronicle.is_of_one_mind()?;
        for (node, latest) in self.frontends.iter().zip(&mut self.latest) {
            let Some(frontend) = &node.running else { continue };
            let view = frontend.index.view();
            invariant::live_sets_are_the_agents(&view, &self.chronicle)
                .map_err(|broken| format!("{}: {broken}", node.name))?;
            invariant::answers_verify(&view).map_err(|broken| format!("{}: {broken}", node.name))?;
            invariant::no_life_returns(&view, latest).map_err(|broken| format!("{}: {broken}", node.name))?;
            for engine in &self.engines {
                invariant::no_dead_credit(&view, engine, &self.prompts)
                    .map_err(|broken| format!("{}: {broken}", node.name))?;
            }
        }
        Ok(())
    }

    /// Waits until everything is true, with the requests that are in flight; answers how long it took.
    async fn settle(&mut self, healed: Duration) -> Result<Duration, Broken> {
        loop {
            sleep(STEP * 10).await;
            self.traffic.hold(&self.frontends);
            self.always()?;
            match self.truths().await {
                Ok(()) => return Ok(self.now().saturating_sub(healed)),
                Err(broken) if self.now().saturating_sub(healed) > QUIET_MAX => {
                    return Err(format!("not settled {QUIET_MAX:?} after the last fault: {broken}"));
                }
                Err(_) => {}
            }
        }
    }

    /// What holds after quiet.
    async fn truths(&self) -> Result<(), Broken> {
        let speakers = self.engines.iter().map(|engine| invariant::one_speaks(&self.agents, engine));
        let speakers = speakers.collect::<Result<Vec<&AgentNode>, Broken>>()?;
        for agent in &speakers {
            invariant::agent_knows(agent, self.complete)?;
        }
        let in_flight = self.traffic.in_flight(&self.frontends)?;
        for node in &self.frontends {
            let frontend = node.running.as_ref().ok_or_else(|| format!("{} does not run", node.name))?;
            invariant::fleet_serves(&node.name, frontend, &self.engines)?;
            let view = frontend.index.view();
            for agent in &speakers {
                invariant::replica_agrees(&node.name, &view, agent, (&self.prompts, self.complete))?;
            }
            invariant::loads_are_true(&node.name, frontend, &in_flight)?;
        }
        Ok(())
    }

    /// Lets everything in flight end, and checks what holds at rest.
    async fn rest(&mut self) -> Result<(), Broken> {
        self.traffic.end_all();
        let (ended, nothing) = (self.now(), BTreeMap::new());
        loop {
            sleep(STEP * 10).await;
            let idle = self.frontends.iter().try_for_each(|node| match &node.running {
                Some(frontend) => invariant::loads_are_true(&node.name, frontend, &nothing),
                None => Err(format!("{} does not run", node.name)),
            });
            match idle {
                Ok(()) => break,
                Err(broken) if self.now() - ended > IDLE_MAX => return Err(format!("idle, yet {broken}")),
                Err(_) => {}
            }
        }
        for node in &self.frontends {
            let Some(frontend) = &node.running else { continue };
            invariant::index_is_sound(&node.name, frontend).await?;
        }
        if self.complete { self.predict().await } else { Ok(()) }
    }

    /// Waits until predictions hold: blocks that dispatches were to bring, and that were evicted before anybody saw them,
    /// are expected for a while.
    async fn predict(&mut self) -> Result<(), Broken> {
        let ended = self.now();
        for node in &self.frontends {
            let Some(frontend) = &node.running else { continue };
            while let Err(broken) =
                invariant::predictions_hold(&node.name, frontend, &self.engines, &self.prompts).await
            {
                if self.now() - ended > PENDING_MAX {
                    return Err(broken);
                }
                sleep(Duration::from_secs(1)).await;
            }
        }
        Ok(())
    }
}

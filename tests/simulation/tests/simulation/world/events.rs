//! Incidents as they begin and end.

use super::{ENGINES, FRONTENDS, LEASE, World};
use crate::incident::{Incident, Planned};
use crate::weather::{Sky, Weather};

impl World {
    /// Lets begin and end what is due.
    pub(super) async fn happen(&mut self) {
        let now = self.now();
        while let Some(planned) = self.planned.first().copied().filter(|planned| planned.at <= now) {
            self.planned.remove(0);
            self.note(&planned.incident);
            self.strike(planned.incident).await;
            self.ending.push((now + planned.lasts, planned));
        }
        let (over, ending) =
            std::mem::take(&mut self.ending).into_iter().partition(|(until, _)| *until <= now);
        self.ending = ending;
        for (_, planned) in Vec::from_iter::<Vec<_>>(over) {
            self.end(planned).await;
        }
    }

    async fn strike(&mut self, incident: Incident) {
        match incident {
            Incident::Weather(weather) => self.skies().for_each(|sky| sky.set_weather(weather)),
            Incident::Cut(place) => self.sky(place).set_cut(true),
            Incident::Dark(place) => self.sky(place).set_dark(true),
            Incident::Unregistered(place) => self.set_registered(place, false),
            Incident::RegistryDown => self.set_all_registered(false),
            Incident::LeaseEnds(place) => {
                let worker = identity::WorkerId::new(&self.engines[place % ENGINES].worker);
                let key = wire::registry_key::worker(crate::NAMESPACE, &crate::model(), &worker);
                self.town.registry.expire(&key);
            }
            Incident::Compaction => self.town.registry.compact(),
            Incident::EngineCrash { place, .. } => self.engines[place % ENGINES].crash(),
            Incident::EngineHangs(place) => self.engines[place % ENGINES].set_hung(true),
            Incident::FeedLoss { place, permille } => self.engines[place % ENGINES].line.set_loss(permille),
            Incident::CacheCleared(place) => self.engines[place % ENGINES].clear(),
            Incident::AgentCrash { place, forgets } => {
                let agent = &mut self.agents[place % ENGINES];
                agent.crash();
                if forgets {
                    agent.lose_disk();
                }
                if !agent.remembers().await {
                    // It cannot know that the card is its own, and waits until the lease has ended.
                    self.leased_until = self.leased_until.max(self.now() + LEASE);
                }
            }
            Incident::SecondAgent { place, .. } => {
                self.agents[ENGINES + place % ENGINES].start(&self.town).await;
            }
            Incident::FrontendCrash { place, forgets } => {
                let number = place % FRONTENDS;
                self.traffic.lose(number);
                self.frontends[number].crash();
                if forgets {
                    self.frontends[number].lose_disk();
                }
            }
            Incident::ActorDies(place) => self.kill_actor(place),
        }
    }

    async fn end(&mut self, planned: Planned) {
        match planned.incident {
            Incident::Weather(_) => self.skies().for_each(|sky| sky.set_weather(Weather::default())),
            Incident::Cut(place) => self.sky(place).set_cut(false),
            Incident::Dark(place) => self.sky(place).set_dark(false),
            Incident::Unregistered(place) => self.set_registered(place, true),
            Incident::RegistryDown => self.set_all_registered(true),
            Incident::EngineCrash { place, noticed } => {
                let (engine, wall_ms) = (&self.engines[place % ENGINES], self.town.clock.wall_ms());
                if !engine.is_up() {
                    engine.start(wall_ms, noticed);
                }
            }
            Incident::EngineHangs(place) => self.engines[place % ENGINES].set_hung(false),
            Incident::FeedLoss { place, .. } => self.engines[place % ENGINES].line.set_loss(0),
            Incident::AgentCrash { place, .. } => self.agents[place % ENGINES].start(&self.town).await,
            Incident::SecondAgent { place, stays: false } => self.agents[ENGINES + place % ENGINES].crash(),
            Incident::FrontendCrash { place, .. } => self.start_frontend(place % FRONTENDS).await,
            Incident::SecondAgent { stays: true, .. }
            | Incident::LeaseEnds(_)
            | Incident::Compaction
            | Incident::CacheCleared(_)
            | Incident::ActorDies(_) => {}
        }
    }

    /// Ends everything that has not ended.
    pub(super) async fn heal(&mut self) {
        for (_, planned) in std::mem::take(&mut self.ending) {
            self.end(planned).await;
        }
    }

    /// Kills one actor of a frontend or an agent.
    fn kill_actor(&mut self, place: usize) {
        let frontend = self.frontends[place % FRONTENDS].running.as_ref();
        let killed = match frontend.filter(|_| place.is_multiple_of(2)) {
            Some(frontend) => {
                let actors = frontend.node.actors();
                actors.get(place / 2 % actors.len()).is_some_and(|actor| frontend.node.kill(actor))
            }
            None => self.agents[place % ENGINES].kill_actor(),
        };
        self.note(&killed);
    }

    /// Nodes by number: agents, then frontends.
    fn sky(&self, place: usize) -> &Sky {
        match place % (ENGINES + FRONTENDS) {
            agent @ 0..ENGINES => &self.agents[agent].sky,
            frontend => &self.frontends[frontend - ENGINES].sky,
        }
    }

    fn skies(&self) -> impl Iterator<Item = &Sky> {
        let frontends = self.frontends.iter().map(|node| &*node.sky);
        self.agents.iter().map(|node| &*node.sky).chain(frontends)
    }

    fn set_registered(&self, place: usize, reachable: bool) {
        match place % (ENGINES + FRONTENDS) {
            agent @ 0..ENGINES => self.agents[agent].registry.set_reachable(reachable),
            frontend => self.frontends[frontend - ENGINES].registry.set_reachable(reachable),
        }
    }

    fn set_all_registered(&self, reachable: bool) {
        self.agents.iter().for_each(|node| node.registry.set_reachable(reachable));
        self.frontends.iter().for_each(|node| node.registry.set_reachable(reachable));
    }
}

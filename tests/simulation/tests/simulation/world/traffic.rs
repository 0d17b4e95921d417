//! Clients: requests through frontends onto engines.

use std::collections::BTreeMap;
use std::time::Duration;

use actors::Assignment;
use identity::Holder;
use tokio::task::JoinSet;

use crate::dice::Dice;
use crate::engine::SimEngine;
use crate::frontend::FrontendNode;
use crate::invariant::Broken;
use crate::prompts::Prompts;

/// Chance of a new request per step, of a thousand.
const ARRIVAL_PERMILLE: u64 = 300;
const IN_FLIGHT_MAX: usize = 40;

/// A request that was placed.
#[derive(Debug)]
struct Flight {
    frontend: usize,
    life: u32,
    prompt: usize,
    assignment: Assignment,
    /// The process it was sent to.
    engine_started_ms: u64,
    first_token_at: Duration,
    ends_at: Duration,
    computed: bool,
}

/// A frontend, its life, and where it placed a prompt.
type Placed = (usize, u32, usize, Result<Assignment, actors::scheduler::Error>);

/// Requests on their way and in flight.
#[derive(Debug)]
pub(crate) struct Traffic {
    dice: Dice,
    placing: JoinSet<Placed>,
    flights: Vec<Flight>,
    requests: u64,
    failed: u64,
}

impl Traffic {
    pub(crate) fn new(dice: Dice) -> Self {
        Self { dice, placing: JoinSet::new(), flights: Vec::new(), requests: 0, failed: 0 }
    }

    pub(crate) const fn figures(&self) -> (u64, u64) {
        (self.requests, self.failed)
    }

    /// Begins, moves on and ends requests.
    pub(crate) fn go_on(
        &mut self,
        frontends: &[FrontendNode],
        engines: &[SimEngine],
        prompts: &Prompts,
        now: Duration,
    ) {
        self.collect(frontends, engines, now);
        if self.flights.len() + self.placing.len() < IN_FLIGHT_MAX && self.dice.chance(ARRIVAL_PERMILLE) {
            self.arrive(frontends, prompts);
        }
        for flight in std::mem::take(&mut self.flights) {
            self.flights.extend(fly(flight, frontends, engines, prompts, now));
        }
    }

    fn arrive(&mut self, frontends: &[FrontendNode], prompts: &Prompts) {
        let (frontend, prompt) = (self.dice.index(frontends.len()), self.dice.index(prompts.all.len()));
        let Some(running) = &frontends[frontend].running else { return };
        let (scheduler, life) = (running.scheduler.clone(), frontends[frontend].life);
        let mut request = prompts.all[prompt].request();
        request.streams = self.dice.chance(700);
        self.placing.spawn(async move { (frontend, life, prompt, scheduler.schedule(request).await) });
    }

    /// Takes in what has been placed; what a frontend placed that is gone, is gone with it.
    fn collect(&mut self, frontends: &[FrontendNode], engines: &[SimEngine], now: Duration) {
        while let Some(placed) = self.placing.try_join_next() {
            let Ok((frontend, life, prompt, placed)) = placed else { continue };
            self.requests += 1;
            let lives = frontends[frontend].running.is_some() && frontends[frontend].life == life;
            let Some(assignment) = placed.ok().filter(|_| lives) else {
                self.failed += 1;
                continue;
            };
            let first_token_at = now + self.dice.ms(200);
            let long = if self.dice.chance(50) { 60_000 } else { 1500 };
            let engine = engine_of(&assignment, engines);
            self.flights.push(Flight {
                frontend,
                life,
                prompt,
                engine_started_ms: engine.started_ms(),
                assignment,
                first_token_at,
                ends_at: first_token_at + self.dice.ms(long),
                computed: false,
            });
        }
    }

    /// Takes in what has been placed, and lets nothing else happen.
    pub(crate) fn hold(&mut self, frontends: &[FrontendNode]) {
        while let Some(placed) = self.placing.try_join_next() {
            let Ok((frontend, life, ..)) = placed else { continue };
            self.requests += 1;
            debug_assert!(life <= frontends[frontend].life);
        }
    }

    /// A frontend is gone with all it had in flight.
    pub(crate) fn lose(&mut self, frontend: usize) {
        self.flights.retain(|flight| flight.frontend != frontend);
    }

    /// Ends everything: what was computed is answered, the rest is given up.
    pub(crate) fn end_all(&mut self) {
        for flight in self.flights.drain(..).filter(|flight| flight.computed) {
            flight.assignment.reservation.finish();
        }
    }

    /// Counts what is in flight, by frontend and holder.
    ///
    /// # Errors
    /// Requests are still being placed: nobody can tell.
    pub(crate) fn in_flight(
        &self,
        frontends: &[FrontendNode],
    ) -> Result<BTreeMap<(String, Holder), u32>, Broken> {
        if !self.placing.is_empty() {
            return Err(format!("{} requests are still being placed", self.placing.len()));
        }
        let mut counts = BTreeMap::new();
        for flight in self.flights.iter().filter(|flight| flight.life == frontends[flight.frontend].life) {
            let key = (frontends[flight.frontend].name.clone(), flight.assignment.holder.clone());
            *counts.entry(key).or_default() += 1;
        }
        Ok(counts)
    }
}

/// Moves a request on; none once it has ended.
fn fly(
    mut flight: Flight,
    frontends: &[FrontendNode],
    engines: &[SimEngine],
    prompts: &Prompts,
    now: Duration,
) -> Option<Flight> {
    let engine = engine_of(&flight.assignment, engines);
    if engine.started_ms() != flight.engine_started_ms || !engine.is_up() && now >= flight.first_token_at {
        // The connection broke, or was refused; dropping the guard gives the place back.
        let frontend = frontends[flight.frontend].running.as_ref();
        let worker = &flight.assignment.holder.worker;
        frontend.into_iter().for_each(|frontend| frontend.directory.failed(worker));
        return None;
    }
    if !flight.computed && now >= flight.first_token_at {
        engine.serve(&prompts.all[flight.prompt].blocks);
        flight.assignment.reservation.first_token();
        flight.computed = true;
    }
    if now >= flight.ends_at {
        flight.assignment.reservation.finish();
        return None;
    }
    Some(flight)
}

fn engine_of<'a>(assignment: &Assignment, engines: &'a [SimEngine]) -> &'a SimEngine {
    engines.iter().find(|engine| engine.worker == assignment.worker_id().as_str()).unwrap()
}

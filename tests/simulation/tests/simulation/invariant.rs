//! What must hold: at every moment, and once everything is quiet.

use std::collections::{BTreeMap, BTreeSet};

use actors::IndexView;
use block_index::Matches;
use identity::{BlockKey, Holder, Incarnation, Rank, WorkerId};
use membership::replica::Phase;

use crate::agents::AgentNode;
use crate::chronicle::Chronicle;
use crate::engine::{SimEngine, digest_of};
use crate::frontend::Frontend;
use crate::prompts::{Prompts, SIZE};

/// An invariant that does not hold, in words.
pub(crate) type Broken = String;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(what()) }
}

pub(crate) fn holder(worker: &str) -> Holder {
    Holder { worker: WorkerId::new(worker), rank: Rank(0) }
}

/// Reads what an index credits to a holder, by asking for every prompt there is.
pub(crate) fn credited(view: &IndexView, holder: &Holder, prompts: &Prompts) -> BTreeSet<BlockKey> {
    let Some(id) = view.holder(holder).and_then(|known| known.id) else { return BTreeSet::new() };
    let mut matches = Matches::new();
    let mut credited = BTreeSet::new();
    for prompt in &prompts.all {
        view.reader().matches(&prompt.keys, &mut matches);
        let depth = usize::try_from(matches.depth_of(id)).unwrap();
        credited.extend(&prompt.keys[..depth]);
    }
    credited
}

/// At all times: the life that a replica follows of a holder never goes back.
pub(crate) fn no_life_returns(
    view: &IndexView,
    latest: &mut BTreeMap<Holder, Incarnation>,
) -> Result<(), Broken> {
    for (holder, known) in view.holders() {
        let Some(life) = known.incarnation else { continue };
        let before = latest.entry(holder.clone()).or_insert(life);
        ensure(*before <= life, || format!("{} went back from {before} to {life}", holder.worker))?;
        *before = life;
    }
    Ok(())
}

/// At all times: where a replica says that it has all, at a sequence that the agent spoke of, it has what the agent had.
pub(crate) fn live_sets_are_the_agents(view: &IndexView, chronicle: &Chronicle) -> Result<(), Broken> {
    for (holder, known) in view.holders().filter(|(_, known)| known.state == Phase::Live) {
        let Some(life) = known.incarnation else { continue };
        let told = chronicle.digest(holder, life, known.seq);
        ensure(told.is_none_or(|told| told == known.digest), || {
            format!("{} is live at {} of life {life}, and differs from its agent", holder.worker, known.seq)
        })?;
    }
    Ok(())
}

/// At all times: what replicas fetch of an agent is what it says that it is.
pub(crate) fn answers_verify(view: &IndexView) -> Result<(), Broken> {
    let refuted = view.holders().find(|(_, known)| known.refuted > 0);
    refuted.map_or(Ok(()), |(holder, known)| {
        Err(format!("{} answers of {}'s agent did not verify", known.refuted, holder.worker))
    })
}

/// At all times: what is credited to an engine's life was cached by that process, and by no earlier one only.
pub(crate) fn no_dead_credit(view: &IndexView, engine: &SimEngine, prompts: &Prompts) -> Result<(), Broken> {
    let holder = holder(&engine.worker);
    let Some(life) = view.holder(&holder).and_then(|known| known.incarnation) else { return Ok(()) };
    for key in credited(view, &holder, prompts) {
        ensure(engine.ever_cached(life.started_ms, key), || {
            format!("{key} is credited to {} in life {life}, which never cached it", engine.worker)
        })?;
    }
    Ok(())
}

/// After quiet: one agent speaks for an engine, however many there are; answers which.
pub(crate) fn one_speaks<'a>(agents: &'a [AgentNode], engine: &SimEngine) -> Result<&'a AgentNode, Broken> {
    let agents = agents.iter().filter(|agent| agent.engine.worker == engine.worker);
    let speakers: Vec<&AgentNode> = agents.filter(|agent| agent.status().is_some()).collect();
    let names = || speakers.iter().map(|agent| &agent.name).collect::<Vec<_>>();
    ensure(speakers.len() == 1, || format!("{:?} speak for {}", names(), engine.worker))?;
    Ok(speakers[0])
}

/// After quiet: the agent knows its engine, and all of what it caches, or nothing that it does not where history is lost.
pub(crate) fn agent_knows(agent: &AgentNode, complete: bool) -> Result<(), Broken> {
    let (name, truth) = (&agent.name, agent.engine.truth());
    let status = agent.status().ok_or_else(|| format!("{name} follows nothing"))?;
    let started_ms = status.incarnation.map(|life| life.started_ms);
    ensure(status.caught_up, || format!("{name} has not caught up: {status:?}"))?;
    ensure(started_ms == Some(agent.engine.started_ms()), || {
        format!("{name} follows {started_ms:?}, the engine started at {}", agent.engine.started_ms())
    })?;
    if complete {
        ensure(status.digest == digest_of(&truth), || {
            format!("{name} knows {} blocks, the engine has {}", status.blocks, truth.len())
        })?;
    }
    Ok(())
}

/// After quiet: the replica is live and agrees, and its index credits what the agent says and the engine has.
pub(crate) fn replica_agrees(
    name: &str,
    view: &IndexView,
    agent: &AgentNode,
    (prompts, complete): (&Prompts, bool),
) -> Result<(), Broken> {
    let holder = holder(&agent.engine.worker);
    let of = || format!("{name}'s replica of {}", holder.worker);
    let known = view.holder(&holder).ok_or_else(|| format!("{} is missing", of()))?;
    let status = agent.status().ok_or_else(|| format!("{} follows nothing", agent.name))?;
    ensure((known.state, known.agrees) == (Phase::Live, Some(true)), || {
        format!("{} is {:?}, agrees {:?}", of(), known.state, known.agrees)
    })?;
    let (ours, theirs) =
        ((known.incarnation, known.seq, known.digest), (status.incarnation, status.seq, status.digest));
    ensure(ours == theirs, || format!("{} stands at {ours:?}, the agent at {theirs:?}", of()))?;
    let (credited, truth) = (credited(view, &holder, prompts), agent.engine.truth());
    ensure(digest_of(&credited) == status.digest, || format!("{} credits what the agent does not", of()))?;
    ensure(credited.is_subset(&truth), || format!("{} credits blocks that are not cached", of()))?;
    ensure(!complete || credited == truth, || {
        format!("{} credits {} blocks of {} that are cached", of(), credited.len(), truth.len())
    })
}

/// After quiet: the fleet as the directory sees it takes requests and has its credit.
pub(crate) fn fleet_serves(name: &str, frontend: &Frontend, engines: &[SimEngine]) -> Result<(), Broken> {
    let fleet = frontend.directory.fleet();
    for engine in engines {
        let worker = fleet.worker(&WorkerId::new(&engine.worker));
        let worker = worker.ok_or_else(|| format!("{name} does not know {}", engine.worker))?;
        ensure(worker.state() == "ready" && worker.has_credit(), || {
            format!("{name} sees {} as {}: {:?}", engine.worker, worker.state(), worker.standing)
        })?;
    }
    Ok(())
}

/// At rest: own and others' requests in flight add up to those there are, holder by holder.
pub(crate) fn loads_are_true(
    name: &str,
    frontend: &Frontend,
    truth: &BTreeMap<(String, Holder), u32>,
) -> Result<(), Broken> {
    let mut seen: BTreeMap<(String, Holder), u32> = BTreeMap::new();
    for load in frontend.scheduler.loads() {
        let holder = load.own.holder;
        seen.insert((name.to_owned(), holder.clone()), load.own.gauges.active_requests);
        for (peer, gauges) in load.peers {
            seen.insert((peer, holder.clone()), gauges.active_requests);
        }
    }
    seen.retain(|_, active| *active > 0);
    ensure(seen == *truth, || format!("{name} counts {seen:?}, in flight are {truth:?}"))
}

/// At rest: what is predicted for each worker is what its engine would report.
pub(crate) async fn predictions_hold(
    name: &str,
    frontend: &Frontend,
    engines: &[SimEngine],
    prompts: &Prompts,
) -> Result<(), Broken> {
    for (number, prompt) in prompts.all.iter().enumerate() {
        let decision = frontend.scheduler.explain(&prompt.request()).await;
        let decision = decision.map_err(|error| format!("{name} cannot explain: {error}"))?;
        let appraisals = decision.map_or_else(|unplaced| unplaced.appraisals, |decision| decision.appraisals);
        for engine in engines {
            let holder = holder(&engine.worker);
            let cached = engine.truth();
            let depth = prompt.keys.iter().take_while(|key| cached.contains(key)).count();
            let expected = u32::try_from(depth).unwrap() * SIZE;
            let predicted = appraisals.iter().find(|appraisal| appraisal.holder == holder);
            let predicted = predicted.map(|appraisal| appraisal.work.cached_tokens);
            ensure(predicted == Some(expected), || {
                format!(
                    "{name} predicts {predicted:?} cached tokens of prompt {number} at {}, not {expected}",
                    engine.worker
                )
            })?;
        }
    }
    Ok(())
}

/// After quiet: the index's own invariants, prefix closure among them.
pub(crate) async fn index_is_sound(name: &str, frontend: &Frontend) -> Result<(), Broken> {
    match frontend.index.check().await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(broken)) => Err(format!("{name}: {broken}")),
        Err(error) => Err(format!("{name} cannot check its index: {error}")),
    }
}

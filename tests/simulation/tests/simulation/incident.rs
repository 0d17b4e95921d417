//! What happens to a world, and what ends it.

use std::time::Duration;

use crate::dice::Dice;
use crate::weather::Weather;

/// How long incidents happen.
pub(crate) const STORM: Duration = Duration::from_secs(20);
/// Until when those happen whose consequences outlast them: a lease ends ten seconds after its owner.
const EARLY: Duration = Duration::from_secs(6);

/// Where something happens.
pub(crate) type Place = usize;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Incident {
    /// Every node's weather changes.
    Weather(Weather),
    /// A node loses its link to the bus and knows it.
    Cut(Place),
    /// A node's messages vanish.
    Dark(Place),
    /// A node cannot reach the registry.
    Unregistered(Place),
    /// Nobody can reach the registry.
    RegistryDown,
    /// A worker's lease ends.
    LeaseEnds(Place),
    /// The registry forgets its history.
    Compaction,
    /// An engine dies and comes back as another process, which its readers may not notice by the connection.
    EngineCrash { place: Place, noticed: bool },
    /// An engine stands still.
    EngineHangs(Place),
    /// An engine's batches get lost on their way.
    FeedLoss { place: Place, permille: u64 },
    /// An engine drops its cache.
    CacheCleared(Place),
    /// An agent dies and comes back, with or without what it had on disk.
    AgentCrash { place: Place, forgets: bool },
    /// A second agent of an engine comes, and goes or stays.
    SecondAgent { place: Place, stays: bool },
    /// A frontend dies and comes back, with or without what it had on disk.
    FrontendCrash { place: Place, forgets: bool },
    /// An actor dies of a bug.
    ActorDies(Place),
}

/// An incident, when it begins and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) incident: Incident,
}

/// Makes up what happens, in order of time.
pub(crate) fn plan(dice: &mut Dice) -> Vec<Planned> {
    let count = 3 + dice.roll(12);
    let mut planned: Vec<Planned> = (0..count).map(|_| one(dice)).collect();
    planned.push(Planned {
        at: dice.ms(5000),
        lasts: dice.ms(15_000),
        incident: Incident::Weather(weather(dice)),
    });
    planned.sort_by_key(|planned| planned.at);
    planned
}

fn weather(dice: &mut Dice) -> Weather {
    Weather {
        drop_permille: dice.roll(250),
        duplicate_permille: dice.roll(150),
        late_permille: dice.roll(300),
        late_max_ms: 1 + dice.roll(600),
    }
}

fn one(dice: &mut Dice) -> Planned {
    let storm_ms = u64::try_from(STORM.as_millis()).unwrap();
    let (mut at, mut lasts) = (dice.ms(storm_ms), dice.ms(8000));
    let (place, odd) = (dice.index(64), dice.chance(500));
    let incident = match dice.roll(17) {
        0 => Incident::Weather(weather(dice)),
        1 => Incident::Cut(place),
        2 => Incident::Dark(place),
        3 => Incident::Unregistered(place),
        4 => Incident::RegistryDown,
        5 => Incident::LeaseEnds(place),
        6 => Incident::Compaction,
        7..=8 => Incident::EngineCrash { place, noticed: odd },
        9 => Incident::EngineHangs(place),
        10 => Incident::FeedLoss { place, permille: dice.roll(500) },
        11 => Incident::CacheCleared(place),
        12..=13 => Incident::AgentCrash { place, forgets: odd },
        14 => Incident::FrontendCrash { place, forgets: odd },
        15 => Incident::ActorDies(place),
        _ => Incident::SecondAgent { place, stays: odd },
    };
    let lingers = matches!(
        incident,
        Incident::AgentCrash { forgets: true, .. } | Incident::SecondAgent { .. } | Incident::ActorDies(_)
    );
    if lingers {
        (at, lasts) = (dice.ms(u64::try_from(EARLY.as_millis()).unwrap()), lasts.min(Duration::from_secs(2)));
    }
    Planned { at, lasts: lasts.max(Duration::from_millis(50)), incident }
}

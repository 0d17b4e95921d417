//! What engines taught this frontend of images whose counts no family tells.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actors::{DirectoryHandle, Fleet, MediaListener};
use identity::{Holder, ModelName};
use membership::{Card, MediaRun};
use parking_lot::Mutex;
use prompt::{LearnedCounts, Pupil};
use xxhash_rust::xxh3::xxh3_64;

use crate::models::Models;

/// A release of an engine with the options and files that decide what images become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Build(u64);

impl Build {
    pub(crate) fn of(card: &Card) -> Self {
        let (engine, configs) = (&card.engine, &card.artefacts.configs);
        let parts = [&engine.kind, &engine.version, configs, &card.template.media_kwargs];
        Self(xxh3_64(parts.map(String::as_str).join("\x1f").as_bytes()))
    }

    /// Finds the build that most of a model's holders are.
    pub(crate) fn of_most(fleet: &Fleet, model: &ModelName) -> Option<Self> {
        let mut counts: Vec<(Self, usize)> = Vec::new();
        for seat in fleet.seats(model) {
            let build = Self::of(&seat.worker.card);
            match counts.iter_mut().find(|(known, _)| *known == build) {
                Some((_, count)) => *count += 1,
                None => counts.push((build, 1)),
            }
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(build, _)| build)
    }
}

/// Counts by model and build; cheap to clone. Models whose family tells all never come here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lessons(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    books: Mutex<Books>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Books {
    by_build: HashMap<(ModelName, Build), LearnedCounts>,
    /// Those opened first are closed first.
    order: VecDeque<(ModelName, Build)>,
}

#[derive(Debug, Default)]
struct Tally {
    taken: AtomicU64,
    contradicted: AtomicU64,
}

/// How much was learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) images: usize,
    pub(crate) sizes: usize,
    pub(crate) taken: u64,
    pub(crate) contradicted: u64,
}

/// Models and builds of which counts are kept; a rollout has two of each.
const BUILDS_MAX: usize = 32;

impl Lessons {
    /// Returns what images became, where that is known.
    pub(crate) fn counts(&self, model: &ModelName, build: Build, pupils: &[Pupil]) -> Vec<Option<u32>> {
        let mut books = self.0.books.lock();
        match books.by_build.get_mut(&(model.clone(), build)) {
            Some(book) => pupils.iter().map(|pupil| book.count(*pupil)).collect(),
            None => vec![None; pupils.len()],
        }
    }

    /// Notes that images without a count go to an engine.
    pub(crate) fn expect(&self, model: &ModelName, build: Build, pupils: impl Iterator<Item = Pupil>) {
        let mut books = self.0.books.lock();
        let book = books.open(model, build);
        pupils.for_each(|pupil| book.expect(pupil));
    }

    /// Takes in what an engine counted for images of which nothing was known.
    pub(crate) fn tell(&self, model: &ModelName, build: Build, told: impl Iterator<Item = (Pupil, u32)>) {
        let mut books = self.0.books.lock();
        let book = books.open(model, build);
        let new = told.filter(|(pupil, tokens)| book.tell(*pupil, *tokens)).count();
        self.0.tally.taken.fetch_add(new as u64, Ordering::Relaxed);
    }

    /// Drops counts that made a prediction wrong.
    pub(crate) fn contradict(&self, model: &ModelName, build: Build, pupils: impl Iterator<Item = Pupil>) {
        let mut books = self.0.books.lock();
        books.open(model, build).contradict(pupils);
        self.0.tally.contradicted.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes in what events tell of images: all of them, or only those that this frontend waits for.
    fn hear(&self, model: &ModelName, build: Build, runs: &[&MediaRun], all: bool) {
        let mut books = self.0.books.lock();
        if !all && !books.by_build.contains_key(&(model.clone(), build)) {
            return;
        }
        let book = books.open(model, build);
        let mut new = 0;
        for run in runs {
            let item = run.id.key();
            if all || book.expects(item) {
                new += u64::from(book.tell(Pupil { item: Some(item), size: None }, run.tokens));
            }
        }
        self.0.tally.taken.fetch_add(new, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> Figures {
        let books = self.0.books.lock();
        let mut figures = Figures {
            taken: self.0.tally.taken.load(Ordering::Relaxed),
            contradicted: self.0.tally.contradicted.load(Ordering::Relaxed),
            ..Figures::default()
        };
        for book in books.by_build.values() {
            let (images, sizes) = book.len();
            figures.images += images;
            figures.sizes += sizes;
        }
        figures
    }
}

impl Books {
    fn open(&mut self, model: &ModelName, build: Build) -> &mut LearnedCounts {
        let name = (model.clone(), build);
        if !self.by_build.contains_key(&name) {
            self.order.push_back(name.clone());
            if self.order.len() > BUILDS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_build.remove(&oldest);
            }
        }
        self.by_build.entry(name).or_default()
    }
}

/// Learns from what deltas tell of a model's media.
#[derive(Clone, Debug)]
pub(crate) struct Attendance {
    pub(crate) model: ModelName,
    pub(crate) models: Models,
    pub(crate) directory: DirectoryHandle,
    pub(crate) lessons: Lessons,
}

impl MediaListener for Attendance {
    fn computed(&self, holder: &Holder, runs: &[&MediaRun]) {
        let fleet = self.directory.fleet();
        let Some(worker) = fleet.worker(&holder.worker) else { return };
        let known = self.models.known(&self.model);
        let has_family = known.is_some_and(|known| known.prompt.geometry().is_some());
        self.lessons.hear(&self.model, Build::of(&worker.card), runs, !has_family);
    }
}

#[cfg(test)]
mod tests {
    use identity::MediaKey;

    use super::*;

    #[test]
    fn builds_learn_apart_and_are_bounded() {
        let (lessons, model) = (Lessons::default(), ModelName::new("m"));
        let pupil = Pupil { item: Some(MediaKey::of("a")), size: None };
        lessons.tell(&model, Build(1), [(pupil, 7)].into_iter());
        assert_eq!(lessons.counts(&model, Build(1), &[pupil]), [Some(7)]);
        assert_eq!(lessons.counts(&model, Build(2), &[pupil]), [None]);
        for build in 2..100 {
            lessons.tell(&model, Build(build), [(pupil, 7)].into_iter());
        }
        assert_eq!(lessons.counts(&model, Build(1), &[pupil]), [None]);
        let figures = lessons.figures();
        assert_eq!((figures.images, figures.taken), (BUILDS_MAX, 99));
    }

    #[test]
    fn a_build_is_what_decides_counts() {
        let card = || {
            let (worker, model) = (identity::WorkerId::new("w"), ModelName::new("m"));
            Card::new(worker, model, "http://h", 16)
        };
        let (mut newer, mut other) = (card(), card());
        newer.engine.version = "2".to_owned();
        other.template.media_kwargs = "{\"a\":1}".to_owned();
        let builds = [card(), newer, other].map(|card| Build::of(&card));
        assert_eq!(builds[0], Build::of(&card()));
        assert!(builds[0] != builds[1] && builds[1] != builds[2] && builds[0] != builds[2]);
    }
}

//! Learned counts against a naive model that forgets nothing, and within their bounds.

use std::collections::{BTreeMap, BTreeSet};

use identity::MediaKey;
use media_geometry::ImageSize;
use prompt::{LearnedCounts, LearnedLimits, Pupil};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Expect(Pupil),
    Tell(Pupil, u32),
    Contradict(Vec<Pupil>),
    Count(Pupil),
}

fn item(number: u8) -> MediaKey {
    MediaKey::of(&number.to_string())
}

fn pupils() -> impl Strategy<Value = Pupil> {
    let size = prop::option::of((0_u32..4).prop_map(|side| ImageSize::new(side, 1)));
    (prop::option::weighted(0.8, 0_u8..6), size)
        .prop_map(|(number, size)| Pupil { item: number.map(item), size })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        pupils().prop_map(Step::Expect),
        (pupils(), 0_u32..4).prop_map(|(pupil, tokens)| Step::Tell(pupil, tokens)),
        prop::collection::vec(pupils(), 0..3).prop_map(Step::Contradict),
        pupils().prop_map(Step::Count),
    ];
    prop::collection::vec(step, 0..80)
}

/// Everything that was ever said, by name.
#[derive(Default)]
struct Naive {
    lessons: BTreeMap<String, (Option<u32>, u32)>,
    sizes: BTreeMap<u64, Option<ImageSize>>,
}

const STRIKES: u32 = 2;

impl Naive {
    fn names(pupil: Pupil, size: Option<ImageSize>) -> Vec<String> {
        let of_size = size.map(|size| format!("size {}x{}", size.width, size.height));
        pupil.item.map(|item| format!("item {}", item.get())).into_iter().chain(of_size).collect()
    }

    fn tell(&mut self, pupil: Pupil, tokens: u32) {
        let size = pupil.size.or_else(|| self.sizes.get(&pupil.item?.get()).copied().flatten());
        for name in Self::names(pupil, size) {
            let (known, strikes) = self.lessons.entry(name).or_default();
            match *known {
                _ if *strikes >= STRIKES => *known = None,
                None => *known = Some(tokens),
                Some(before) if before == tokens => {}
                Some(_) => (*known, *strikes) = (None, *strikes + 1),
            }
        }
    }

    fn contradict(&mut self, pupil: Pupil) {
        for name in Self::names(pupil, pupil.size) {
            if let Some((known, strikes)) = self.lessons.get_mut(&name) {
                (*known, *strikes) = (None, *strikes + 1);
            }
        }
    }

    fn count(&self, pupil: Pupil) -> Option<u32> {
        let known = Self::names(pupil, pupil.size).into_iter().find_map(|name| self.lessons.get(&name));
        known.and_then(|(tokens, _)| *tokens)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_the_model(steps in steps()) {
        let limits = LearnedLimits { strikes_max: 2, ..LearnedLimits::default() };
        let (mut learned, mut naive) = (LearnedCounts::new(limits), Naive::default());
        for step in steps {
            match step {
                Step::Expect(pupil) => {
                    learned.expect(pupil);
                    if let Some(item) = pupil.item {
                        naive.sizes.insert(item.get(), pupil.size);
                    }
                }
                Step::Tell(pupil, tokens) => {
                    learned.tell(pupil, tokens);
                    if tokens > 0 {
                        naive.tell(pupil, tokens);
                    }
                }
                Step::Contradict(pupils) => {
                    learned.contradict(pupils.iter().copied());
                    pupils.into_iter().for_each(|pupil| naive.contradict(pupil));
                }
                Step::Count(pupil) => prop_assert_eq!(learned.count(pupil), naive.count(pupil)),
            }
        }
    }

    /// With little room much is forgotten, and still nothing is answered that no engine ever told.
    #[test]
    fn nothing_grows_and_nothing_is_made_up(steps in prop::collection::vec((any::<u8>(), 0_u32..20, 1_u32..9), 0..400)) {
        let limits = LearnedLimits { items_max: 16, sizes_max: 8, ..LearnedLimits::default() };
        let (mut learned, mut told) = (LearnedCounts::new(limits), BTreeSet::new());
        for (number, side, tokens) in steps {
            let pupil = Pupil { item: Some(item(number)), size: Some(ImageSize::new(side, side)) };
            if let Some(count) = learned.count(pupil) {
                prop_assert!(
                    told.contains(&(item(number).get(), count)) || told.contains(&(u64::from(side), count))
                );
            }
            learned.expect(pupil);
            learned.tell(Pupil { size: None, ..pupil }, tokens);
            told.extend([(item(number).get(), tokens), (u64::from(side), tokens)]);
            let (items, sizes) = learned.len();
            prop_assert!(items <= 16 && sizes <= 8, "{items} {sizes}");
        }
    }
}

#[test]
fn a_size_is_learned_from_an_event_that_names_only_the_image() {
    let mut learned = LearnedCounts::default();
    let size = Some(ImageSize::new(640, 480));
    let (first, second) = (Pupil { item: Some(item(1)), size }, Pupil { item: Some(item(2)), size });
    assert_eq!(learned.count(second), None);
    learned.expect(first);
    assert!(learned.expects(item(1)));
    assert!(learned.tell(Pupil { size: None, ..first }, 391));
    assert!(!learned.tell(Pupil { size: None, ..first }, 391), "no news");
    assert_eq!(learned.count(second), Some(391), "another image of that size");
    // An image of the same size that becomes something else: sizes alone tell nothing here.
    learned.tell(second, 400);
    assert_eq!(learned.count(Pupil { item: Some(item(3)), size }), None);
    assert_eq!((learned.count(first), learned.count(second)), (Some(391), Some(400)));
}

#[test]
fn absurd_counts_are_not_believed() {
    let mut learned = LearnedCounts::default();
    let pupil = Pupil { item: Some(item(1)), size: None };
    assert!(!learned.tell(pupil, 0));
    assert!(!learned.tell(pupil, u32::MAX));
    assert!(learned.is_empty());
}

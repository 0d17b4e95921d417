//! The images of one request whose counts are learned rather than computed.

use std::sync::Arc;

use identity::{MediaId, ModelName};
use placement::Confidence;
use prompt::{LearnedCount, MediaFact, Model, Prepared, Pupil};

use crate::lessons::{Build, Lessons};
use crate::models::Models;
use crate::relay::Ticket;
use crate::shared::Shared;
use crate::usage::Usage;

/// What was assumed of a request's images, and what its answer can teach of them.
#[derive(Clone, Debug)]
pub(crate) struct Homework {
    build: Build,
    pupils: Vec<(usize, Pupil)>,
    /// The counts that were known beforehand.
    pub(crate) counts: Vec<LearnedCount>,
    /// Images that became part of the prompt by them.
    used: Vec<Pupil>,
    /// Images without a count, and the prompt's tokens beside theirs.
    open: Option<(Vec<Pupil>, u32)>,
}

impl Homework {
    /// Looks up the images that the model's family does not count; none where it counts them all.
    pub(crate) fn of(
        (name, model): (&ModelName, &Model),
        facts: &[MediaFact],
        models: &Models,
        lessons: &Lessons,
    ) -> Option<Self> {
        let has_family = model.geometry().is_some();
        let unknown = facts.iter().filter(|fact| !has_family || fact.size.is_none());
        let pupils: Vec<(usize, Pupil)> = unknown
            .map(|fact| (fact.index, Pupil { item: fact.id.as_ref().map(MediaId::key), size: fact.size }))
            .collect();
        if pupils.is_empty() {
            return None;
        }
        let build = Build::of_most(&models.directory().fleet(), name)?;
        let asked: Vec<Pupil> = pupils.iter().map(|(_, pupil)| *pupil).collect();
        let known = lessons.counts(name, build, &asked);
        let counts = pupils
            .iter()
            .zip(known)
            .filter_map(|((index, _), tokens)| Some(LearnedCount { index: *index, tokens: tokens? }))
            .collect();
        Some(Self { build, pupils, counts, used: Vec::new(), open: None })
    }

    /// Notes what became of the images in the prompt, and waits for what engines tell of those without a count.
    pub(crate) fn prepared(mut self, name: &ModelName, prepared: &Prepared, lessons: &Lessons) -> Arc<Self> {
        let pupil = |index: &usize| self.pupils.iter().find(|(known, _)| known == index).map(|(_, it)| *it);
        let learned = prepared.media.iter().filter(|placed| placed.learned);
        self.used = learned.filter_map(|placed| pupil(&placed.index)).collect();
        if let Some(uncounted) = &prepared.uncounted {
            let open: Vec<Pupil> = uncounted.images.iter().filter_map(pupil).collect();
            lessons.expect(name, self.build, open.iter().copied());
            self.open = Some((open, uncounted.other_tokens)).filter(|(open, _)| !open.is_empty());
        }
        Arc::new(self)
    }

    /// Says how a prompt is known to a worker of some build: counts learned from others say nothing of it.
    pub(crate) fn confidence(&self, build: Build, prepared: Confidence) -> Confidence {
        if build == self.build || self.used.is_empty() { prepared } else { Confidence::Unknown }
    }

    /// Says what each image without a count became, if an answer's count leaves one possibility.
    fn share(&self, usage: &Usage) -> Option<(&[Pupil], u32)> {
        let (open, other_tokens) = self.open.as_ref()?;
        let all = usage.prompt_tokens.checked_sub(*other_tokens)?;
        let (first, rest) = open.split_first()?;
        let alike =
            |pupil: &Pupil| pupil.item == first.item || (pupil.size.is_some() && pupil.size == first.size);
        let images = u32::try_from(open.len()).ok()?;
        // Where the engine counts media apart, a difference means that an image is more than its placeholders.
        let plain = !self.used.is_empty() || usage.media_tokens().is_none_or(|media| media == all);
        let even = all > 0 && all.is_multiple_of(images);
        (rest.iter().all(alike) && plain && even).then_some((open, all / images))
    }
}

impl Shared {
    /// Learns from an answer that has ended, and drops what it contradicts.
    pub(crate) fn learn(&self, ticket: &Ticket, usage: Option<Usage>) {
        let (Some(homework), Some(usage)) = (&ticket.draft.homework, usage) else { return };
        if !ticket.succeeded || ticket.draft.obstacle.is_some() {
            return;
        }
        let (model, fleet) = (&ticket.record.model, self.models.directory().fleet());
        let Some(worker) = fleet.worker(&ticket.holder.worker) else { return };
        let (lessons, build) = (&self.reader.lessons, Build::of(&worker.card));
        let wrong = ticket.record.predicted.is_some_and(|it| it.prompt_tokens != usage.prompt_tokens);
        if wrong && build == homework.build && !homework.used.is_empty() {
            lessons.contradict(model, build, homework.used.iter().copied());
        }
        if let Some((pupils, tokens)) = homework.share(&usage) {
            lessons.tell(model, build, pupils.iter().map(|pupil| (*pupil, tokens)));
        }
    }
}

#[cfg(test)]
mod tests {
    use identity::MediaKey;
    use media_geometry::ImageSize;

    use super::*;
    use crate::usage::{MediaTokens, PromptDetails};

    fn check(open: &[(&str, u32)], counted: u32, media: Option<u32>, expected: Option<u32>) {
        let pupil = |(name, side): &(&str, u32)| Pupil {
            item: Some(MediaKey::of(name)),
            size: (*side > 0).then(|| ImageSize::new(*side, *side)),
        };
        let fleet = membership::Card::new(identity::WorkerId::new("w"), ModelName::new("m"), "http://h", 16);
        let homework = Homework {
            build: Build::of(&fleet),
            pupils: Vec::new(),
            counts: Vec::new(),
            used: Vec::new(),
            open: Some((open.iter().map(pupil).collect(), 20)),
        };
        let details = media.map(|image| PromptDetails {
            cached_tokens: None,
            multimodal_tokens: Some(MediaTokens { image: Some(image) }),
        });
        let usage = Usage { prompt_tokens: counted, completion_tokens: None, prompt_tokens_details: details };
        assert_eq!(
            homework.share(&usage).map(|(_, tokens)| tokens),
            expected,
            "{open:?} {counted} {media:?}"
        );
    }

    #[test]
    fn an_answer_teaches_where_it_leaves_one_possibility() {
        check(&[("a", 0)], 30, None, Some(10));
        check(&[("a", 0)], 30, Some(10), Some(10));
        check(&[("a", 0)], 30, Some(8), None);
        check(&[("a", 0), ("a", 0)], 30, None, Some(5));
        check(&[("a", 0), ("a", 0)], 31, None, None);
        check(&[("a", 3), ("b", 3)], 30, None, Some(5));
        check(&[("a", 3), ("b", 4)], 30, None, None);
        check(&[("a", 0), ("b", 0)], 30, None, None);
        check(&[("a", 0)], 20, None, None);
        check(&[("a", 0)], 19, None, None);
    }
}

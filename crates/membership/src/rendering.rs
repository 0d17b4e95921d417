//! What a request was turned into tokens with, and whether an engine does the same.

use crate::card::{Artefacts, Card, TemplateOptions};

/// The files and options by which a process predicts an engine's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    /// Digests of the files; empty where unknown.
    pub artefacts: Artefacts,
    /// The engines' options that were assumed.
    pub template: TemplateOptions,
    /// Whether the media options among them are the process's own, which count whatever cards say.
    pub own_media_kwargs: bool,
}

impl Rendering {
    /// Tells whether files have the same digests, as far as both are known.
    #[must_use]
    pub fn suits_files(&self, artefacts: &Artefacts) -> bool {
        let agree = |ours: &str, theirs: &str| ours == theirs || ours.is_empty() || theirs.is_empty();
        let Artefacts { tokenizer, template, configs } = &self.artefacts;
        agree(tokenizer, &artefacts.tokenizer)
            && agree(template, &artefacts.template)
            && agree(configs, &artefacts.configs)
    }

    /// Tells whether a card's engine turns a request into the same tokens: else its blocks say nothing of the request.
    #[must_use]
    pub fn suits(&self, card: &Card) -> bool {
        let TemplateOptions { content_format, default_kwargs, media_kwargs } = &self.template;
        self.suits_files(&card.artefacts)
            && *content_format == card.template.content_format
            && *default_kwargs == card.template.default_kwargs
            && (self.own_media_kwargs || *media_kwargs == card.template.media_kwargs)
    }
}

#[cfg(test)]
mod tests {
    use identity::{ModelName, WorkerId};

    use super::*;

    fn check(change: impl FnOnce(&mut Card, &mut Rendering), expected: bool) {
        let mut card = Card::new(WorkerId::new("w"), ModelName::new("m"), "http://localhost", 16);
        let digest = |what: &str| format!("{what} digest");
        card.artefacts = Artefacts {
            tokenizer: digest("tokenizer"),
            template: digest("template"),
            configs: digest("configs"),
        };
        let mut rendering = Rendering {
            artefacts: card.artefacts.clone(),
            template: card.template.clone(),
            ..Rendering::default()
        };
        change(&mut card, &mut rendering);
        assert_eq!(rendering.suits(&card), expected, "{rendering:?} {card:?}");
    }

    #[test]
    fn every_file_and_option_has_to_agree() {
        check(|_, _| {}, true);
        check(|card, _| card.artefacts.tokenizer.push('x'), false);
        check(|card, _| card.artefacts.template.push('x'), false);
        check(|card, _| card.artefacts.configs.push('x'), false);
        check(|card, _| card.artefacts = Artefacts::default(), true);
        check(|_, rendering| rendering.artefacts = Artefacts::default(), true);
        check(|card, _| card.template.default_kwargs.push('x'), false);
        check(|card, _| card.template.content_format = crate::card::ContentFormat::String, false);
        check(|card, _| card.template.media_kwargs.push('x'), false);
        let own = |card: &mut Card, rendering: &mut Rendering| {
            rendering.own_media_kwargs = true;
            card.template.media_kwargs.push('x');
        };
        check(own, true);
    }
}

//! LLaVA-1.5: every image is resized to the vision tower's square.

use crate::expansion::Expansion;
use crate::family::vision_tower::VisionTower;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::Invalid;
use crate::refused::Refused;

/// Configuration of a LLaVA-1.5 model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Llava {
    /// Its vision tower.
    pub tower: VisionTower,
}

impl Llava {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        self.tower.check()
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        Ok(Expansion::placeholders(bounded(size, self.tower.features())?))
    }
}

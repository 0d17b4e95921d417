//! The square vision towers behind the LLaVA family: CLIP and `SigLIP`.

use crate::invalid::{Invalid, SIDE_MAX, within};

/// A vision tower that sees every image or tile at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisionTower {
    /// Side of the image it sees, in pixels.
    pub image_size: u32,
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Whether it puts a class feature before the patches (CLIP does, `SigLIP` doesn't).
    pub class_feature: bool,
    /// Whether the model drops the first feature (`vision_feature_select_strategy` = `default`).
    pub drops_first: bool,
}

impl VisionTower {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("image_size", self.image_size, 1..=SIDE_MAX)?;
        within("patch_size", self.patch_size, 1..=u64::from(self.image_size))?;
        if self.class_feature {
            within("image_size modulo patch_size", self.image_size % self.patch_size.max(1), 0..=0)?;
        }
        Ok(())
    }

    /// Returns the patches along each side.
    pub(crate) fn grid(&self) -> u64 {
        u64::from(self.image_size) / u64::from(self.patch_size.max(1))
    }

    /// Returns the features that reach the language model.
    pub(crate) fn features(&self) -> u64 {
        let patches = self.grid() * self.grid() + u64::from(self.class_feature);
        patches.saturating_sub(u64::from(self.drops_first))
    }
}

//! Model files on disk, a directory for each set of digests.
//!
//! ```text
//! <cache-dir>/<digest of the card's digests>/tokenizer.json …      whole: renamed into place once written
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use membership::card::Artefacts;
use prompt::ModelFiles;
use tokio::fs;

use crate::model_supply::matches;

/// Sets kept; those written first go first.
const SETS_MAX: usize = 16;

/// A directory of model files.
#[derive(Clone, Debug)]
pub(crate) struct ModelCache(PathBuf);

impl ModelCache {
    /// Makes the directory unless it is there.
    ///
    /// # Errors
    /// It is not there and cannot be made.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cache directory {} cannot be used", dir.display()))?;
        Ok(Self(dir.to_owned()))
    }

    /// Reads a set, if it is here and has the digests it is kept under.
    pub(crate) async fn load(&self, artefacts: &Artefacts) -> Option<Arc<ModelFiles>> {
        let (dir, expected) = (self.0.join(name(artefacts)), artefacts.clone());
        let read = move || ModelFiles::read(&dir).ok().filter(|files| matches(files, &expected));
        tokio::task::spawn_blocking(read).await.ok().flatten().map(Arc::new)
    }

    /// Keeps a set; the oldest beyond sixteen are deleted.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub(crate) async fn store(&self, artefacts: &Artefacts, files: &ModelFiles) -> anyhow::Result<()> {
        let dir = self.0.join(name(artefacts));
        let unfinished = self.0.join(format!("{}.{}.unfinished", name(artefacts), std::process::id()));
        fs::create_dir_all(&unfinished).await?;
        for (name, bytes) in files.named() {
            fs::write(unfinished.join(name), bytes).await?;
        }
        // What is there under this name is damaged, or it would have been loaded.
        fs::remove_dir_all(&dir).await.ok();
        if let Err(cause) = fs::rename(&unfinished, &dir).await {
            fs::remove_dir_all(&unfinished).await.ok();
            // Another process may have kept the same set meanwhile.
            return if self.load(artefacts).await.is_some() { Ok(()) } else { Err(cause.into()) };
        }
        self.trim().await
    }

    async fn trim(&self) -> anyhow::Result<()> {
        let mut sets = Vec::new();
        let mut entries = fs::read_dir(&self.0).await?;
        while let Some(entry) = entries.next_entry().await? {
            let written = entry.metadata().await?.modified()?;
            sets.push((written, entry.path()));
        }
        sets.sort();
        let surplus = sets.len().saturating_sub(SETS_MAX);
        for (_, path) in sets.into_iter().take(surplus) {
            fs::remove_dir_all(&path).await?;
        }
        Ok(())
    }
}

fn name(artefacts: &Artefacts) -> String {
    let Artefacts { tokenizer, template, configs } = artefacts;
    blake3::hash(format!("{tokenizer} {template} {configs}").as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use prompt::Digests;

    use super::*;

    #[tokio::test]
    async fn a_damaged_set_is_not_loaded_and_old_ones_go() {
        let dir = std::env::temp_dir().join(format!("sightline-model-cache-{}", std::process::id()));
        let cache = ModelCache::open(&dir).unwrap();
        let set = |config: String| {
            let files =
                ModelFiles { tokenizer: b"t".to_vec(), config: config.into_bytes(), ..ModelFiles::default() };
            let Digests { tokenizer, template, configs } = files.digests();
            (Artefacts { tokenizer, template, configs }, files)
        };
        for number in 0..SETS_MAX + 2 {
            let (artefacts, files) = set(number.to_string());
            assert!(cache.load(&artefacts).await.is_none());
            cache.store(&artefacts, &files).await.unwrap();
            assert_eq!(cache.load(&artefacts).await.as_deref(), Some(&files));
        }
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), SETS_MAX);
        let (artefacts, files) = set((SETS_MAX + 1).to_string());
        std::fs::write(dir.join(name(&artefacts)).join("config.json"), "other").unwrap();
        assert!(cache.load(&artefacts).await.is_none());
        cache.store(&artefacts, &files).await.unwrap();
        assert!(cache.load(&artefacts).await.is_some());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

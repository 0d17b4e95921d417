//! Checkpoints as files.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use ports::StateStore;
use ports::state_store::Error;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

/// A directory with one file per name.
#[derive(Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Makes the directory unless it is there.
    ///
    /// # Errors
    /// It is not there and cannot be made, or cannot be written to.
    pub fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{}.checkpoint", encoded(name)))
    }

    async fn replace(&self, path: &Path, value: &[u8]) -> io::Result<()> {
        let unfinished = path.with_extension("unfinished");
        let mut file = File::create(&unfinished).await?;
        file.write_all(value).await?;
        file.sync_all().await?;
        drop(file);
        fs::rename(&unfinished, path).await
    }
}

#[async_trait]
impl StateStore for StateDir {
    async fn load(&self, name: &str) -> Result<Option<Bytes>, Error> {
        match fs::read(self.file(name)).await {
            Ok(value) => Ok(Some(Bytes::from(value))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error { name: name.to_owned(), source }),
        }
    }

    async fn save(&self, name: &str, value: Bytes) -> Result<(), Error> {
        let path = self.file(name);
        self.replace(&path, &value).await.map_err(|source| Error { name: name.to_owned(), source })
    }
}

/// Spells a name as a file's, whatever is in it.
fn encoded(name: &str) -> String {
    let mut file = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            file.push(char::from(byte));
        } else {
            file.push_str(&format!("%{byte:02x}"));
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_survive_and_are_replaced_whole() {
        let path = std::env::temp_dir().join(format!("sightline-state-{}", std::process::id()));
        let dir = StateDir::open(&path).unwrap();
        assert_eq!(dir.load("a/b").await.unwrap(), None);
        for value in ["one", "two, longer", "3"] {
            dir.save("a/b", Bytes::from(value)).await.unwrap();
            assert_eq!(StateDir::open(&path).unwrap().load("a/b").await.unwrap(), Some(Bytes::from(value)));
        }
        assert_eq!(dir.load("a").await.unwrap(), None, "names do not mix");
        let files: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing unfinished stays");
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn no_name_leaves_the_directory() {
        assert_eq!(encoded("engine-feed/../m/w.0"), "engine-feed%2f%2e%2e%2fm%2fw%2e0");
    }
}

//! A directory of media files for one engine, each named by the id of its bytes.
//!
//! A file appears whole, under a name of 64 hex digits and nothing else. One that was put, or asked to be kept, stays
//! for [`PROMISE`]: whoever told an engine its path counts on it. Beyond that the least recently used go first.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a file stays at least after it was put or asked to be kept.
pub(crate) const PROMISE: Duration = Duration::from_secs(120);

/// Name of the file by whose lock a directory belongs to one agent.
const LOCK: &str = ".lock";
/// How names of unfinished files begin.
const UNFINISHED: &str = ".unfinished-";

/// The directory; it belongs to this agent alone.
#[derive(Debug)]
pub(crate) struct MediaDir {
    path: PathBuf,
    bytes_max: u64,
    files: Mutex<Files>,
    _lock: File,
}

#[derive(Debug, Default)]
struct Files {
    by_id: HashMap<String, Entry>,
    /// The least recently used first.
    by_use: BTreeMap<u64, String>,
    uses: u64,
    /// Of files and of room taken for unfinished ones.
    bytes: u64,
    unfinished: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    used: u64,
    /// Until when it stays, on the clock.
    stays: Duration,
    /// Whether its bytes were checked in this life of the agent.
    checked: bool,
}

/// There is no room: what is there has been promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for {bytes} bytes")]
pub(crate) struct Full {
    pub(crate) bytes: u64,
}

/// Room for a file that is being written; given back unless it is finished.
#[derive(Debug)]
pub(crate) struct Unfinished {
    dir: Arc<MediaDir>,
    id: String,
    bytes: u64,
    path: PathBuf,
    finished: bool,
}

impl MediaDir {
    /// Takes a directory, which is made if it is missing. Files that a previous life left stay until their time is over
    /// or their room is needed, but are not vouched for.
    ///
    /// # Errors
    /// The directory cannot be used, or is another agent's.
    pub(crate) fn open(path: &Path, bytes_max: u64, now: Duration) -> io::Result<Self> {
        make_dir(path)?;
        let path = fs::canonicalize(path)?;
        let lock = owned().create(true).truncate(false).open(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another agent uses the directory")
            }
            TryLockError::Error(error) => error,
        })?;
        let mut files = Files::default();
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                fs::remove_file(entry.path())?;
            } else if is_id(&name) {
                let bytes = entry.metadata()?.len();
                files.add(&name, Entry { bytes, used: 0, stays: now + PROMISE, checked: false });
            }
        }
        Ok(Self { path, bytes_max, files: Mutex::new(files), _lock: lock })
    }

    /// Returns the absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many files there are, and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let files = self.files.lock();
        (files.by_id.len(), files.bytes)
    }

    /// Keeps a file for another while; answers whether it is there.
    pub(crate) fn keep(&self, id: &str, now: Duration) -> bool {
        let mut files = self.files.lock();
        let Some(entry) = files.by_id.get(id).copied().filter(|entry| entry.checked) else { return false };
        files.add(id, Entry { stays: now + PROMISE, ..entry });
        true
    }

    /// Takes room for a file, at the cost of others whose time is over.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn reserve(self: &Arc<Self>, id: &str, bytes: u64, now: Duration) -> Result<Unfinished, Full> {
        debug_assert!(is_id(id), "{id:?} is no media id");
        let mut files = self.files.lock();
        while files.bytes.saturating_add(bytes) > self.bytes_max {
            let oldest =
                files.by_use.values().find(|id| files.by_id.get(*id).is_some_and(|it| it.stays <= now));
            let Some(oldest) = oldest.cloned() else { return Err(Full { bytes }) };
            files.remove(&oldest);
            remove_file(&self.path.join(&oldest));
        }
        files.bytes += bytes;
        files.unfinished += 1;
        let path = self.path.join(format!("{UNFINISHED}{}", files.unfinished));
        Ok(Unfinished { dir: Arc::clone(self), id: id.to_owned(), bytes, path, finished: false })
    }

    /// Removes every file of this agent.
    pub(crate) fn clear(&self) {
        let mut files = self.files.lock();
        for id in files.by_id.keys() {
            remove_file(&self.path.join(id));
        }
        *files = Files { unfinished: files.unfinished, ..Files::default() };
    }
}

impl Unfinished {
    /// Makes the file to write to; only its owner and group may read it.
    pub(crate) fn create(&self) -> io::Result<File> {
        owned().create_new(true).open(&self.path)
    }

    /// Gives the file its name, once all of its bytes are there and are those that the id names.
    pub(crate) fn finish(mut self, now: Duration) -> io::Result<()> {
        let mut files = self.dir.files.lock();
        fs::rename(&self.path, self.dir.path.join(&self.id))?;
        files.bytes = files.bytes.saturating_sub(self.bytes);
        files.add(&self.id, Entry { bytes: self.bytes, used: 0, stays: now + PROMISE, checked: true });
        drop(files);
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            remove_file(&self.path);
            let mut files = self.dir.files.lock();
            files.bytes = files.bytes.saturating_sub(self.bytes);
        }
    }
}

impl Files {
    /// Adds or replaces a file as the most recently used.
    fn add(&mut self, id: &str, entry: Entry) {
        self.remove(id);
        self.uses += 1;
        self.bytes += entry.bytes;
        self.by_use.insert(self.uses, id.to_owned());
        self.by_id.insert(id.to_owned(), Entry { used: self.uses, ..entry });
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.by_use.remove(&entry.used);
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }
}

/// Tells whether a name is a media id's: no path hides in it.
pub(crate) fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(unix)]
fn make_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)
}

#[cfg(unix)]
fn owned() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o640);
    options
}

fn remove_file(path: &Path) {
    if let Err(cause) = fs::remove_file(path)
        && cause.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%cause, "a media file cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn id(digit: u8) -> String {
        format!("{digit:064x}")
    }

    fn put(dir: &Arc<MediaDir>, digit: u8, bytes: u64, now: Duration) -> Result<(), Full> {
        let room = dir.reserve(&id(digit), bytes, now)?;
        room.create().unwrap().write_all(&vec![digit; usize::try_from(bytes).unwrap()]).unwrap();
        room.finish(now).unwrap();
        Ok(())
    }

    fn names(path: &Path) -> Vec<String> {
        let names =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != LOCK).collect();
        names.sort();
        names
    }

    #[test]
    fn the_least_recently_used_goes_once_its_time_is_over() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Arc::new(MediaDir::open(&temp.path().join("a/b"), 100, START).unwrap());
        put(&dir, 1, 40, START).unwrap();
        put(&dir, 2, 40, START).unwrap();
        assert_eq!(put(&dir, 3, 40, START), Err(Full { bytes: 40 }));
        let later = START + PROMISE;
        assert!(dir.keep(&id(1), later));
        put(&dir, 3, 40, later).unwrap();
        assert_eq!(names(dir.path()), [id(1), id(3)]);
        assert!(!dir.keep(&id(2), later));
        assert_eq!(put(&dir, 4, 101, later + PROMISE), Err(Full { bytes: 101 }));
    }

    #[test]
    fn room_is_given_back_and_nothing_unfinished_stays() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Arc::new(MediaDir::open(temp.path(), 100, START).unwrap());
        let room = dir.reserve(&id(1), 100, START).unwrap();
        room.create().unwrap();
        assert_eq!(dir.reserve(&id(2), 1, START).unwrap_err(), Full { bytes: 1 });
        drop(room);
        assert_eq!((dir.size(), names(temp.path()).len()), ((0, 0), 0));
        put(&dir, 1, 60, START).unwrap();
        put(&dir, 1, 40, START).unwrap();
        assert_eq!(dir.size(), (1, 40));
        dir.clear();
        assert_eq!((dir.size(), names(temp.path()).len()), ((0, 0), 0));
    }

    #[test]
    fn a_directory_is_one_agents_and_its_files_outlive_it() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let dir = Arc::new(MediaDir::open(temp.path(), 100, START).unwrap());
        put(&dir, 1, 60, START).unwrap();
        let mode = fs::metadata(temp.path().join(id(1))).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "{mode:o}");
        let busy = MediaDir::open(temp.path(), 100, START).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        fs::write(temp.path().join(format!("{UNFINISHED}7")), "x").unwrap();
        fs::write(temp.path().join("stranger"), "x").unwrap();
        drop(dir);
        let next = Arc::new(MediaDir::open(temp.path(), 100, START).unwrap());
        assert_eq!(names(temp.path()), [id(1), "stranger".to_owned()]);
        assert!(!next.keep(&id(1), START), "its bytes are not checked");
        assert_eq!(put(&next, 2, 60, START), Err(Full { bytes: 60 }));
        put(&next, 2, 60, START + PROMISE).unwrap();
        assert_eq!(names(temp.path()), [id(2), "stranger".to_owned()]);
    }
}

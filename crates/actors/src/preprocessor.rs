//! Preprocessor: CPU work (templates, tokenising, hashing, image headers) off the async runtime.
//!
//! *Parent*: whoever makes it; it is a pool of the runtime's blocking threads and has no mailbox.
//! *Asks*: nobody. *Bound*: `threads` jobs run, `queue_max` wait, each `deadline` at most.
//! *When it dies*: it cannot; a job that panics fails its own request and nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Bounds of the pool.
#[derive(Clone, Debug)]
pub struct Config {
    /// Jobs that run at once; by default one per core.
    pub threads: usize,
    /// Jobs that wait.
    pub queue_max: usize,
    /// Longest wait for a thread.
    pub deadline: Duration,
    /// Work on at most this many bytes is done on the spot: handing it over would cost more than doing it.
    pub inline_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { threads, queue_max: 1024, deadline: Duration::from_secs(5), inline_bytes_max: 1024 }
    }
}

/// Why a job was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too many jobs wait already.
    #[error("more than {queue_max} jobs wait for a thread")]
    Full {
        /// The limit.
        queue_max: usize,
    },
    /// No thread was free in time.
    #[error("no thread was free within {deadline:?}")]
    Timeout {
        /// The limit.
        deadline: Duration,
    },
    /// The job panicked: a bug, or hostile input that found one.
    #[error("a job panicked")]
    Panicked,
}

impl Error {
    /// Returns the reason's name in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::Timeout { .. } => "timeout",
            Self::Panicked => "panicked",
        }
    }
}

/// Runs CPU work; cheap to clone.
#[derive(Clone, Debug)]
pub struct Preprocessor(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    config: Config,
    places: Arc<Semaphore>,
    threads: Arc<Semaphore>,
}

impl Preprocessor {
    /// Makes a pool; its threads belong to the runtime.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let threads = config.threads.max(1);
        let places =
            Arc::new(Semaphore::new(config.queue_max.saturating_add(threads).min(Semaphore::MAX_PERMITS)));
        Self(Arc::new(Pool { config, places, threads: Arc::new(Semaphore::new(threads)) }))
    }

    /// Runs a job over `bytes` bytes of input; on the spot if they are few.
    ///
    /// A job whose caller is gone still runs to its end, and holds its thread till then.
    ///
    /// # Errors
    /// `Full` and `Timeout` mean overload: shed the request. `Panicked`: fail it.
    pub async fn run<R: Send + 'static>(
        &self,
        bytes: usize,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Error> {
        let pool = &self.0;
        if bytes <= pool.config.inline_bytes_max {
            let job = std::panic::AssertUnwindSafe(job);
            return std::panic::catch_unwind(job).map_err(|_| Error::Panicked);
        }
        let full = || Error::Full { queue_max: pool.config.queue_max };
        let place = Arc::clone(&pool.places).try_acquire_owned().map_err(|_| full())?;
        let deadline = pool.config.deadline;
        let thread = tokio::time::timeout(deadline, Arc::clone(&pool.threads).acquire_owned()).await;
        let thread = thread.map_err(|_| Error::Timeout { deadline })?.map_err(|_| full())?;
        let span = tracing::Span::current();
        let running = tokio::task::spawn_blocking(move || {
            let done = span.in_scope(job);
            drop((place, thread));
            done
        });
        running.await.map_err(|_| Error::Panicked)
    }

    /// Returns how many jobs run or wait.
    #[must_use]
    pub fn depth(&self) -> usize {
        let all = self.0.config.queue_max.saturating_add(self.0.config.threads.max(1));
        all.saturating_sub(self.0.places.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(threads: usize, queue_max: usize) -> Preprocessor {
        let config = Config { threads, queue_max, deadline: Duration::from_millis(50), inline_bytes_max: 0 };
        Preprocessor::new(config)
    }

    #[tokio::test]
    async fn a_panicking_job_fails_alone() {
        let pool = pool(1, 1);
        assert_eq!(pool.run(1, || -> u8 { panic!("on purpose") }).await, Err(Error::Panicked));
        assert_eq!(pool.run(0, || -> u8 { panic!("on purpose") }).await, Err(Error::Panicked));
        assert_eq!(pool.run(1, || 7).await, Ok(7));
        assert_eq!(pool.depth(), 0);
    }

    #[tokio::test]
    async fn a_full_pool_sheds() {
        let pool = pool(1, 1);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let busy = pool.run(1, move || gate.recv().is_ok());
        let (first, (second, third)) = tokio::join!(busy, async {
            let second = pool.run(1, || ());
            let third = async {
                tokio::task::yield_now().await;
                pool.run(1, || ()).await
            };
            let both = tokio::join!(second, third);
            release.send(()).unwrap();
            both
        });
        assert_eq!(first, Ok(true));
        assert_eq!(second, Err(Error::Timeout { deadline: Duration::from_millis(50) }));
        assert_eq!(third, Err(Error::Full { queue_max: 1 }));
    }
}

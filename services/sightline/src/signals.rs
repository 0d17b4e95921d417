//! Being asked to stop.

use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// A token that is cancelled at the first SIGINT or SIGTERM.
#[derive(Debug)]
pub(crate) struct Stop {
    token: CancellationToken,
    _watcher: AbortOnDropHandle<()>,
}

impl Stop {
    /// Listens for signals; with `until_stdin_closes` also for the end of standard input, so that a child does not
    /// outlive the parent that holds the other end.
    pub(crate) fn listen(until_stdin_closes: bool) -> Self {
        let token = CancellationToken::new();
        let watched = token.clone();
        #[expect(clippy::disallowed_methods, reason = "the handle aborts it with the value that owns it")]
        let watcher = tokio::spawn(async move {
            tokio::select! {
                () = signalled() => {}
                () = stdin_closed(), if until_stdin_closes => {}
            }
            watched.cancel();
        });
        Self { token, _watcher: AbortOnDropHandle::new(watcher) }
    }

    /// Returns the token.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

async fn signalled() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => drop(outcome),
        () = terminated => {}
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 64];
    while stdin.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

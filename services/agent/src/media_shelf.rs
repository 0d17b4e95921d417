//! A media directory put together: its files, the listener that fills it, and what the card says of it.

use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;

use adapter_http::{Bounds, Listener};
use anyhow::{Context, bail};
use hyper::service::service_fn;
use membership::card::{MediaDir as Told, MediaDirKey};
use ports::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::Config;
use crate::media_dir::MediaDir;
use crate::media_surface::MediaSurface;

/// A directory that frontends can fill; dropping it closes the listener and leaves the files, as a crash does.
#[derive(Debug)]
pub(crate) struct MediaShelf {
    dir: Arc<MediaDir>,
    told: Told,
    _listener: JoinSet<()>,
    stop: DropGuard,
}

impl MediaShelf {
    /// Opens the directory that is configured; none if none is.
    ///
    /// # Errors
    /// The directory or the address cannot be used.
    pub(crate) fn open(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Option<Self>> {
        let Some(path) = &config.media_dir else { return Ok(None) };
        let shown = path.display();
        let dir = MediaDir::open(path, config.media_dir_bytes_max, clock.now());
        let dir = Arc::new(dir.with_context(|| format!("media directory {shown} cannot be used"))?);
        let Some(text) = dir.path().to_str().map(str::to_owned) else {
            bail!("media directory {shown} has a name that no URL can spell");
        };
        let listen = config.media_listen;
        let listener = StdTcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        listener.set_nonblocking(true)?;
        let tls = config.tls.as_ref();
        let listener = Listener::adopt(listener, tls)?;
        let bound = listener.address();
        let authority = match &config.media_advertise {
            Some(authority) => authority.clone(),
            None if bound.ip().is_unspecified() => {
                bail!("--media-advertise must name the media listener: {bound} is no address to ask")
            }
            None => bound.to_string(),
        };
        let key = key()?;
        let bytes_max = config.media_file_bytes_max;
        let surface = Arc::new(MediaSurface::new(Arc::clone(&dir), &key, bytes_max, Arc::clone(clock)));
        let service = service_fn(move |request| Arc::clone(&surface).handle(request));
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(adapter_http::serve(listener, service, Bounds::default(), stop.clone()));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let told = Told { endpoint: format!("{scheme}://{authority}"), path: text, key };
        Ok(Some(Self { dir, told, _listener: serving, stop: stop.drop_guard() }))
    }

    /// Returns what the card says.
    pub(crate) fn card(&self) -> Told {
        self.told.clone()
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Arc<MediaDir> {
        &self.dir
    }

    /// Takes leave: nothing more is taken, and what was is removed.
    pub(crate) fn close(self) {
        drop(self.stop);
        self.dir.clear();
    }
}

/// Draws a key.
fn key() -> anyhow::Result<MediaDirKey> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("the system gives no random bytes")?;
    Ok(MediaDirKey::new(key.iter().map(|byte| format!("{byte:02x}")).collect()))
}

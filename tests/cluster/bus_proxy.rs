//! A TCP proxy before a nats-server that breaks the link, silences it, or mistreats the messages on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::disorder::{Disorder, Odds, Tally};
use crate::nats_frames::Cutter;

/// What the proxy does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Everything passes as it comes.
    Whole,
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections stay open, and nothing passes.
    Silent,
    /// Messages to subscribers are mistreated.
    Disordered(Odds),
}

/// A running proxy; ends when dropped.
#[derive(Debug)]
pub(crate) struct BusProxy {
    /// Where clients of NATS connect.
    pub(crate) url: String,
    link: watch::Sender<Link>,
    tallies: Arc<Mutex<Vec<Tally>>>,
    _tasks: JoinSet<()>,
}

/// After this long without a frame, what was held back is sent.
const HELD_FOR: Duration = Duration::from_millis(30);

impl BusProxy {
    /// Begins to listen on a free port, for the server at `server`; `seed` decides what happens to messages.
    pub(crate) async fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let (link, links) = watch::channel(Link::Whole);
        let tallies = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let told = Arc::clone(&tallies);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = { told.lock().len() };
                told.lock().push(Tally::default());
                let way = Way {
                    number,
                    link: links.clone(),
                    disorder: Disorder::new(seed ^ number as u64),
                    tallies: Arc::clone(&told),
                };
                connections.spawn(way.run(client, server));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url, link, tallies, _tasks: tasks }
    }

    /// Changes what the proxy does, to connections that exist as well.
    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Sums what happened to messages.
    pub(crate) fn tally(&self) -> Tally {
        self.tallies.lock().iter().fold(Tally::default(), |sum, tally| Tally {
            messages: sum.messages + tally.messages,
            dropped: sum.dropped + tally.dropped,
            doubled: sum.doubled + tally.doubled,
            delayed: sum.delayed + tally.delayed,
        })
    }
}

/// One connection's way through.
struct Way {
    number: usize,
    link: watch::Receiver<Link>,
    disorder: Disorder,
    tallies: Arc<Mutex<Vec<Tally>>>,
}

impl Way {
    async fn run(self, client: TcpStream, server: SocketAddr) {
        let mut cut = self.link.clone();
        let pass = async {
            self.open().await;
            let Ok(server) = TcpStream::connect(server).await else { return };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            let up = pass_up(from_client, to_server, self.link.clone());
            tokio::select! {
                () = up => {}
                () = self.pass_down(from_server, to_client) => {}
            }
        };
        tokio::select! {
            () = pass => {}
            _ = cut.wait_for(|link| *link == Link::Cut) => {}
        }
    }

    /// Waits while nothing passes.
    async fn open(&self) {
        is_open(&mut self.link.clone()).await;
    }

    /// Sends a server's frames to its client.
    async fn pass_down(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut cutter = Cutter::default();
        let mut bytes = vec![0; 64 << 10];
        let mut out: Vec<Bytes> = Vec::new();
        loop {
            match tokio::time::timeout(HELD_FOR, from.read(&mut bytes)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(read)) => cutter.feed(&bytes[..read]),
                Err(_) => self.disorder.release(&mut out),
            }
            self.open().await;
            let odds = match *self.link.borrow() {
                Link::Disordered(odds) => odds,
                Link::Whole | Link::Cut | Link::Silent => Odds { dropped: 0, doubled: 0, delayed: 0 },
            };
            while let Some(frame) = cutter.next() {
                self.disorder.pass(frame, odds, &mut out);
            }
            self.tallies.lock()[self.number] = self.disorder.tally();
            for frame in out.drain(..) {
                if to.write_all(&frame).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Sends a client's bytes to the server.
async fn pass_up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
        is_open(&mut link).await;
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

async fn is_open(link: &mut watch::Receiver<Link>) {
    drop(link.wait_for(|link| *link != Link::Silent).await);
}

//! A server that says exactly what a test wants, byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One connection as the server sees it.
pub(crate) struct Peer {
    pub(crate) reader: BufReader<TcpStream>,
    pub(crate) stream: TcpStream,
}

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

impl Peer {
    /// Reads a request; none once the client has closed.
    pub(crate) fn request(&mut self) -> Option<Seen> {
        let mut seen = Seen::default();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if seen.line.is_empty() {
                line.clone_into(&mut seen.line);
            } else if let Some((name, value)) = line.split_once(':') {
                seen.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            } else {
                break;
            }
        }
        let length = seen.header("content-length").map_or(0, |it| it.parse().unwrap());
        seen.body = vec![0; length];
        self.reader.read_exact(&mut seen.body).ok()?;
        Some(seen)
    }

    pub(crate) fn send(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).is_ok()
    }

    /// Waits until the client closes; true if it did within 5 s.
    pub(crate) fn closed(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        matches!(self.reader.read(&mut [0; 64]), Ok(0))
            || self.stream.take_error().is_ok_and(|error| error.is_some())
    }
}

/// A listening server; its threads end with the test process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", script)
    }

    pub(crate) fn start_on(address: &str, script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, script) = (Arc::clone(&accepted), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                let reader = BufReader::new(stream.try_clone().unwrap());
                std::thread::spawn(move || script(Peer { reader, stream }));
            }
        });
        Self { address, accepted }
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

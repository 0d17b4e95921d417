//! An origin of images that keeps its promises, or doesn't: validators, lifetimes, ranges, files that are given once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A file, and what the origin says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    pub(crate) body: Vec<u8>,
    pub(crate) etag: Option<&'static str>,
    pub(crate) last_modified: Option<&'static str>,
    pub(crate) cache_control: Option<&'static str>,
    pub(crate) vary: Option<&'static str>,
    /// Whether parts of it are given.
    pub(crate) ranges: bool,
    /// How often it is given; none for always.
    pub(crate) uses: Option<u32>,
}

/// A request as it was answered: `200`, `206`, `304`, `404` or `410`.
pub(crate) type Answered = u16;

/// Serves files by path, whatever the query, on loopback.
#[derive(Debug)]
pub(crate) struct Origin {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    resources: HashMap<String, Resource>,
    answered: HashMap<String, Vec<Answered>>,
}

impl Origin {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while answers.try_join_next().is_some() {}
                answers.spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        Self { address, state, _tasks: tasks }
    }

    /// Puts a file at a path, or replaces it.
    pub(crate) fn put(&self, path: &str, resource: Resource) {
        self.state.lock().resources.insert(path.to_owned(), resource);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Tells how the requests for a path were answered, in order.
    pub(crate) fn answered(&self, path: &str) -> Vec<Answered> {
        self.state.lock().answered.get(path).cloned().unwrap_or_default()
    }

    /// Counts all requests.
    pub(crate) fn requests(&self) -> usize {
        self.state.lock().answered.values().map(Vec::len).sum()
    }
}

impl State {
    /// Decides on an answer: its status, its headers, its body.
    fn answer(&mut self, path: &str, headers: &HashMap<String, String>) -> (Answered, String, Vec<u8>) {
        let Some(resource) = self.resources.get_mut(path) else { return (404, String::new(), Vec::new()) };
        if let Some(uses) = &mut resource.uses {
            let Some(left) = uses.checked_sub(1) else { return (410, String::new(), Vec::new()) };
            *uses = left;
        }
        let mut told = String::from("content-type: image/bmp\r\n");
        let named = [
            ("etag", resource.etag),
            ("last-modified", resource.last_modified),
            ("cache-control", resource.cache_control),
            ("vary", resource.vary),
        ];
        for (name, value) in named {
            told.extend(value.map(|value| format!("{name}: {value}\r\n")));
        }
        let asks = |name: &str, value: Option<&str>| {
            headers.get(name).map(String::as_str) == value && value.is_some()
        };
        if asks("if-none-match", resource.etag) || asks("if-modified-since", resource.last_modified) {
            return (304, told, Vec::new());
        }
        let range = headers.get("range").filter(|_| resource.ranges);
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        if let Some((first, last)) = range {
            let (first, whole) = (first.parse::<usize>().unwrap(), resource.body.len());
            let last = last.parse::<usize>().unwrap_or(usize::MAX).min(whole - 1);
            told.push_str(&format!("content-range: bytes {first}-{last}/{whole}\r\n"));
            return (206, told, resource.body[first..=last].to_vec());
        }
        (200, told, resource.body.clone())
    }
}

async fn answer(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8_lossy(&request);
    let target = text.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let pairs = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    let headers = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let (status, told, body) = {
        let mut state = state.lock();
        let answer = state.answer(path, &headers);
        state.answered.entry(path.to_owned()).or_default().push(answer.0);
        answer
    };
    let head =
        format!("HTTP/1.1 {status} x\r\n{told}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(&body).await.is_ok() {
        stream.shutdown().await.ok();
    }
}

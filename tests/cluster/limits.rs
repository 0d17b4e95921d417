//! Origins that never end, lie or stall: bounded memory, bounded time, and an answer that names the image.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::up::Up;

const MIB: u64 = 1 << 20;
/// What a frontend takes of one image at most.
const ITEM_MAX: u64 = 32 * MIB;
/// What the kernel may hold of a connection beside what was read from it.
const IN_FLIGHT_MAX: u64 = 16 * MIB;
/// Longer than the longest fetch, 10 s, and shorter than forever.
const FETCH_MAX: Duration = Duration::from_secs(20);

/// An origin that does by path what no origin should, and counts the bytes that went out.
struct Origin {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let counter = Arc::clone(&sent);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || misbehave(stream, &counter));
            }
        });
        Self { address, sent }
    }
}

fn misbehave(mut stream: TcpStream, sent: &AtomicU64) -> Option<()> {
    let mut path = String::new();
    for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
        if path.is_empty() {
            path = line.split([' ', '?']).nth(1)?.to_owned();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut send = |bytes: &[u8]| {
        stream.write_all(bytes).ok()?;
        sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Some(())
    };
    let block = vec![0x55; 64 << 10];
    match path.as_str() {
        "/length" => {
            send(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 1073741824\r\n\r\n")?;
            loop {
                send(&block)?;
            }
        }
        "/endless" => {
            send(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                send(b"10000\r\n")?;
                send(&block)?;
                send(b"\r\n")?;
            }
        }
        "/unframed" => {
            send(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n")?;
            loop {
                send(&block)?;
            }
        }
        "/headers" => {
            send(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                send(b"x-more: of the same, and again, and again, and again\r\n")?;
            }
        }
        "/drip" => {
            send(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 100000\r\n\r\n")?;
            loop {
                send(b"x")?;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        "/silence" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "/gzip" => {
            send(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-encoding: gzip\r\ncontent-length: 1000000\r\n\r\n")?;
            loop {
                send(&block)?;
            }
        }
        _ => send(b"HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n"),
    }
}

/// Starts to measure a process's largest memory anew, and returns what it has now, in bytes.
fn forget_peak(pid: u32) -> u64 {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Sends an image that is fine and one that is not, and returns status and error.
async fn refused(up: &Up, url: &str) -> (u16, Value) {
    let good = crate::images::Picture { width: 28, height: 28, seed: 1 }.data_uri();
    let body = json!({"model": "tiny-vl", "max_tokens": 1, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": good}},
        {"type": "image_url", "image_url": {"url": url}},
    ]}]});
    let answer = up.http.post(format!("{}/v1/chat/completions", up.frontends[0])).json(&body).send();
    let answer = tokio::time::timeout(FETCH_MAX, answer).await.unwrap().unwrap();
    let status = answer.status().as_u16();
    (status, answer.json::<Value>().await.unwrap()["error"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_origins_cost_little_and_are_told_by_index() {
    let origin = Origin::start();
    let up = Up::start(&["--speed", "0", "--media-allow-net", "127.0.0.0/8"]).await;
    // What every request costs is paid before anything is measured.
    refused(&up, &format!("http://{}/warm", origin.address)).await;
    // A body is held once, and grows by doubling; nothing else is.
    let whole = 3 * ITEM_MAX;
    for (path, status, code, sent_max, memory_max) in [
        ("/length", 413, "media_too_large", IN_FLIGHT_MAX, 16 * MIB),
        ("/endless", 413, "media_too_large", ITEM_MAX + IN_FLIGHT_MAX, whole),
        ("/unframed", 413, "media_too_large", ITEM_MAX + IN_FLIGHT_MAX, whole),
        ("/headers", 400, "media_fetch_failed", IN_FLIGHT_MAX, 16 * MIB),
        ("/gzip", 400, "media_fetch_failed", IN_FLIGHT_MAX, 16 * MIB),
        ("/redirects", 400, "media_fetch_failed", MIB, 16 * MIB),
        ("/drip", 400, "media_fetch_failed", MIB, 16 * MIB),
        ("/silence", 400, "media_fetch_failed", MIB, 16 * MIB),
    ] {
        let (before, had) = (origin.sent.load(Ordering::SeqCst), forget_peak(up.pid()));
        let (answered, error) = refused(&up, &format!("http://{}{path}?secret=s", origin.address)).await;
        assert_eq!((answered, error["code"].as_str()), (status, Some(code)), "{path}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("media item 1:") && !message.contains("secret"), "{path}: {error}");
        let sent = origin.sent.load(Ordering::SeqCst) - before;
        assert!(sent <= sent_max, "{path}: {sent} bytes were taken");
        let grown = memory(up.pid(), "VmHWM:").saturating_sub(had);
        assert!(grown <= memory_max, "{path}: memory grew by {grown} bytes");
    }
    assert_eq!(up.loud_lines(), Vec::<String>::new());
}

//! Small valid pictures, and a server that hands them out.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A picture named by its size and a seed for its colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) seed: u8,
}

impl Picture {
    /// Encodes an uncompressed 24-bit BMP.
    pub(crate) fn bmp(self) -> Vec<u8> {
        let row = (self.width as usize * 3).next_multiple_of(4);
        let size = 54 + row * self.height as usize;
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(b"BM");
        bytes.extend_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&54_u32.to_le_bytes());
        bytes.extend_from_slice(&40_u32.to_le_bytes());
        bytes.extend_from_slice(&self.width.to_le_bytes());
        bytes.extend_from_slice(&self.height.to_le_bytes());
        bytes.extend_from_slice(&[1, 0, 24, 0]);
        bytes.extend_from_slice(&[0; 24]);
        bytes.resize(size, self.seed);
        bytes
    }

    /// Spells the picture as a data URI.
    pub(crate) fn data_uri(self) -> String {
        use base64::Engine;
        format!("data:image/bmp;base64,{}", base64::engine::general_purpose::STANDARD.encode(self.bmp()))
    }

    /// The path under which a `PictureServer` has it.
    pub(crate) fn path(self) -> String {
        format!("/{}x{}-{}.bmp", self.width, self.height, self.seed)
    }
}

/// Serves pictures by path on loopback and counts the requests it answers.
#[derive(Debug)]
pub(crate) struct PictureServer {
    pub(crate) address: SocketAddr,
    served: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl PictureServer {
    pub(crate) async fn start(pictures: &[Picture]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let known: Arc<HashMap<String, Vec<u8>>> =
            Arc::new(pictures.iter().map(|picture| (picture.path(), picture.bmp())).collect());
        let served = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&served);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                answers.spawn(answer(stream, Arc::clone(&known), Arc::clone(&counter)));
            }
        });
        Self { address, served, _tasks: tasks }
    }

    pub(crate) fn url(&self, picture: Picture) -> String {
        format!("http://{}{}", self.address, picture.path())
    }

    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

async fn answer(mut stream: TcpStream, known: Arc<HashMap<String, Vec<u8>>>, served: Arc<AtomicUsize>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8_lossy(&request);
    let path = text.split(' ').nth(1).unwrap_or_default();
    served.fetch_add(1, Ordering::Relaxed);
    let (status, body) = match known.get(path) {
        Some(bytes) => ("200 OK", bytes.as_slice()),
        None => ("404 Not Found", b"".as_slice()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: image/bmp\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(body).await.is_ok() {
        stream.shutdown().await.ok();
    }
}

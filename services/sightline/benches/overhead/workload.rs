//! What is sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use bytes::Bytes;
use reqwest::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// One kind of request.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    /// As the table calls it.
    pub(crate) name: &'static str,
    /// Divides the number of requests.
    pub(crate) weight: usize,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    ShortText,
    Stream,
    LongText,
    ImageUrls,
    DataUri,
    Upload,
}

/// One request, again and again.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// How it is answered.
    pub(crate) status: StatusCode,
}

impl Ask {
    /// A chat completion.
    pub(crate) const fn chat(body: Bytes) -> Self {
        Self { path: "/v1/chat/completions", content_type: "application/json", body, status: StatusCode::OK }
    }
}

/// The workloads, in the table's order.
pub(crate) const ALL: [Workload; 6] = [
    Workload { name: "short text", weight: 1, kind: Kind::ShortText },
    Workload { name: "64-chunk stream", weight: 2, kind: Kind::Stream },
    Workload { name: "8k-token prompt", weight: 2, kind: Kind::LongText },
    Workload { name: "4 image URLs, facts cached", weight: 2, kind: Kind::ImageUrls },
    Workload { name: DATA_URI, weight: 4, kind: Kind::DataUri },
    Workload { name: UPLOAD, weight: 4, kind: Kind::Upload },
];

/// An image in the request.
pub(crate) const DATA_URI: &str = "1 MB data URI";
/// The same bytes as a form for a path that is passed on unread; the engine takes them and has nothing there.
pub(crate) const UPLOAD: &str = "the same bytes, proxied untouched";

impl Workload {
    /// Makes the request.
    pub(crate) fn ask(self, images: &ImageServer) -> Ask {
        if matches!(self.kind, Kind::Upload) {
            let same = Self { kind: Kind::DataUri, ..self }.ask(images).body;
            let body = [&b"--form\r\n\r\n"[..], &same, b"\r\n--form--\r\n"].concat();
            return Ask {
                path: "/v1/audio/transcriptions",
                content_type: "multipart/form-data; boundary=form",
                body: Bytes::from(body),
                status: StatusCode::NOT_FOUND,
            };
        }
        let (content, tokens, stream) = match self.kind {
            Kind::ShortText => (json!("What is a fresco?"), 1, false),
            Kind::Stream => (json!("What is a fresco?"), 64, true),
            Kind::LongText => (json!("amber harbour window seven ".repeat(8000 / 12)), 1, false),
            Kind::ImageUrls => {
                (json!((0..4).map(|index| image_part(&images.url(index))).collect::<Vec<_>>()), 1, false)
            }
            Kind::DataUri | Kind::Upload => {
                let uri = base64::engine::general_purpose::STANDARD.encode(bmp(511, 511));
                (json!([image_part(&format!("data:image/bmp;base64,{uri}"))]), 1, false)
            }
        };
        Ask::chat(chat(&content, tokens, stream))
    }
}

fn chat(content: &serde_json::Value, tokens: u32, stream: bool) -> Bytes {
    let body = json!({
        "model": "tiny-vl", "messages": [{"role": "user", "content": content}], "max_tokens": tokens,
        "temperature": 0, "stream": stream, "ignore_eos": true,
    });
    Bytes::from(body.to_string())
}

/// How one resource may be spelt: for a cache these are one.
const SPELLINGS: u32 = 5;
/// Images of one request.
const IMAGES: usize = 4;

/// Makes requests of four images each, of which all URLs are different and spell `urls / 5` images, those of one image
/// next to each other.
pub(crate) fn spellings(images: &ImageServer, urls: u32) -> Vec<Bytes> {
    let address = images.address;
    let parts: Vec<_> = (0..urls)
        .map(|index| {
            let path = format!("{address}/small/{}.bmp", index / SPELLINGS);
            image_part(&match index % SPELLINGS {
                0 => format!("http://{path}"),
                1 => format!("http://{path}#view"),
                2 => format!("http://{path}?_={index}"),
                3 => format!("HTTP://{path}?cb={index}#view"),
                _ => format!("http://{}", path.replace("/small/", "/large/../small/")),
            })
        })
        .collect();
    parts.chunks(IMAGES).map(|parts| chat(&json!(parts), 1, false)).collect()
}

/// Number of images that so many spelt URLs name.
pub(crate) const fn spelt_images(urls: u32) -> u32 {
    urls.div_ceil(SPELLINGS)
}

fn image_part(url: &str) -> serde_json::Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// Encodes a grey 24-bit BMP.
fn bmp(width: u32, height: u32) -> Vec<u8> {
    let pixels = (width * 3).next_multiple_of(4) * height;
    let mut bytes = Vec::from(*b"BM");
    bytes.extend_from_slice(&(54 + pixels).to_le_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0]);
    bytes.extend_from_slice(&width.to_le_bytes());
    bytes.extend_from_slice(&height.to_le_bytes());
    bytes.extend_from_slice(&[1, 0, 24, 0]);
    bytes.resize(54, 0);
    bytes.resize(54 + usize::try_from(pixels).unwrap_or(0), 0x7f);
    bytes
}

/// Makes a path's own small bitmap.
fn small(path: &str) -> Vec<u8> {
    let mut bytes = bmp(56, 56);
    if let Some(pixels) = bytes.get_mut(54..54 + path.len()) {
        pixels.copy_from_slice(path.as_bytes());
    }
    bytes
}

fn large_path(index: usize) -> String {
    format!("/{index}.png")
}

/// Makes a PNG of 188 KB: noise, each index's own, which no encoder makes smaller.
fn large(index: usize) -> Vec<u8> {
    let (width, height) = (280, 224);
    let mut noise = blake3::Hasher::new().update(&index.to_le_bytes()).finalize_xof();
    let mut pixels = vec![0; 3 * 280 * 224];
    noise.fill(&mut pixels);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels)).ok();
    bytes
}

/// Serves cacheable images on loopback, each path's own, and counts.
pub(crate) struct ImageServer {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl ImageServer {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let counter = Arc::clone(&requests);
        let large: Vec<_> = (0..IMAGES).map(|index| (large_path(index), large(index))).collect();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                counter.fetch_add(1, Ordering::Relaxed);
                let head = String::from_utf8_lossy(request.get(..read).unwrap_or_default());
                let path = head.split(' ').nth(1).unwrap_or_default();
                let found = large.iter().find(|(known, _)| known == path);
                let body = found.map_or_else(|| small(path), |(_, bytes)| bytes.clone());
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncache-control: max-age=3600\r\n\
                     etag: \"{path}\"\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.ok();
                stream.write_all(&body).await.ok();
            }
        });
        Ok(Self { address, requests, _tasks: tasks })
    }

    /// Number of requests that came.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn url(&self, index: usize) -> String {
        format!("http://{}{}", self.address, large_path(index))
    }
}

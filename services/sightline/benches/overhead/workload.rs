//! What is sent.

use std::net::SocketAddr;

use base64::Engine;
use bytes::Bytes;
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
}

/// The workloads, in the table's order.
pub(crate) const ALL: [Workload; 5] = [
    Workload { name: "short text", weight: 1, kind: Kind::ShortText },
    Workload { name: "64-chunk stream", weight: 2, kind: Kind::Stream },
    Workload { name: "8k-token prompt", weight: 2, kind: Kind::LongText },
    Workload { name: "4 image URLs, facts cached", weight: 2, kind: Kind::ImageUrls },
    Workload { name: "1 MB data URI", weight: 4, kind: Kind::DataUri },
];

impl Workload {
    /// Makes the request's body.
    pub(crate) fn body(self, images: &ImageServer) -> Bytes {
        let (content, tokens, stream) = match self.kind {
            Kind::ShortText => (json!("What is a fresco?"), 1, false),
            Kind::Stream => (json!("What is a fresco?"), 64, true),
            Kind::LongText => (json!("amber harbour window seven ".repeat(8000 / 12)), 1, false),
            Kind::ImageUrls => {
                (json!((0..4).map(|index| image_part(&images.url(index))).collect::<Vec<_>>()), 1, false)
            }
            Kind::DataUri => {
                let uri = base64::engine::general_purpose::STANDARD.encode(bmp(511, 511));
                (json!([image_part(&format!("data:image/bmp;base64,{uri}"))]), 1, false)
            }
        };
        let body = json!({
            "model": "tiny-vl", "messages": [{"role": "user", "content": content}], "max_tokens": tokens,
            "temperature": 0, "stream": stream, "ignore_eos": true,
        });
        Bytes::from(body.to_string())
    }
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

/// Serves cacheable images on loopback.
pub(crate) struct ImageServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl ImageServer {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let shade = request.get(..read).and_then(|head| head.get(5)).copied().unwrap_or(0);
                let mut body = bmp(280, 224);
                if let Some(last) = body.last_mut() {
                    *last = shade;
                }
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: image/bmp\r\ncontent-length: {}\r\ncache-control: max-age=3600\r\n\
                     etag: \"{shade}\"\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.ok();
                stream.write_all(&body).await.ok();
            }
        });
        Ok(Self { address, _tasks: tasks })
    }

    fn url(&self, index: usize) -> String {
        format!("http://{}/{index}.bmp", self.address)
    }
}

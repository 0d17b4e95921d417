//! Images that engines fetch themselves, and what frontends tell each other of images.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::chat::send;
use crate::images::Picture;
use crate::settle::settled;
use crate::up::{DEADLINE, Up};

/// Serves any picture by the size and seed in its path, with a version and a lifetime, and counts who asks.
struct Origin {
    address: SocketAddr,
    /// Requests of frontends.
    routers: Arc<AtomicUsize>,
    /// Requests of engines.
    engines: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (routers, engines) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&routers), Arc::clone(&engines));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                answers.spawn(answer(stream, counts.clone()));
            }
        });
        Self { address, routers, engines, _tasks: tasks }
    }

    fn url(&self, picture: Picture) -> String {
        format!("http://{}{}", self.address, picture.path())
    }

    /// Requests of frontends, and of engines.
    fn asked(&self) -> (usize, usize) {
        (self.routers.load(Ordering::SeqCst), self.engines.load(Ordering::SeqCst))
    }
}

async fn answer(mut stream: TcpStream, (routers, engines): (Arc<AtomicUsize>, Arc<AtomicUsize>)) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
    let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let count = if request.contains("user-agent: sightline") { &routers } else { &engines };
    count.fetch_add(1, Ordering::SeqCst);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let numbers = path.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let numbers: Vec<u32> = numbers.collect();
    let [width, height, seed] = numbers[..] else { return };
    let body = Picture { width, height, seed: u8::try_from(seed).unwrap() }.bmp();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: image/bmp\r\netag: \"{seed}\"\r\ncache-control: max-age=3600\r\n\
        content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // A reader of the beginning closes early.
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(&body).await.is_ok() {
        stream.shutdown().await.ok();
    }
}

const fn picture(width: u32, seed: u8) -> Picture {
    Picture { width, height: 280, seed }
}

fn chat(url: &str, uuid: Option<&str>) -> Value {
    let text = "what is to be seen here, and why is it here at all, of all the places that there are?";
    let mut image = json!({"type": "image_url", "image_url": {"url": url}});
    if let Some(uuid) = uuid {
        image["uuid"] = json!(uuid);
    }
    let content = json!([image, {"type": "text", "text": text}]);
    json!({"model": "tiny-vl", "max_tokens": 2, "messages": [{"role": "user", "content": content}]})
}

/// Waits until one of a frontend's metrics has reached a value.
async fn reached(up: &Up, frontend: &str, metric: &str, wanted: f64) {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let text = up.http.get(format!("{frontend}/metrics")).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        if line.is_some_and(|value| value.parse::<f64>().is_ok_and(|value| value >= wanted)) {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{metric} never reached {wanted}:\n{text}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn explain(up: &Up, frontend: &str, body: &Value) -> Value {
    up.http.post(format!("{frontend}/v1/explain")).json(body).send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn what_one_frontend_fetched_the_other_need_not_ask_for() {
    let up = Up::start(&["--speed", "0", "--media-allow-net", "127.0.0.0/8"]).await;
    let origin = Origin::start().await;
    let body = chat(&origin.url(picture(280, 1)), None);
    let [one, two] = [&up.frontends[0], &up.frontends[1]];
    let first = send(&up, one, &body).await.unwrap();
    assert_eq!((first.promised_prompt, first.cached), (first.prompt, 0));
    reached(&up, two, "sightline_media_facts_heard", 1.0).await;
    settled(&up).await;

    let decision = explain(&up, two, &body).await;
    assert_eq!(origin.asked(), (1, 0), "{decision:#}");
    assert_eq!(decision["media"][0]["source"], "url-cached", "{decision:#}");
    assert_eq!(decision["fallback"], Value::Null);
    assert!(decision["predicted"]["cached_tokens"].as_u64().unwrap() >= 100, "{decision:#}");

    // To be handed over, the bytes must be here.
    let second = send(&up, two, &body).await.unwrap();
    assert_eq!(origin.asked(), (2, 0));
    assert_eq!((second.promised_prompt, second.promised_cached), (second.prompt, Some(second.cached)));
    assert!(second.cached >= 100, "{second:?}");
    assert_eq!(up.loud_lines(), Vec::<String>::new());
}

#[tokio::test]
async fn engines_names_for_images_are_learned_and_told() {
    let up =
        Up::start(&["--speed", "0", "--media-allow-net", "127.0.0.0/8", "--media-mode", "passthrough"]).await;
    let origin = Origin::start().await;
    let body = chat(&origin.url(picture(280, 1)), None);
    let [one, two] = [&up.frontends[0], &up.frontends[1]];
    let first = send(&up, one, &body).await.unwrap();
    // The image's size is known, and not its name: no credit past it.
    assert_eq!(first.promised_cached, None);
    let record = up.get(&format!("{one}/v1/explain/{}", first.request_id)).await;
    assert_eq!(record["fallback"], "media-unidentified", "{record:#}");
    let image = &record["media"][0];
    assert_eq!((&image["width"], &image["tokens"]), (&json!(280), &json!(100)), "{record:#}");
    assert_eq!(image["source"], "header");
    assert_eq!(origin.asked(), (1, 1));
    reached(&up, one, "sightline_media_names_learned", 1.0).await;
    reached(&up, two, "sightline_media_facts_heard", 2.0).await;
    settled(&up).await;

    for frontend in [two, one] {
        let again = send(&up, frontend, &body).await.unwrap();
        assert_eq!((again.promised_prompt, again.promised_cached), (again.prompt, Some(again.cached)));
        assert!(again.cached >= 100 && again.worker == first.worker, "{again:?}");
        let record = up.get(&format!("{frontend}/v1/explain/{}", again.request_id)).await;
        assert_eq!((&record["fallback"], &record["verdict"]), (&Value::Null, &json!("match")), "{record:#}");
    }
    assert_eq!(origin.asked(), (1, 3), "engines fetch each time, the frontends asked once in all");

    // A client's name never reaches the engine: two images of one name stay two.
    let named = [picture(280, 2), picture(560, 3)];
    let mut prompts = Vec::new();
    for picture in named {
        let outcome = send(&up, one, &chat(&origin.url(picture), Some("cat"))).await.unwrap();
        prompts.push(outcome.prompt);
    }
    assert_eq!(prompts[1] - prompts[0], 100, "twice as wide, so many more of 28 pixels each way");

    // What nobody may ask for reaches no engine either.
    let before = origin.asked();
    for url in ["http://10.0.0.1/i.bmp", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/i.bmp"] {
        let refused = send(&up, one, &chat(url, None)).await.unwrap_err();
        assert!(refused.starts_with("400") && refused.contains("media_url_refused"), "{refused}");
    }
    assert_eq!(origin.asked(), before);
    assert_eq!(up.loud_lines(), Vec::<String>::new());
}

#[tokio::test]
async fn hosts_are_treated_as_the_operator_says() {
    let up = Up::start(&[
        "--speed",
        "0",
        "--media-allow-net",
        "127.0.0.0/8",
        "--media-host",
        "localhost=never,127.0.0.1=probe",
        "--media-immutable-url",
        "http://*/280x280-9.bmp",
    ])
    .await;
    let origin = Origin::start().await;
    let frontend = &up.frontends[0];
    let untouched = format!("http://localhost:{}{}", origin.address.port(), picture(280, 1).path());
    let url = format!("{frontend}/v1/chat/completions");
    let answer = up.http.post(url).json(&chat(&untouched, None)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-sightline-fallback"], "media-unsized");
    assert_eq!(origin.asked(), (0, 1));

    // An image that never changes has a name from the start: the second request is predicted without any event.
    let body = chat(&origin.url(picture(280, 9)), None);
    let first = send(&up, frontend, &body).await.unwrap();
    assert_eq!((first.promised_prompt, first.promised_cached), (first.prompt, Some(first.cached)));
    assert!(first.cached < 100, "{first:?}");
    settled(&up).await;
    let second = send(&up, frontend, &body).await.unwrap();
    assert_eq!(second.promised_cached, Some(second.cached));
    assert!(second.cached >= 100, "{second:?}");
    assert_eq!(origin.asked(), (1, 3));
    assert_eq!(up.loud_lines(), Vec::<String>::new());
}

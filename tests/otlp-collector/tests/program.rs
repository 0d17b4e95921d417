//! The collector as a program: it answers, and ends when it is asked to.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(20);

async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: collector\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn the_program_shows_spans_and_ends_in_order() {
    let free = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [grpc, http] = free.each_ref().map(|listener| listener.local_addr().unwrap());
    drop(free);
    let mut program = Command::new(env!("CARGO_BIN_EXE_otlp-collector"))
        .args([format!("--listen={grpc}"), format!("--http-listen={http}")])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let health = timeout(DEADLINE, async {
        loop {
            match get(http, "/health").await {
                Ok(answer) => break answer,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
    .unwrap();
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    let spans = get(http, "/spans").await.unwrap();
    assert!(spans.ends_with("[]"), "{spans}");
    TcpStream::connect(grpc).await.unwrap();
    let id = program.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let status = timeout(DEADLINE, program.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

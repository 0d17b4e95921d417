//! Parts end while requests run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::chat::send;
use crate::settle::settled;
use crate::traffic::Traffic;
use crate::up::{DEADLINE, Up};

/// Finds the process of the engine that listens on a port.
fn engine_pid(up: &Up, engine: &str) -> i32 {
    let listen = format!("--listen={}", engine.trim_start_matches("http://"));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent =
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default().to_owned();
        if String::from_utf8_lossy(&line).split('\0').any(|arg| arg == listen)
            && parent == up.pid().to_string()
        {
            return pid;
        }
    }
    panic!("no process for {engine}:\n{}", up.log());
}

fn kill(pid: i32) {
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

async fn holder(up: &Up, frontend: &str, worker: &str) -> Option<Value> {
    let index = up.get(&format!("{frontend}/admin/workers")).await;
    index["workers"].as_array().unwrap().iter().find(|it| it["worker"] == worker).cloned()
}

async fn until<F: Future<Output = bool>>(what: &str, up: &Up, check: impl Fn() -> F) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !check().await {
        assert!(tokio::time::Instant::now() < end, "{what} did not happen:\n{}", up.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn prefix(body: &str) -> Value {
    let system = "one two three four five six seven eight nine ten ".repeat(40);
    json!({
        "model": "tiny-vl", "max_tokens": 2, "temperature": 0,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": body}],
    })
}

#[tokio::test]
async fn a_killed_engine_costs_no_request_that_had_not_begun_and_returns_without_stale_credit() {
    let up = Up::start(&["--engines-as-processes", "--speed", "2"]).await;
    let frontend = up.frontends[0].clone();
    let warmed = send(&up, &frontend, &prefix("warm")).await.unwrap();
    settled(&up).await;
    let victim = warmed.worker.clone();
    let index: usize = victim.trim_start_matches('w').parse().unwrap();
    let before = holder(&up, &frontend, &victim).await.unwrap()["incarnation"].clone();

    let stop = AtomicBool::new(false);
    let speakers = (0..12).map(|speaker: usize| {
        let (up, stop) = (&up, &stop);
        let mut traffic = Traffic::new(speaker as u64, None);
        async move {
            let mut failures = Vec::new();
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                let body = traffic.next_body("tiny-vl");
                sent += 1;
                match send(up, &up.frontends[speaker % 2], &body).await {
                    Ok(outcome) => traffic.answered(&outcome.content),
                    Err(why) => {
                        traffic.answered("");
                        failures.push(why);
                    }
                }
            }
            (sent, failures)
        }
    });
    let fault = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        kill(engine_pid(&up, &up.engines[index]));
        until("a new incarnation", &up, || async {
            let now = holder(&up, &frontend, &victim).await;
            now.is_some_and(|it| {
                it["incarnation"].is_string() && it["incarnation"] != before && it["agrees"] == true
            })
        })
        .await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (results, ()) = tokio::join!(join_all(speakers), fault);
    let sent: u64 = results.iter().map(|(sent, _)| sent).sum();
    let failures: Vec<String> = results.into_iter().flat_map(|(_, failures)| failures).collect();
    let begun =
        |why: &&String| why.starts_with("200 OK, cut off") || why.starts_with("the stream ended early");
    let unexplained: Vec<&String> = failures.iter().filter(|why| !begun(why)).collect();
    println!("{sent} requests, {} cut off while streaming", failures.len());
    assert!(unexplained.is_empty(), "failed before streaming began: {unexplained:#?}");

    settled(&up).await;
    let explained: Value = up
        .http
        .post(format!("{frontend}/v1/explain"))
        .json(&prefix("warm"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let candidates = explained["candidates"].as_array().unwrap();
    let returned = candidates.iter().find(|it| it["worker"] == victim.as_str()).unwrap();
    assert_eq!(returned["cached_blocks"], 0, "credit for a dead engine's blocks: {explained:#}");
}

#[tokio::test]
async fn an_interrupt_stops_everything_within_two_seconds() {
    let mut up = Up::start(&["--engines-as-processes"]).await;
    let frontend = up.frontends[0].clone();
    let engine = engine_pid(&up, &up.engines[0]);
    let long = json!({"model": "tiny-vl", "max_tokens": 2000, "stream": true, "ignore_eos": true,
                      "messages": [{"role": "user", "content": "talk"}]});
    let running = up.http.post(format!("{frontend}/v1/chat/completions")).json(&long).send().await.unwrap();
    assert!(running.status().is_success());
    let took = up.stop().await;
    assert!(took < Duration::from_secs(2), "took {took:?}:\n{}", up.log());
    assert!(!std::path::Path::new(&format!("/proc/{engine}")).exists(), "engine {engine} outlives `up`");
}

#[tokio::test]
async fn a_busy_port_is_one_clear_sentence() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let tried = std::process::Command::new(env!("CARGO_BIN_EXE_sightline"))
        .args([
            "up",
            "--port",
            &port.to_string(),
            "--frontends",
            "1",
            "--engine-port",
            "0",
            "--event-port",
            "0",
        ])
        .args(["--replay-port", "0", "--agent-port", "0", "--model-dir"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl"))
        .output()
        .unwrap();
    assert!(!tried.status.success());
    let said = String::from_utf8(tried.stderr).unwrap();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("sightline: ") && last.contains(&format!("127.0.0.1:{port}")), "{said}");
}

#[tokio::test]
async fn a_bad_model_directory_is_one_clear_sentence() {
    let tried = std::process::Command::new(env!("CARGO_BIN_EXE_sightline"))
        .args(["up", "--model-dir", "nowhere/at-all"])
        .output()
        .unwrap();
    assert!(!tried.status.success());
    let said = String::from_utf8(tried.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("nowhere/at-all"), "{said}");
}

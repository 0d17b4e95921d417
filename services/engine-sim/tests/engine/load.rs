use std::time::Duration;

use engine_sim::Config;
use futures::future::join_all;
use serde_json::json;

use crate::harness::{Engine, config, read, user};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_frees_its_blocks() {
    let engine = Engine::start(Config { speed: 1.0, ..config() }).await;
    for stream in [true, false] {
        let body = json!({"prompt": "Go on", "max_tokens": 30_000, "ignore_eos": true, "stream": stream});
        let waiting = engine.request("/v1/completions", &body).timeout(Duration::from_millis(300)).send();
        let response = waiting.await;
        if stream {
            assert!(response.unwrap().bytes().await.is_err());
        } else {
            assert!(response.is_err());
        }
        engine.metric_becomes("vllm:num_requests_running", 0.0).await;
        assert_eq!(engine.metric("vllm:kv_cache_usage_perc").await, 0.0);
    }
    assert_eq!(engine.metric("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"").await, 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_takes_the_time_that_the_rates_say() {
    let took = async |prefill_tokens_per_second: f64, speed: f64| {
        let rates = Config { prefill_tokens_per_second, decode_step_ms: 20.0, speed, ..config() };
        let engine = Engine::start(rates).await;
        let start = tokio::time::Instant::now();
        let prompt: Vec<u32> = (0..200).collect();
        let body = json!({"prompt": prompt, "max_tokens": 11});
        assert_eq!(engine.post("/v1/completions", &body).await.0, 200);
        start.elapsed()
    };
    // 200 ms of prefill and ten decode steps of 20 ms.
    assert!(took(1000.0, 1.0).await >= Duration::from_millis(400));
    assert!(took(1000.0, 4.0).await >= Duration::from_millis(100));
    // 200 s of prefill, which the client would not wait for.
    took(1.0, 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_on_a_small_pool_waits_and_is_served() {
    let engine = Engine::start(Config { kv_blocks: 40, max_num_seqs: 4, ..config() }).await;
    let answers = join_all((0..60_u32).map(|i| {
        let prompt: Vec<u32> = (0..100).map(|at| 100 + (at * (i % 7 + 1)) % 900).collect();
        let body = json!({"prompt": prompt, "max_tokens": 40, "stream": i % 2 == 0});
        read(engine.request("/v1/completions", &body))
    }));
    for (status, answer) in answers.await {
        assert_eq!(status, 200, "{answer}");
    }
    engine.metric_becomes("vllm:kv_cache_usage_perc", 0.0).await;
    assert_eq!(engine.metric("vllm:generation_tokens_total").await, 2400.0);
    let (status, error) = engine.chat(json!({"messages": [user("harbor ".repeat(700))]})).await;
    assert_eq!(
        (status, &error["error"]["param"]),
        (400, &json!("input_tokens")),
        "the pool bounds the context"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_more() {
    let slow = Config { speed: 1.0, max_num_seqs: 1, max_num_waiting: 1, ..config() };
    let engine = Engine::start(slow).await;
    let body =
        json!({"prompt": vec!["Go on"; 500], "max_tokens": 30_000, "ignore_eos": true, "stream": true});
    let send = || engine.request("/v1/completions", &body).send();
    let (first, second, third) = (send().await.unwrap(), send().await.unwrap(), send().await.unwrap());
    assert_eq!([&first, &second, &third].map(|answer| answer.status().as_u16()), [200, 200, 503]);
    drop((first, second, third));
    engine.metric_becomes("vllm:num_requests_waiting{", 0.0).await;
    engine.metric_becomes("vllm:num_requests_running", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_engine_breaks_off_its_streams() {
    let engine = Engine::start(Config { speed: 1.0, ..config() }).await;
    let body = json!({"prompt": "Go on", "max_tokens": 30_000, "ignore_eos": true, "stream": true});
    let response = engine.request("/v1/completions", &body).send().await.unwrap();
    let Engine { running, .. } = engine;
    let addr = running.addr;
    running.stop().await;
    assert!(response.text().await.is_err(), "a stream cut short looks complete");
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}

//! Workers that fail, and the end of a frontend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use ports::engine::memory::{Reply, Then};

use crate::rig::{Rig, chat, reply, whole};

#[tokio::test]
async fn a_request_that_has_not_begun_goes_to_another_worker() {
    for then in [Then::Refuse, Then::Break] {
        let mut rig = Rig::start().await;
        let tried = Arc::new(AtomicUsize::new(0));
        for name in ["w0", "w1"] {
            let tried = Arc::clone(&tried);
            rig.worker(name, move |_| {
                // Whoever is asked first fails, after the head at most.
                let first = tried.fetch_add(1, Ordering::SeqCst) == 0;
                let mut reply = reply(5, 0);
                if first {
                    reply.chunks.clear();
                    reply.then = then;
                }
                reply
            })
            .await;
        }
        let answer = rig.chat(&chat("hi")).await;
        assert_eq!(answer.status, StatusCode::OK, "{then:?} {:?}", answer.body);
        assert_eq!(tried.load(Ordering::SeqCst), 2, "{then:?}");
        let metrics = rig.get("/metrics").await;
        assert!(String::from_utf8_lossy(&metrics.body).contains("sightline_retries_total"), "{then:?}");
    }
}

#[tokio::test]
async fn a_named_worker_is_not_replaced() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(5, 0).then(Then::Refuse)).await;
    rig.worker("w1", |_| reply(5, 0)).await;
    let send = async |worker: &'static str| {
        let headers = [("x-sightline-worker", worker)];
        whole(rig.send(Method::POST, "/v1/chat/completions", &headers, &chat("hi")).await).await
    };
    let answer = send("w1").await;
    assert_eq!((answer.status, answer.header("x-sightline-reason")), (StatusCode::OK, Some("direct")));
    let answer = send("w0").await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_GATEWAY, "worker_failed"));
    let answer = send("w9").await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::NOT_FOUND, "worker_not_found"));
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event() {
    // Whether the engine's last event is complete or not.
    for sent in ["data: {}\n\n", "data: {\"choi"] {
        let mut rig = Rig::start().await;
        rig.worker("w0", move |_| Reply::events(&[sent]).then(Then::Break)).await;
        let answer = rig.chat(&chat("hi").replace("\"model\"", "\"stream\":true,\"model\"")).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let (first, last) = text.split_once("\n\n").unwrap();
        assert_eq!(first, sent.trim_end());
        assert!(last.starts_with("data: {\"error\":{\"message\"") && last.ends_with("\n\n"), "{last}");
        assert_eq!(rig.engine.seen().iter().filter(|(_, it)| it.path != "/health").count(), 1);
    }
}

#[tokio::test]
async fn a_request_of_which_two_workers_died_is_set_aside() {
    let mut rig = Rig::start().await;
    for name in ["w0", "w1", "w2"] {
        rig.worker(name, |_| {
            let mut reply = reply(5, 0);
            reply.chunks.clear();
            reply.then(Then::Break)
        })
        .await;
    }
    assert_eq!(rig.chat(&chat("poison")).await.status, StatusCode::BAD_GATEWAY);
    let tried = rig.bodies().len();
    assert_eq!(tried, 2);
    assert_eq!(rig.chat(&chat("poison")).await.code(), "request_quarantined");
    assert_eq!(rig.bodies().len(), tried);
}

#[tokio::test]
async fn an_engine_that_refuses_is_quoted() {
    let mut rig = Rig::start().await;
    let refusal = r#"{"error":{"message":"bad","type":"BadRequestError","param":null,"code":400}}"#;
    rig.worker("w0", move |_| Reply::json(StatusCode::BAD_REQUEST, refusal)).await;
    let answer = rig.chat(&chat("hi")).await;
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::BAD_REQUEST, refusal.as_bytes()));
}

#[tokio::test]
async fn the_end_lets_answers_finish() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| Reply::events(&["data: 1\n\n"]).then(Then::Hang)).await;
    let body = chat("hi").replace("\"model\"", "\"stream\":true,\"model\"");
    let mut response = rig.send(Method::POST, "/v1/chat/completions", &[], &body).await;
    response.body.frame().await.unwrap().unwrap();
    let mut stop = Box::pin(rig.frontend.stop());
    tokio::select! {
        () = &mut stop => panic!("an answer is still running"),
        () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
    }
    drop(response);
    tokio::time::timeout(crate::rig::SOON, stop).await.unwrap();
}

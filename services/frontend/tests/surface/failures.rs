//! Workers that fail, and the end of a frontend.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use identity::WorkerId;
use ports::engine::memory::{Reply, Then};

use crate::rig::{Rig, SOON, chat, reply, until, whole, worker_endpoint};

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
    tokio::time::timeout(SOON, stop).await.unwrap();
}

/// An engine that stops as a whole with the first request it gets, and one that serves; tells which one stopped.
async fn one_that_hangs(
    rig: &mut Rig,
    chunks: &'static [&'static str],
) -> impl Fn() -> Option<WorkerId> + use<> {
    let hung: Arc<OnceLock<&'static str>> = Arc::default();
    for name in ["w0", "w1"] {
        rig.worker(name, |_| reply(5, 0)).await;
        let stopped = Arc::clone(&hung);
        rig.engine.serve(&worker_endpoint(name), move |request| match request.path.path() {
            "/health" if stopped.get() == Some(&name) => Reply::events(&[]).then(Then::Hang),
            "/health" => Reply::json(StatusCode::OK, ""),
            _ if *stopped.get_or_init(|| name) == name => Reply::events(chunks).then(Then::Hang),
            _ => reply(5, 0),
        });
    }
    move || hung.get().map(|name| WorkerId::new(name))
}

const BEGUN: &[&str] = &["data: {}\n\n"];

/// Lets the directory find out by itself that a worker answers nobody.
async fn found_down(rig: &Rig, worker: &WorkerId) {
    rig.frontend.directory().failed(worker);
    let down = rig.frontend.directory().wait_for(|fleet| fleet.worker(worker).is_some_and(|it| it.is_down()));
    tokio::time::timeout(SOON, down).await.unwrap();
}

#[tokio::test]
async fn a_request_that_a_hung_engine_has_goes_to_another() {
    let mut rig = Rig::start().await;
    let hung = one_that_hangs(&mut rig, &[]).await;
    let body = chat("hi");
    let finding = async {
        until("nobody was asked", || hung().is_some()).await;
        found_down(&rig, &hung().unwrap()).await;
    };
    let (answer, ()) = tokio::join!(rig.chat(&body), finding);
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert_ne!(answer.header("x-sightline-worker"), Some(hung().unwrap().as_str()));
    assert_eq!(rig.bodies().len(), 2);
    until("the hung engine still has it", || rig.engine.cancelled() >= 1).await;
    let metrics = rig.get("/metrics").await;
    let line = "sightline_retries_total{reason=\"down\"} 1";
    assert!(String::from_utf8_lossy(&metrics.body).contains(line));
}

#[tokio::test]
async fn a_hung_engine_keeps_what_has_begun_or_may_not_go_elsewhere() {
    let stream = chat("hi").replace("\"model\"", "\"stream\":true,\"model\"");
    let plain = chat("hi");
    for begins in [true, false] {
        let (body, chunks) = if begins { (&stream, BEGUN) } else { (&plain, &[][..]) };
        let pinned = [("x-sightline-worker", "w0")];
        let headers = if begins { &[] } else { &pinned[..] };
        let mut rig = Rig::start().await;
        let hung = one_that_hangs(&mut rig, chunks).await;
        let mut answer = Box::pin(async {
            let mut response = rig.send(Method::POST, "/v1/chat/completions", headers, body).await;
            if !chunks.is_empty() {
                response.body.frame().await.unwrap().unwrap();
            }
            response.body.frame().await
        });
        let finding = async {
            until("nobody was asked", || hung().is_some()).await;
            found_down(&rig, &hung().unwrap()).await;
            // Further requests find that it is down, and go past it.
            assert_eq!(rig.chat(&plain).await.status, StatusCode::OK);
        };
        tokio::select! {
            ended = &mut answer => panic!("{body}: {ended:?}"),
            () = finding => {}
        }
        assert_eq!(rig.bodies().len(), 2, "{body}");
    }
}

#[tokio::test]
async fn a_request_waits_where_nobody_else_could_serve_it() {
    let mut rig = Rig::start().await;
    let hung = one_that_hangs(&mut rig, &[]).await;
    let body = chat("hi");
    let mut answer = Box::pin(rig.chat(&body));
    let finding = async {
        until("nobody was asked", || hung().is_some()).await;
        let other = if hung().unwrap().as_str() == "w0" { "w1" } else { "w0" };
        rig.engine.serve(&worker_endpoint(other), |_| reply(5, 0).then(Then::Refuse));
        rig.frontend.directory().refused(&WorkerId::new(other));
        found_down(&rig, &hung().unwrap()).await;
        assert_eq!(rig.bodies().len(), 1);
        // The other one is back: now it goes there.
        rig.engine.serve(&worker_endpoint(other), |_| reply(5, 0));
    };
    tokio::select! {
        answer = &mut answer => panic!("answered by {answer:?}"),
        () = finding => {}
    }
    assert_eq!(answer.await.status, StatusCode::OK);
}

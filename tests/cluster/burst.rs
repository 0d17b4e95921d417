//! Many requests with one new image at once.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::chat::post;
use crate::images::Picture;
use crate::processes::{Cluster, Shape};

const REQUESTS: u16 = 50;
const ENCODES_MAX: u64 = 2;

/// Asks about a picture; all requests are the same up to it, and `alike` ones to the end.
fn about(picture: Picture, number: u16, alike: bool) -> Value {
    let visitor = if alike { 0 } else { number };
    json!({
        "model": "tiny-vl", "max_tokens": 4, "temperature": 0,
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Look at this."},
            {"type": "image_url", "image_url": {"url": picture.data_uri()}},
            {"type": "text", "text": format!("What would visitor {visitor} see in it?")},
        ]}],
    })
}

async fn encoded(cluster: &Cluster) -> u64 {
    let figures = (0..cluster.engines.len())
        .map(|engine| cluster.engine_figure(engine, "engine_sim_images_encoded_total"));
    join_all(figures).await.iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_requests_with_one_new_image_have_it_encoded_at_most_twice() {
    let shape = Shape { frontends: 3, indexers: 0, workers: 6, engine: "--speed 1", ..Shape::default() };
    let cluster = Cluster::shaped(shape).await;
    for (round, alike) in (0_u8..).zip([true, false, true, false]) {
        let picture = Picture { width: 280, height: 196, seed: 100 + round };
        let before = encoded(&cluster).await;
        let requests = (0..REQUESTS).zip(cluster.frontends.iter().cycle()).map(async |(number, frontend)| {
            post(&cluster.http, frontend, &about(picture, number, alike), None).await
        });
        let answers = join_all(requests).await;
        let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(failed.is_empty(), "{failed:#?}\n{}", cluster.log());
        let encodes = encoded(&cluster).await - before;
        println!("round {round}: {encodes} encodes of one image for {REQUESTS} requests, alike: {alike}");
        assert!((1..=ENCODES_MAX).contains(&encodes), "{encodes} encodes\n{}", cluster.log());
        cluster.settled().await;
        cluster.idle().await;
    }
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
}

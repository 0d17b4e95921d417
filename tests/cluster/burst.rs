//! Many requests with one new image at once.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::chat::post;
use crate::images::Picture;
use crate::processes::{Cluster, Shape};

const REQUESTS: u16 = 50;
const ENCODES_MAX: u64 = 2;

/// How much of the fifty requests is the same.
#[derive(Clone, Copy, Debug)]
enum Shared {
    Everything,
    /// All up to the image, and the image.
    Beginning,
    /// The image, whatever stands before it.
    Image,
}

/// Asks about a picture.
fn about(picture: Picture, number: u16, shared: Shared) -> Value {
    let (guide, visitor) = match shared {
        Shared::Everything => (0, 0),
        Shared::Beginning => (0, number),
        Shared::Image => (number, number),
    };
    json!({
        "model": "tiny-vl", "max_tokens": 4, "temperature": 0,
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": format!("Guide {guide} says: look at this.")},
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
    for (round, shared) in (0_u8..).zip([Shared::Everything, Shared::Beginning, Shared::Image]) {
        let picture = Picture { width: 280, height: 196, seed: 100 + round };
        let before = encoded(&cluster).await;
        let requests = (0..REQUESTS).zip(cluster.frontends.iter().cycle()).map(async |(number, frontend)| {
            post(&cluster.http, frontend, &about(picture, number, shared), None).await
        });
        let answers = join_all(requests).await;
        let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(failed.is_empty(), "{failed:#?}\n{}", cluster.log());
        let encodes = encoded(&cluster).await - before;
        println!("{encodes} encodes of one image for {REQUESTS} requests that share {shared:?}");
        assert!((1..=ENCODES_MAX).contains(&encodes), "{encodes} encodes\n{}", cluster.log());
        cluster.settled().await;
        cluster.idle().await;
    }
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
}

//! Mixed traffic: what is predicted is what the engines report.

use futures::StreamExt;

use crate::chat::{Outcome, send};
use crate::images::PictureServer;
use crate::settle::{idle, settled};
use crate::traffic::{PICTURES, Seeded, Traffic};
use crate::up::Up;

const SEED: u64 = 20_261_129;
/// Long enough that no busy machine makes a request go without what is known of its images.
const PATIENT: &str = "60000";
/// Small enough that traffic evicts all the time.
const POOL: &str = "400";

#[tokio::test]
async fn one_at_a_time_every_prediction_is_exact() {
    let up = start(POOL).await;
    let pictures = PictureServer::start(&PICTURES).await;
    let mut traffic = Traffic::new(SEED, Some(format!("http://{}", pictures.address)));
    let mut coin = Seeded::new(SEED);
    let (mut hits, mut wrong) = (0, Vec::new());
    for _ in 0..500 {
        settled(&up).await;
        let body = traffic.next_body("tiny-vl");
        let frontend = &up.frontends[coin.below(2)];
        let outcome = send(&up, frontend, &body).await.unwrap();
        traffic.answered(&outcome.content);
        hits += u64::from(outcome.cached > 0);
        if !exact(&outcome) {
            let why = up.get(&format!("{frontend}/v1/explain/{}", outcome.request_id)).await;
            wrong.push(format!("{outcome:?}\n{why:#}"));
        }
    }
    println!("{hits} of 500 requests hit the cache");
    assert!(hits > 250, "only {hits} hits: the traffic proves little");
    assert!(wrong.is_empty(), "{} of 500 predictions are wrong: {}", wrong.len(), wrong.join("\n"));
    settled(&up).await;
    idle(&up).await;
    assert_eq!(up.loud_lines(), Vec::<String>::new());
}

#[tokio::test]
async fn with_32_in_flight_prompts_are_exact_and_replicas_agree_afterwards() {
    const REQUESTS: usize = 2000;
    const IN_FLIGHT: usize = 32;
    let up = start("2048").await;
    let pictures = PictureServer::start(&PICTURES).await;
    let origin = format!("http://{}", pictures.address);
    let speakers = (0..IN_FLIGHT).map(|speaker| {
        let up = &up;
        let mut traffic = Traffic::new(SEED + speaker as u64, Some(origin.clone()));
        let mut coin = Seeded::new(speaker as u64);
        async move {
            let mut outcomes = Vec::new();
            for _ in 0..REQUESTS.div_ceil(IN_FLIGHT) {
                let frontend = &up.frontends[coin.below(2)];
                let body = traffic.next_body("tiny-vl");
                let outcome = send(up, frontend, &body).await.unwrap();
                traffic.answered(&outcome.content);
                outcomes.push((frontend.clone(), outcome));
            }
            outcomes
        }
    });
    let outcomes: Vec<_> =
        futures::stream::iter(speakers).buffer_unordered(IN_FLIGHT).collect::<Vec<_>>().await.concat();
    let prompts_wrong: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| outcome.promised_prompt != outcome.prompt).collect();
    assert!(prompts_wrong.is_empty(), "{prompts_wrong:#?}");
    let cached_wrong: Vec<_> = outcomes.iter().filter(|(_, outcome)| !exact(outcome)).collect();
    println!(
        "{} of {} cached-token predictions are exact",
        outcomes.len() - cached_wrong.len(),
        outcomes.len()
    );
    for (frontend, outcome) in cached_wrong.iter().take(20) {
        let why = up.get(&format!("{frontend}/v1/explain/{}", outcome.request_id)).await;
        println!("{outcome:?}: verdict {}", why["verdict"]);
    }
    settled(&up).await;
    idle(&up).await;
    assert!(cached_wrong.len() * 10 <= outcomes.len(), "{} predictions are wrong", cached_wrong.len());
    assert_eq!(up.loud_lines(), Vec::<String>::new());
}

async fn start(kv_blocks: &str) -> Up {
    let pictures = ["--media-allow-net", "127.0.0.0/8", "--media-budget-ms", PATIENT];
    Up::start(&[&["--speed", "0", "--kv-blocks", kv_blocks], &pictures[..]].concat()).await
}

/// A prediction without credit counts as zero tokens.
fn exact(outcome: &Outcome) -> bool {
    outcome.promised_prompt == outcome.prompt && outcome.promised_cached.unwrap_or(0) == outcome.cached
}

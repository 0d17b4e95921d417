//! Frontends that show each other their load.

use std::time::Duration;

use placement::Work;
use ports::bus::Link;
use ports::memory_bus::Faults;

use crate::town::{Town, holder, model, pass};

const WORK: Work =
    Work { cached_blocks: 0, cached_tokens: 0, prefill_tokens: 320, encode_tokens: 40, prompt_blocks: 20 };

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_within_50_ms() {
    let town = Town::new("board-change").await;
    let (ours, ledger) = town.board("a", town.bus.attach()).await;
    let (theirs, _) = town.board("b", town.bus.attach()).await;
    pass(1_500).await;
    let w0 = holder("w0");
    let reservation = ledger.gauge(&model(), &w0).reserve(&WORK);
    pass(50).await;
    let seen = theirs.peers().total(&w0);
    assert_eq!(
        (seen.active_requests, seen.prefill_tokens, seen.media_tokens, seen.decode_blocks),
        (1, 320, 40, 20)
    );
    assert_eq!(ours.peers().total(&w0).active_requests, 0, "own load is not a peer's");
    assert_eq!(theirs.peers().readings().map(|(name, _, _)| name.to_owned()).collect::<Vec<_>>(), ["a"]);
    drop(reservation);
    pass(50).await;
    assert!(theirs.peers().total(&w0).is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_silent_frontend_is_dropped_after_3_s() {
    let town = Town::new("board-silence").await;
    let (theirs, _) = town.board("b", town.bus.attach()).await;
    let (_ours, ledger) = town.board("a", town.bus.attach()).await;
    let w0 = holder("w0");
    let _reservation = ledger.gauge(&model(), &w0).reserve(&WORK);
    pass(1_500).await;
    town.node.retire("load-board/a").await.unwrap();
    pass(1_900).await;
    assert_eq!(theirs.peers().total(&w0).active_requests, 1);
    pass(1_500).await;
    assert_eq!((theirs.peers().total(&w0).active_requests, theirs.peers().count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_last_values_stand_while_the_own_link_is_down() {
    let town = Town::new("board-link").await;
    let own = town.bus.attach();
    let (theirs, _) = town.board("b", own.clone()).await;
    let (_ours, ledger) = town.board("a", town.bus.attach()).await;
    let w0 = holder("w0");
    let reservation = ledger.gauge(&model(), &w0).reserve(&WORK);
    pass(1_500).await;
    own.set_link(Link::Down);
    drop(reservation);
    pass(20_000).await;
    assert_eq!(theirs.peers().total(&w0).active_requests, 1, "frozen");
    own.set_link(Link::Up);
    pass(1_500).await;
    assert_eq!((theirs.peers().total(&w0).active_requests, theirs.peers().count()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn loss_and_restarts_heal() {
    let town = Town::new("board-loss").await;
    let (theirs, _) = town.board("b", town.bus.attach()).await;
    let (_ours, ledger) = town.board("a", town.bus.attach()).await;
    let faults = Faults {
        drop_permille: 300,
        duplicate_permille: 200,
        reorder_permille: 200,
        delay_max: Duration::from_millis(30),
        seed: 11,
    };
    town.bus.set_faults(faults);
    let w0 = holder("w0");
    let mut live = Vec::new();
    for round in 0..200_u64 {
        live.push(ledger.gauge(&model(), &w0).reserve(&WORK));
        if round % 3 == 0 {
            live.remove(0);
        }
        if round == 100 {
            assert!(town.node.kill("load-board/b"));
            assert!(town.node.kill("load-board/a"));
        }
        pass(17).await;
    }
    town.bus.set_faults(Faults::default());
    pass(1_200).await;
    assert_eq!(theirs.peers().total(&w0).active_requests as usize, live.len());
    live.clear();
    pass(60).await;
    assert!(theirs.peers().total(&w0).is_idle());
}

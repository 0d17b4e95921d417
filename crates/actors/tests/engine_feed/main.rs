//! The engine feed with everything around it in memory, on paused time.

mod chaos;
mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use identity::Incarnation;
use membership::{Change, Run};
use rig::{Replica, Rig, keys, removed, stored};
use tokio::time::sleep;
use wire::sync::{Refusal, Request, Response};

#[tokio::test(start_paused = true)]
async fn batches_become_deltas_and_beats() {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2, 3]));
    rig.publish(stored(Some(2), &[4]));
    rig.publish(removed(&[3]));
    let beat = replica.agrees(|beat| beat.seq == 3).await;
    assert_eq!(replica.set(), keys(&[1, 2, 4]).into_iter().collect());
    assert_eq!((beat.running, beat.engine_healthy, beat.incarnation.started_ms), (3, true, 1_000_000));
    assert!((beat.coverage - 1.0).abs() < f32::EPSILON);
    assert_eq!(agent.handle.status().blocks, 3);
    *rig.started_s.lock() = None;
    replica.agrees(|beat| !beat.engine_healthy && beat.running == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_cached_before_the_agent_came_is_replayed() {
    let rig = Rig::new(100);
    rig.publish(stored(None, &[1, 2, 3]));
    rig.publish(removed(&[3]));
    let mut replica = rig.replica().await;
    let _agent = rig.agent(0).await;
    let beat = replica.agrees(|beat| beat.seq == 2).await;
    assert!((beat.coverage - 1.0).abs() < f32::EPSILON);
    assert_eq!(replica.set(), keys(&[1, 2]).into_iter().collect());
}

#[tokio::test(start_paused = true)]
async fn holes_are_filled_by_replay() {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1]));
    agent.applied(1).await;
    rig.publisher.lose(stored(Some(1), &[2]));
    rig.publisher.lose(stored(Some(2), &[3]));
    rig.publish(stored(Some(3), &[4]));
    rig.publish(stored(Some(4), &[5]));
    let status = agent.applied(5).await;
    assert_eq!((status.tally.gaps, status.tally.losses, status.tally.lives), (1, 0, 1));
    replica.agrees(|beat| beat.seq == 5).await;
    assert_eq!(replica.set(), keys(&[1, 2, 3, 4, 5]).into_iter().collect());
}

#[tokio::test(start_paused = true)]
async fn a_lost_last_batch_is_found_in_silence() {
    let rig = Rig::new(100);
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1]));
    agent.applied(1).await;
    rig.publisher.lose(stored(Some(1), &[2]));
    assert_eq!(agent.applied(2).await.blocks, 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_no_longer_has_is_lost_and_said() {
    let rig = Rig::new(2);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    agent.applied(1).await;
    rig.publisher.lose(removed(&[2]));
    rig.publisher.lose(stored(Some(1), &[3]));
    rig.publisher.lose(stored(None, &[7]));
    rig.publish(stored(Some(7), &[8]));
    let status = agent.wait(|status| status.tally.losses == 1 && status.blocks == 2).await;
    assert!(status.coverage < 0.1, "of 100 blocks, 2 are known: {}", status.coverage);
    replica.agrees(|beat| beat.seq == status.seq).await;
    assert_eq!(replica.set(), keys(&[7, 8]).into_iter().collect(), "nothing stale is credited");
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_replay_is_followed() {
    let rig = Rig::new(0);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    agent.wait(|status| status.caught_up).await;
    rig.publish(stored(None, &[1, 2]));
    rig.publish(stored(Some(2), &[3]));
    let status = agent.applied(2).await;
    assert!((status.coverage - 1.0).abs() < f64::EPSILON, "the first batch of all was seen");
    rig.publisher.lose(stored(Some(3), &[4]));
    rig.publish(stored(Some(4), &[5]));
    rig.publish(stored(None, &[7]));
    let status = agent.applied(4).await;
    assert!(status.tally.losses >= 1 && status.coverage < 0.1);
    replica.agrees(|beat| beat.seq == status.seq).await;
    assert_eq!(replica.set(), keys(&[7]).into_iter().collect());
}

/// Runs an engine's restart, as the link, or the metrics, or only the replay tells of it.
async fn check_engine_restart(restart: impl FnOnce(&Rig), after: impl FnOnce(&Rig)) {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    let before = replica.agrees(|beat| beat.seq == 1).await;
    restart(&rig);
    let status = agent.wait(|status| status.tally.lives == 2 && status.caught_up).await;
    assert_eq!((status.blocks, status.seq), (0, 0), "nothing is credited to the new process");
    assert!(status.incarnation > Some(before.incarnation));
    after(&rig);
    rig.publish(stored(None, &[7]));
    let beat = replica.agrees(|beat| beat.incarnation > before.incarnation && beat.seq == 1).await;
    assert_eq!(replica.set(), keys(&[7]).into_iter().collect());
    assert!((beat.coverage - 1.0).abs() < f32::EPSILON);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(agent.handle.status().tally.lives, 2, "one restart is one life");
}

#[tokio::test(start_paused = true)]
async fn an_engine_restart_is_seen_on_the_link() {
    let restart = |rig: &Rig| {
        *rig.started_s.lock() = Some(2000);
        rig.publisher.restart();
    };
    check_engine_restart(restart, |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_engines_restart_is_seen_in_its_metrics() {
    check_engine_restart(
        |rig| {
            rig.publisher.restart_unnoticed();
            *rig.started_s.lock() = Some(2000);
        },
        |_| {},
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_engines_restart_is_seen_without_metrics_of_it() {
    check_engine_restart(
        |rig| {
            rig.publisher.restart_unnoticed();
            rig.hides_start.store(true, Ordering::Relaxed);
        },
        |_| {},
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_seen_while_the_engine_does_not_answer_yet() {
    let rig = Rig::new(100);
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    agent.applied(1).await;
    *rig.started_s.lock() = None;
    rig.publisher.restart();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(agent.handle.status().tally.lives, 1, "who the engine is cannot be known");
    *rig.started_s.lock() = Some(2000);
    let status = agent.wait(|status| status.tally.lives == 2 && status.caught_up).await;
    assert_eq!(status.incarnation.map(|life| life.started_ms), Some(2_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_lifes_first_batches_are_of_the_process_that_was_asked_after_them() {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    agent.wait(|status| status.caught_up).await;
    rig.publisher.restart_unnoticed();
    *rig.started_s.lock() = Some(2000);
    rig.publish(stored(None, &[7]));
    replica.agrees(|beat| beat.incarnation.started_ms == 2_000_000 && beat.seq == 1).await;
    assert_eq!(replica.lives, [2_000_000].into(), "nothing is credited to the process before");
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_process_left_unread_is_credited_to_no_later_one() {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    agent.wait(|status| status.caught_up).await;
    *rig.started_s.lock() = None;
    rig.publish(stored(None, &[1]));
    sleep(Duration::from_secs(1)).await;
    // The feed waits for the engine to say who it is; this would follow the next process's first batch.
    rig.publish(stored(None, &[2]));
    rig.publisher.restart_unnoticed();
    *rig.started_s.lock() = Some(2000);
    rig.publisher.lose(stored(None, &[7]));
    replica.agrees(|beat| beat.incarnation.started_ms == 2_000_000 && beat.seq == 1).await;
    sleep(Duration::from_secs(10)).await;
    let status = agent.handle.status();
    assert_eq!((status.tally.lives, status.seq, status.blocks), (2, 1, 1));
    assert_eq!((replica.lives, replica.keys.len()), ([2_000_000].into(), 1));
}

#[tokio::test(start_paused = true)]
async fn a_first_replay_is_of_the_process_that_was_asked_after_it() {
    let rig = Rig::new(100);
    rig.publish(stored(None, &[7]));
    *rig.restarts_at.lock() = Some(2000);
    let mut replica = rig.replica().await;
    let _agent = rig.agent(0).await;
    replica.agrees(|beat| beat.incarnation.started_ms == 2_000_000 && beat.seq == 1).await;
    assert_eq!(replica.lives, [2_000_000].into());
}

#[tokio::test(start_paused = true)]
async fn a_replay_without_the_last_batch_is_of_the_process_that_was_asked_after_it() {
    let rig = Rig::new(2);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1]));
    let before = replica.agrees(|beat| beat.seq == 1).await;
    rig.publisher.restart_unnoticed();
    *rig.started_s.lock() = Some(2000);
    for block in 10..13 {
        rig.publisher.lose(stored(None, &[block]));
    }
    rig.publish(stored(None, &[13]));
    let status = agent.wait(|status| status.tally.losses == 1).await;
    assert!(status.incarnation > Some(before.incarnation), "history is lost of the new process");
    replica.agrees(|beat| beat.seq == status.seq && beat.blocks == 2).await;
    assert_eq!(replica.set(), keys(&[12]).into_iter().chain(keys(&[13])).collect());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_buffers_nothing_is_followed_from_where_it_is() {
    for buffer_max in [0, 1] {
        let rig = Rig::new(buffer_max);
        (0..5).for_each(|block| rig.publish(stored(None, &[block])));
        let agent = rig.agent(0).await;
        agent.wait(|status| status.caught_up).await;
        rig.publish(stored(None, &[7]));
        let status = agent.wait(|status| status.caught_up && status.engine_seq == Some(5)).await;
        assert!(status.blocks > 0 && status.coverage < 0.1 && status.tally.lives == 1, "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_actor_goes_on_where_it_was() {
    let rig = Rig::new(1000);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    for block in 0..50 {
        rig.publish(stored(None, &[block]));
    }
    let before = replica.agrees(|beat| beat.seq == 50).await;
    sleep(Duration::from_secs(6)).await;
    // Behind the checkpoint: published once already, and again after the restart, under the same numbers.
    for block in 50..60 {
        rig.publish(stored(None, &[block]));
    }
    agent.wait(|status| status.seq == 60).await;
    assert!(agent.node.kill("engine-feed/m/1/w0/0"));
    rig.publish(removed(&[0]));
    let after = replica.agrees(|beat| beat.seq == 61).await;
    assert_eq!(after.incarnation, before.incarnation);
    assert_eq!((after.blocks, agent.handle.status().tally.lives), (59, 1));
    assert_eq!(agent.handle.status().tally.batches, 11, "only what the checkpoint does not have");
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_saves_everything() {
    let rig = Rig::new(1000);
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    let before = agent.applied(1).await;
    assert_eq!(agent.handle.save(Duration::from_secs(5)).await, Ok(true));
    agent.crash().await;
    let again = rig.agent(1).await;
    let after = again.wait(|status| status.caught_up).await;
    assert_eq!((after.incarnation, after.seq, after.blocks), (before.incarnation, 1, 2));
    assert_eq!(after.tally.batches, 0, "nothing was replayed twice");
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_memory_begins_a_later_life() {
    let rig = Rig::new(1000);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0xf_ffff).await;
    rig.publish(stored(None, &[1, 2]));
    let before = replica.agrees(|beat| beat.seq == 1).await;
    agent.crash().await;
    let rig = Rig { store: std::sync::Arc::default(), ..rig };
    let _again = rig.agent(0).await;
    let after = replica.agrees(|beat| beat.incarnation != before.incarnation).await;
    assert!(after.incarnation > before.incarnation);
    assert_eq!((after.blocks, replica.set()), (2, keys(&[1, 2]).into_iter().collect()));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_fill_what_it_missed_begins_a_later_life() {
    let rig = Rig::new(2);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    let before = replica.agrees(|beat| beat.seq == 1).await;
    assert_eq!(agent.handle.save(Duration::from_secs(5)).await, Ok(true));
    agent.crash().await;
    for block in 10..20 {
        rig.publish(stored(None, &[block]));
    }
    let _again = rig.agent(1).await;
    let after = replica.agrees(|beat| beat.incarnation > before.incarnation && beat.blocks == 2).await;
    assert_eq!(after.incarnation.started_ms, before.incarnation.started_ms, "it is the same engine");
    assert!(after.coverage < 0.1, "and mostly unknown");
    let known = keys(&[18]).into_iter().chain(keys(&[19])).collect();
    assert_eq!(replica.set(), known);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_restarted_while_the_agent_was_away_is_another() {
    let rig = Rig::new(100);
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    let before = agent.applied(1).await;
    assert_eq!(agent.handle.save(Duration::from_secs(5)).await, Ok(true));
    agent.crash().await;
    rig.publisher.restart();
    *rig.started_s.lock() = Some(2000);
    rig.publish(stored(None, &[7]));
    let again = rig.agent(1).await;
    let after = again.wait(|status| status.caught_up && status.tally.lives == 2).await;
    assert!(after.incarnation > before.incarnation);
    assert_eq!(after.blocks, 1);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_checkpoint_is_no_checkpoint() {
    use ports::StateStore as _;
    let rig = Rig::new(100);
    rig.store.save("engine-feed/m/1/w0/0", bytes::Bytes::from_static(b"slck\x01nonsense")).await.ok();
    rig.publish(stored(None, &[1, 2]));
    let agent = rig.agent(0).await;
    assert_eq!(agent.applied(1).await.blocks, 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_succeeds_a_later_one_that_is_gone() {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    rig.publish(stored(None, &[1, 2]));
    let before = replica.agrees(|beat| beat.seq == 1).await;
    let present = |life| Response::Refused(Refusal::Incarnation { present: life });
    let own = Request::Succeed { silent: before.incarnation };
    assert!(!rig.is_answered(&own).await, "only a later life is an answer");
    let silent = Incarnation { nonce: before.incarnation.nonce + (60_000 << 20), ..before.incarnation };
    assert!(
        !rig.is_answered(&Request::Range { incarnation: silent, from: 1 }).await,
        "that is for the other to answer"
    );
    let answer = rig.ask(&Request::Succeed { silent }).await;
    let status = agent.handle.status();
    let Some(life) = status.incarnation else { unreachable!("the engine has answered") };
    assert!(life > silent && life.started_ms == silent.started_ms, "{life}");
    assert_eq!(answer, present(life));
    assert_eq!((status.blocks, status.tally.lives), (2, 1), "nothing known is lost");
    let beat = rig.next_beat().await;
    assert_eq!((beat.incarnation, beat.seq, beat.blocks), (life, 1, 2));
}

fn expand(runs: &[Run], replica: &mut Replica) {
    for run in runs {
        let mut parent = run.parent;
        for key in &run.keys {
            replica.keys.insert(*key, parent);
            parent = Some(*key);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_get_ranges_buckets_and_copies() {
    let rig = Rig::new(100);
    let mut replica = rig.replica().await;
    let agent = rig.agent(0).await;
    for block in 0..20 {
        rig.publish(stored(None, &[block, 100 + block, 200 + block]));
    }
    let beat = replica.agrees(|beat| beat.seq == 20).await;
    let incarnation = beat.incarnation;

    let Response::Range { deltas } = rig.ask(&Request::Range { incarnation, from: 18 }).await else {
        unreachable!("the ring has the range")
    };
    assert_eq!(deltas.iter().map(|delta| delta.seq).collect::<Vec<_>>(), [18, 19, 20]);
    assert!(
        deltas
            .iter()
            .all(|delta| matches!(&delta.changes[..], [Change::Stored { keys, .. }] if keys.len() == 3))
    );
    for from in [0, 21] {
        assert_eq!(
            rig.ask(&Request::Range { incarnation, from }).await,
            Response::Refused(Refusal::Forgotten)
        );
    }
    let older = Incarnation { started_ms: 1, nonce: 1 };
    let refused = Response::Refused(Refusal::Incarnation { present: incarnation });
    assert_eq!(rig.ask(&Request::Open { incarnation: older }).await, refused);

    let Response::Digest { seq: 20, digest, .. } = rig.ask(&Request::Digest).await else {
        unreachable!("the agent stands at 20")
    };
    assert_eq!(digest.fold(), beat.digest);

    let mut repaired = rig.replica().await;
    let empty = identity::KeySetDigest::default();
    let Response::Buckets { seq: 20, runs, .. } =
        rig.ask(&Request::Buckets { incarnation, digest: empty }).await
    else {
        unreachable!("60 keys fit")
    };
    expand(&runs, &mut repaired);
    assert_eq!(repaired.keys, replica.keys);

    let Response::Opened(copy) = rig.ask(&Request::Open { incarnation }).await else {
        unreachable!("copied")
    };
    rig.publish(removed(&[219]));
    agent.wait(|status| status.seq == 21).await;
    let mut joined = rig.replica().await;
    for index in 0..copy.chunks {
        let Response::Chunk { runs } = rig.ask(&Request::Chunk { snapshot: copy.id, index }).await else {
            unreachable!("the copy lives 10 s")
        };
        expand(&runs, &mut joined);
    }
    assert_eq!((copy.seq, copy.blocks, &joined.keys), (20, 60, &replica.keys), "a copy does not change");
    let Response::Opened(shared) = rig.ask(&Request::Open { incarnation }).await else {
        unreachable!("copied")
    };
    assert_eq!(shared.id, copy.id, "replicas that join together share a copy");
    sleep(Duration::from_secs(11)).await;
    let chunk = Request::Chunk { snapshot: copy.id, index: 0 };
    assert_eq!(rig.ask(&chunk).await, Response::Refused(Refusal::NoSnapshot));
}

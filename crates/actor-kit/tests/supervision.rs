//! A node of real actors: calls, bounds, deaths and restarts.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Me, Node, Reply, Spec, address, node};
use tokio::sync::Notify;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Args {
    lives: Arc<AtomicU64>,
    gate: Arc<Notify>,
    startable: bool,
}

impl Args {
    fn new() -> Self {
        Self { lives: Arc::default(), gate: Arc::default(), startable: true }
    }
}

enum Msg {
    Add(u64, Reply<u64>),
    Block(Reply<()>),
    Panic,
    Fail,
    Work(Duration, bool, Reply<Result<u64, Failed>>),
    Worked(Result<u64, Failed>, Reply<Result<u64, Failed>>),
    Tick,
    Ticks(Reply<u64>),
}

struct Counter {
    args: Args,
    sum: u64,
    ticks: u64,
    children: Children<Msg>,
}

impl Actor for Counter {
    type Msg = Msg;
    type Args = Args;

    fn begin(me: Me<Msg>, args: Args) -> Result<Self, Fault> {
        if !args.startable {
            return Err("not startable".into());
        }
        args.lives.fetch_add(1, Ordering::SeqCst);
        let mut children = Children::new(me, 2);
        drop(children.tick(SECOND, || Msg::Tick)?);
        Ok(Self { args, sum: 0, ticks: 0, children })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Add(n, reply) => {
                self.sum += n;
                reply.send(self.sum);
            }
            Msg::Block(reply) => {
                self.args.gate.notified().await;
                reply.send(());
            }
            Msg::Panic => panic!("told to"),
            Msg::Fail => return Err("told to fail".into()),
            Msg::Work(deadline, panics, reply) => {
                let work = async move {
                    tokio::time::sleep(SECOND).await;
                    assert!(!panics, "told to");
                    7
                };
                drop(self.children.run(deadline, work, |done| Msg::Worked(done, reply))?);
            }
            Msg::Worked(done, reply) => reply.send(done),
            Msg::Tick => self.ticks += 1,
            Msg::Ticks(reply) => reply.send(self.ticks),
        }
        Ok(())
    }
}

async fn counter(node: &Node, args: Args) -> Address<Msg> {
    node.supervise::<Counter>(Spec::new("counter/a", 2), args).await.unwrap()
}

async fn add(address: &Address<Msg>, n: u64) -> Result<u64, address::Error> {
    address.call(MINUTE, |reply| Msg::Add(n, reply)).await
}

/// Waits until a life that has counted nothing answers.
async fn settled(address: &Address<Msg>) {
    while add(address, 0).await != Ok(0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_comes_back_from_every_death() {
    let node = Node::start("deaths");
    let args = Args::new();
    let address = counter(&node, args.clone()).await;
    assert_eq!(add(&address, 2).await, Ok(2));
    assert!(node.kill("counter/a"));
    settled(&address).await;
    address.tell(MINUTE, Msg::Panic).await.unwrap();
    settled(&address).await;
    address.tell(MINUTE, Msg::Fail).await.unwrap();
    settled(&address).await;
    assert!(node.kill("supervisor"));
    settled(&address).await;
    assert_eq!(add(&address, 3).await, Ok(3));
    assert_eq!(args.lives.load(Ordering::SeqCst), 5);
    assert_eq!(node.actors(), ["counter/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_hand_fails_at_once_when_its_actor_dies() {
    let node = Node::start("in-hand");
    let address = counter(&node, Args::new()).await;
    let blocked = address.call(MINUTE, Msg::Block);
    let killer = async {
        tokio::task::yield_now().await;
        assert!(node.kill("counter/a"));
    };
    let (outcome, ()) = tokio::join!(blocked, killer);
    assert_eq!(outcome, Err(address::Error::Died { actor: "counter/a".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn a_mailbox_is_bounded_and_calls_have_deadlines() {
    let node = Node::start("bounds");
    let args = Args::new();
    let address = counter(&node, args.clone()).await;
    let timeout = |deadline| address::Error::Timeout { actor: "counter/a".to_owned(), deadline };
    assert_eq!(address.call(SECOND, Msg::Block).await, Err(timeout(SECOND)));
    // The actor still blocks: two messages fit, a third does not, and waiting for a place ends by the deadline.
    assert!(address.offer(Msg::Tick).is_ok());
    assert!(address.offer(Msg::Tick).is_ok());
    let refused = address.offer(Msg::Tick).unwrap_err();
    assert_eq!(refused.why, address::Error::Full { actor: "counter/a".to_owned() });
    assert_eq!(address.call(SECOND, |reply| Msg::Add(1, reply)).await, Err(timeout(SECOND)));
    args.gate.notify_one();
    assert_eq!(add(&address, 5).await, Ok(5), "a call that timed out before it was delivered is not handled");
}

#[tokio::test(start_paused = true)]
async fn children_report_success_deadline_and_panic() {
    let node = Node::start("children");
    let address = counter(&node, Args::new()).await;
    let work = async |deadline, panics| {
        address.call(MINUTE, |reply| Msg::Work(deadline, panics, reply)).await.unwrap()
    };
    assert_eq!(work(MINUTE, false).await, Ok(7));
    assert_eq!(work(SECOND / 2, false).await, Err(Failed::Deadline { deadline: SECOND / 2 }));
    assert_eq!(work(MINUTE, true).await, Err(Failed::Panicked));
    let ticks = address.call(MINUTE, Msg::Ticks).await.unwrap();
    assert!((2..=4).contains(&ticks), "{ticks} ticks in about 2.5 s");
}

#[tokio::test(start_paused = true)]
async fn retired_and_stopped_actors_stay_away() {
    let node = Node::start("retire");
    let args = Args::new();
    let address = counter(&node, args.clone()).await;
    let taken = node.supervise::<Counter>(Spec::new("counter/a", 2), args.clone()).await;
    assert!(matches!(taken, Err(node::Error::Taken { .. })));
    node.retire("counter/a").await.unwrap();
    let stopped = Err(address::Error::Stopped { actor: "counter/a".to_owned() });
    assert_eq!(add(&address, 1).await, stopped);
    assert!(node.actors().is_empty());
    // The name is free again.
    let second = loop {
        match node.supervise::<Counter>(Spec::new("counter/a", 2), args.clone()).await {
            Ok(address) => break address,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    node.stop(SECOND).await;
    assert_eq!(add(&second, 1).await, stopped);
    assert!(ractor::registry::where_is("retire:counter/a").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_cannot_start_is_not_placed() {
    let node = Node::start("unstartable");
    let outcome =
        node.supervise::<Counter>(Spec::new("counter/a", 2), Args { startable: false, ..Args::new() }).await;
    assert!(matches!(outcome, Err(node::Error::Start { reason, .. }) if reason == "not startable"));
    assert!(node.actors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nodes_of_one_process_do_not_meet() {
    let (left, right) = (Node::start("left"), Node::start("right"));
    let (a, b) = (counter(&left, Args::new()).await, counter(&right, Args::new()).await);
    assert_eq!((add(&a, 1).await, add(&b, 2).await), (Ok(1), Ok(2)));
    drop(left);
    assert!(matches!(add(&a, 1).await, Err(address::Error::Stopped { .. } | address::Error::Died { .. })));
    assert_eq!(add(&b, 1).await, Ok(3));
}

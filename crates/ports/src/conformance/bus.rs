//! The contract of [`crate::Bus`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Clause, Violation};
use crate::Bus;
use crate::bus::{Error, Link, Message, Received, Subscription};

/// Makes clients of one bus and breaks their connection.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Connects a further client.
    async fn connect(&self) -> Arc<dyn Bus>;
    /// Cuts all clients off the bus.
    async fn cut(&self);
    /// Heals what `cut` broke.
    async fn heal(&self);
}

/// Runs the whole suite; clauses use subjects of their own below `conformance`.
///
/// # Errors
/// The first clause that does not hold.
pub async fn check(harness: &dyn Harness) -> Result<(), Violation> {
    let (ours, theirs) = (harness.connect().await, harness.connect().await);
    delivery(&*ours, &*theirs).await?;
    patterns(&*ours, &*theirs).await?;
    end_of_subscription(&*ours, &*theirs).await?;
    slow_subscribers(&*ours, &*theirs).await?;
    requests(&*ours, &*theirs).await?;
    limits(&*ours).await?;
    outage(harness, &*ours, &*theirs).await
}

fn message(subject: &str, payload: &str) -> Message {
    Message { subject: subject.to_owned(), payload: Bytes::from(payload.to_owned()), ..Message::default() }
}

/// Waits until a subscription is in force: subscribing returns before a remote server knows of it.
async fn settle(
    clause: Clause,
    publisher: &dyn Bus,
    sub: &mut dyn Subscription,
    subject: &str,
) -> Result<(), Violation> {
    let arrival = async {
        loop {
            drop(publisher.publish(message(subject, "settle")).await);
            if tokio::time::timeout(Duration::from_millis(50), sub.next()).await.is_ok() {
                return;
            }
        }
    };
    clause.soon(arrival).await?;
    // Further settling messages may be under way; a marker ends them.
    clause.ok(publisher.publish(message(subject, "settled")).await)?;
    loop {
        match clause.soon(sub.next()).await? {
            Some(Received::Message(seen)) if seen.payload == "settled" && seen.subject == subject => {
                return Ok(());
            }
            Some(_) => {}
            None => return Err(clause.violated("the subscription ended")),
        }
    }
}

async fn delivery(ours: &dyn Bus, theirs: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("messages arrive whole and in order at every subscriber");
    let subject = "conformance.delivery";
    let mut first = clause.ok(ours.subscribe(subject, 300).await)?;
    let mut second = clause.ok(theirs.subscribe(subject, 300).await)?;
    settle(clause, ours, &mut *first, subject).await?;
    settle(clause, ours, &mut *second, subject).await?;
    // What settled the second subscription also reached the first.
    let rich = Message {
        headers: vec![
            ("traceparent".to_owned(), "00-1-2-03".to_owned()),
            ("x".to_owned(), "y: z".to_owned()),
        ],
        reply: Some("conformance.reply".to_owned()),
        ..message(subject, "rich")
    };
    clause.ok(ours.publish(rich.clone()).await)?;
    for number in 0..200 {
        clause.ok(ours.publish(message(subject, &number.to_string())).await)?;
    }
    for sub in [&mut first, &mut second] {
        loop {
            match clause.soon(sub.next()).await? {
                Some(Received::Message(seen)) if seen.payload.starts_with(b"settle") => {}
                seen => {
                    clause.same(&seen, &Some(Received::Message(rich.clone())))?;
                    break;
                }
            }
        }
        for number in 0..200 {
            let expected = message(subject, &number.to_string());
            clause.same(&clause.soon(sub.next()).await?, &Some(Received::Message(expected)))?;
        }
    }
    Ok(())
}

async fn patterns(ours: &dyn Bus, theirs: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("wildcards stand for one part, or for the rest");
    let mut one = clause.ok(theirs.subscribe("conformance.patterns.*.end", 100).await)?;
    let mut rest = clause.ok(theirs.subscribe("conformance.patterns.>", 100).await)?;
    settle(clause, ours, &mut *one, "conformance.patterns.settle.end").await?;
    settle(clause, ours, &mut *rest, "conformance.patterns.settle").await?;
    for subject in ["conformance.patterns.a.b.end", "conformance.patterns.a.end", "conformance.patterns"] {
        clause.ok(ours.publish(message(subject, subject)).await)?;
    }
    let expected = message("conformance.patterns.a.end", "conformance.patterns.a.end");
    clause.same(&clause.soon(one.next()).await?, &Some(Received::Message(expected.clone())))?;
    clause.never(one.next()).await?;
    let deep = message("conformance.patterns.a.b.end", "conformance.patterns.a.b.end");
    for expected in [deep, expected] {
        clause.same(&clause.soon(rest.next()).await?, &Some(Received::Message(expected)))?;
    }
    clause.never(rest.next()).await
}

async fn end_of_subscription(ours: &dyn Bus, theirs: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("a subscription begins when it is made and ends when it is dropped");
    let subject = "conformance.end";
    clause.ok(ours.publish(message(subject, "before")).await)?;
    let mut sub = clause.ok(theirs.subscribe(subject, 10).await)?;
    settle(clause, ours, &mut *sub, subject).await?;
    drop(sub);
    let answer = async {
        loop {
            let asked = ours.request(message(subject, "after"), Duration::from_millis(100)).await;
            if matches!(asked, Err(Error::NoResponder { .. })) {
                return;
            }
        }
    };
    clause.soon(answer).await
}

async fn slow_subscribers(ours: &dyn Bus, theirs: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("a slow subscriber loses the oldest messages and sees a gap in their place");
    let subject = "conformance.slow";
    let mut probe = clause.ok(theirs.subscribe(subject, 2000).await)?;
    let mut slow = clause.ok(theirs.subscribe(subject, 16).await)?;
    settle(clause, ours, &mut *probe, subject).await?;
    settle(clause, ours, &mut *slow, subject).await?;
    for number in 0..1000 {
        clause.ok(ours.publish(message(subject, &number.to_string())).await)?;
    }
    // When the prompt subscriber has the last one, the slow one has been offered it, or is about to.
    loop {
        match clause.soon(probe.next()).await? {
            Some(Received::Message(seen)) if seen.payload == "999" => break,
            Some(Received::Message(_)) => {}
            seen => return Err(clause.violated(format!("the prompt subscriber saw {seen:?}"))),
        }
    }
    let (mut gaps, mut waited) = (0, 0);
    loop {
        match clause.soon(slow.next()).await? {
            Some(Received::Gap) => gaps += 1,
            Some(Received::Message(seen)) => {
                waited += 1;
                if seen.payload == "999" {
                    break;
                }
            }
            None => return Err(clause.violated("the subscription ended")),
        }
    }
    clause.holds(gaps > 0 && waited < 500, format!("{waited} messages and {gaps} gaps from a queue of 16"))
}

async fn requests(ours: &dyn Bus, theirs: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("a request gets its own answer");
    let subject = "conformance.requests";
    let mut sub = clause.ok(theirs.subscribe(subject, 100).await)?;
    settle(clause, ours, &mut *sub, subject).await?;
    let deadline = super::PATIENCE;
    let serve = async {
        let mut asked = Vec::new();
        while asked.len() < 2 {
            match sub.next().await {
                Some(Received::Message(request)) => asked.push(request),
                _ => return Err(clause.violated("the subscription ended")),
            }
        }
        // Answered in the other order.
        for request in asked.into_iter().rev() {
            let reply =
                request.reply.clone().ok_or_else(|| clause.violated("a request without reply subject"))?;
            let Message { headers, payload, .. } = request;
            let answer = Message { subject: reply, headers, payload, ..Message::default() };
            clause.ok(theirs.publish(answer).await)?;
        }
        Ok(())
    };
    let headers = vec![("traceparent".to_owned(), "00-1-2-03".to_owned())];
    let traced = Message { headers: headers.clone(), ..message(subject, "a") };
    let (served, a, b) =
        tokio::join!(serve, ours.request(traced, deadline), ours.request(message(subject, "b"), deadline));
    served?;
    let (a, b) = (clause.ok(a)?, clause.ok(b)?);
    clause.same(&a.payload, &Bytes::from("a"))?;
    clause.same(&b.payload, &Bytes::from("b"))?;

    let clause = Clause("a request and its answer carry their headers");
    clause.same(&a.headers, &headers)?;
    clause.same(&b.headers, &Vec::new())?;

    let clause = Clause("a request without an answer ends by its deadline");
    let deadline = Duration::from_millis(100);
    let unanswered = clause.soon(ours.request(message(subject, "c"), deadline)).await?;
    clause.holds(matches!(unanswered, Err(Error::Timeout { .. })), format!("{unanswered:?}"))?;

    let clause = Clause("a request that nobody serves fails at once");
    let unserved = clause.soon(ours.request(message("conformance.nobody", "d"), super::PATIENCE * 2)).await?;
    clause.holds(matches!(unserved, Err(Error::NoResponder { .. })), format!("{unserved:?}"))
}

async fn limits(ours: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("a payload past the limit is refused, one at the limit is not");
    let fits = Bytes::from(vec![0; ours.payload_bytes_max()]);
    let subject = "conformance.limits".to_owned();
    clause
        .ok(ours.publish(Message { subject: subject.clone(), payload: fits, ..Message::default() }).await)?;
    let large = Bytes::from(vec![0; ours.payload_bytes_max() + 1]);
    let refused = ours.publish(Message { subject, payload: large, ..Message::default() }).await;
    clause.holds(matches!(refused, Err(Error::TooLarge { .. })), format!("{refused:?}"))?;

    let clause = Clause("a malformed subject is refused");
    for subject in ["", "a..b", "a b", "a.*", ">"] {
        let refused = ours.publish(message(subject, "")).await;
        clause.holds(matches!(refused, Err(Error::Subject { .. })), format!("{subject:?}: {refused:?}"))?;
    }
    for pattern in ["", "a..b", "a.>.b"] {
        let refused = ours.subscribe(pattern, 1).await;
        clause.holds(matches!(refused, Err(Error::Subject { .. })), format!("{pattern:?}: {refused:?}"))?;
    }
    Ok(())
}

async fn outage(harness: &dyn Harness, ours: &dyn Bus, theirs: &dyn Bus) -> Result<(), Violation> {
    let clause = Clause("the link tells of an outage, and calls fail without delay");
    let subject = "conformance.outage";
    let mut sub = clause.ok(theirs.subscribe(subject, 100).await)?;
    settle(clause, ours, &mut *sub, subject).await?;
    let (mut our_link, mut their_link) = (ours.link(), theirs.link());
    harness.cut().await;
    clause.ok(clause.soon(our_link.wait_for(|link| *link == Link::Down)).await?.map(drop))?;
    clause.ok(clause.soon(their_link.wait_for(|link| *link == Link::Down)).await?.map(drop))?;
    let refused = clause.soon(ours.publish(message(subject, "lost"))).await?;
    clause.holds(matches!(refused, Err(Error::Disconnected)), format!("{refused:?}"))?;
    let refused = clause.soon(ours.request(message(subject, "lost"), super::PATIENCE * 2)).await?;
    clause.holds(matches!(refused, Err(Error::Disconnected)), format!("{refused:?}"))?;

    let clause = Clause("subscriptions survive an outage and show a gap for it");
    harness.heal().await;
    clause.ok(clause.soon(our_link.wait_for(|link| *link == Link::Up)).await?.map(drop))?;
    clause.ok(clause.soon(their_link.wait_for(|link| *link == Link::Up)).await?.map(drop))?;
    clause.same(&clause.soon(sub.next()).await?, &Some(Received::Gap))?;
    settle(clause, ours, &mut *sub, subject).await
}

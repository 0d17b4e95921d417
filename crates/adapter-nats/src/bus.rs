//! The bus on one NATS connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::client::{PublishErrorKind, RequestErrorKind};
use async_nats::{Client, ClientError, ConnectOptions, Event, Request, Subscriber};
use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use ports::bus::{Error, Link, Message, Received, Subscription, is_pattern, is_subject};
use ports::{Bus, GapQueue};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::config::{self, CONNECT_DEADLINE, Config, Refusal};
use crate::message::{headers, received};

/// NATS's own default, for as long as no server has told its limit.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// What the client says of an attempt that failed for its credentials.
const REFUSED: &str = "authorization";
/// How long the client may take to accept a command.
const COMMAND_DEADLINE: Duration = Duration::from_secs(1);

/// A NATS connection; cheap to clone. Dropping the last clone ends its subscriptions.
#[derive(Clone)]
pub struct NatsBus {
    /// Before the client, so that it is gone when the connection ends with the last clone: that is no loss to warn of.
    shared: Arc<Shared>,
    client: Client,
}

struct Shared {
    link: watch::Sender<Link>,
    /// What the client or a server last complained of, since there is no connection.
    trouble: Mutex<Option<String>>,
    /// Whether it was said that the server does not let this client in.
    refused: AtomicBool,
    queues: Mutex<Queues>,
    pumps: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Queues {
    next_id: u64,
    by_id: BTreeMap<u64, GapQueue>,
}

impl fmt::Debug for NatsBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBus").field("link", &*self.shared.link.borrow()).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queues.get_mut().by_id.values().for_each(GapQueue::close);
    }
}

impl NatsBus {
    /// Makes a client. A server that is late is waited for in the background; one that answers and does not take this
    /// client ends the attempt.
    ///
    /// # Errors
    /// The configuration cannot work; tell its owner.
    pub async fn connect(config: &Config) -> Result<Self, config::Error> {
        config.check()?;
        let shared = Arc::new(Shared {
            link: watch::Sender::new(Link::Down),
            trouble: Mutex::default(),
            refused: AtomicBool::new(false),
            queues: Mutex::default(),
            pumps: Mutex::new(JoinSet::new()),
        });
        let first = options(config, &shared)?.connect(config.servers.as_slice());
        let client = match timeout(CONNECT_DEADLINE, Box::pin(first)).await {
            Ok(Ok(client)) => client,
            Ok(Err(source)) if Refusal::of(&source).is_some() => {
                let reason = Refusal::of(&source).unwrap_or(Refusal::Credentials);
                return Err(config::Error::Refused { servers: config.shown(), reason, source });
            }
            Ok(Err(_)) | Err(_) => {
                let patient = options(config, &shared)?.retry_on_initial_connect();
                let connected = Box::pin(patient.connect(config.servers.as_slice())).await;
                connected.map_err(|source| config::Error::Connect { servers: config.shown(), source })?
            }
        };
        Ok(Self { client, shared })
    }

    /// Says why there is no connection, in the client's words, if it is known.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().clone()
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    fn check(&self, message: &Message) -> Result<(), Error> {
        if !is_subject(&message.subject) {
            return Err(Error::Subject { subject: message.subject.clone() });
        }
        let (bytes, bytes_max) = (message.payload.len(), self.payload_bytes_max());
        if bytes > bytes_max {
            return Err(Error::TooLarge { bytes, bytes_max });
        }
        if *self.shared.link.borrow() == Link::Down {
            return Err(Error::Disconnected);
        }
        Ok(())
    }

    fn too_large(&self, bytes: usize) -> Error {
        Error::TooLarge { bytes, bytes_max: self.payload_bytes_max() }
    }
}

/// Translates a configuration, for one client that tells of its connection.
fn options(config: &Config, shared: &Arc<Shared>) -> Result<ConnectOptions, config::Error> {
    let listener = Arc::downgrade(shared);
    let options = config.options()?.event_callback(move |event| {
        let listener = Weak::clone(&listener);
        async move { note(&listener, &event) }
    });
    Ok(options)
}

/// Follows the connection: its state is the link's, and what it lost is a gap in every subscription.
fn note(shared: &Weak<Shared>, event: &Event) {
    let Some(shared) = shared.upgrade() else { return };
    match event {
        Event::Connected => {
            shared.trouble.lock().take();
            shared.refused.store(false, Ordering::Relaxed);
            if shared.link.send_replace(Link::Up) == Link::Down {
                tracing::info!("bus connected");
                shared.queues.lock().by_id.values().for_each(GapQueue::push_gap);
            }
        }
        Event::Disconnected | Event::Closed => {
            if shared.link.send_replace(Link::Down) == Link::Up {
                tracing::warn!("bus disconnected");
            }
        }
        Event::SlowConsumer(_) => {
            tracing::debug!("bus client dropped messages");
            shared.queues.lock().by_id.values().for_each(GapQueue::push_gap);
        }
        Event::ServerError(_) | Event::ClientError(_) => {
            // Each failed attempt tells of itself; what is worth a line is what trying again does not change.
            if matches!(event, Event::ClientError(ClientError::Other(why)) if why.contains(REFUSED))
                && !shared.refused.swap(true, Ordering::Relaxed)
            {
                tracing::warn!(why = %event, "bus refuses this client, trying again");
            }
            tracing::debug!(%event, "bus event");
            *shared.trouble.lock() = Some(event.to_string());
        }
        Event::LameDuckMode | Event::Draining => tracing::debug!(%event, "bus event"),
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn publish(&self, message: Message) -> Result<(), Error> {
        self.check(&message)?;
        let (headers, bytes, subject) = (headers(&message), message.payload.len(), message.subject.clone());
        let (client, payload) = (&self.client, message.payload);
        let sent = match (message.reply, headers.is_empty()) {
            (None, true) => timeout(COMMAND_DEADLINE, client.publish(message.subject, payload)).await,
            (None, false) => {
                timeout(COMMAND_DEADLINE, client.publish_with_headers(message.subject, headers, payload))
                    .await
            }
            (Some(reply), _) => {
                let sent = client.publish_with_reply_and_headers(message.subject, reply, headers, payload);
                timeout(COMMAND_DEADLINE, sent).await
            }
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(match error.kind() {
                PublishErrorKind::MaxPayloadExceeded => self.too_large(bytes),
                PublishErrorKind::InvalidSubject => Error::Subject { subject },
                PublishErrorKind::Send => Error::Disconnected,
            }),
            Err(_) => Err(Error::Disconnected),
        }
    }

    async fn request(&self, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.check(&message)?;
        let (subject, bytes) = (message.subject.clone(), message.payload.len());
        let mut link = self.shared.link.subscribe();
        // The client's own time-out is the port's; the other one guards against a client that is stuck.
        let request =
            Request::new().headers(headers(&message)).payload(message.payload).timeout(Some(deadline));
        let answer = timeout(deadline + COMMAND_DEADLINE, self.client.send_request(message.subject, request));
        let answer = tokio::select! {
            answer = answer => answer,
            _ = link.wait_for(|link| *link == Link::Down) => return Err(Error::Disconnected),
        };
        match answer {
            Ok(Ok(answer)) => Ok(received(answer)),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::TimedOut => Error::Timeout { subject, deadline },
                RequestErrorKind::NoResponders => Error::NoResponder { subject },
                RequestErrorKind::InvalidSubject => Error::Subject { subject },
                RequestErrorKind::MaxPayloadExceeded => self.too_large(bytes),
                RequestErrorKind::Other => Error::Disconnected,
            }),
            Err(_) => Err(Error::Timeout { subject, deadline }),
        }
    }

    async fn subscribe(&self, pattern: &str, queue_max: usize) -> Result<Box<dyn Subscription>, Error> {
        if !is_pattern(pattern) {
            return Err(Error::Subject { subject: pattern.to_owned() });
        }
        let subscribed = timeout(COMMAND_DEADLINE, self.client.subscribe(pattern.to_owned())).await;
        let Ok(Ok(subscriber)) = subscribed else { return Err(Error::Disconnected) };
        if *self.shared.link.borrow() == Link::Up {
            // Once the server has seen it, nothing published afterwards is missed.
            drop(timeout(COMMAND_DEADLINE, self.client.flush()).await);
        }
        let queue = GapQueue::new(queue_max);
        let id = {
            let mut queues = self.shared.queues.lock();
            queues.next_id += 1;
            let id = queues.next_id;
            queues.by_id.insert(id, queue.clone());
            id
        };
        let mut pumps = self.shared.pumps.lock();
        while pumps.try_join_next().is_some() {}
        let pump = pumps.spawn(pump(subscriber, queue.clone()));
        drop(pumps);
        Ok(Box::new(Subscribed { id, queue, pump, shared: Arc::downgrade(&self.shared) }))
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.shared.link.subscribe()
    }

    fn payload_bytes_max(&self) -> usize {
        match self.client.max_payload() {
            0 => PAYLOAD_BYTES_MAX,
            bytes_max => bytes_max,
        }
    }
}

/// Moves messages from the client's queue, which would drop the newest, to one that drops the oldest.
async fn pump(mut subscriber: Subscriber, queue: GapQueue) {
    while let Some(message) = subscriber.next().await {
        queue.push(received(message));
    }
    queue.close();
}

struct Subscribed {
    id: u64,
    queue: GapQueue,
    pump: AbortHandle,
    shared: Weak<Shared>,
}

impl fmt::Debug for Subscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.pump.abort();
        if let Some(shared) = self.shared.upgrade() {
            shared.queues.lock().by_id.remove(&self.id);
        }
    }
}

#[async_trait]
impl Subscription for Subscribed {
    async fn next(&mut self) -> Option<Received> {
        self.queue.next().await
    }
}

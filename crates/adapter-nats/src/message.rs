//! Messages of the port and of the client, into each other.

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use ports::bus::Message;

/// Translates a message that came in; headers are sorted by name, as the client keeps no order.
pub(crate) fn received(message: async_nats::Message) -> Message {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        headers.extend(values.iter().map(|value| (name.to_string(), value.as_str().to_owned())));
    }
    headers.sort();
    Message {
        subject: message.subject.into_string(),
        reply: message.reply.map(|reply| reply.into_string()),
        headers,
        payload: message.payload,
    }
}

/// Translates headers; those that NATS cannot carry are left out.
pub(crate) fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &message.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.append(name, value);
        }
    }
    headers
}

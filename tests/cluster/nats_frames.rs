//! What a NATS server sends, cut into its frames.
//!
//! ```text
//! MSG  subject sid [reply] bytes\r\n                       payload\r\n
//! HMSG subject sid [reply] header-bytes total-bytes\r\n    header ‖ payload\r\n
//! INFO …\r\n   PING\r\n   PONG\r\n   +OK\r\n   -ERR …\r\n
//! ```

use bytes::{Bytes, BytesMut};

/// One frame, whole, with its line ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message to a subscriber.
    Message(Bytes),
    /// Anything else.
    Control(Bytes),
}

impl Frame {
    /// Its bytes.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Message(bytes) | Self::Control(bytes) => bytes,
        }
    }
}

/// Cuts a stream of bytes that comes in any pieces.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    buffer: BytesMut,
    /// Bytes at the start of the buffer in which no line ends.
    searched: usize,
}

impl Cutter {
    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole frame; none until more bytes come.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let found = self.buffer[self.searched..].windows(2).position(|two| two == b"\r\n");
        let Some(found) = found else {
            self.searched = self.buffer.len().saturating_sub(1);
            return None;
        };
        let line = self.searched + found;
        let Some(payload) = payload_bytes(&self.buffer[..line]) else {
            self.searched = 0;
            return Some(Frame::Control(self.buffer.split_to(line + 2).freeze()));
        };
        let whole = line + 2 + payload + 2;
        if self.buffer.len() < whole {
            self.searched = line;
            return None;
        }
        self.searched = 0;
        Some(Frame::Message(self.buffer.split_to(whole).freeze()))
    }
}

/// Reads how many bytes follow a message's line; none where nothing follows.
fn payload_bytes(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let kind = words.next()?;
    if !kind.eq_ignore_ascii_case("MSG") && !kind.eq_ignore_ascii_case("HMSG") {
        return None;
    }
    Some(words.next_back()?.parse().unwrap())
}

#[test]
fn frames_are_found_however_the_bytes_come() {
    let frames = [
        Frame::Control("INFO {\"max_payload\":1048576}\r\n".into()),
        Frame::Control("PONG\r\n".into()),
        Frame::Message("MSG a.b 7 12\r\nhello\r\nMSG\r\n\r\n".into()),
        Frame::Message("MSG a.b 7 _INBOX.x 0\r\n\r\n".into()),
        Frame::Message("HMSG a 9 _INBOX.y 12 17\r\nNATS/1.0\r\n\r\nworld\r\n".into()),
        Frame::Control("PING\r\n".into()),
    ];
    let stream: Vec<u8> = frames.iter().flat_map(|frame| frame.clone().into_bytes()).collect();
    for piece in 1..=stream.len() {
        let mut cutter = Cutter::default();
        let mut found = Vec::new();
        for bytes in stream.chunks(piece) {
            cutter.feed(bytes);
            found.extend(std::iter::from_fn(|| cutter.next()));
        }
        assert_eq!(found, frames, "in pieces of {piece} bytes");
    }
}

//! The simulated engine from outside: HTTP and ZMQ on loopback.

mod chat;
mod completions;
mod errors;
mod feed;
mod harness;
mod images;
mod load;
mod ranks;
mod recorded;

//! The parts of a cluster as processes of their own, on NATS and etcd.

mod agent;
mod connection;
mod frontend;
mod indexer;
mod secrets;

pub(crate) use agent::run as run_agent;
pub(crate) use connection::Connection;
pub(crate) use frontend::{Config as FrontendConfig, run as run_frontend, treatments};
pub(crate) use indexer::run as run_indexer;
pub(crate) use secrets::on_command_line;

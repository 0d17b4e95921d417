#![doc = include_str!("../README.md")]

mod access;
mod admin;
mod answer;
mod api_error;
mod call;
mod chat;
mod config;
mod dispatch;
mod faults;
mod hand_over;
mod headers;
mod metrics;
mod model_cache;
mod model_desk;
mod model_list;
mod model_supply;
mod models;
mod payload;
mod presence;
mod proxy;
mod record;
mod record_log;
mod relay;
mod request_body;
mod request_id;
mod retry_budget;
mod server;
mod shared;
mod stalling;
mod surface;
mod understanding;
mod usage;
mod verification;
mod wiring;

pub use config::{Config, KeyConfig, Limits, MediaConfig, ModelConfig};
pub use wiring::{Frontend, LoadedModels, Ports, http_ports, load_models, run};

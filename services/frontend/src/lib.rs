#![doc = include_str!("../README.md")]

mod access;
mod admin;
mod answer;
mod api_error;
mod byte_range;
mod call;
mod chat;
mod commands;
mod config;
mod courier;
mod desk_index;
mod dispatch;
mod faults;
mod hand_over;
mod headers;
mod homework;
mod late_payload;
mod lessons;
mod loaded_models;
mod look_up;
mod media_address;
mod media_parts;
mod media_surface;
mod media_token;
mod metrics;
mod model_cache;
mod model_desk;
mod model_list;
mod model_supply;
mod models;
mod names;
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
mod surface;
mod trace;
mod understanding;
mod usage;
mod verification;
mod wiring;

pub use config::{
    Config, HandOverConfig, IndexPlace, KeyConfig, Limits, MediaConfig, MediaMode, ModelConfig, Tenancy,
};
pub use loaded_models::{LoadedModel, LoadedModels, load_models};
pub use wiring::{Frontend, Ports, http_ports, run};

#![doc = include_str!("../README.md")]

pub mod card;
pub mod codec;
pub mod command;
pub mod fact;
pub mod files;
mod form;
pub mod kv;
pub mod load;
pub mod lookup;
pub mod notice;
pub mod peer;
pub mod registry_key;
pub mod subject;
pub mod sync;

pub use codec::{Error, VERSION};

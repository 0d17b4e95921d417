#![doc = include_str!("../README.md")]

pub mod media_config;

#![doc = include_str!("../README.md")]

mod directory;

pub use directory::{DirectoryArgs, DirectoryHandle, Fleet, Pulse, Seat, Served, Worker};

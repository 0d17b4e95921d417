#![doc = include_str!("../README.md")]

pub mod address;
mod children;
mod mail;
pub mod node;
pub mod restart;
mod supervisor;

pub use address::Address;
pub use children::{Children, Failed, Full, Outlet};
pub use mail::{Mail, Reply};
pub use node::{Node, Spec};
pub use restart::{Policy, Restarts, Verdict};

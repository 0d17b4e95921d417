#![doc = include_str!("../README.md")]

mod actor;
pub mod address;
mod children;
mod mail;
pub mod node;
pub mod restart;
mod supervisor;

pub use actor::{Actor, Fault, Me};
pub use address::Address;
pub use children::{Children, Failed, Full, Outlet};
pub use mail::Reply;
pub use node::{Node, Spec};
pub use restart::{Policy, Restarts, Verdict};

//! Tests of the source tree itself.

mod files;
mod layers;
#[cfg(test)]
mod tree;

//! End to end: real processes, real wires.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod images;
#[cfg(test)]
mod mixed;
#[cfg(test)]
mod nats_etcd;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod settle;
#[cfg(test)]
mod traffic;
#[cfg(test)]
mod up;

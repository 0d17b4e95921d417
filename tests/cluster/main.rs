//! End to end: real processes, real wires.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod burst;
#[cfg(test)]
mod bus_proxy;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod convergence;
#[cfg(test)]
mod disorder;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod fault_cases;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hand_over;
#[cfg(test)]
mod images;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod load;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod mixed;
#[cfg(test)]
mod nats_etcd;
#[cfg(test)]
mod nats_frames;
#[cfg(test)]
mod origin;
#[cfg(test)]
mod passing;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod process;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod remote_index;
#[cfg(test)]
mod rolling;
#[cfg(test)]
mod secure;
#[cfg(test)]
mod settle;
#[cfg(test)]
mod stand_by;
#[cfg(test)]
mod tenancy;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod traffic;
#[cfg(test)]
mod up;

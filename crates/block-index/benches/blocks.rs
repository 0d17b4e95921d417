//! The index by itself: speed and size, readers beside a writer, exactness, and a large one.
//!
//! ```text
//! cargo bench -p block-index --bench blocks -- speed [WORKLOAD …]      default: all
//! cargo bench -p block-index --bench blocks -- lookups [WORKLOAD]      three seconds of lookups, to profile
//! cargo bench -p block-index --bench blocks -- readers [WORKLOAD]
//! cargo bench -p block-index --bench blocks -- exact [QUERIES]         default: 2,000,000
//! cargo bench -p block-index --bench blocks -- large [BLOCKS]          default: 50,000,000 over 100 holders
//! ```
#![expect(
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::disallowed_types,
    unreachable_pub,
    reason = "a measuring program: it reads clocks, prints, and may fail by panicking"
)]

#[path = "blocks/exact.rs"]
mod exact;
#[path = "blocks/large.rs"]
mod large;
#[path = "blocks/latency.rs"]
mod latency;
#[path = "blocks/meter.rs"]
mod meter;
#[path = "blocks/ours.rs"]
mod ours;
#[path = "blocks/readers.rs"]
mod readers;
#[path = "blocks/speed.rs"]
mod speed;
#[path = "blocks/workload.rs"]
#[expect(dead_code, reason = "reading traces is for the other program that shares it")]
mod workload;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let rest = args.get(1..).unwrap_or_default();
    let number =
        |default: usize| rest.first().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default);
    match args.first().map_or("speed", String::as_str) {
        "speed" => speed::run(rest),
        "lookups" => speed::lookups(rest.first().map_or("chat", String::as_str)),
        "readers" => readers::run(rest.first().map_or("chat", String::as_str)),
        "exact" => exact::run(number(2_000_000)),
        "large" => large::run(number(50_000_000)),
        other => println!("no mode {other}: speed, lookups, readers, exact or large"),
    }
}

//! What the environment asks for.

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 50;

/// Lists the seeds to play: `SIGHTLINE_SEED`, or as many as `SIGHTLINE_SEEDS` says, from `SIGHTLINE_SEED_FIRST` on.
pub(crate) fn seeds() -> Vec<u64> {
    match number("SIGHTLINE_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = number("SIGHTLINE_SEED_FIRST").unwrap_or(0);
            (first..first + number("SIGHTLINE_SEEDS").unwrap_or(SEEDS)).collect()
        }
    }
}

/// Shows the log if `SIGHTLINE_LOG` has a filter.
pub(crate) fn show_log() {
    if let Some(filter) = text("SIGHTLINE_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        drop(tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init());
    }
}

/// Returns the command that plays a seed again.
pub(crate) fn replay(seed: u64) -> String {
    format!("SIGHTLINE_SEED={seed} SIGHTLINE_LOG=debug cargo nextest run -p simulation --no-capture seeds")
}

fn number(name: &str) -> Option<u64> {
    text(name)?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "configuration of this test")]
fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

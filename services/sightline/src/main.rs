//! The `sightline` command.

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "the last word to the person who ran it")]
fn main() -> ExitCode {
    // One TLS provider for everything in the process; a second call would be an error, and there is none.
    rustls::crypto::ring::default_provider().install_default().ok();
    let matches = sightline::cli::command().get_matches();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => {
            eprintln!("sightline: cannot start the runtime: {cause}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(sightline::cli::run(matches));
    runtime.shutdown_timeout(std::time::Duration::from_millis(300));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("sightline: {}", sentence(&cause));
            ExitCode::FAILURE
        }
    }
}

/// Joins what went wrong with its causes, leaving out those that the one before already tells.
fn sentence(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

//! `sightline workers`: the fleet as a frontend sees it, and taking workers out of it.

mod drain;
mod table;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Value;

use crate::ask::{ca_arg, fetch, frontend_arg, key_arg};

/// Builds the parser of `sightline workers`.
pub(crate) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the frontend's JSON");
    let watch = Arg::new("watch")
        .long("watch")
        .value_name("SECONDS")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("1")
        .value_parser(value_parser!(u64).range(1..=3600))
        .help("Print again every SECONDS, by default each second, until interrupted");
    Command::new("workers")
        .about("List the workers as a frontend sees them, drain one, or have it take requests again")
        .args([frontend_arg().global(true), key_arg().global(true), ca_arg().global(true), json, watch])
        .args_conflicts_with_subcommands(false)
        .subcommand(drain::drain_command())
        .subcommand(drain::resume_command())
}

/// Lists the workers, or does to one what a subcommand says.
///
/// # Errors
/// Says why the frontend cannot be asked, or what it refused.
#[expect(clippy::print_stdout, reason = "the table was asked for")]
pub(crate) async fn run(given: &ArgMatches) -> anyhow::Result<()> {
    match given.subcommand() {
        Some(("drain", given)) => return drain::drain(given).await,
        Some(("resume", given)) => return drain::resume(given).await,
        _ => {}
    }
    let again = given.get_one::<u64>("watch").copied();
    loop {
        let answer = fetch(given, "/admin/workers", None).await?;
        let text =
            if given.get_flag("json") { format!("{answer:#}\n") } else { table::render(&rows(&answer)) };
        if again.is_some() && std::io::stdout().is_terminal() {
            // Home, and clear what is below.
            print!("\u{1b}[H\u{1b}[2J");
        }
        print!("{text}");
        let Some(seconds) = again else { return Ok(()) };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// Takes the rows out of an answer.
fn rows(answer: &Value) -> Vec<Value> {
    answer.get("workers").and_then(Value::as_array).cloned().unwrap_or_default()
}

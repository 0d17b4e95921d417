//! Taking a worker out of service, and back.

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Value;
use tokio::time::Instant;

use super::rows;
use crate::ask::fetch;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a worker has to be seen idle: what was dispatched before every frontend knew shows by then.
const IDLE: Duration = Duration::from_secs(2);

fn worker_arg() -> Arg {
    Arg::new("worker")
        .required(true)
        .value_name("ID")
        .help("Name of the worker, as `sightline workers` shows it")
}

/// Builds the parser of `sightline workers drain`.
pub(super) fn drain_command() -> Command {
    Command::new("drain").about("Send a worker nothing new; what is in flight finishes").args([
        worker_arg(),
        Arg::new("wait")
            .long("wait")
            .action(ArgAction::SetTrue)
            .help("Wait until nothing is in flight there"),
        Arg::new("deadline-s")
            .long("deadline-s")
            .value_name("SECONDS")
            .default_value("300")
            .value_parser(value_parser!(u64).range(1..))
            .help("Longest time to wait; past it the exit status is 1, and the worker drains on"),
    ])
}

/// Builds the parser of `sightline workers resume`.
pub(super) fn resume_command() -> Command {
    Command::new("resume").about("Have a drained worker take requests again").arg(worker_arg())
}

/// Has a worker drained, and waits if asked to.
///
/// # Errors
/// Says why it is not drained, or what is in flight still.
#[expect(clippy::print_stdout, reason = "progress was asked for")]
pub(super) async fn drain(given: &ArgMatches) -> anyhow::Result<()> {
    let worker = tell(given, "drain").await?;
    println!("{worker} drains");
    if !given.get_flag("wait") {
        return Ok(());
    }
    let until =
        Instant::now() + Duration::from_secs(given.get_one::<u64>("deadline-s").copied().unwrap_or(300));
    let (mut shown, mut idle_since) = (String::new(), None);
    loop {
        let busy = still(&rows(&fetch(given, "/admin/workers", None).await?), &worker)?;
        let now = Instant::now();
        match &busy {
            None => {
                let since = *idle_since.get_or_insert(now);
                if now.duration_since(since) >= IDLE {
                    println!("{worker} is idle");
                    return Ok(());
                }
            }
            Some(busy) => {
                idle_since = None;
                if *busy != shown {
                    println!("{worker}: {busy}");
                    shown.clone_from(busy);
                }
                if now >= until {
                    bail!("{worker} is not idle yet: {busy}");
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Has a worker take requests again.
///
/// # Errors
/// Says why it does not.
#[expect(clippy::print_stdout, reason = "says what was done")]
pub(super) async fn resume(given: &ArgMatches) -> anyhow::Result<()> {
    let worker = tell(given, "resume").await?;
    println!("{worker} takes requests");
    Ok(())
}

/// Sends a command to a worker's agent, through the frontend; returns the worker's name.
async fn tell(given: &ArgMatches, verb: &str) -> anyhow::Result<String> {
    let worker = given.get_one::<String>("worker").map_or("", String::as_str);
    ensure!(!worker.is_empty(), "the worker has no name");
    let mut url = reqwest::Url::parse("http://f/admin/workers")?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.push(worker).push(verb);
    }
    fetch(given, url.path(), Some(String::new())).await?;
    Ok(worker.to_owned())
}

/// Says what is in flight at a worker still; none where nothing is, and every frontend can know that it drains.
///
/// # Errors
/// The worker is gone, or takes requests again.
fn still(rows: &[Value], worker: &str) -> anyhow::Result<Option<String>> {
    let of_worker: Vec<&Value> = rows.iter().filter(|row| row["worker"] == worker).collect();
    ensure!(!of_worker.is_empty(), "{worker} is gone");
    if of_worker.iter().any(|row| row["state"] != "draining") {
        return Ok(Some("not announced yet".to_owned()));
    }
    let sum = |name: &str| of_worker.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    let (dispatched, engine) = (sum("active_requests"), sum("running") + sum("waiting"));
    Ok(match dispatched.max(engine) {
        0 => None,
        1 => Some("1 request in flight".to_owned()),
        many => Some(format!("{many} requests in flight")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::still;

    #[test]
    fn a_worker_is_idle_when_all_its_ranks_are() {
        let row = |state: &str, active: u64, running: u64| json!({"worker": "w0", "state": state, "active_requests": active, "running": running, "waiting": 0});
        let said = |rows: &[serde_json::Value]| still(rows, "w0").map_err(|error| error.to_string());
        assert_eq!(said(&[row("draining", 0, 0), row("draining", 0, 0)]), Ok(None));
        let busy = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(said(&[row("draining", 0, 0), row("draining", 1, 1)]), busy("1 request in flight"));
        assert_eq!(said(&[row("draining", 0, 2)]), busy("2 requests in flight"));
        assert_eq!(said(&[row("ready", 0, 0)]), busy("not announced yet"));
        assert_eq!(still(&[row("draining", 0, 0)], "w1").unwrap_err().to_string(), "w1 is gone");
    }
}

//! Subcommands that ask a running frontend.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(10);

fn frontend_arg() -> Arg {
    Arg::new("frontend")
        .long("frontend")
        .value_name("URL")
        .env("SIGHTLINE_FRONTEND")
        .hide_env_values(true)
        .default_value("http://127.0.0.1:8000")
        .help("Base URL of a frontend's admin listener, or of a frontend on loopback")
}

fn key_arg() -> Arg {
    Arg::new("key")
        .long("key")
        .value_name("KEY")
        .env("SIGHTLINE_KEY")
        .hide_env_values(true)
        .help("Bearer key with the operator role")
}

fn json_arg() -> Arg {
    Arg::new("json").long("json").action(clap::ArgAction::SetTrue).help("Print the frontend's JSON")
}

/// Builds the parser of `sightline workers`.
pub(crate) fn workers_command() -> Command {
    Command::new("workers").about("List the workers as a frontend sees them").args([
        frontend_arg(),
        key_arg(),
        json_arg(),
    ])
}

/// Builds the parser of `sightline explain`.
pub(crate) fn explain_command() -> Command {
    Command::new("explain")
        .about("Explain a routing decision")
        .arg(Arg::new("what").required(true).value_name("FILE|ID").help(
            "File with a chat request's body (decided, not sent), - for standard input, or the id of a past request",
        ))
        .args([frontend_arg(), key_arg()])
}

/// Prints the fleet as a table.
///
/// # Errors
/// Says why the frontend cannot be asked.
#[expect(clippy::print_stdout, reason = "the table was asked for")]
pub(crate) async fn workers(given: &ArgMatches) -> anyhow::Result<()> {
    let answer = fetch(given, "/admin/workers", None).await?;
    if given.get_flag("json") {
        println!("{answer:#}");
        return Ok(());
    }
    let header = [
        "WORKER", "RANK", "MODEL", "STATE", "BLOCKS", "ACTIVE", "WAITING", "KV", "LAG", "AGREES", "COVERAGE",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    for worker in answer.get("workers").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| match worker.get(key) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => "-".to_owned(),
            Some(other) => other.to_string(),
        };
        let percent = |key: &str| {
            worker.get(key).and_then(Value::as_f64).map_or("-".to_owned(), |x| format!("{:.0}%", x * 100.0))
        };
        let lag =
            worker.get("lag_ms").and_then(Value::as_f64).map_or("-".to_owned(), |x| format!("{x:.0} ms"));
        let agrees = match worker.get("agrees") {
            Some(Value::Bool(true)) => "yes",
            Some(Value::Bool(false)) => "no",
            _ => "-",
        };
        rows.push([
            text("worker"),
            text("rank"),
            text("model"),
            text("state"),
            text("blocks"),
            text("active_requests"),
            text("waiting"),
            percent("kv_usage"),
            lag,
            agrees.to_owned(),
            percent("coverage"),
        ]);
    }
    print!("{}", table(&rows));
    Ok(())
}

/// Prints a decision as JSON.
///
/// # Errors
/// Says why the frontend cannot be asked, or what it refused.
#[expect(clippy::print_stdout, reason = "the explanation was asked for")]
pub(crate) async fn explain(given: &ArgMatches) -> anyhow::Result<()> {
    let what = given.get_one::<String>("what").map_or("", String::as_str);
    let body = if what == "-" {
        Some(std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?)
    } else if std::path::Path::new(what).is_file() {
        Some(tokio::fs::read_to_string(what).await.with_context(|| format!("cannot read {what}"))?)
    } else if what.contains('/') || what.ends_with(".json") {
        bail!("file {what} does not exist")
    } else {
        None
    };
    let path = if body.is_some() { "/v1/explain".to_owned() } else { format!("/v1/explain/{what}") };
    let answer = fetch(given, &path, body).await?;
    println!("{answer:#}");
    Ok(())
}

async fn fetch(given: &ArgMatches, path: &str, body: Option<String>) -> anyhow::Result<Value> {
    let base = given.get_one::<String>("frontend").map_or("", String::as_str).trim_end_matches('/');
    let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build()?;
    let url = format!("{base}{path}");
    let mut request = match body {
        Some(body) => client.post(&url).header("content-type", "application/json").body(body),
        None => client.get(&url),
    };
    if let Some(key) = given.get_one::<String>("key") {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.map_err(|cause| unanswered(base, DEADLINE, &cause))?;
    let status = answer.status();
    let text = answer.text().await.map_err(|cause| unanswered(base, DEADLINE, &cause))?;
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        bail!("{url} answers {status} without JSON")
    };
    let message = value.pointer("/error/message").and_then(Value::as_str).unwrap_or(&text);
    ensure!(status.is_success(), "{status}: {message}");
    Ok(value)
}

/// Says why `address` did not answer within `deadline`: the cause at the bottom, without the layers above it.
pub(crate) fn unanswered(address: &str, deadline: Duration, cause: &reqwest::Error) -> anyhow::Error {
    if cause.is_timeout() {
        return anyhow!("{address} does not answer within {} s", deadline.as_secs());
    }
    let causes = std::iter::successors(Some(cause as &dyn Error), |&above| above.source());
    let root = causes.last().map_or_else(String::new, ToString::to_string);
    anyhow!("{address} does not answer: {root}")
}

/// Aligns rows in columns.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_align() {
        let rows = [["WORKER", "KV"], ["w0", "12%"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "WORKER  KV\nw0      12%\n");
    }
}

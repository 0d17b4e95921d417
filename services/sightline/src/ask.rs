//! Subcommands that ask a running frontend.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(10);

/// `--frontend`.
pub(crate) fn frontend_arg() -> Arg {
    Arg::new("frontend")
        .long("frontend")
        .value_name("URL")
        .env("SIGHTLINE_FRONTEND")
        .hide_env_values(true)
        .default_value("http://127.0.0.1:8000")
        .help("Base URL of a frontend's admin listener, or of a frontend on loopback")
}

/// `--key`.
pub(crate) fn key_arg() -> Arg {
    Arg::new("key")
        .long("key")
        .value_name("KEY")
        .env("SIGHTLINE_KEY")
        .hide_env_values(true)
        .help("Bearer key with the operator role; the environment keeps it out of the list of processes")
}

/// The option of whom to trust where a frontend speaks TLS.
pub(crate) fn ca_arg() -> Arg {
    Arg::new("ca")
        .long("ca")
        .value_name("FILE")
        .env("SIGHTLINE_CA")
        .hide_env_values(true)
        .help("PEM file of authorities to trust beside the system's, for https")
}

/// Makes a client that waits so long and trusts what was given.
pub(crate) fn client(given: &ArgMatches, deadline: Duration) -> anyhow::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder().no_proxy().timeout(deadline);
    if let Some(file) = given.get_one::<String>("ca") {
        let pem = std::fs::read(file).with_context(|| format!("cannot read --ca {file}"))?;
        let authorities = reqwest::Certificate::from_pem_bundle(&pem);
        let authorities = authorities.with_context(|| format!("--ca {file} holds no certificates"))?;
        builder = builder.tls_certs_merge(authorities);
    }
    Ok(builder.build()?)
}

/// Builds the parser of `sightline explain`.
pub(crate) fn explain_command() -> Command {
    Command::new("explain")
        .about("Explain a routing decision")
        .arg(Arg::new("what").required(true).value_name("FILE|ID").help(
            "File with a chat request's body (decided, not sent), - for standard input, or the id of a past request",
        ))
        .args([frontend_arg(), key_arg(), ca_arg()])
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

/// Asks a frontend: with a body by POST, else by GET.
///
/// # Errors
/// Says why the frontend cannot be asked, or what it refused.
pub(crate) async fn fetch(given: &ArgMatches, path: &str, body: Option<String>) -> anyhow::Result<Value> {
    let base = given.get_one::<String>("frontend").map_or("", String::as_str).trim_end_matches('/');
    let client = client(given, DEADLINE)?;
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

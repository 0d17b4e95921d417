//! `sightline healthcheck`: for images that have neither shell nor curl.

use std::time::Duration;

use anyhow::ensure;
use clap::ArgMatches;

use crate::ask::{client, unanswered};

const DEADLINE: Duration = Duration::from_secs(2);

/// Succeeds if the URL answers 200 in time.
///
/// # Errors
/// Says what was answered, or why nothing was.
pub(crate) async fn run(given: &ArgMatches) -> anyhow::Result<()> {
    let url = given.get_one::<String>("url").map_or("", String::as_str);
    let answer =
        client(given, DEADLINE)?.get(url).send().await.map_err(|cause| unanswered(url, DEADLINE, &cause))?;
    ensure!(answer.status().is_success(), "{url} answers {}", answer.status());
    Ok(())
}

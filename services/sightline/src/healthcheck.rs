//! `sightline healthcheck`: for images that have neither shell nor curl.

use std::time::Duration;

use anyhow::ensure;

use crate::ask::unanswered;

const DEADLINE: Duration = Duration::from_secs(2);

/// Succeeds if `url` answers 200 in time.
///
/// # Errors
/// Says what was answered, or why nothing was.
pub(crate) async fn run(url: &str) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build()?;
    let answer = client.get(url).send().await.map_err(|cause| unanswered(url, DEADLINE, &cause))?;
    ensure!(answer.status().is_success(), "{url} answers {}", answer.status());
    Ok(())
}

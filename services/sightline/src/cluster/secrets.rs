//! Secrets: where they come from, and where they should not be.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use clap::ArgMatches;
use clap::parser::ValueSource;

/// Flags whose values anybody on the machine could read in the list of processes.
const FLAGS: [&str; 5] = ["secret", "nats_password", "nats_token", "nats_nkey", "etcd_password"];

/// Returns a secret given in clear (by flag, environment or configuration file) or in a file of its own; the line end
/// after it is not part of it.
///
/// # Errors
/// Both are given, or the file cannot be read or is empty.
pub(crate) fn reveal(flag: &str, clear: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let path = match (clear, file) {
        (Some(_), Some(_)) => bail!("give one of --{flag} and --{flag}-file"),
        (clear, None) => return Ok(clear.map(str::to_owned)),
        (None, Some(path)) => path,
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read --{flag}-file {shown}"))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    ensure!(!secret.is_empty(), "--{flag}-file {shown} is empty");
    Ok(Some(secret.to_owned()))
}

/// Names the secrets that stand on the command line, as flags.
pub(crate) fn on_command_line(matches: &ArgMatches) -> Vec<String> {
    let said = |name: &&&str| {
        let known = matches.try_contains_id(name).is_ok_and(|known| known);
        known && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    FLAGS.iter().filter(said).map(|name| format!("--{}", name.replace('_', "-"))).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::cluster::Connection;

    #[test]
    fn a_secret_comes_from_one_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "hush \r\n").unwrap();
        assert_eq!(reveal("x", None, None).unwrap(), None);
        assert_eq!(reveal("x", Some("a"), None).unwrap().as_deref(), Some("a"));
        assert_eq!(reveal("x", None, Some(&file)).unwrap().as_deref(), Some("hush "));
        std::fs::write(&file, "\n").unwrap();
        for (clear, path) in [(Some("a"), &file), (None, &file), (None, &dir.path().join("none"))] {
            let error = format!("{:#}", reveal("x", clear, Some(path)).unwrap_err());
            assert!(error.contains("--x"), "{error}");
        }
    }

    #[test]
    fn secrets_on_the_command_line_are_noticed() {
        let command = Connection::augment_args(Command::new("frontend"));
        let given = ["frontend", "--secret", "a", "--etcd-password", "b", "--nats-password-file", "f"];
        let matches = command.get_matches_from(given);
        assert_eq!(on_command_line(&matches), ["--secret", "--etcd-password"]);
    }
}

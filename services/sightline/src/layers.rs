//! Configuration in layers: default, then the TOML file, then environment, then flags.

use std::path::Path;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A component's configuration that flags can set: flag, key and field have one name.
pub(crate) trait Configuration: Args + Default + Serialize + DeserializeOwned {}

impl<C: Args + Default + Serialize + DeserializeOwned> Configuration for C {}

/// Adds a component's flags to a subcommand, each with its `SIGHTLINE_…` variable.
pub(crate) fn flags<C: Configuration>(command: Command) -> Command {
    C::augment_args(command).mut_args(|arg| {
        let variable = format!("SIGHTLINE_{}", arg.get_id().as_str().to_uppercase());
        arg.env(variable).hide_env_values(true)
    })
}

/// Merges `section` of a TOML file, then what flags and environment say, over the defaults.
///
/// # Errors
/// Names the file, key or value that is wrong.
pub(crate) fn effective<C: Configuration>(
    file: Option<&Path>,
    section: &str,
    matches: &ArgMatches,
) -> anyhow::Result<C> {
    let mut layers = Figment::from(Serialized::defaults(C::default()));
    if let Some(path) = file {
        if !path.is_file() {
            bail!("configuration file {} does not exist", path.display());
        }
        let file = Figment::from(Toml::file(path)).extract::<Map<String, Value>>();
        let mut tables = file.with_context(|| format!("configuration file {}", path.display()))?;
        if let Some(table) = tables.remove(section) {
            layers = layers.merge(Serialized::defaults(table));
        }
    }
    layers.merge(Serialized::defaults(given::<C>(matches)?)).extract().context("configuration is wrong")
}

/// Picks the values that somebody gave from those that clap filled in.
fn given<C: Configuration>(matches: &ArgMatches) -> anyhow::Result<Map<String, Value>> {
    let all = serde_json::to_value(C::from_arg_matches(matches)?)?;
    let Value::Object(all) = all else { bail!("configuration is no table") };
    let by_somebody = |name: &String| {
        let source =
            matches.try_contains_id(name).is_ok_and(|known| known).then(|| matches.value_source(name));
        matches!(source.flatten(), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    Ok(all.into_iter().filter(|(name, _)| by_somebody(name)).collect())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};
    use serde::{Deserialize, Serialize};

    use super::{effective, flags};

    #[derive(Args, Debug, Serialize, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        #[arg(long, default_value_t = 3)]
        workers: u16,
        #[arg(long, default_value_t = 8000)]
        port: u16,
        #[arg(long)]
        name: Option<String>,
    }

    impl Default for Sample {
        fn default() -> Self {
            Self { workers: 3, port: 8000, name: None }
        }
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let file = std::env::temp_dir().join(format!("sightline-layers-{}.toml", std::process::id()));
        std::fs::write(&file, "[up]\nport = 9000\nworkers = 5\n").unwrap();
        let command = flags::<Sample>(Command::new("up"));
        let matches = command.get_matches_from(["up", "--workers", "7"]);
        let found: Sample = effective(Some(&file), "up", &matches).unwrap();
        assert_eq!(found, Sample { workers: 7, port: 9000, name: None });
        std::fs::write(&file, "[up]\nports = 9000\n").unwrap();
        let wrong = effective::<Sample>(Some(&file), "up", &matches).unwrap_err();
        assert!(format!("{wrong:#}").contains("ports"), "{wrong:#}");
        std::fs::remove_file(&file).unwrap();
    }
}

//! Configuration in layers: default, then the TOML file, then environment, then flags.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use figment::Figment;
use figment::providers::Serialized;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Map;
use toml::Value;

/// Tables of a configuration file: those of the subcommands, and what all parts of a cluster share.
const SECTIONS: [&str; 6] = ["up", "engine-sim", "frontend", "agent", "indexer", "cluster"];

/// A component's configuration that flags can set: flag, key and field have one name.
pub(crate) trait Configuration: Args + Default + Serialize + DeserializeOwned {}

impl<C: Args + Default + Serialize + DeserializeOwned> Configuration for C {}

/// Adds a component's flags to a subcommand, each with its `SIGHTLINE_…` variable.
pub(crate) fn flags<C: Configuration>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let command = C::augment_args(command).mut_args(|arg| {
        let variable = format!("SIGHTLINE_{}", arg.get_id().as_str().to_uppercase());
        arg.env(variable).hide_env_values(true)
    });
    command.about(about).long_about(None)
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
        layers = layers.merge(Serialized::defaults(table(path, section)?));
        // Without flags first, so that what is wrong in the file is told as the file's.
        let checked = layers.extract::<C>().map_err(plainly);
        checked.with_context(|| format!("configuration file {}: [{section}]", path.display()))?;
    }
    layers.merge(Serialized::defaults(given::<C>(matches)?)).extract().map_err(plainly)
}

/// Reads one table of a configuration file; empty if it has none.
fn table(path: &Path, section: &str) -> anyhow::Result<toml::Table> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("configuration file {shown} cannot be read"))?;
    let mut tables: toml::Table = toml::from_str(&text)
        .map_err(|cause| anyhow!("configuration file {shown}: {}", cause.to_string().trim_end()))?;
    if let Some(unknown) = tables.keys().find(|name| !SECTIONS.contains(&name.as_str())) {
        bail!("configuration file {shown}: no table is called {unknown}, expected {}", SECTIONS.join(", "));
    }
    match tables.remove(section) {
        Some(Value::Table(table)) => Ok(table),
        None => Ok(toml::Table::new()),
        Some(_) => bail!("configuration file {shown}: {section} is not a table"),
    }
}

/// Says which key is wrong and why, without the names of layers.
fn plainly(cause: figment::Error) -> anyhow::Error {
    let whys = cause.into_iter().map(|one| match one.path.join(".") {
        path if path.is_empty() => one.kind.to_string(),
        path => format!("{path}: {}", one.kind),
    });
    anyhow!("{}", whys.collect::<Vec<_>>().join("; ").replace('`', ""))
}

/// Picks the values that somebody gave from those that clap filled in.
fn given<C: Configuration>(matches: &ArgMatches) -> anyhow::Result<Map<String, serde_json::Value>> {
    let all = serde_json::to_value(C::from_arg_matches(matches)?)?;
    let serde_json::Value::Object(all) = all else { bail!("configuration is no table") };
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
        for (text, told) in [
            ("[up]\nports = 9000\n", "[up]: ports: unknown field"),
            ("[up]\nport = \"a\"\n", "[up]: port: invalid type: found string"),
            ("[pu]\nport = 9000\n", "no table is called pu"),
            ("up = 3\n", "up is not a table"),
            ("[up\n", "line 1"),
        ] {
            std::fs::write(&file, text).unwrap();
            let wrong = effective::<Sample>(Some(&file), "up", &matches).unwrap_err();
            assert!(format!("{wrong:#}").contains(told), "{wrong:#}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}

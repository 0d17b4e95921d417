//! The command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::layers::{effective, flags};
use crate::signals::Stop;
use crate::{ask, healthcheck, up};

/// Options of every subcommand.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// TOML file with a table per subcommand, keys named as the flags.
    #[arg(long, global = true, value_name = "FILE", env = "SIGHTLINE_CONFIG")]
    config: Option<PathBuf>,
    /// Print the effective configuration and exit.
    #[arg(long, global = true)]
    print_config: bool,
    /// What is logged, for example info or info,frontend=debug.
    #[arg(long, global = true, default_value = "info,ractor=warn", env = "SIGHTLINE_LOG")]
    log: String,
    /// Log one JSON object a line.
    #[arg(long, global = true, env = "SIGHTLINE_LOG_JSON")]
    log_json: bool,
    /// Where traces go (OTLP over gRPC), for example <http://127.0.0.1:4317>.
    #[arg(long, global = true, value_name = "URL", env = "SIGHTLINE_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
}

/// Builds the parser.
#[must_use]
pub fn command() -> Command {
    let long = |name: &'static str, about: &'static str| Command::new(name).about(about);
    let base = Command::new("sightline")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Routes multimodal chat to the engine that already holds its prompt")
        .subcommand_required(true)
        .arg_required_else_help(true);
    Global::augment_args(base)
        .subcommand(flags::<up::Config>(long("up", "Run frontends, agents and engines in one process")))
        .subcommand(flags::<engine_sim::Config>(long("engine-sim", "Run one simulated engine")).arg(
            Arg::new("until-stdin-closes").long("until-stdin-closes").action(ArgAction::SetTrue).hide(true),
        ))
        .subcommand(ask::workers_command())
        .subcommand(ask::explain_command())
        .subcommand(
            long("healthcheck", "Exit 0 if a URL answers 200 within two seconds")
                .arg(Arg::new("url").required(true).action(ArgAction::Set).help("An http:// URL")),
        )
}

/// Runs the subcommand that was asked for.
///
/// # Errors
/// Returns one sentence for a person.
pub async fn run(matches: ArgMatches) -> anyhow::Result<()> {
    let global = Global::from_arg_matches(&matches)?;
    let Some((name, given)) = matches.subcommand() else { return Ok(()) };
    match name {
        "up" => {
            let config: up::Config = effective(global.config.as_deref(), name, given)?;
            if printed(&global, &config)? {
                return Ok(());
            }
            let _telemetry = global.telemetry(name)?;
            let stop = Stop::listen(false);
            up::run(config, stop.token()).await
        }
        "engine-sim" => {
            let config: engine_sim::Config = effective(global.config.as_deref(), name, given)?;
            if printed(&global, &config)? {
                return Ok(());
            }
            let _telemetry = global.telemetry(name)?;
            let stop = Stop::listen(given.get_flag("until-stdin-closes"));
            engine_sim::run(config, stop.token()).await
        }
        "workers" => ask::workers(given).await,
        "explain" => ask::explain(given).await,
        "healthcheck" => healthcheck::run(given.get_one::<String>("url").map_or("", String::as_str)).await,
        _ => Ok(()),
    }
}

impl Global {
    fn telemetry(&self, service: &str) -> anyhow::Result<telemetry::Guard> {
        let format = if self.log_json { telemetry::Format::Json } else { telemetry::Format::Text };
        Ok(telemetry::init(&telemetry::Config {
            service: format!("sightline-{service}"),
            filter: self.log.clone(),
            format,
            otlp_endpoint: self.otlp_endpoint.clone(),
        })?)
    }
}

#[expect(clippy::print_stdout, reason = "the configuration was asked for")]
fn printed(global: &Global, config: &impl serde::Serialize) -> anyhow::Result<bool> {
    if global.print_config {
        print!("{}", toml::to_string_pretty(config)?);
    }
    Ok(global.print_config)
}

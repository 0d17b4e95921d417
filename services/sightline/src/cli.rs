//! The command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::cluster::{self, Connection, FrontendConfig};
use crate::layers::{Configuration, effective, flags};
use crate::print_config::Printed;
use crate::signals::Stop;
use crate::{ask, healthcheck, media_tokens, up, workers};

/// Options of every subcommand.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Global {
    /// TOML file with a table per subcommand, keys named as the flags.
    #[arg(long, global = true, value_name = "FILE", env = "SIGHTLINE_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Print the effective configuration and exit.
    #[arg(long, global = true)]
    print_config: bool,
    /// What is logged, for example info or info,frontend=debug.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        default_value = "info,ractor=warn,async_nats=warn,async_nats::connector=off,zeromq=error,opentelemetry=off",
        env = "SIGHTLINE_LOG",
        hide_env_values = true
    )]
    log: String,
    /// Log one JSON object a line.
    #[arg(long, global = true, env = "SIGHTLINE_LOG_JSON", hide_env_values = true)]
    log_json: bool,
    /// Where traces go.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "SIGHTLINE_OTLP_ENDPOINT",
        hide_env_values = true,
        help = "Where traces go (OTLP over gRPC), for example http://127.0.0.1:4317"
    )]
    otlp_endpoint: Option<String>,
    /// Where traces go, as other programs are told it.
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide = true)]
    otel_exporter_otlp_endpoint: Option<String>,
    /// Share of the traces begun here that are recorded, 0 to 1; those that a client records are.
    #[arg(
        long,
        global = true,
        value_name = "SHARE",
        default_value_t = 1.0,
        value_parser = share,
        env = "SIGHTLINE_OTLP_SAMPLE_RATIO",
        hide_env_values = true
    )]
    otlp_sample_ratio: f64,
}

/// Reads a number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// Builds the parser.
#[must_use]
pub fn command() -> Command {
    let long = |name: &'static str, about: &'static str| Command::new(name).about(about);
    let base = Command::new("sightline")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true);
    Global::augment_args(base)
        .about("Routes multimodal chat to the engine that already holds its prompt")
        .long_about(None)
        .subcommand(flags::<up::Config>(long("up", "Run frontends, agents and engines in one process")))
        .subcommand(flags::<engine_sim::Config>(long("engine-sim", "Run one simulated engine")).arg(
            Arg::new("until-stdin-closes").long("until-stdin-closes").action(ArgAction::SetTrue).hide(true),
        ))
        .subcommand(in_cluster::<FrontendConfig>(long("frontend", "Run one frontend of a cluster")))
        .subcommand(in_cluster::<agent::Config>(long("agent", "Run the agent of one engine of a cluster")))
        .subcommand(in_cluster::<indexer::Config>(long("indexer", "Run an index without a frontend")))
        .subcommand(workers::command())
        .subcommand(ask::explain_command())
        .subcommand(media_tokens::command())
        .subcommand(
            long("healthcheck", "Exit 0 if a URL answers 200 within two seconds")
                .arg(Arg::new("url").required(true).value_name("URL").help("An http:// or https:// URL"))
                .arg(ask::ca_arg()),
        )
}

/// Adds a part's own flags and those that all parts of a cluster share.
fn in_cluster<C: Configuration>(command: Command) -> Command {
    flags::<C>(flags::<Connection>(command))
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
            let Some(config) = global.alone::<up::Config>(name, given)? else { return Ok(()) };
            let _telemetry = global.telemetry(name)?;
            let stop = Stop::listen(false);
            up::run(config, stop.token()).await
        }
        "engine-sim" => {
            let Some(config) = global.alone::<engine_sim::Config>(name, given)? else { return Ok(()) };
            let _telemetry = global.telemetry(name)?;
            let stop = Stop::listen(given.get_flag("until-stdin-closes"));
            engine_sim::run(config, stop.token()).await
        }
        "frontend" => {
            let Some((config, connection)) = global.connected(name, given)? else { return Ok(()) };
            let _telemetry = global.telemetry(name)?;
            warn_of_secrets(given);
            let stop = Stop::listen(false);
            Box::pin(cluster::run_frontend(config, &connection, stop.token())).await
        }
        "agent" => {
            let Some((config, connection)) = global.connected(name, given)? else { return Ok(()) };
            let _telemetry = global.telemetry(name)?;
            warn_of_secrets(given);
            let stop = Stop::listen(false);
            Box::pin(cluster::run_agent(config, &connection, stop.token())).await
        }
        "indexer" => {
            let Some((config, connection)) = global.connected(name, given)? else { return Ok(()) };
            let _telemetry = global.telemetry(name)?;
            warn_of_secrets(given);
            let stop = Stop::listen(false);
            Box::pin(cluster::run_indexer(config, &connection, stop.token())).await
        }
        "workers" => Box::pin(workers::run(given)).await,
        "explain" => ask::explain(given).await,
        "media-tokens" => media_tokens::run(given),
        "healthcheck" => healthcheck::run(given).await,
        _ => Ok(()),
    }
}

/// Says which secrets can be read in the list of processes.
fn warn_of_secrets(given: &ArgMatches) {
    for flag in cluster::on_command_line(given) {
        tracing::warn!(
            flag,
            "a secret on the command line can be read by everybody on the machine: use a file or the environment"
        );
    }
}

impl Global {
    /// Returns a part's effective configuration; none if it was only to be printed.
    fn alone<C: Configuration>(&self, name: &str, given: &ArgMatches) -> anyhow::Result<Option<C>> {
        let config: C = effective(self.config.as_deref(), name, given)?;
        if self.print_config {
            Printed::default().table(name, &config)?.print();
        }
        Ok((!self.print_config).then_some(config))
    }

    /// Does the same for a part of a cluster.
    fn connected<C: Configuration>(
        &self,
        name: &str,
        given: &ArgMatches,
    ) -> anyhow::Result<Option<(C, Connection)>> {
        let connection: Connection = effective(self.config.as_deref(), "cluster", given)?;
        let config: C = effective(self.config.as_deref(), name, given)?;
        if self.print_config {
            Printed::default().table("cluster", &connection)?.table(name, &config)?.print();
        }
        Ok((!self.print_config).then_some((config, connection)))
    }

    fn telemetry(&self, service: &str) -> anyhow::Result<telemetry::Guard> {
        let format = if self.log_json { telemetry::Format::Json } else { telemetry::Format::Text };
        Ok(telemetry::init(&telemetry::Config {
            service: format!("sightline-{service}"),
            filter: self.log.clone(),
            format,
            otlp_endpoint: [&self.otlp_endpoint, &self.otel_exporter_otlp_endpoint]
                .into_iter()
                .flatten()
                .find(|url| !url.is_empty())
                .cloned(),
            sample_ratio: self.otlp_sample_ratio,
        })?)
    }
}

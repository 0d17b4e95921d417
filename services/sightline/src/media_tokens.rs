//! `sightline media-tokens`: what images of given sizes become in a model's prompt.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use prompt::Kwargs;
use prompt::media_config::{MediaFiles, config_of_type, geometry_of, parse_size, report, report_each};

/// Builds the parser.
pub(crate) fn command() -> Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(PathBuf)).help(help)
    };
    let model_dir = path("model-dir", "Directory with the model's config.json and preprocessor files");
    Command::new("media-tokens")
        .about("Predict the tokens of images from their sizes")
        .arg(model_dir.value_name("DIR").required_unless_present("model-type"))
        .arg(
            Arg::new("model-type")
                .long("model-type")
                .value_name("TYPE")
                .conflicts_with("model-dir")
                .help("The model_type of config.json, with the family's own defaults"),
        )
        .arg(
            path("preprocessor-config", "A preprocessor_config.json for --model-type")
                .value_name("FILE")
                .conflicts_with("model-dir"),
        )
        .arg(
            Arg::new("mm-processor-kwargs")
                .long("mm-processor-kwargs")
                .value_name("JSON")
                .value_parser(value_parser!(Kwargs))
                .help("How the engine was told to process images"),
        )
        .arg(
            Arg::new("each")
                .long("each")
                .action(ArgAction::SetTrue)
                .help("Take each size as the only image of a request, not all as one request's"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print a JSON object a line"))
        .arg(
            Arg::new("sizes")
                .value_name("WIDTHxHEIGHT")
                .num_args(1..)
                .required(true)
                .help("Sizes in pixels, in the order of the request"),
        )
}

/// Prints a line per size.
///
/// # Errors
/// Names the file, model type or size that cannot be used. A size that the model refuses is a line, not an error.
#[expect(clippy::print_stdout, reason = "the lines were asked for")]
pub(crate) fn run(given: &ArgMatches) -> anyhow::Result<()> {
    let texts = given.get_many::<String>("sizes").into_iter().flatten();
    let sizes = texts.map(|text| parse_size(text)).collect::<Result<Vec<_>, _>>()?;
    let (config, preprocessor, processor) = match given.get_one::<PathBuf>("model-dir") {
        Some(dir) => (
            read(&dir.join("config.json"))?,
            read_if_there(&dir.join("preprocessor_config.json"))?,
            read_if_there(&dir.join("processor_config.json"))?,
        ),
        None => {
            let model_type = given.get_one::<String>("model-type").map_or("", String::as_str);
            let preprocessor = given.get_one::<PathBuf>("preprocessor-config");
            (config_of_type(model_type), preprocessor.map(|file| read(file)).transpose()?, None)
        }
    };
    let kwargs = given.get_one::<Kwargs>("mm-processor-kwargs").map(Kwargs::to_string);
    let files = MediaFiles {
        config: &config,
        preprocessor: preprocessor.as_deref(),
        processor: processor.as_deref(),
        kwargs: kwargs.as_deref().map(str::as_bytes),
    };
    let Some(geometry) = geometry_of(&files)? else {
        bail!("no family is known for this model type: its counts can only be learned from an engine");
    };
    let one_token_a_text = |_: &str| 1;
    let lines = if given.get_flag("each") {
        report_each(&geometry, &sizes, one_token_a_text)
    } else {
        report(&geometry, &sizes, one_token_a_text)
    };
    for line in lines {
        if given.get_flag("json") {
            println!("{}", serde_json::to_string(&line)?);
            continue;
        }
        match (line.placeholder_tokens, line.tokens, line.error) {
            (Some(placeholders), Some(tokens), None) => {
                println!(
                    "{}x{}  {placeholders} placeholder tokens, {tokens} in all",
                    line.width, line.height
                );
            }
            (.., error) => {
                let why = error.unwrap_or_else(|| "not predicted".to_owned());
                println!("{}x{}  refused: {why}", line.width, line.height);
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

//! Dependencies point down: the table of `docs/architecture.md`, enforced.

use std::collections::BTreeMap;

use crate::tree;

/// Layers from the bottom up; a crate may name crates of the layers listed beside its own.
const LAYERS: [(&str, &[&str], &[&str]); 7] = [
    (
        "core",
        &[
            "identity",
            "block-index",
            "media-decode",
            "media-geometry",
            "media-probe",
            "placement",
            "membership",
        ],
        &["core"],
    ),
    ("edge", &["ports", "wire"], &["core", "edge"]),
    ("domain", &["prompt", "engine-events"], &["core", "edge"]),
    (
        "adapter",
        &["adapter-nats", "adapter-etcd", "adapter-zmq", "adapter-http", "telemetry"],
        &["core", "edge"],
    ),
    ("actor", &["actor-kit", "actors"], &["core", "edge", "domain", "actor"]),
    (
        "service",
        &["frontend", "indexer", "agent", "engine-sim"],
        &["core", "edge", "domain", "adapter", "actor"],
    ),
    ("binary", &["sightline"], &["core", "edge", "domain", "adapter", "actor", "service"]),
];

/// What core crates may name from outside: nothing that does IO, tells time, logs or serialises.
const CORE_LIBRARIES: [&str; 11] = [
    "xxhash-rust",
    "thiserror",
    "bytemuck",
    "crossbeam-epoch",
    "smallvec",
    "miniz_oxide",
    "memchr",
    // Decoders of image files.
    "gif",
    "image-webp",
    "libjpeg-turbo-rs",
    "png",
];

#[test]
fn every_crate_names_only_what_lies_below() {
    let layer_of: BTreeMap<&str, &str> =
        LAYERS.iter().flat_map(|(layer, crates, _)| crates.iter().map(move |name| (*name, *layer))).collect();
    let mut broken = Vec::new();
    for member in tree::members() {
        let Some(layer) = layer_of.get(member.name.as_str()) else {
            if !member.dir.starts_with("tests/") {
                broken.push(format!("{} is in no layer", member.name));
            }
            continue;
        };
        let allowed = LAYERS.iter().find(|(name, ..)| name == layer).map_or(&[][..], |(.., below)| below);
        for dependency in &member.dependencies {
            match layer_of.get(dependency.as_str()) {
                Some(below) if !allowed.contains(below) => {
                    broken.push(format!("{} ({layer}) names {dependency} ({below})", member.name));
                }
                None if *layer == "core" && !CORE_LIBRARIES.contains(&dependency.as_str()) => {
                    broken.push(format!("{} (core) names {dependency}", member.name));
                }
                _ => {}
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn actors_are_run_in_one_place() {
    let members = tree::members();
    let naming = members.iter().filter(|member| member.dependencies.iter().any(|name| name == "ractor"));
    let naming: Vec<&str> = naming.map(|member| member.name.as_str()).collect();
    assert_eq!(naming, ["actor-kit"], "crates that name ractor");
}

#[test]
fn every_crate_inherits_the_lints() {
    let bare: Vec<String> = tree::members()
        .into_iter()
        .filter(|member| !member.inherits_lints)
        .map(|member| member.name)
        .collect();
    assert!(bare.is_empty(), "without [lints] workspace = true: {bare:?}");
}

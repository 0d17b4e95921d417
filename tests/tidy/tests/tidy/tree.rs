//! The workspace as its manifests and files describe it.

use std::fs;
use std::path::{Path, PathBuf};

/// A workspace member.
pub(crate) struct Member {
    /// Package name.
    pub(crate) name: String,
    /// Folder below the root, slash-separated.
    pub(crate) dir: String,
    /// Names of its dependencies, those of tests and benches excluded.
    pub(crate) dependencies: Vec<String>,
    /// Whether the manifest takes the workspace's lints.
    pub(crate) inherits_lints: bool,
}

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Lists the workspace's members.
pub(crate) fn members() -> Vec<Member> {
    let manifest = read_toml(&root().join("Cargo.toml"));
    let members = manifest["workspace"]["members"].as_array().unwrap();
    members.iter().map(|dir| member(dir.as_str().unwrap())).collect()
}

fn member(dir: &str) -> Member {
    let manifest = read_toml(&root().join(dir).join("Cargo.toml"));
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    Member {
        name: manifest["package"]["name"].as_str().unwrap().to_owned(),
        dir: dir.to_owned(),
        dependencies: dependencies.map(|table| table.keys().cloned().collect()).unwrap_or_default(),
        inherits_lints: manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool)
            .unwrap_or(false),
    }
}

fn read_toml(path: &Path) -> toml::Value {
    let text = fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    toml::Value::Table(text.parse().unwrap_or_else(|cause| panic!("{}: {cause}", path.display())))
}

/// Lists the project's files with their paths below the root; build output and hidden folders are left out.
pub(crate) fn files() -> Vec<(String, PathBuf)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if ["target", ".git", ".cache", "corpus"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let below = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
                found.push((below, path));
            }
        }
    }
    found.sort();
    found
}

/// Lists the Rust files outside tests, benches and fuzz targets, with their text.
pub(crate) fn sources() -> Vec<(String, String)> {
    files()
        .into_iter()
        .filter(|(name, _)| {
            name.ends_with(".rs")
                && !name.starts_with("fuzz/")
                && !name.split('/').any(|part| part == "tests" || part == "benches" || part == "tests.rs")
        })
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect()
}

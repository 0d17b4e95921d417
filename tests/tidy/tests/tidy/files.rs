//! Sizes, names and contents of files.

use std::fs;

use crate::tree;

const LINES_MAX: usize = 600;
const MAIN_LINES_MAX: usize = 60;
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "common", "helpers", "misc", "manager", "types"];

#[test]
fn no_file_is_longer_than_two_files() {
    let long: Vec<String> = tree::sources()
        .into_iter()
        .map(|(name, text)| (name, text.lines().take_while(|line| *line != "#[cfg(test)]").count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(name, lines)| format!("{name}: {lines}"))
        .collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines without tests: {long:#?}");
}

#[test]
fn main_only_starts_things() {
    let long: Vec<String> = tree::sources()
        .into_iter()
        .filter(|(name, text)| name.ends_with("/main.rs") && text.lines().count() > MAIN_LINES_MAX)
        .map(|(name, _)| name)
        .collect();
    assert!(long.is_empty(), "more than {MAIN_LINES_MAX} lines: {long:?}");
}

#[test]
fn every_name_says_something() {
    let empty: Vec<String> = tree::sources()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            let stem = name.rsplit('/').next().unwrap().trim_end_matches(".rs");
            EMPTY_NAMES.contains(&stem) || stem == "mod"
        })
        .collect();
    assert!(empty.is_empty(), "{empty:?}");
}

#[test]
fn every_crate_introduces_itself() {
    let mut silent = Vec::new();
    for member in tree::members() {
        let folder = tree::root().join(&member.dir);
        let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
        for part in ["**What.**", "**Why it is a crate.**", "**Invariants.**", "**Not here.**"] {
            if !readme.contains(part) {
                silent.push(format!("{}/README.md lacks {part}", member.dir));
            }
        }
        let root = ["src/lib.rs", "src/main.rs"]
            .map(|file| fs::read_to_string(folder.join(file)).unwrap_or_default());
        if !root.iter().any(|text| text.contains("include_str!(\"../README.md\")")) {
            silent.push(format!("{} does not use its README as crate docs", member.dir));
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn no_test_is_switched_off() {
    let marks = [concat!("#[ign", "ore"), concat!("#[should_", "panic")];
    let off: Vec<String> = tree::files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".rs"))
        .filter(|(_, path)| {
            let text = fs::read_to_string(path).unwrap();
            marks.iter().any(|mark| text.contains(mark))
        })
        .map(|(name, _)| name)
        .collect();
    assert!(off.is_empty(), "{off:?}");
}

#[test]
fn nothing_names_one_machine() {
    let marks = [concat!("/wor", "k/"), concat!("/ro", "ot/"), concat!("../sha", "red")];
    let leaks: Vec<String> = tree::files()
        .into_iter()
        .filter(|(name, _)| !name.ends_with(".lock") && !name.starts_with("tests/fixtures/"))
        .filter_map(|(name, path)| Some((name, fs::read_to_string(path).ok()?)))
        .filter(|(_, text)| marks.iter().any(|mark| text.contains(mark)))
        .map(|(name, _)| name)
        .collect();
    assert!(leaks.is_empty(), "{leaks:?}");
}

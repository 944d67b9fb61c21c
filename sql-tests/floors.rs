//! The layout is architecture: a module imports from its own folder and from lower floors only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders and files of `src`, lowest floor first; those of one line share a floor.
const FLOORS: [&[&str]; 10] = [
    // What tests draw numbers from.
    &["splitmix"],
    &["time", "disk", "error"],
    &["config", "checkpoint", "picture"],
    &["logical"],
    &["state"],
    &["physical", "source", "sink"],
    &["sql"],
    &["query"],
    &["catalog"],
    &["context"],
];

/// What nothing imports: the binary and the prompt use what an embedder can use.
const TOPS: [&str; 4] = ["repl", "slt", "lib", "main"];

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The folder of `src` that a file belongs to.
fn folder_of(root: &Path, file: &Path) -> String {
    let first = file
        .strip_prefix(root)
        .unwrap()
        .components()
        .next()
        .unwrap();
    let name = first.as_os_str().to_str().unwrap();
    name.trim_end_matches(".rs").to_owned()
}

/// Folders that a text imports: `crate::folder`, comments left out.
fn imports(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| {
            line.match_indices("crate::")
                .map(move |(at, found)| &line[at + found.len()..])
        })
        .map(|rest| {
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

#[test]
fn modules_import_from_lower_floors_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let floor: BTreeMap<&str, usize> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(at, names)| names.iter().map(move |name| (*name, at)))
        .collect();
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    assert!(files.len() > 50, "the sources were found");
    for file in files {
        let folder = folder_of(&root, &file);
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            if import == folder || TOPS.contains(&folder.as_str()) {
                continue;
            }
            let from = floor
                .get(folder.as_str())
                .unwrap_or_else(|| panic!("{folder} has no floor"));
            let to = floor
                .get(import.as_str())
                .unwrap_or_else(|| panic!("{} imports crate::{import}", file.display()));
            assert!(
                to < from,
                "{} imports crate::{import}, which is not on a lower floor",
                file.display()
            );
        }
    }
}

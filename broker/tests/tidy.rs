//! Holds: the project's own style, as far as a machine can judge it: module docs, the edges between crates, lengths of files, and
//! what must not stand in the code.
//! Never touches: anything but the project's sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Past this a file is split.
const LINES_MAX: usize = 600;

/// Crates by folder, and which crates of the workspace each may depend on. The reactor is the ground floor: open to all who stand on a
/// floor that stands on it.
const EDGES: [(&str, &str, &[&str]); 6] = [
    ("net/reactor", "corelog-reactor", &[]),
    ("net", "corelog-net", &["corelog-reactor"]),
    ("storage", "corelog-storage", &["corelog-reactor"]),
    ("tuning", "corelog-tune", &["corelog-reactor", "corelog-storage"]),
    ("bench", "corelog-bench", &["corelog-net", "corelog-reactor", "corelog-storage"]),
    ("broker", "corelog-broker", &["corelog-net", "corelog-reactor", "corelog-storage", "corelog-tune"]),
];

/// Folders whose code runs where data moves: an error there is a value, never a panic.
const NO_PANICS: [&str; 4] = ["net/src", "net/reactor/src", "storage/src", "broker/src"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace's folder")
}

/// All Rust files below `folder`, without what is built or fetched.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path as seen from the workspace.
fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn every_module_introduces_itself() {
    let silent: Vec<String> = EDGES
        .iter()
        .flat_map(|(folder, _, _)| rust_files(&workspace().join(folder).join("src")))
        .filter(|path| !introduces_itself(&read(path)))
        .map(|path| shown(&path))
        .collect();
    assert_none("files that don't begin with a module doc (//!)", &silent);
}

fn introduces_itself(source: &str) -> bool {
    source.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"))
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let mut forbidden = Vec::new();
    for (folder, name, allowed) in EDGES {
        let manifest = read(&workspace().join(folder).join("Cargo.toml"));
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{folder}/Cargo.toml should be the package {name}");
        for dependency in workspace_dependencies(&manifest) {
            // A crate may name itself to switch a feature on for its tests.
            if dependency != name && !allowed.contains(&dependency.as_str()) {
                forbidden.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_none("forbidden edges between crates", &forbidden);
}

/// The crates of the workspace that a manifest names in any of its dependency tables.
fn workspace_dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            in_dependencies = table.ends_with("dependencies");
            if let Some((_, name)) = table.rsplit_once("dependencies.")
                && name.starts_with("corelog-")
            {
                found.push(name.to_owned());
            }
        } else if in_dependencies && line.starts_with("corelog-") {
            let end = line.find(['.', '=', ' ']).unwrap_or(line.len());
            found.push(line[..end].to_owned());
        }
    }
    found
}

#[test]
fn every_member_of_the_workspace_has_its_edges_declared() {
    let manifest = read(&workspace().join("Cargo.toml"));
    let members = manifest.lines().find(|line| line.starts_with("members")).expect("members in the root Cargo.toml");
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let unknown: Vec<String> = members
        .into_iter()
        .filter(|member| EDGES.iter().all(|(folder, _, _)| folder != member))
        .map(str::to_owned)
        .collect();
    assert_none("members that this test doesn't know", &unknown);
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = rust_files(&workspace())
        .into_iter()
        .map(|path| (read(&path).lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{}: {lines} lines", shown(&path)))
        .collect();
    assert_none("files with more than 600 lines", &long);
}

#[test]
fn nothing_is_left_to_be_done_or_left_out() {
    // Put together here, so that this file doesn't accuse itself.
    let words = [concat!("to", "do!"), concat!("un", "implemented!"), concat!("#[ig", "nore")];
    let mut found = Vec::new();
    for path in rust_files(&workspace()) {
        let source = read(&path);
        for (number, line) in source.lines().enumerate() {
            for word in words.iter().filter(|word| code_of(line).contains(*word) && !is_run_by_another(line, &source)) {
                found.push(format!("{}:{}: {word}", shown(&path), number + 1));
            }
        }
    }
    assert_none("unfinished code and ignored tests", &found);
}

/// A test that must run in a process of its own is ignored until the test that it names runs it there.
fn is_run_by_another(line: &str, source: &str) -> bool {
    let reason = line.trim().strip_prefix(concat!("#[ig", "nore = \"run by "));
    reason.and_then(|reason| reason.strip_suffix("\"]")).is_some_and(|name| source.contains(&format!("fn {name}()")))
}

#[test]
fn nothing_panics_where_data_moves() {
    let mut found = Vec::new();
    for folder in NO_PANICS {
        let files = rust_files(&workspace().join(folder));
        let sources: BTreeMap<PathBuf, String> = files.into_iter().map(|path| (path.clone(), read(&path))).collect();
        let tests: Vec<PathBuf> = sources.iter().flat_map(|(path, source)| test_modules(path, source)).collect();
        for (path, source) in &sources {
            if tests.iter().any(|test| path.starts_with(test) || *path == test.with_extension("rs")) {
                continue;
            }
            for (number, line) in panicking_lines(source) {
                found.push(format!("{}:{number}: {}", shown(path), line.trim()));
            }
        }
    }
    assert_none("unwrap() and expect() outside tests", &found);
}

/// A line without its comment. Good enough here: a `//` within a string hides only what stands after it.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// The places (without `.rs`) of modules that are declared as `#[cfg(test)] mod name;`.
fn test_modules(path: &Path, source: &str) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = path.parent().unwrap_or(Path::new(""));
    let below = if ["mod", "lib", "main"].contains(&stem.as_str()) { folder.to_owned() } else { folder.join(stem) };
    let lines: Vec<&str> = source.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut modules = Vec::new();
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| is_test_attribute(line)) {
        // Other attributes may stand between; one of them may say where the file is.
        let mut place = None;
        for line in &lines[index + 1..] {
            if let Some(file) = line.strip_prefix("#[path = \"") {
                place = Some(folder.join(file.trim_end_matches("\"]")).with_extension(""));
            } else if !line.starts_with("#[") {
                let rest = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ").strip_prefix("mod ");
                let name = rest.and_then(|rest| rest.strip_suffix(';'));
                modules.extend(name.map(|name| place.unwrap_or_else(|| below.join(name))));
                break;
            }
        }
    }
    modules
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(")
        && line.split(['(', ')', ',', ' ']).any(|word| word == "test")
        && !line.contains("not(test")
}

/// Lines (from 1) that unwrap, outside items under `#[cfg(test)]`.
fn panicking_lines(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // While skipping an item under #[cfg(test)]: how many braces of it are open, and whether there was one yet.
    let mut skipping: Option<(i32, bool)> = None;
    for (index, line) in source.lines().enumerate() {
        let code = code_of(line);
        if skipping.is_none() && is_test_attribute(code.trim()) {
            skipping = Some((0, false));
        } else if let Some((open, begun)) = skipping {
            let opened = code.matches('{').count() as i32;
            let open = open + opened - code.matches('}').count() as i32;
            let begun = begun || opened > 0;
            let over = if begun { open <= 0 } else { code.trim_end().ends_with(';') };
            skipping = if over { None } else { Some((open, begun)) };
        } else if code.contains(".unwrap()") || code.contains(".expect(") || code.contains(".unwrap_unchecked(") {
            found.push((index + 1, line));
        }
    }
    found
}

#[test]
fn the_judge_itself_sees_what_it_should() {
    assert!(introduces_itself("//! Holds: x.\nfn f() {}"));
    assert!(!introduces_itself("fn f() {}\n//! late"));
    let manifest = "[package]\nname = \"x\"\n[dependencies]\ncorelog-net.workspace = true\nserde = \"1\"\n\
                    [dev-dependencies]\ncorelog-tune = { path = \"..\" }\n[dependencies.corelog-storage]\n[features]\ncorelog-no = []";
    assert_eq!(workspace_dependencies(manifest), ["corelog-net", "corelog-tune", "corelog-storage"]);
    let source = "fn a() { b.unwrap() }\n// c.unwrap()\n#[cfg(test)]\nfn d() {\n e.unwrap();\n}\nfn f() { g.expect(\"h\") }\n\
                  #[cfg(test)]\nmod tests;\nfn i() { j.unwrap_or(1) }\n#[cfg(test)]\nmod inline {\n fn k() { l.unwrap(); }\n}\n";
    let lines: Vec<usize> = panicking_lines(source).into_iter().map(|(number, _)| number).collect();
    assert_eq!(lines, [1, 7]);
    assert_eq!(test_modules(Path::new("a/mod.rs"), source), [Path::new("a/tests")]);
    assert_eq!(test_modules(Path::new("a/b.rs"), source), [Path::new("a/b/tests")]);
    let elsewhere = "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;";
    assert_eq!(test_modules(Path::new("a/b.rs"), elsewhere), [Path::new("a/b_tests")]);
    let child = concat!("#[ig", "nore = \"run by parent\"]");
    assert!(is_run_by_another(child, "fn parent() {}") && !is_run_by_another(child, "fn other() {}"));
    assert!(!is_run_by_another(concat!("#[ig", "nore]"), "fn parent() {}"));
    assert!(is_test_attribute("#[cfg(any(test, fuzzing))]") && !is_test_attribute("#[cfg(not(test))]"));
}

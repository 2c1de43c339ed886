//! What the broker says of its machine.
//!
//! Holds: the tests of `corelog check` and of the lines at start, on the machine the tests run on. Never touches: settings.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use support::broker::BrokerSetup;

fn check(data_dir: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CORELOG_")) {
        command.env_remove(name);
    }
    command.arg("check").arg("--data-dir").arg(data_dir).args(more).output().expect("corelog runs")
}

fn json(data_dir: &Path) -> (Value, Option<i32>) {
    let output = check(data_dir, &["--json"]);
    let said = serde_json::from_slice(&output.stdout);
    (said.unwrap_or_else(|error| panic!("{error}: {output:?}")), output.status.code())
}

fn one<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("a list of checks");
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// A folder in memory, where this machine has one.
fn in_memory() -> Option<tempfile::TempDir> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let there = mounts.lines().any(|line| line.contains(" /dev/shm ") && line.contains(" - tmpfs "));
    there.then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten()
}

#[test]
fn check_tells_people_and_scripts_the_same_and_leaves_the_folder_as_it_was() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (report, code) = json(folder.path());
    assert_eq!(report["exit_code"].as_i64(), code.map(i64::from));
    assert!([Some(0), Some(60)].contains(&code), "this machine runs brokers: {report}");
    assert_eq!(one(&report, "kernel")["status"], "ok");
    let text = String::from_utf8(check(folder.path(), &[]).stdout).expect("text");
    for check in report["checks"].as_array().expect("a list") {
        let (name, status) = (check["check"].as_str().expect("a name"), check["status"].as_str().expect("a status"));
        assert!(["ok", "unknown", "costs", "unsafe", "fatal"].contains(&status), "{check}");
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        assert!(line.to_lowercase().starts_with(status), "{line}: {check}");
        assert_eq!(check["fix"].is_string(), status == "costs" || status == "unsafe", "what is off has a fix: {check}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn a_folder_that_the_broker_could_not_use_is_fatal_with_the_brokers_own_exit_code() {
    let (report, code) = json(Path::new("/proc"));
    assert_eq!((code, &one(&report, "disk")["status"]), (Some(74), &Value::from("fatal")), "{report}");
}

#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (report, _) = json(&folder.path().join("later"));
    assert_eq!(one(&report, "disk")["status"], "unknown", "{report}");
    assert_ne!(one(&report, "file-system")["status"], "unknown", "the folder it will be made in: {report}");
    assert!(!folder.path().join("later").exists());
}

#[test]
fn a_data_folder_in_memory_is_unsafe_and_told_at_start() {
    let Some(folder) = in_memory() else {
        eprintln!("left out: no tmpfs at /dev/shm");
        return;
    };
    let (report, code) = json(folder.path());
    assert_eq!((code, &one(&report, "file-system")["status"]), (Some(60), &Value::from("unsafe")), "{report}");
    let broker = BrokerSetup::new(folder.path(), 1).start();
    let log = broker.log();
    let told = log.lines().filter(|line| line.contains("WARN") && line.contains("it is memory")).count();
    assert_eq!(told, 1, "{log}");
}

#[test]
fn a_wrong_configuration_is_told_as_by_the_broker() {
    let output = check(Path::new("."), &["--set", "num.partitions=none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("num.partitions"), "{output:?}");
}

#[test]
fn the_help_of_check_shows_how_to_use_it_and_what_its_exit_codes_mean() {
    let help = check(Path::new("."), &["--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    for word in ["Examples:", "--json", "UNSAFE", "Exit code", "--data-dir"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

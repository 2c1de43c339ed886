//! Holds: what an operator sees when something is wrong: every refusal names its fix, and the fix works. Never touches: load, the
//! power.

mod support;

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::RawConnection;
use support::requests::{METADATA, PRODUCE, batch, metadata, produce, produce_answer};

const PATIENCE: Duration = Duration::from_secs(30);

/// The command, without our own settings from outside.
fn corelog() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"CORELOG_")) {
        command.env_remove(name);
    }
    command
}

/// Runs it to its end, which comes by itself. Its exit code, and all that it said.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("corelog runs");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Has one record acknowledged in partition 0 of a topic that is made for it, if need be.
fn produce_one(connection: &mut RawConnection, topic: &str) -> i16 {
    let give_up = Instant::now() + PATIENCE;
    loop {
        connection.call(METADATA, 4, metadata(topic, true)).expect("metadata");
        let answer = connection.call(PRODUCE, 3, produce(topic, 0, -1, &batch(&[b"kept"], 1_000))).expect("an answer");
        let code = produce_answer(&answer).0;
        // Not known yet, on a topic just made.
        if code != 3 || Instant::now() > give_up {
            return code;
        }
    }
}

#[test]
fn a_log_filter_that_means_nothing_is_refused_also_by_check_and_names_the_variable() {
    for command in ["serve", "check"] {
        let (code, said) = run(corelog().arg(command).env("CORELOG_LOG", "debg"));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("CORELOG_LOG=debg") && said.contains("CORELOG_LOG=info,corelog_storage=debug"), "{said}");
    }
}

#[test]
fn an_environment_that_is_no_text_is_no_panic() {
    let no_text = std::ffi::OsStr::from_bytes(b"\xff");
    let (code, said) = run(corelog().args(["serve", "--shards", "1"]).env("CORELOG_LOG_DIRS", no_text));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("CORELOG_LOG_DIRS is not UTF-8"), "{said}");
    let (code, said) = run(corelog().args(["check", "--shards", "1"]).env("SOMETHING", no_text));
    assert!([Some(0), Some(60)].contains(&code), "{said}");
}

#[test]
fn a_list_of_no_properties_fails_with_a_hint() {
    let (code, said) = run(corelog().args(["config", "list", "nosuchthing"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`corelog config list --all` shows them all"), "{said}");
}

#[test]
fn a_data_folder_that_is_a_file_is_named_by_serve_and_check() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    for data in [file.clone(), file.join("below")] {
        for command in ["serve", "check"] {
            let (code, said) = run(corelog().arg(command).args(["--shards", "1", "--data-dir"]).arg(&data));
            assert_eq!(code, Some(73), "{said}");
            let expected = format!("{} is a file, not a folder: choose another with --data-dir", file.display());
            assert!(said.contains(&expected), "{said}");
        }
    }
}

#[test]
fn an_address_that_cannot_be_listened_on_comes_with_its_own_fix() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let cases = [
        (format!("127.0.0.1:{port}"), format!("ss -ltnp 'sport = :{port}'")),
        // Of the block for documentation (RFC 5737): nobody's.
        ("192.0.2.1:19092".to_owned(), "`ip address` shows those there are".to_owned()),
        ("no-such-host.invalid:19092".to_owned(), "/etc/hosts".to_owned()),
    ];
    for (address, fix) in cases {
        let serve = ["serve", "--shards", "1", "--listen", &address, "--data-dir"];
        let (code, said) = run(corelog().args(serve).arg(folder.path()));
        assert_eq!(code, Some(76), "{said}");
        assert!(said.contains(&format!("cannot listen on {address}")) && said.contains(&fix), "{said}");
    }
}

#[test]
fn memory_that_the_system_refuses_is_told_with_the_property_and_the_limit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = corelog();
    command.args(["serve", "--shards", "1", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    // SAFETY: setrlimit only sets a number of the new process; it is safe to call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 160 << 20, rlim_max: 160 << 20 };
            match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let (code, said) = run(&mut command);
    assert_eq!(code, Some(71), "{said}");
    for part in ["shard 0", "256 MiB", "corelog.memory.bytes.per.core", "ulimit -v"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_folder_of_another_node_names_both_ways_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut first = BrokerSetup::new(folder.path(), 1).start();
    assert_eq!(first.terminate(PATIENCE).code(), Some(0));
    let other = BrokerSetup::new(folder.path(), 1).set("node.id", "7").try_start().expect_err("another node");
    assert_eq!(other.exit.and_then(|exit| exit.code()), Some(73), "{other}");
    assert!(other.log.contains("set node.id=1, or give this broker a folder of its own"), "{other}");
}

#[test]
fn without_file_handles_those_connected_go_on_the_log_stays_short_and_accepting_resumes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(folder.path(), 1);
    let mut broker = setup.start();
    let mut connected = RawConnection::connect(setup.address()).expect("a connection");
    assert_eq!(produce_one(&mut connected, "t"), 0);
    let open = fs::read_dir(format!("/proc/{}/fd", broker.pid())).expect("its handles");
    let open: Vec<u64> = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    limit_files(&broker, (0..).find(|number| !open.contains(number)).expect("a number"));
    let waiting: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(setup.address()).expect("the backlog")).collect();
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        assert_eq!(produce_one(&mut connected, "t"), 0, "{}", broker.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let told = broker.lines_with("connections cannot be accepted", 1);
    assert!((1..=3).contains(&told.len()), "{told:#?}");
    assert!(told[0].contains("ulimit -n") && told[0].contains("count="), "{told:#?}");
    limit_files(&broker, 1024);
    let mut late = RawConnection::connect(setup.address()).expect("a connection");
    late.api_versions().expect("an answer");
    assert_eq!(broker.lines_with("connections are accepted again", 1).len(), 1, "{}", broker.log());
    drop(waiting);
    broker.kill();
}

fn limit_files(broker: &Broker, files: u64) {
    let limit = libc::rlimit { rlim_cur: files, rlim_max: 20_000 };
    let pid = libc::pid_t::try_from(broker.pid()).expect("a pid");
    // SAFETY: reads one struct of ours, writes none.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// A broker that has stopped, with a few records in `t`.
fn stopped_with_records(setup: &BrokerSetup) {
    let mut broker = setup.start();
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    assert_eq!(produce_one(&mut connection, "t"), 0);
    assert_eq!(produce_one(&mut connection, "t"), 0);
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
}

/// What `t` holds.
fn watermarks(setup: &BrokerSetup) -> (i64, i64) {
    Admin::new(&setup.bootstrap(), PATIENCE).watermarks("t", 0)
}

#[test]
fn a_removed_epoch_checkpoint_is_told_and_written_anew() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(folder.path(), 1);
    stopped_with_records(&setup);
    let file = folder.path().join("t-0/leader-epoch-checkpoint");
    fs::remove_file(&file).expect("the checkpoint");
    let mut broker = setup.start();
    assert_eq!(watermarks(&setup), (0, 2));
    let told = broker.lines_with("leader-epoch checkpoint was missing or empty", 1);
    assert!(matches!(&told[..], [line] if line.contains("WARN") && line.contains("t-0")), "{told:#?}");
    assert!(fs::read_to_string(&file).expect("the file").starts_with("0\n"));
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
    let mut broker = setup.start();
    assert_eq!(broker.lines_with("leader-epoch checkpoint", 0).len(), 0, "once");
    broker.kill();
}

/// Starts on a damaged file: the line about the partition that is offline for it.
fn offline_for(setup: &BrokerSetup, file: &Path) -> String {
    let mut broker = setup.start();
    let told = broker.lines_with("partition is offline", 1);
    let [line] = &told[..] else { panic!("{told:#?}") };
    assert!(line.contains(&format!("{} is damaged", file.display())), "{line}");
    broker.kill();
    line.clone()
}

#[test]
fn a_damaged_epoch_checkpoint_takes_its_partition_offline_until_it_is_moved_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(folder.path(), 1);
    stopped_with_records(&setup);
    let file = folder.path().join("t-0/leader-epoch-checkpoint");
    fs::write(&file, "0\n1\nrubbish\n").expect("damage");
    let line = offline_for(&setup, &file);
    assert!(line.contains("line 3") && line.contains("Move it away and start again"), "{line}");
    fs::rename(&file, folder.path().join("moved")).expect("to move it");
    let mut broker = setup.start();
    assert_eq!(watermarks(&setup), (0, 2));
    broker.kill();
}

#[test]
fn a_damaged_partition_metadata_takes_its_partition_offline_until_the_told_line_is_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(folder.path(), 1);
    stopped_with_records(&setup);
    let file = folder.path().join("t-0/partition.metadata");
    fs::write(&file, "version: 0\n").expect("damage");
    let line = offline_for(&setup, &file);
    let fix = line.split_once("start again: ").and_then(|(_, fix)| fix.split_once(". If not")).expect("a command").0;
    assert!(fix.starts_with("printf 'version: 0\\ntopic_id: "), "{fix}");
    assert!(Command::new("sh").arg("-c").arg(fix).status().expect("a shell").success());
    let mut broker = setup.start();
    assert_eq!(watermarks(&setup), (0, 2));
    broker.kill();
}

#[test]
fn a_rotten_log_is_told_with_its_folder_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(folder.path(), 1);
    stopped_with_records(&setup);
    let file = folder.path().join("t-0/00000000000000000000.log");
    let mut bytes = fs::read(&file).expect("the segment");
    // Within the first record.
    bytes[66] ^= 1;
    fs::write(&file, bytes).expect("damage");
    fs::remove_file(folder.path().join("t-0/00000000000000000000.index")).expect("the index");
    let mut broker = setup.start();
    let told = broker.lines_with("the log opens fenced", 1);
    let [line] = &told[..] else { panic!("{}", broker.log()) };
    for part in ["t-0", "damaged at byte 0", "Restore the folder from a backup", "delete this one"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(line.contains(&folder.path().join("t-0").display().to_string()), "{line}");
    broker.kill();
}

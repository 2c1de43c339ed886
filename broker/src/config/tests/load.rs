//! Loading: the sources and their order, and what is said of mistakes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::{config, host, load_set, refusal};
use crate::config::cli::{Action, Cli, ServeArgs};
use crate::config::definition::{Effect, broker_definition};
use crate::config::load::{Loaded, load};
use crate::config::problem::Problems;
use crate::config::table;
use crate::config::{Durability, Host};

fn in_file(text: &str, args: ServeArgs, environment: &[(&str, &str)]) -> (PathBuf, Result<Loaded, Problems>) {
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => panic!("{error}"),
    };
    let path = dir.path().join("server.properties");
    assert!(fs::write(&path, text).is_ok());
    let environment = environment.iter().map(|&(k, v)| (k.into(), v.into()));
    let loaded = load(&ServeArgs { config: Some(path.clone()), ..args }, environment, host());
    (path, loaded)
}

fn warnings(loaded: &Loaded) -> Vec<String> {
    loaded.warnings.iter().map(ToString::to_string).collect()
}

fn serve_args(line: &[&str]) -> ServeArgs {
    match Cli::try_parse_from(line).map(Cli::into_action) {
        Ok(Action::Serve(args)) => args,
        other => panic!("{line:?}: {other:?}"),
    }
}

#[test]
fn without_any_source_the_broker_serves_this_machine_from_a_folder_beside_it() {
    let config = config(&[]);
    assert_eq!(config.node_id, 1);
    assert_eq!(config.data_dir, Path::new("data"));
    assert_eq!((config.shards, config.cores.as_slice()), (4, [0, 1, 2, 3].as_slice()));
    let [listener] = config.listeners.as_slice() else {
        panic!("{:?}", config.listeners);
    };
    assert_eq!((listener.bind_host.as_deref(), listener.bind_port), (Some("127.0.0.1"), 9092));
    assert_eq!((listener.advertised_host.as_str(), listener.advertised_port), ("127.0.0.1", 9092));
    assert_eq!(config.inter_broker_listener, "PLAINTEXT");
    assert_eq!(config.topic_defaults.durability, Durability::Durable);
    assert_eq!(config.topic_defaults.flush_messages, 1);
    assert_eq!(config.topic_defaults.retention_ms, Some(604_800_000));
    assert_eq!(config.topic_defaults.retention_bytes, None);
}

#[test]
fn a_later_source_wins_over_an_earlier_one() {
    let text = "num.partitions=2\nmessage.max.bytes=2000\nfetch.max.bytes=2000\nsocket.request.max.bytes=2000\n";
    let args = ServeArgs { set: vec!["fetch.max.bytes=4000".into()], ..ServeArgs::default() };
    let environment = [("CORELOG_MESSAGE_MAX_BYTES", "3000"), ("CORELOG_FETCH_MAX_BYTES", "3000")];
    let (_, loaded) = in_file(text, args, &environment);
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.partitions_default, 2, "the file over the default");
    assert_eq!(loaded.config.topic_defaults.message_bytes_max, 3000, "the environment over the file");
    assert_eq!(loaded.config.fetch_bytes_max, 4000, "--set over the environment");
    assert_eq!(loaded.config.request_bytes_max, 2000);
}

#[test]
fn a_flag_of_its_own_wins_over_everything() {
    let args = serve_args(&[
        "corelog",
        "--data-dir",
        "/d",
        "--listen",
        "10.0.0.1:1234",
        "--shards",
        "2",
        "--set",
        "log.dirs=/x",
        "--set",
        "listeners=PLAINTEXT://h:1",
        "--set",
        "corelog.shards=3",
    ]);
    let loaded = load(&args, [], host());
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.data_dir, Path::new("/d"));
    assert_eq!(loaded.config.listeners.first().and_then(|l| l.bind_host.as_deref()), Some("10.0.0.1"));
    assert_eq!((loaded.config.shards, loaded.config.cores.as_slice()), (2, [0, 1].as_slice()));
}

#[test]
fn serve_can_be_said_or_left_out() {
    assert_eq!(serve_args(&["corelog", "--shards", "2"]).shards, Some(2));
    assert_eq!(serve_args(&["corelog", "serve", "--shards", "2"]).shards, Some(2));
    for wrong in ["x", "-1", "1025"] {
        let Err(error) = Cli::try_parse_from(["corelog", "--shards", wrong]) else { panic!("{wrong} is accepted") };
        assert!(error.to_string().contains(&format!("invalid value '{wrong}' for '--shards <N>'")), "{error}");
    }
}

#[test]
fn a_name_that_only_corelog_has_may_do_without_its_prefix_in_the_environment() {
    let environment = [("CORELOG_SHARDS", "2"), ("CORELOG_CORELOG_DURABILITY", "memory"), ("CORELOG_LOG", "debug")];
    let environment = environment.map(|(k, v)| (k.into(), v.into()));
    let loaded = load(&ServeArgs::default(), environment, host());
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.shards, 2);
    assert_eq!(loaded.config.topic_defaults.durability, Durability::Memory);
    assert_eq!(warnings(&loaded), Vec::<String>::new());
}

#[test]
fn a_slip_in_a_variable_without_the_prefix_is_told() {
    let load = |variable: &str| load(&ServeArgs::default(), [(variable.into(), "2".into())], host());
    let Err(problems) = load("CORELOG_SHARD") else { panic!("accepted") };
    assert_eq!(
        problems.to_string(),
        "the configuration is wrong: unknown property `shard` (set by environment variable CORELOG_SHARD). Did you mean \
         `corelog.shards`?"
    );
    assert!(load("CORELOG_HOME").is_ok(), "nobody means a property by that");
}

#[test]
fn every_mistake_is_named_at_once_with_its_place_and_what_to_do() {
    let text = "# a file\nnum.partitions=none\n\nlog.retention.hour=1\n";
    let args = ServeArgs { set: vec!["fetch.max.bytes".into()], ..ServeArgs::default() };
    let (path, loaded) = in_file(text, args, &[("CORELOG_MESSAGE_MAX_BYTES", "-5")]);
    let problems = match loaded {
        Ok(loaded) => panic!("accepted: {loaded:?}"),
        Err(problems) => problems.to_string(),
    };
    let expected = format!(
        "4 things are wrong with the configuration:\n  \
         - --set fetch.max.bytes: write it as --set name=value\n  \
         - unknown property `log.retention.hour` (set by {0}:4). Did you mean `log.retention.hours`?\n  \
         - Invalid value -5 for configuration message.max.bytes: Value must be at least 0 (set by environment variable \
         CORELOG_MESSAGE_MAX_BYTES). It takes a 32-bit integer, at least 0; its default is 1048588.\n  \
         - Invalid value none for configuration num.partitions: Not a number of type INT (set by {0}:2). It takes a \
         32-bit integer, at least 1; its default is 1.",
        path.display()
    );
    assert_eq!(problems, expected);
}

#[test]
fn a_missing_or_malformed_file_is_named() {
    let args = ServeArgs { config: Some("/nowhere/server.properties".into()), ..ServeArgs::default() };
    let Err(problems) = load(&args, [], host()) else { panic!("accepted") };
    let text = problems.to_string();
    assert!(
        text.starts_with("the configuration is wrong: cannot read /nowhere/server.properties: No such file"),
        "{text}"
    );
    assert!(text.ends_with("Check the path given with --config."), "{text}");
    let (path, loaded) = in_file("a=\\uzzzz", ServeArgs::default(), &[]);
    let Err(problems) = loaded else { panic!("accepted") };
    let expected =
        format!("the configuration is wrong: {}:1: a \\u escape needs four hexadecimal digits", path.display());
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn an_unknown_name_and_a_property_without_effect_are_warned_about_and_a_default_is_not() {
    let text = "my.plugin.key=1\nnum.io.threads=16\nnum.network.threads=3\nlistener.name.x.ssl.keystore.type=PEM\n\
                max.message.bytes=5\n";
    let (path, loaded) = in_file(text, ServeArgs::default(), &[]);
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    let path = path.display();
    assert_eq!(
        warnings(&loaded),
        [
            format!(
                "`listener.name.x.ssl.keystore.type` (set by {path}:4) has no effect in this version: it is accepted, \
                 checked and listed, and that is all"
            ),
            format!(
                "`max.message.bytes` (set by {path}:5) is ignored: it is a topic's property, and the broker's for all topics \
                 is `message.max.bytes`"
            ),
            format!("unknown property `my.plugin.key` (set by {path}:1) is ignored"),
            format!(
                "`num.io.threads` (set by {path}:2) has no effect in this version: it is accepted, checked and listed, \
                 and that is all"
            ),
        ]
    );
}

#[test]
fn flush_messages_alone_does_not_relax_durability_and_says_so() {
    let loaded = load_set(&[("log.flush.interval.messages", "10000")]);
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.topic_defaults.durability, Durability::Durable);
    let [warning] = warnings(&loaded).try_into().unwrap_or_default();
    assert!(warning.contains("does not relax durability"), "{warning}");
    assert!(warning.contains("`corelog.durability=memory`"), "{warning}");
    let relaxed = load_set(&[("log.flush.interval.messages", "10000"), ("corelog.durability", "memory")]);
    let Ok(relaxed) = relaxed else { panic!("{relaxed:?}") };
    assert_eq!(warnings(&relaxed), Vec::<String>::new());
    assert_eq!(relaxed.config.topic_defaults.flush_messages, 10000);
}

#[test]
fn the_file_of_a_kafka_node_loads() {
    // What Kafka's own example for a combined node sets.
    let text = "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.bootstrap.servers=localhost:9093\n\
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n\
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n\
        num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\nsocket.receive.buffer.bytes=102400\n\
        socket.request.max.bytes=104857600\nlog.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\n\
        num.recovery.threads.per.data.dir=1\noffsets.topic.replication.factor=1\nshare.coordinator.state.topic.replication.factor=1\n\
        share.coordinator.state.topic.min.isr=1\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
        log.retention.hours=168\nlog.segment.bytes=1073741824\nlog.retention.check.interval.ms=300000\n";
    let (_, loaded) = in_file(text, ServeArgs::default(), &[]);
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.node_id, 7);
    assert_eq!(loaded.config.listeners.len(), 1);
    assert_eq!(loaded.config.offsets_topic.replication_factor, 1);
    assert_eq!(loaded.config.socket_send_buffer_bytes, Some(102_400));
    let warnings = warnings(&loaded);
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings.iter().any(|w| w.contains("listener `CONTROLLER` is the controller's")), "{warnings:?}");
}

#[test]
fn rules_that_tie_properties_together_are_checked() {
    let cases: [(&[(&str, &str)], &str); 13] = [
        (&[("node.id", "1"), ("broker.id", "2")], "broker.id and node.id differ (set by --set)"),
        (&[("process.roles", "broker")], "process.roles is broker; a Corelog node is broker and controller in one"),
        (&[("log.roll.ms", "0")], "log.roll.ms must be at least 1"),
        (&[("log.roll.jitter.ms", "-1")], "log.roll.jitter.ms must not be negative"),
        (&[("log.retention.minutes", "0")], "log.retention.minutes must be at least 1, or -1"),
        (&[("default.replication.factor", "0")], "default.replication.factor is 0"),
        (&[("listeners", "9092")], "(set by --set). For example --listen 127.0.0.1:9092, or listeners="),
        (
            &[("corelog.tail.cache.bytes.per.core", "999999999")],
            "corelog.tail.cache.bytes.per.core (999999999) is more than corelog.memory.bytes.per.core (268435456)",
        ),
        (
            &[("log.cleaner.min.compaction.lag.ms", "5"), ("log.cleaner.max.compaction.lag.ms", "4")],
            "log.cleaner.min.compaction.lag.ms (5) is more than log.cleaner.max.compaction.lag.ms (4)",
        ),
        (
            &[("corelog.cores", "0,9"), ("corelog.shards", "2")],
            "corelog.cores names core 9, which this process may not use",
        ),
        (&[("corelog.cores", "0,1")], "corelog.cores names 2 cores, and there are 4 shards"),
        (
            &[("max.connections.per.ip.overrides", "nobody")],
            "`nobody` in max.connections.per.ip.overrides is not of the form",
        ),
        (
            &[("security.inter.broker.protocol", "SSL")],
            "security.inter.broker.protocol is SSL; Corelog speaks only PLAINTEXT",
        ),
    ];
    for (properties, reason) in cases {
        let refusal = refusal(properties);
        assert!(refusal.contains(reason), "{properties:?}: {refusal}");
    }
}

#[test]
fn broker_id_alone_names_the_node_and_negative_limits_mean_none() {
    let config = config(&[
        ("broker.id", "5"),
        ("connections.max.idle.ms", "-1"),
        ("socket.send.buffer.bytes", "-1"),
        ("log.retention.ms", "-7"),
        ("max.connections.per.ip.overrides", "127.0.0.1:5,[::1]:6"),
        ("metadata.log.max.snapshot.interval.ms", "0"),
    ]);
    assert_eq!(config.node_id, 5);
    assert_eq!(config.connection_idle_max, None);
    assert_eq!(config.socket_send_buffer_bytes, None);
    assert_eq!(config.topic_defaults.retention_ms, None);
    assert_eq!(config.connections_per_ip_overrides.len(), 2);
    assert_eq!(config.metadata_snapshot_interval, None);
    assert_eq!(config.request_timeout, Duration::from_secs(30));
}

#[test]
fn several_data_folders_are_taken_in_their_order_and_the_first_has_the_metadata() {
    for name in ["log.dirs", "log.dir"] {
        let config = config(&[(name, "/a, /b,/c")]);
        assert_eq!(config.data_dir, Path::new("/a"), "{name}");
        assert_eq!(config.more_data_dirs, [Path::new("/b"), Path::new("/c")], "{name}");
    }
    let both = config(&[("log.dirs", "/a"), ("log.dir", "/b,/c")]);
    assert_eq!((both.data_dir.as_path(), both.more_data_dirs.len()), (Path::new("/a"), 0), "log.dirs wins");
}

#[test]
fn a_data_folder_with_a_control_character_in_its_path_is_refused() {
    for (name, folders, shown) in [
        ("log.dirs", "/a\nb", r#""/a\nb""#),
        ("log.dirs", "/a,/b\u{7f}c", r#""/b\u{7f}c""#),
        ("log.dir", "/a\u{1b}[2J", r#""/a\u{1b}[2J""#),
    ] {
        let said = refusal(&[(name, folders)]);
        let expected =
            format!("`{name}`: the path {shown} holds a line break or another control character (set by --set)");
        assert!(said.contains(&expected), "{said}");
    }
    assert!(load(&serve_args(&["corelog", "--data-dir", "/a\nb"]), [], host()).is_err());
    assert_eq!(config(&[("log.dirs", "/a b/é")]).data_dir, Path::new("/a b/é"));
}

#[test]
fn a_comma_too_many_is_called_that() {
    for (text, shown) in [(",", ","), (" ,", ","), ("/a,", "/a,"), ("/a,,/b", "/a,,/b"), ("/a,,/a", "/a,,/a")] {
        assert_eq!(
            refusal(&[("log.dirs", text)]),
            format!(
                "the configuration is wrong: `{shown}` in log.dirs has a comma with no item beside it (set by --set). It \
                 takes a list separated by commas, no item twice; leave it out if you don't need it."
            )
        );
    }
    let twice = refusal(&[("log.dirs", "/a,/a")]);
    assert!(twice.contains("'log.dirs' values must not be duplicated (set by --set). It takes"), "{twice}");
}

/// A machine of four cores with this much memory.
fn on_a_machine_with(memory_mib: u64, properties: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let set = properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let host = Host { memory_bytes: Some(memory_mib << 20), ..host() };
    load(&ServeArgs { set, ..ServeArgs::default() }, [], host)
}

#[test]
fn the_tail_cache_is_half_of_the_memory_unless_it_is_set() {
    let of = |properties: &[(&str, &str)]| {
        let config = config(properties);
        (config.memory_bytes_per_core >> 20, config.tail_cache_bytes_per_core >> 20)
    };
    assert_eq!(of(&[]), (256, 128));
    assert_eq!(of(&[("corelog.memory.bytes.per.core", "67108864")]), (64, 32), "one property is enough");
    assert_eq!(of(&[("corelog.memory.bytes.per.core", "16777216")]), (16, 8));
    assert_eq!(
        of(&[("corelog.memory.bytes.per.core", "67108864"), ("corelog.tail.cache.bytes.per.core", "16777216")]),
        (64, 16)
    );
}

#[test]
fn memory_that_the_machine_has_not_got_is_refused_with_the_sum() {
    let refused = |memory: &str, more: &[(&str, &str)]| {
        let mut properties = vec![("corelog.memory.bytes.per.core", memory)];
        properties.extend(more);
        match on_a_machine_with(8192, &properties) {
            Ok(loaded) => panic!("accepted: {:?}", loaded.config),
            Err(problems) => problems.to_string(),
        }
    };
    let sum = refused("4294967296", &[]);
    assert!(
        sum.contains(
            "corelog.memory.bytes.per.core is 4294967296: for 4 shards that is 16384 MiB, and there are 8192 MiB"
        ),
        "{sum}"
    );
    assert!(sum.contains("Set it to 1932525568 or less, or corelog.shards lower."), "{sum}");
    let fits = on_a_machine_with(8192, &[("corelog.memory.bytes.per.core", "1932525568")]);
    assert!(fits.is_ok(), "what the message says: {fits:?}");
    assert!(refused("9223372036854775807", &[]).contains("and there are 8192 MiB"));
    let one = refused("16777216", &[("corelog.shards", "1024")]);
    assert!(one.contains("Set corelog.shards to 256 or less."), "{one}");
    for wrong in ["0", "-1", "9223372036854775808"] {
        assert!(refused(wrong, &[]).contains("at least 16777216"), "{wrong}");
    }
}

#[test]
fn a_small_machine_starts_without_configuration_with_less_memory_and_says_so() {
    let small = on_a_machine_with(1024, &[]);
    let Ok(small) = small else { panic!("{small:?}") };
    assert_eq!(small.config.memory_bytes_per_core, 128 << 20);
    assert_eq!(small.config.tail_cache_bytes_per_core, 64 << 20);
    let [warning] = warnings(&small).try_into().unwrap_or_default();
    assert!(warning.starts_with("each core gets 128 MiB, not the default of 256 MiB: all 4 cores'"), "{warning}");
    let set = on_a_machine_with(1024, &[("corelog.memory.bytes.per.core", "268435456")]);
    let Ok(set) = set else { panic!("{set:?}") };
    assert_eq!(set.config.memory_bytes_per_core, 256 << 20, "what is set and fits is obeyed");
    assert!(warnings(&set).is_empty());
}

#[test]
fn a_property_twice_in_the_file_is_warned_about_with_the_lines_and_the_one_that_counts() {
    let text =
        "num.partitions=2\nfetch.max.bytes=2000\n# more\nnum.partitions=3\nnum.partitions=4\nfetch.max.bytes=2000\n";
    let (path, loaded) = in_file(text, ServeArgs::default(), &[]);
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.partitions_default, 4);
    let path = path.display();
    assert_eq!(
        warnings(&loaded),
        [
            format!("`fetch.max.bytes` is set more than once in {path}: line 6 counts, not line 2. Remove the others"),
            format!(
                "`num.partitions` is set more than once in {path}: line 5 counts, not lines 1, 4. Remove the others"
            ),
        ]
    );
}

#[test]
fn variables_that_contradict_each_other_or_are_no_text_are_refused() {
    let with = |environment: &[(&[u8], &[u8])]| {
        let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        let environment: Vec<_> = environment.iter().map(|&(name, value)| (text(name), text(value))).collect();
        load(&ServeArgs::default(), environment, host()).map_err(|problems| problems.to_string())
    };
    let twice = with(&[(b"CORELOG_SHARDS", b"2"), (b"CORELOG_CORELOG_SHARDS", b"3")]).expect_err("refused");
    assert!(twice.contains("`corelog.shards` is set by two environment variables, CORELOG_SHARDS and"), "{twice}");
    let no_text = with(&[(b"CORELOG_LOG_DIRS", b"/\xff")]).expect_err("refused");
    assert!(no_text.contains("environment variable CORELOG_LOG_DIRS is not UTF-8 text"), "{no_text}");
    assert!(with(&[(b"OTHER", b"\xff"), (b"CORELOG_\xff", b"1")]).is_ok(), "these are not ours");
}

#[test]
fn a_log_filter_that_means_nothing_is_refused_with_the_rest_of_the_mistakes() {
    let with = |filter: &str| load(&ServeArgs::default(), [("CORELOG_LOG".into(), filter.into())], host());
    let Err(problems) = with("corelog_broker=loud") else { panic!("accepted") };
    let problems = problems.to_string();
    assert!(problems.contains("CORELOG_LOG=corelog_broker=loud: `corelog_broker=loud` names no level"), "{problems}");
    let Ok(loaded) = with("corelog_broker=debug,info") else { panic!("refused") };
    assert_eq!(loaded.log_filter.as_str(), "corelog_broker=debug,info");
}

#[test]
fn a_core_map_in_the_data_folder_is_read_and_a_named_one_must_be_there() {
    let Ok(dir) = tempfile::tempdir() else { panic!("no temporary folder") };
    let data = dir.path().display().to_string();
    assert!(config(&[("log.dirs", &data)]).core_map.is_empty());
    let text = "[[pin]]\ntopic = \"t\"\nshard = 3\n";
    assert!(fs::write(dir.path().join("core-map.toml"), text).is_ok());
    assert!(!config(&[("log.dirs", &data)]).core_map.is_empty());
    let refused = refusal(&[("log.dirs", &data), ("corelog.shards", "2")]);
    assert!(refused.contains("core-map.toml: topic `t` is pinned to shard 3"), "{refused}");
    let missing = refusal(&[("corelog.core.map.file", "/nowhere/map.toml")]);
    assert!(missing.contains("cannot read /nowhere/map.toml"), "{missing}");
}

#[test]
fn more_shards_than_cores_share_them_with_a_warning() {
    let loaded = load_set(&[("corelog.shards", "6")]);
    let Ok(loaded) = loaded else { panic!("{loaded:?}") };
    assert_eq!(loaded.config.cores, [0, 1, 2, 3, 0, 1]);
    assert!(warnings(&loaded).iter().any(|w| w.starts_with("6 shards share 4 cores")));
}

#[test]
fn every_default_is_a_value_of_its_property() {
    for row in table::broker().iter().chain(table::topic()).chain(table::dynamic_only()) {
        if let Some(default) = row.default {
            let parsed = row.parse(default);
            assert!(parsed.is_ok(), "{}: {parsed:?}", row.name);
        }
        assert!(!row.doc.is_empty() && row.doc.ends_with(['.', '`']), "{}: {}", row.name, row.doc);
    }
    for (name, _) in table::DEVIATIONS {
        let known = broker_definition(name).is_some() || table::topic().iter().any(|row| row.name == *name);
        assert!(known, "{name}");
    }
}

#[test]
fn the_tables_are_complete() {
    // Apache Kafka 4.2 defines 341 broker and 34 topic properties, internal ones included.
    let own = |name: &str| name.starts_with("corelog.");
    assert_eq!(table::broker().iter().filter(|row| !own(row.name)).count(), 341);
    assert_eq!(table::topic().iter().filter(|row| !own(row.name)).count(), 34);
    assert_eq!(table::dynamic_only().len(), 3);
}

#[test]
fn the_command_line_explains_properties() {
    let print = |line: &[&str]| match Cli::try_parse_from(line).map(Cli::into_action) {
        Ok(Action::Print(text)) => text,
        other => panic!("{line:?}: {other:?}"),
    };
    let text = print(&["corelog", "config", "describe", "retention.ms"]);
    assert!(text.contains("default     604800000"), "{text}");
    assert!(
        text.contains("has the broker's log.retention.ms, else log.retention.minutes, else log.retention.hours"),
        "{text}"
    );
    let text = print(&["corelog", "config", "describe", "flush.messages"]);
    assert!(text.contains("not Kafka's default: an acknowledged record is on stable storage"), "{text}");
    let text = print(&["corelog", "config", "list", "segment"]);
    assert!(text.contains("log.segment.bytes") && !text.contains("metadata.log.segment.bytes"), "{text}");
    let refused = |line: &[&str]| match Cli::try_parse_from(line).map(Cli::into_action) {
        Ok(Action::Refuse(text)) => text,
        other => panic!("{line:?}: {other:?}"),
    };
    for (line, hint) in [
        (&["corelog", "config", "list", "nosuchthing"][..], "`corelog config list --all` shows them all"),
        (&["corelog", "config", "list", "num.partition.s"], "did you mean `num.partitions`?"),
        (&["corelog", "config", "list", "quorum.voters"], "`corelog config list --all quorum.voters` shows those"),
        (&["corelog", "config", "list", "max.message.bytes"], "`corelog config list --topic max.message.bytes` shows"),
        (
            &["corelog", "config", "list", "--topic", "listeners"],
            "`corelog config list listeners` shows those of the broker",
        ),
    ] {
        let text = refused(line);
        assert!(text.contains(hint), "{line:?}: {text}");
    }
    let text = print(&["corelog", "config", "list", "--all", "--topic"]);
    assert!(text.contains("- remote.storage.enable"), "{text}");
    match Cli::try_parse_from(["corelog", "config", "describe", "retention.m"]).map(Cli::into_action) {
        Ok(Action::Refuse(text)) => assert!(text.contains("did you mean `retention.ms`?"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_examples_of_the_help_work() {
    let help = Cli::command().render_long_help().to_string();
    let (_, examples) = help.split_once("Examples:").unwrap_or_default();
    let mut tried = 0;
    for line in
        examples.lines().map(str::trim).filter(|line| line.starts_with("corelog") || line.contains(" corelog --"))
    {
        let words = line.split_whitespace().skip_while(|word| *word != "corelog");
        match Cli::try_parse_from(words).map(Cli::into_action) {
            Ok(
                Action::Serve(_)
                | Action::Check { .. }
                | Action::Print(_)
                | Action::Import { .. }
                | Action::Export { .. },
            ) => tried += 1,
            other => panic!("{line}: {other:?}"),
        }
    }
    assert!(tried >= 7, "{tried} examples in {help}");
}

#[test]
fn the_documentation_names_every_property_with_its_default() {
    let text = include_str!("../../../../docs/configuration.md");
    for row in table::broker().iter().chain(table::topic()).filter(|row| !row.internal) {
        let name = format!("`{}`", row.name);
        assert!(text.contains(&name), "docs/configuration.md does not name {name}");
        let line = text.lines().find(|line| line.starts_with(&format!("| {name} | {} |", row.kind)));
        if let (Some(line), Some(default)) = (line, row.default.filter(|d| !d.is_empty())) {
            assert!(
                line.contains(&format!("| `{default}` |")),
                "docs/configuration.md has another default for {name}: {line}"
            );
        }
    }
    for (name, _) in table::DEVIATIONS {
        assert!(text.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_documentation_says_which_properties_have_no_effect() {
    let text = include_str!("../../../../docs/configuration.md");
    for (heading, rows) in [
        ("## Corelog's own properties", table::broker()),
        ("## Topics' properties", table::topic()),
        ("## The broker's properties", table::broker()),
    ] {
        let (_, section) = text.split_once(heading).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let (acts, listed) = section.split_once("without effect so far:").unwrap_or((section, ""));
        let mut seen = 0;
        for (part, effect) in [(acts, Effect::Acts), (listed, Effect::Listed)] {
            for line in part.lines().filter_map(|line| line.strip_prefix("| `")) {
                let (name, _) = line.split_once('`').unwrap_or_default();
                let row = rows.iter().find(|row| row.name == name);
                assert_eq!(row.map(|row| row.effect), Some(effect), "{name} stands in the wrong table of {heading}");
                seen += 1;
            }
        }
        assert!(seen > 0, "nothing under {heading}");
    }
    let (_, listed) = text.split_once("## Accepted without effect").unwrap_or_default();
    for row in table::broker().iter().filter(|row| row.effect == Effect::Acts) {
        assert!(!listed.contains(&format!("`{}`", row.name)), "{} acts", row.name);
    }
}

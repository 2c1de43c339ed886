//! What may be set while the broker runs.

use std::sync::Arc;

use super::{config, map};
use crate::config::dynamic::check_dynamic;
use crate::config::{ConfigMap, Durability};

fn refused(proposed: &[(&str, &str)], per_broker: bool) -> String {
    match check_dynamic(&map(proposed), per_broker, &config(&[])) {
        Ok(()) => panic!("accepted: {proposed:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_only_a_restart_changes_is_refused_with_kafkas_message() {
    assert_eq!(refused(&[("node.id", "2")], true), "Cannot update these configs dynamically: Set(node.id)");
    assert_eq!(
        refused(&[("log.retention.hours", "2")], false),
        "Cannot update these configs dynamically: Set(log.retention.hours)"
    );
    assert_eq!(
        refused(&[("corelog.shards", "2")], true),
        "Cannot update these configs dynamically: Set(corelog.shards)"
    );
}

#[test]
fn what_one_broker_at_a_time_has_is_refused_for_all() {
    assert_eq!(
        refused(&[("listeners", "PLAINTEXT://h:1")], false),
        "Cannot update these configs at default cluster level, broker id must be specified: Set(listeners)"
    );
    assert_eq!(
        refused(&[("ssl.keystore.location", "/k")], true),
        "These security configs can be dynamically updated only per-listener using the listener prefix: \
         HashSet(ssl.keystore.location)"
    );
    assert_eq!(
        refused(&[("listener.name.x.ssl.keystore.location", "/k")], false),
        "Cannot update these configs at default cluster level, broker id must be specified: \
         Set(listener.name.x.ssl.keystore.location)"
    );
}

#[test]
fn a_wrong_value_is_refused_and_a_name_that_nobody_knows_passes() {
    assert_eq!(
        refused(&[("log.segment.bytes", "5")], false),
        "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576"
    );
    assert!(refused(&[("log.roll.ms", "0")], false).contains("log.roll.ms must be at least 1"));
    assert_eq!(check_dynamic(&map(&[("my.plugin.key", "1")]), false, &config(&[])), Ok(()));
    assert_eq!(check_dynamic(&map(&[("leader.replication.throttled.rate", "1")]), true, &config(&[])), Ok(()));
}

#[test]
fn one_brokers_value_wins_over_all_brokers_and_that_over_the_file() {
    let started = config(&[("log.retention.ms", "1"), ("message.max.bytes", "100")]);
    let both = started.with_dynamic(
        Arc::new(map(&[("log.retention.ms", "2"), ("message.max.bytes", "200")])),
        Arc::new(map(&[("log.retention.ms", "3"), ("corelog.durability", "memory")])),
    );
    let Ok(both) = both else { panic!("{both:?}") };
    assert_eq!(both.topic_defaults.retention_ms, Some(3));
    assert_eq!(both.topic_defaults.message_bytes_max, 200);
    assert_eq!(both.topic_defaults.durability, Durability::Memory);
    let cluster = started.with_dynamic(Arc::new(map(&[("log.retention.ms", "2")])), Arc::new(ConfigMap::new()));
    let Ok(cluster) = cluster else { panic!("{cluster:?}") };
    assert_eq!(cluster.topic_defaults.retention_ms, Some(2));
}

#[test]
fn a_dynamic_value_wins_over_a_finer_unit_in_the_file() {
    let started = config(&[("log.roll.hours", "5"), ("log.retention.minutes", "7")]);
    let dynamic = map(&[("log.roll.ms", "1000"), ("log.retention.ms", "2000")]);
    let changed = started.with_dynamic(Arc::new(dynamic), Arc::new(ConfigMap::new()));
    let Ok(changed) = changed else { panic!("{changed:?}") };
    assert_eq!(changed.topic_defaults.segment_ms, 1000);
    assert_eq!(changed.topic_defaults.retention_ms, Some(2000));
}

#[test]
fn a_stored_dynamic_value_that_no_longer_passes_is_left_out() {
    let stored = map(&[("node.id", "9"), ("log.segment.bytes", "1"), ("message.max.bytes", "77")]);
    let changed = config(&[]).with_stored_dynamic(&stored, &ConfigMap::new());
    let Ok(changed) = changed else { panic!("{changed:?}") };
    assert_eq!(changed.node_id, 1);
    assert_eq!(changed.topic_defaults.segment_bytes, 1 << 30);
    assert_eq!(changed.topic_defaults.message_bytes_max, 77);
}

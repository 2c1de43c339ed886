#!/usr/bin/env bash
# The suite of Kafka's own command-line tools.
# Holds: the cases. Never touches: groups. Each tool is a Java class, started as kafka-run-class.sh would.
set -uo pipefail
source "$INTEROP_ROOT/lib/tap.sh"

SEGMENT_BYTES=1048576
READ_MS_MAX=5000

tool() {
  local class=$1; shift
  java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
    -cp "$KAFKA_CLASSPATH" "$class" "$@"
}

at_broker() { local class=$1; shift; tool "$class" --bootstrap-server "$INTEROP_BOOTSTRAP" "$@"; }

topics() { at_broker org.apache.kafka.tools.TopicCommand "$@"; }
configs() { at_broker kafka.admin.ConfigCommand "$@"; }
get_offsets() { at_broker org.apache.kafka.tools.GetOffsetShell "$@"; }
producer() { at_broker org.apache.kafka.tools.ConsoleProducer "$@"; }
consumer() { at_broker org.apache.kafka.tools.consumer.ConsoleConsumer --timeout-ms "$READ_MS_MAX" "$@"; }

refused() {
  local said=$1; shift
  local output
  output=$("$@" 2>&1) && fail "expected it to be refused, but it succeeded: $output"
  contains "$output" "$said" "message"
}

create() { contains "$(topics --create --topic tools.a --partitions 2 --config retention.ms=7200000 2>&1)" 'Created topic tools.a.' "output"; }

describe() {
  local said
  said=$(topics --describe --topic tools.a)
  contains "$said" 'PartitionCount: 2' "description"
  contains "$said" 'ReplicationFactor: 1' "description"
  contains "$said" 'retention.ms=7200000' "description"
  contains "$said" 'Partition: 1	Leader: 1	Replicas: 1	Isr: 1' "description"
}

list() { contains "$(topics --list)" 'tools.a' "list"; }

add_partitions() {
  topics --alter --topic tools.a --partitions 4
  eventually has_partitions 4
}

has_partitions() { contains "$(topics --describe --topic tools.a)" "PartitionCount: $1" "description"; }

alter_configs() {
  contains "$(configs --alter --entity-type topics --entity-name tools.a --add-config max.message.bytes=2000000)" \
    'Completed updating config for topic tools.a.' "output"
  eventually has_config 'max.message.bytes=2000000'
  configs --alter --entity-type topics --entity-name tools.a --delete-config max.message.bytes
}

has_config() { contains "$(configs --describe --entity-type topics --entity-name tools.a)" "$1" "dynamic configs"; }

broker_configs() {
  contains "$(configs --describe --all --entity-type brokers --entity-name 1)" 'message.max.bytes=1048588' "configs of the broker"
}

# Console producer and consumer, with keys and headers, one partition assigned.
console() {
  printf 'h1:v1,h2:v2\tkey-1\tvalue one\nh3:v3\tkey-2\tvalue two\n' | producer --topic tools.a --compression-codec lz4 \
    --reader-property parse.key=true --reader-property parse.headers=true --command-property acks=all
  local all=''
  for partition in 0 1 2 3; do
    all+=$(consumer --topic tools.a --partition "$partition" --offset earliest \
      --formatter-property print.key=true --formatter-property print.headers=true 2>/dev/null)$'\n'
  done
  equal $'h1:v1,h2:v2\tkey-1\tvalue one\nh3:v3\tkey-2\tvalue two' "$(grep . <<<"$all" | LC_ALL=C sort)" "what was read"
}

offsets() {
  seq 10 | producer --topic tools.offsets --command-property acks=all 2>/dev/null
  equal 'tools.offsets:0:10' "$(get_offsets --topic tools.offsets)" "latest"
  equal 'tools.offsets:0:0' "$(get_offsets --topic tools.offsets --time earliest)" "earliest"
  # Which of the records of one millisecond is the newest is a matter of batches: any will do.
  contains "$(get_offsets --topic tools.offsets --time max-timestamp)" 'tools.offsets:0:' "newest timestamp"
  equal '8' "$(consumer --topic tools.offsets --partition 0 --offset 7 --max-messages 1 2>/dev/null)" "from offset 7"
}

delete_records() {
  echo '{"version":1,"partitions":[{"topic":"tools.offsets","partition":0,"offset":6}]}' >"$SCRATCH/delete.json"
  contains "$(at_broker org.apache.kafka.tools.DeleteRecordsCommand --offset-json-file "$SCRATCH/delete.json")" \
    'partition: tools.offsets-0	low_watermark: 6' "output"
  equal 'tools.offsets:0:6' "$(get_offsets --topic tools.offsets --time earliest)" "earliest"
}

log_dirs() {
  local size
  size=$(at_broker org.apache.kafka.tools.LogDirsCommand --describe --topic-list tools.offsets | grep '^{' |
    jq '.brokers[0].logDirs[0].partitions[] | select(.partition == "tools.offsets-0") | .size')
  [ "${size:-0}" -gt 0 ] || fail "size of a partition with records: $size"
}

api_versions() {
  local said
  said=$(at_broker org.apache.kafka.tools.BrokerApiVersionsCommand)
  contains "$said" "$INTEROP_BOOTSTRAP (id: 1 rack: null isFenced: false) -> (" "first line"
  contains "$said" 'Produce(0): 0 to 13 [usable: 13]' "line of Produce"
  contains "$said" 'Fetch(1): 4 to 18 [usable: 18]' "line of Fetch"
  contains "$said" 'Metadata(3): 0 to 13 [usable: 13]' "line of Metadata"
}

features() { contains "$(at_broker org.apache.kafka.tools.FeatureCommand describe)" 'Feature: metadata.version' "features"; }

cluster_id() { contains "$(tool org.apache.kafka.tools.ClusterTool cluster-id --bootstrap-server "$INTEROP_BOOTSTRAP")" 'Cluster ID: ' "output"; }

# A sealed segment on disk is Kafka's format: its own tool reads it, record by record, with valid CRCs.
dump_log() {
  local folder said
  topics --create --topic tools.segments --config segment.bytes=$SEGMENT_BYTES
  at_broker org.apache.kafka.tools.ProducerPerformance --topic tools.segments --num-records 1600 --record-size 1000 --throughput -1 \
    --command-property acks=all batch.size=100000 >/dev/null
  folder=$(find "$INTEROP_DATA_DIR" -type d -name 'tools.segments-0' | head -n 1)
  [ -n "$folder" ] || fail "no folder for tools.segments-0 under the data folder"
  eventually sealed "$folder"
  said=$(tool kafka.tools.DumpLogSegments --deep-iteration --files "$folder/00000000000000000000.log")
  contains "$said" 'Log starting offset: 0' "dump"
  contains "$said" 'isvalid: true' "dump"
  contains "$said" 'offset: 500 ' "dump"
  grep -q 'isvalid: false\|Found invalid\|Mismatches' <<<"$said" && fail "the dump reports an invalid batch"
  said=$(tool kafka.tools.DumpLogSegments --index-sanity-check --files "$folder/00000000000000000000.index,$folder/00000000000000000000.timeindex" 2>&1)
  contains "$said" 'passed sanity check' "index check"
}

sealed() {
  local logs
  logs=$(find "$1" -name '*.log' | wc -l)
  [ "$logs" -ge 2 ] || fail "only $logs segments in $1"
}

delete() {
  topics --delete --topic tools.a
  eventually gone
}

gone() { equal '' "$(topics --list | grep -x tools.a)" "what is left of it"; }

case_of "kafka-topics --create" create
case_of "kafka-topics --describe" eventually describe
case_of "kafka-topics --list" list
case_of "kafka-topics --create: it exists already" refused "Topic 'tools.a' already exists." topics --create --topic tools.a
case_of "kafka-topics --create: an illegal name" refused 'is invalid' topics --create --topic 'no spaces!'
case_of "kafka-topics --create: more replicas than brokers" refused 'Unable to replicate the partition 3 time(s)' \
  topics --create --topic tools.rf --replication-factor 3
case_of "kafka-topics --describe: unknown" refused "Topic 'tools.unknown' does not exist as expected" topics --describe --topic tools.unknown
case_of "kafka-topics --alter adds partitions" add_partitions
case_of "kafka-topics --alter: fewer partitions" refused 'currently has 4 partition(s); 1 would not be an increase.' topics --alter --topic tools.a --partitions 1
case_of "kafka-configs alters a topic" alter_configs
case_of "kafka-configs: an unknown name" refused 'Unknown topic config name: no.such.config' \
  configs --alter --entity-type topics --entity-name tools.a --add-config no.such.config=1
case_of "kafka-configs describes the broker" broker_configs
case_of "kafka-console-producer and -consumer" console
case_of "kafka-get-offsets" offsets
case_of "kafka-delete-records" delete_records
case_of "kafka-log-dirs" log_dirs
case_of "kafka-broker-api-versions" api_versions
case_of "kafka-features describe" features
case_of "kafka-cluster cluster-id" cluster_id
case_of "kafka-dump-log reads a sealed segment" dump_log
case_of "kafka-topics --delete" delete
finish

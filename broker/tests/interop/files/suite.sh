#!/usr/bin/env bash
# The suite of the files: what Kafka's own tools say about our data folders, and what a real Kafka writes for the same batches.
# Holds: the cases, and brokers of its own. Never touches: the broker of the other suites.
set -uo pipefail
source "$INTEROP_ROOT/files/common.sh"

SEGMENTS_MIN=2
# Where in the load the broker is killed.
KILL_AFTER_BYTES=4000000

# files_of DATA SUFFIX PARTITION: their paths, in order, with commas; of all partitions that start so.
files_of() { find "$1" -maxdepth 2 -path "*/$3*" -name "*$2" | LC_ALL=C sort | paste -sd, -; }

logs_are_what_clients_read() {
  local data=$1 records=$2 folder
  for folder in "$data"/files.*-0; do
    [ "$(find "$folder" -name '*.log' | wc -l)" -ge "$SEGMENTS_MIN" ] || fail "fewer than $SEGMENTS_MIN segments in $folder"
  done
  dump --deep-iteration --print-data-log --files "$(files_of "$data" .log files.)" >"$SCRATCH/dump"
  python3 "$INTEROP_ROOT/files/dump.py" "$records" <"$SCRATCH/dump"
}

# Each index is compared with its segment, entry by entry; then its own order is checked. Those of a short last segment have no
# entry, as in Kafka.
indexes_are_sound() {
  local data=$1 files said count
  files=$(files_of "$data" index files.)
  count=$(tr , '\n' <<<"$files" | wc -l)
  said=$(dump --verify-index-only --deep-iteration --files "$files")
  equal '' "$(grep -vE '^Dumping |[.]index is empty[.]$' <<<"$said" | head -n 5)" "complaints of --verify-index-only"
  said=$(dump --index-sanity-check --files "$files")
  equal "$count" "$(grep -cE 'passed sanity check[.]$|[.]index is empty[.]$' <<<"$said")" "indexes that passed --index-sanity-check"
  said=$(dump --files "$files")
  [ "$(grep -cE '^offset: [0-9]+ position: [0-9]+$' <<<"$said")" -gt 100 ] || fail "few entries in the offset indexes"
  [ "$(grep -cE '^timestamp: [0-9]+ offset: [0-9]+$' <<<"$said")" -gt 100 ] || fail "few entries in the time indexes"
  equal '' "$(grep -E 'Mismatch|Misses|out of order|Found timestamp mismatch|Exception' <<<"$said" | head -n 5)" "complaints of the dump"
}

snapshots_are_read() {
  local said
  said=$(dump --files "$(files_of "$1" .snapshot files.)")
  contains "$said" 'producerId: ' "dump of the producer snapshots"
  equal '' "$(grep -vE '^Dumping |^producerId: [0-9]+ producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: [0-9]+ firstSequence: [0-9]+ lastSequence: [0-9]+ lastOffset: [0-9]+ offsetDelta: [0-9]+ timestamp: [0-9]+$' \
    <<<"$said" | head -n 5)" "other lines in the dump of the producer snapshots"
}

epochs_are_read() { python3 "$INTEROP_ROOT/files/epochs.py" "$1"/files.*-0/leader-epoch-checkpoint; }

# judge WHAT NAME: the folder of a stopped broker.
judge() {
  local data=${BROKER_DATA[$2]} records=$SCRATCH/$2.records
  case_of "kafka-dump-log: the records of $1 are what clients read" logs_are_what_clients_read "$data" "$records"
  case_of "kafka-dump-log: the indexes of $1 fit their segments" indexes_are_sound "$data"
  case_of "kafka-dump-log: the producer snapshots of $1 are read" snapshots_are_read "$data"
  case_of "the leader-epoch checkpoints of $1 are Kafka's" epochs_are_read "$data"
}

stopped_cleanly() {
  start_tested stopped
  client fill "${BROKER_ADDRESS[stopped]}" || exit 1
  client read "${BROKER_ADDRESS[stopped]}" "$SCRATCH/stopped.records" || exit 1
  end_broker stopped || true
}

# Killed in the middle of the load, which goes on to fail; started again, filled up with other topics' records, and stopped.
killed_and_stopped() {
  local load
  start_tested killed
  client fill "${BROKER_ADDRESS[killed]}" >/dev/null 2>&1 &
  load=$!
  until [ "$(du -sb "${BROKER_DATA[killed]}"/files.* 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')" -gt $KILL_AFTER_BYTES ]; do
    kill -0 $load 2>/dev/null || break
    sleep 0.05
  done
  kill_broker killed
  kill -KILL $load 2>/dev/null
  wait $load 2>/dev/null
  restart_broker killed
  client fill "${BROKER_ADDRESS[killed]}" || exit 1
  client read "${BROKER_ADDRESS[killed]}" "$SCRATCH/killed.records" || exit 1
  end_broker killed || true
}

twins() {
  local name
  start_broker twin-kafka kafka
  start_tested twin-default
  # Without pre-written room segments end where Kafka's do.
  [ "$AGAINST" = kafka ] || CORELOG_SETTINGS=(--set corelog.prewrite.bytes=0)
  start_tested twin-tested
  client send "${BROKER_ADDRESS[twin-kafka]}" "${BROKER_ADDRESS[twin-tested]}" "${BROKER_ADDRESS[twin-default]}" || exit 1
  for name in twin-kafka twin-tested twin-default; do end_broker "$name" || true; done
  client compare "${BROKER_DATA[twin-kafka]}" "${BROKER_DATA[twin-tested]}" "${BROKER_DATA[twin-default]}" || TAP_FAILED=1
}

stopped_cleanly
judge "a broker that was stopped" stopped
killed_and_stopped
judge "a broker that was killed, started and stopped" killed
twins
finish

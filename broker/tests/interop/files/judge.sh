# What Kafka's tools say about the data folder of a stopped broker.
# Holds: the cases, and what each looks at. Never touches: brokers.

SEGMENTS_MIN=2

# files_of DATA SUFFIX PARTITION: their paths, in order, with commas; of all partitions that start so.
files_of() { find "$1" -maxdepth 2 -path "*/$3*" -name "*$2" | LC_ALL=C sort | paste -sd, -; }

logs_are_what_clients_read() {
  local data=$1 records=$2 topics=$3 folder
  for folder in "$data/$topics"*-0; do
    [ "$(find "$folder" -name '*.log' | wc -l)" -ge "$SEGMENTS_MIN" ] || fail "fewer than $SEGMENTS_MIN segments in $folder"
  done
  dump --deep-iteration --print-data-log --files "$(files_of "$data" .log "$topics")" >"$SCRATCH/dump"
  python3 "$INTEROP_ROOT/files/dump.py" "$records" "$topics" <"$SCRATCH/dump"
}

# Each index is compared with its segment, entry by entry; then its own order is checked. Those of a short last segment have no
# entry, as in Kafka.
indexes_are_sound() {
  local data=$1 topics=$2 entries_min=$3 files said count
  files=$(files_of "$data" index "$topics")
  count=$(tr , '\n' <<<"$files" | wc -l)
  said=$(dump --verify-index-only --deep-iteration --files "$files")
  equal '' "$(grep -vE '^Dumping |[.]index is empty[.]$' <<<"$said" | head -n 5)" "complaints of --verify-index-only"
  said=$(dump --index-sanity-check --files "$files")
  equal "$count" "$(grep -cE 'passed sanity check[.]$|[.]index is empty[.]$' <<<"$said")" "indexes that passed --index-sanity-check"
  said=$(dump --files "$files")
  [ "$(grep -cE '^offset: [0-9]+ position: [0-9]+$' <<<"$said")" -ge "$entries_min" ] || fail "few entries in the offset indexes"
  [ "$(grep -cE '^timestamp: [0-9]+ offset: [0-9]+$' <<<"$said")" -ge "$entries_min" ] || fail "few entries in the time indexes"
  equal '' "$(grep -E 'Mismatch|Misses|out of order|Found timestamp mismatch|Exception' <<<"$said" | head -n 5)" "complaints of the dump"
}

snapshots_are_read() {
  local said
  said=$(dump --files "$(files_of "$1" .snapshot "$2")")
  contains "$said" 'producerId: ' "dump of the producer snapshots"
  equal '' "$(grep -vE '^Dumping |^producerId: [0-9]+ producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: [0-9]+ firstSequence: [0-9]+ lastSequence: [0-9]+ lastOffset: [0-9]+ offsetDelta: [0-9]+ timestamp: [0-9]+$' \
    <<<"$said" | head -n 5)" "other lines in the dump of the producer snapshots"
}

epochs_are_read() { python3 "$INTEROP_ROOT/files/epochs.py" "$1/$2"*-0/leader-epoch-checkpoint; }

# judge WHAT NAME TOPICS ENTRIES: the folder of a stopped broker, of it the topics whose names start so, and the least entries that
# their indexes have.
judge() {
  local data=${BROKER_DATA[$2]} records=$SCRATCH/$2.records
  case_of "kafka-dump-log: the records of $1 are what clients read" logs_are_what_clients_read "$data" "$records" "$3"
  case_of "kafka-dump-log: the indexes of $1 fit their segments" indexes_are_sound "$data" "$3" "$4"
  case_of "kafka-dump-log: the producer snapshots of $1 are read" snapshots_are_read "$data" "$3"
  case_of "the leader-epoch checkpoints of $1 are Kafka's" epochs_are_read "$data" "$3"
}

#!/usr/bin/env bash
# The suite of the moves: a real Kafka's folder imported, and exported back to one that a real Kafka starts on.
# Holds: the cases, and brokers of its own. Never touches: the broker of the other suites.
set -uo pipefail
source "$INTEROP_ROOT/files/common.sh"
source "$INTEROP_ROOT/files/judge.sh"

import_kafka() { "$BROKER_BIN" import "${BROKER_DATA[moved]}" --into "$RUN_DATA/imported" --config "$RUN/kafka-moved.properties" "$@" 2>&1; }

# kept WHAT: the lines of this kind are the same before and after.
kept() {
  equal '' "$(diff <(grep "^$1 " "$SCRATCH/before.records") <(grep "^$1 " "$SCRATCH/after.records") | head -n 4 | cut -c 1-300)" "$1 lines"
  [ "$(grep -c "^$1 " "$SCRATCH/before.records")" -gt "$2" ] || fail "few lines of this kind"
}

refused() {
  local said=$1 code=0 output; shift
  output=$("$@" 2>&1) || code=$?
  [ $code -ne 0 ] || fail "expected it to be refused, but it succeeded: $output"
  contains "$output" "$said" "message"
  [ ! -e "$RUN_DATA/imported" ] && [ ! -e "$RUN_DATA/imported.importing" ] || fail "something was left behind"
}

a_kafkas_folder_is_no_data_folder() {
  refused 'corelog import' "$BROKER_BIN" serve --data-dir "${BROKER_DATA[moved]}" --listen 127.0.0.1:0 --set node.id=1
}

fingerprint() { (cd "${BROKER_DATA[moved]}" && find . -type f -printf '%p %s %T@ %i\n' -exec sha256sum {} + | LC_ALL=C sort | sha256sum); }

imported() {
  local said before
  before=$(fingerprint)
  said=$(import_kafka) || fail "$said"
  contains "$said" 'move.delete' "table"
  contains "$said" 'is ready' "output"
  equal "$before" "$(fingerprint)" "Kafka's folder"
}

# same_txn_indexes DATA: its indexes of aborted transactions are those of the Kafka whose folder was imported, byte for byte.
same_txn_indexes() {
  local kafka=${BROKER_DATA[moved]}/move.aborted-0 tested=$1/move.aborted-0
  equal "$(cd "$kafka" && find . -name '*.txnindex' -size +0 -exec sha256sum {} + | LC_ALL=C sort)" \
    "$(cd "$tested" && find . -name '*.txnindex' -exec sha256sum {} + | LC_ALL=C sort)" "names and bytes of .txnindex"
  [ "$(find "$tested" -name '*.txnindex' | wc -l)" -ge 3 ] || fail "fewer than three segments have an index"
}

# Without the indexes that Kafka wrote: they come from the batches alone.
made_anew() {
  local said
  cp -a "${BROKER_DATA[moved]}" "$RUN_DATA/without" || exit 1
  find "$RUN_DATA/without" -name '*.txnindex' -delete
  said=$("$BROKER_BIN" import "$RUN_DATA/without" --into "$RUN_DATA/anew" --config "$RUN/kafka-moved.properties" 2>&1) || fail "$said"
  same_txn_indexes "$RUN_DATA/anew"
}

# What kafka-dump-log says of them: an entry a line, and no complaint.
txn_indexes_are_read() {
  local data=$1 said files bytes
  files=$(files_of "$data" .txnindex move.)
  said=$(dump --files "$files")
  bytes=$(tr , '\n' <<<"$files" | xargs cat | wc -c)
  equal $((bytes / 34)) "$(grep -cE '^version: 0 producerId: [0-9]+ firstOffset: [0-9]+ lastOffset: [0-9]+ lastStableOffset: [0-9]+$' <<<"$said")" \
    "entries"
  equal '' "$(grep -vE '^Dumping |^version: 0 ' <<<"$said" | head -n 3)" "other lines"
  said=$(dump --deep-iteration --files "$(files_of "$data" .log move.aborted)")
  equal '' "$(grep -E 'Exception|Mismatch|invalid' <<<"$said" | head -n 3)" "complaints about the segments"
}

went_on() {
  client go-on "${BROKER_ADDRESS[imported]}"
  client read "${BROKER_ADDRESS[imported]}" "$SCRATCH/later.records"
  equal '' "$(grep '^record ' "$SCRATCH/before.records" | LC_ALL=C sort | LC_ALL=C comm -23 - <(LC_ALL=C sort "$SCRATCH/later.records") | head -n 2)" \
    "records that are gone"
  equal 200 $(( $(grep -c '^record ' "$SCRATCH/later.records") - $(grep -c '^record ' "$SCRATCH/before.records") )) "new records"
}

# A folder that a real Kafka wrote becomes a data folder of Corelog's, and nothing in it has changed.
migration() {
  start_broker moved kafka
  client prepare "${BROKER_ADDRESS[moved]}" || exit 1
  case_of "corelog import: a running Kafka is refused" refused 'in use' import_kafka
  client read "${BROKER_ADDRESS[moved]}" "$SCRATCH/before.records" || exit 1
  end_broker moved || true
  case_of "corelog serve refuses a Kafka's folder and names the import" a_kafkas_folder_is_no_data_folder
  case_of "corelog import takes a Kafka's folder, which stays as it is" imported
  [ -d "$RUN_DATA/imported" ] || return
  case_of "imported: the indexes of aborted transactions are Kafka's, byte for byte" same_txn_indexes "$RUN_DATA/imported"
  case_of "corelog import makes them anew from the batches where they are missing" made_anew
  start_broker imported corelog
  client read "${BROKER_ADDRESS[imported]}" "$SCRATCH/after.records" || exit 1
  case_of "imported: every record has its offset, timestamp, key, value and headers" kept record 3000
  case_of "imported: consumers of committed records see what they saw, and nothing that was aborted" kept committed 3000
  case_of "imported: logs start and end where they did" kept bounds 100
  case_of "imported: topics have their ids and configurations" kept topic 8
  case_of "imported: the broker has its dynamic configuration" kept broker 0
  case_of "imported: producers go on behind what was there" went_on
  end_broker imported || true
  way_back
}

exported() {
  contains "$("$BROKER_BIN" export --from "${BROKER_DATA[imported]}" --into "$RUN_DATA/exported" 2>&1)" 'is ready' "output"
}

served_by_kafka() {
  equal '' "$(diff <(grep -E "^(topic|broker|bounds|record|committed) " "$SCRATCH/later.records") <(grep -E "^(topic|broker|bounds|record|committed) " "$SCRATCH/back.records") |
    head -n 4 | cut -c 1-300)" "what Kafka serves"
}

# And back: a real Kafka starts on an export of that folder and serves the same.
way_back() {
  case_of "corelog export makes a Kafka's folder of a stopped broker's" exported
  [ -d "$RUN_DATA/exported" ] || return
  case_of "exported: the indexes of aborted transactions are those that Kafka wrote" same_txn_indexes "$RUN_DATA/exported"
  case_of "kafka-dump-log: the indexes of aborted transactions are read" txn_indexes_are_read "$RUN_DATA/exported"
  start_broker exported kafka
  client read "${BROKER_ADDRESS[exported]}" "$SCRATCH/back.records" || exit 1
  case_of "exported: a real Kafka serves every topic, configuration, bound and record" served_by_kafka
  end_broker exported || true
  case_of "exported: a real Kafka found nothing to put right" found_nothing_wrong
}

found_nothing_wrong() { equal '' "$(grep -E 'ERROR|corrupt|Rebuilding|truncat' "$LOGS/broker-exported.log" | head -n 3)" "its log"; }

if [ "$AGAINST" = kafka ]; then
  echo "ok - corelog import # SKIP it is corelog's own command"
else
  migration
fi
finish

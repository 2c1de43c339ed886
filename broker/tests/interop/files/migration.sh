#!/usr/bin/env bash
# The suite of the moves: a real Kafka's folder imported, and exported back to one that a real Kafka starts on.
# Holds: the cases, and brokers of its own. Never touches: the broker of the other suites.
set -uo pipefail
source "$INTEROP_ROOT/files/common.sh"

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
  said=$(import_kafka --ignore aborted-transactions) || fail "$said"
  contains "$said" 'move.delete' "table"
  contains "$said" 'is ready' "output"
  equal "$before" "$(fingerprint)" "Kafka's folder"
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
  case_of "corelog import: aborted transactions are refused unless they are ignored" refused '[--ignore aborted-transactions]' import_kafka
  case_of "corelog import takes a Kafka's folder, which stays as it is" imported
  [ -d "$RUN_DATA/imported" ] || return
  start_broker imported corelog
  client read "${BROKER_ADDRESS[imported]}" "$SCRATCH/after.records" || exit 1
  case_of "imported: every record has its offset, timestamp, key, value and headers" kept record 3000
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
  equal '' "$(diff <(grep -E "^(topic|broker|bounds|record) " "$SCRATCH/later.records") <(grep -E "^(topic|broker|bounds|record) " "$SCRATCH/back.records") |
    head -n 4 | cut -c 1-300)" "what Kafka serves"
}

# And back: a real Kafka starts on an export of that folder and serves the same.
way_back() {
  case_of "corelog export makes a Kafka's folder of a stopped broker's" exported
  [ -d "$RUN_DATA/exported" ] || return
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

#!/usr/bin/env bash
# The suite of compaction: a real Kafka and the broker under test compact the same batches, and serve the same afterwards.
# Holds: the cases, and brokers of its own. Never touches: the broker of the other suites.
set -uo pipefail
source "$INTEROP_ROOT/files/common.sh"
source "$INTEROP_ROOT/files/judge.sh"

# Both look often whether there is something to do.
KAFKA_SETTINGS=(log.cleaner.backoff.ms=100 log.cleaner.dedupe.buffer.size=33554432 log.initial.task.delay.ms=200
  log.retention.check.interval.ms=300)

serves_the_same_after_a_restart() {
  client read "${BROKER_ADDRESS[compact-tested]}" "$SCRATCH/again.records"
  equal '' "$(diff <(grep -E '^(bounds|record) ' "$SCRATCH/compact-tested.records") <(grep -E '^(bounds|record) ' "$SCRATCH/again.records") |
    head -n 4 | cut -c 1-300)" "what it serves"
}

compacted() {
  local setting
  start_broker compact-kafka kafka
  # Without pre-written room segments end where Kafka's do.
  [ "$AGAINST" = kafka ] || {
    CORELOG_SETTINGS=(--set corelog.prewrite.bytes=0)
    for setting in "${KAFKA_SETTINGS[@]}"; do CORELOG_SETTINGS+=(--set "$setting"); done
  }
  start_tested compact-tested
  client compact "${BROKER_ADDRESS[compact-kafka]}" "${BROKER_DATA[compact-kafka]}" \
    "${BROKER_ADDRESS[compact-tested]}" "${BROKER_DATA[compact-tested]}" || TAP_FAILED=1
  client read "${BROKER_ADDRESS[compact-tested]}" "$SCRATCH/compact-tested.records" || exit 1
  end_broker compact-tested || true
  judge "a broker that has compacted" compact-tested compact. 20
  restart_broker compact-tested
  case_of "what was compacted is served the same after a restart" serves_the_same_after_a_restart
}

compacted
finish

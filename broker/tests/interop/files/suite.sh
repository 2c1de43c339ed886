#!/usr/bin/env bash
# The suite of the files: what Kafka's own tools say about our data folders, and what a real Kafka writes for the same batches.
# Holds: the cases, and brokers of its own. Never touches: the broker of the other suites.
set -uo pipefail
source "$INTEROP_ROOT/files/common.sh"
source "$INTEROP_ROOT/files/judge.sh"

# Where in the load the broker is killed.
KILL_AFTER_BYTES=4000000

stopped_cleanly() {
  start_tested stopped
  client fill "${BROKER_ADDRESS[stopped]}" || exit 1
  client read "${BROKER_ADDRESS[stopped]}" "$SCRATCH/stopped.records" || exit 1
  end_broker stopped || true
}

load_has_ended() {
  equal '' "$(grep -lzxFf <(printf '%s\n' "$1") /proc/[0-9]*/cmdline 2>/dev/null)" "processes that still have this address as an argument"
}

# Killed in the middle of the load, which goes on to fail; started again, filled up with other topics' records, and stopped.
killed_and_stopped() {
  local load address
  start_tested killed
  address=${BROKER_ADDRESS[killed]}
  client_in_background fill "$address" >/dev/null 2>&1
  load=$CLIENT_PID
  until [ "$(du -sb "${BROKER_DATA[killed]}"/files.* 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')" -gt $KILL_AFTER_BYTES ]; do
    kill -0 $load 2>/dev/null || break
    sleep 0.05
  done
  kill_broker killed
  kill -KILL $load 2>/dev/null
  wait $load 2>/dev/null
  CLIENT_PID=
  case_of "the load of the killed broker ends with it" load_has_ended "$address"
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
judge "a broker that was stopped" stopped files. 100
killed_and_stopped
judge "a broker that was killed, started and stopped" killed files. 100
twins
finish

# The table of suites: what each needs installed and how it is started.
# Holds: the one list of suites. Never touches: results (lib/report.sh reads what a suite printed).
#
# A suite is a program that reads INTEROP_* from its environment (see docs/interop.md) and prints one TAP line a case:
# "ok - NAME", "ok - NAME # SKIP reason" or "not ok - NAME" followed by "# reason" lines.

# The order matters a little: each suite also reads the cross topics of those before it (kafkajs cannot read its own).
ALL_SUITES=(kafkajs franz-go confluent-kafka kafka-python java kcat tools files compaction migration differential)

declare -A SUITE_INSTALLS=(
  [kcat]="install_kcat"
  [java]="install_java"
  [franz-go]="install_go"
  [confluent-kafka]="install_confluent_kafka"
  [kafka-python]="install_kafka_python"
  [kafkajs]="install_node"
  [tools]="install_java install_kcat"
  [files]="install_java"
  [compaction]="install_java"
  [migration]="install_java"
  [differential]="install_java"
)

SUITE_SECONDS_MAX=600

java_main() { java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "$@"; }

start_kcat() { bash "$INTEROP_ROOT/kcat/suite.sh"; }
start_java() { java_main -cp "$(java_classes java)" corelog.interop.clients.Main; }
start_franz_go() { "$WORK/franz-go"; }
start_confluent_kafka() { PYTHONPATH=$INTEROP_ROOT/pylib "$WORK/venv-confluent-kafka/bin/python" "$INTEROP_ROOT/confluent-kafka/suite.py"; }
start_kafka_python() { PYTHONPATH=$INTEROP_ROOT/pylib "$WORK/venv-kafka-python/bin/python" "$INTEROP_ROOT/kafka-python/suite.py"; }
start_kafkajs() { NODE_PATH=$WORK/kafkajs/node_modules node "$INTEROP_ROOT/kafkajs/suite.js"; }
start_tools() { KAFKA_CLASSPATH=$(java_classes kafka) bash "$INTEROP_ROOT/tools/suite.sh"; }

start_files() { with_kafkas_classes bash "$INTEROP_ROOT/files/suite.sh"; }
start_compaction() { with_kafkas_classes bash "$INTEROP_ROOT/files/compaction.sh"; }
start_migration() { with_kafkas_classes bash "$INTEROP_ROOT/files/migration.sh"; }
with_kafkas_classes() { KAFKA_CLASSPATH=$(java_classes kafka) FILES_CLASSPATH=$(java_classes files) "$@"; }

# The suite with two brokers for all its cases: a real Kafka as the reference, the broker under test beside it.
start_differential() {
  java_main -cp "$(java_classes differential)" corelog.interop.differential.Main \
    --reference "$REFERENCE_BOOTSTRAP" --tested "$INTEROP_BOOTSTRAP" --against "$AGAINST" \
    --intended "$INTEROP_ROOT/differential/intended.json" --report "$LOGS/differential.txt"
}

# What a module of the Maven build runs with.
java_classes() {
  local built=$WORK/maven/$1
  [ -d "$built/classes" ] && printf '%s:' "$built/classes"
  cat "$built/classpath"
}

run_suites() {
  local suite started
  : >"$LOGS/broker.tap"
  start_broker tested "$AGAINST"
  export INTEROP_BOOTSTRAP=${BROKER_ADDRESS[tested]}
  export INTEROP_DATA_DIR=${BROKER_DATA[tested]}
  export INTEROP_AGAINST=$AGAINST
  export INTEROP_FIXTURES=$INTEROP_ROOT/fixtures
  # Record times lie an hour back: inside every default limit and retention, and never "now" by accident.
  export INTEROP_BASE_MS=$(( ($(date +%s) - 3600) * 1000 ))
  for suite in "$@"; do
    if [ "$suite" = differential ]; then
      start_broker reference kafka
      REFERENCE_BOOTSTRAP=${BROKER_ADDRESS[reference]}
    fi
    started=$SECONDS
    echo "== $suite"
    run_one_suite "$suite" || true
    SUITE_TIME[$suite]=$((SECONDS - started))
  done
}

# A suite that dies, hangs or prints no case at all counts as one failed case of its own.
run_one_suite() {
  local suite=$1 code=0 output=$LOGS/$1.tap
  export -f "start_${suite//-/_}" java_main java_classes with_kafkas_classes
  export WORK RUN RUN_DATA LOGS REFERENCE_BOOTSTRAP AGAINST BROKER_BIN
  timeout --kill-after=5 "$SUITE_SECONDS_MAX" bash -c "start_${suite//-/_}" >"$output" 2>"$LOGS/$suite.err" </dev/null || code=$?
  grep -E '^(not )?ok - |^#' "$output" | grep -v '^ok - ' || true
  if [ $code -ne 0 ] && ! grep -q '^not ok - ' "$output"; then
    echo "not ok - the suite ended with code $code before its end" | tee -a "$output"
    tail -n 20 "$LOGS/$suite.err"
  elif ! grep -qE '^(not )?ok - ' "$output"; then
    echo "not ok - the suite ran no case" | tee -a "$output"
  fi
}

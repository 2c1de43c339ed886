# What both suites of the files share: clients, Kafka's tools, brokers of their own that end with the suite.
# Holds: how they are started. Never touches: the broker of the other suites.
source "$INTEROP_ROOT/lib/tap.sh"
source "$INTEROP_ROOT/lib/broker.sh"
CORELOG_SETTINGS=()

# Kafka's class path and logging, for lib/broker.sh.
java_classes() { printf '%s' "$KAFKA_CLASSPATH"; }
end_all() {
  local name
  for name in "${!BROKER_PID[@]}"; do kill_broker "$name" || true; done
  rm -rf "$SCRATCH"
}
trap end_all EXIT
trap 'exit 143' TERM

java_main() { java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dorg.slf4j.simpleLogger.defaultLogLevel=error "$@"; }
client() { java_main -cp "$FILES_CLASSPATH" corelog.interop.files.Main "$@"; }
dump() { java_main -cp "$KAFKA_CLASSPATH" kafka.tools.DumpLogSegments "$@" 2>&1; }

start_tested() { start_broker "$1" "$AGAINST" "${2-$RUN_DATA/$1}"; }


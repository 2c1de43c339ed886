# What the suites of the files share: clients, Kafka's tools, brokers of their own that end with the suite.
# Holds: how they are started. Never touches: the broker of the other suites.
source "$INTEROP_ROOT/lib/tap.sh"
source "$INTEROP_ROOT/lib/broker.sh"
CORELOG_SETTINGS=()

# Kafka's class path and logging, for lib/broker.sh.
java_classes() { printf '%s' "$KAFKA_CLASSPATH"; }
end_all() {
  local name
  for name in "${!BROKER_PID[@]}"; do kill_broker "$name" || true; done
  [ -z "$CLIENT_PID" ] || kill -KILL "$CLIENT_PID" 2>/dev/null
  rm -rf "$SCRATCH"
}
trap end_all EXIT
trap 'exit 143' TERM

JAVA=(java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dorg.slf4j.simpleLogger.defaultLogLevel=error)
java_main() { "${JAVA[@]}" "$@"; }
CLIENT=(-cp "$FILES_CLASSPATH" corelog.interop.files.Main)
client() { java_main "${CLIENT[@]}" "$@"; }
# Its process is in CLIENT_PID: the JVM itself. A function in the background would be a shell that waits for one, and outlived by it.
CLIENT_PID=
client_in_background() {
  (exec "${JAVA[@]}" "${CLIENT[@]}" "$@") &
  CLIENT_PID=$!
}
dump() { java_main -cp "$KAFKA_CLASSPATH" kafka.tools.DumpLogSegments "$@" 2>&1; }

start_tested() { start_broker "$1" "$AGAINST" "${2-$RUN_DATA/$1}"; }


# Starts, awaits and stops brokers.
# Holds: the brokers of this run, by name: address, data folder, pid. Never touches: a process it did not start.

declare -A BROKER_ADDRESS=() BROKER_DATA=() BROKER_PID=() BROKER_KIND=()
BROKER_READY_SECONDS_MAX=180
BROKER_STOP_SECONDS_MAX=20

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# A Kafka uuid: 16 bytes as url-safe base64 without padding (never starting with a dash, which tools take for an option).
random_cluster_id() {
  python3 -c 'import base64, os; print(base64.urlsafe_b64encode(b"\x41" + os.urandom(15)).decode().rstrip("="))'
}

# start_broker NAME corelog|kafka [DATA]: a free loopback port, a fresh data folder (or the one given), and it answers when
# this returns.
start_broker() {
  local name=$1 kind=$2
  BROKER_DATA[$name]=${3-$RUN_DATA/$name}
  BROKER_KIND[$name]=$kind
  mkdir -p "${BROKER_DATA[$name]}"
  restart_broker "$name"
}

# On the same data folder, with another port.
restart_broker() {
  local name=$1 port
  port=$(free_port)
  BROKER_ADDRESS[$name]=127.0.0.1:$port
  "launch_${BROKER_KIND[$name]}" "$name" "$port" "${BROKER_DATA[$name]}"
  if ! python3 "$INTEROP_ROOT/lib/ready.py" "$port" "${BROKER_PID[$name]}" "$BROKER_READY_SECONDS_MAX"; then
    echo "the ${BROKER_KIND[$name]} broker \"$name\" did not become ready; its log ends with:" >&2
    tail -n 40 "$LOGS/broker-$name.log" >&2
    exit 1
  fi
}

launch_corelog() {
  local name=$1 port=$2 data=$3
  "$BROKER_BIN" serve --listen "127.0.0.1:$port" --data-dir "$data" --shards 4 --set node.id=1 \
    ${CORELOG_SETTINGS[@]+"${CORELOG_SETTINGS[@]}"} >>"$LOGS/broker-$name.log" 2>&1 </dev/null &
  BROKER_PID[$name]=$!
}

# One node that is broker and controller (KRaft); everything not said here or in KAFKA_SETTINGS is Kafka's default, but for
# eligible leader replicas: they mean nothing on one node and would change where min.insync.replicas is kept. A folder that is
# formatted already is taken as it is.
launch_kafka() {
  local name=$1 port=$2 data=$3 properties=$RUN/kafka-$1.properties classes logging
  classes=$(java_classes kafka)
  logging=(-Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true)
  sed -e "s|@PORT@|$port|g; s|@CONTROLLER_PORT@|$(free_port)|g; s|@DATA@|$data|" \
    "$INTEROP_ROOT/kafka/server.properties" >"$properties"
  printf '%s\n' ${KAFKA_SETTINGS[@]+"${KAFKA_SETTINGS[@]}"} >>"$properties"
  if [ ! -e "$data/meta.properties" ]; then
    format_kafka
  elif [ ! -d "$data/__cluster_metadata-0" ]; then
    # An exported folder: its cluster begins with a quorum that the properties name.
    sed -i 's|^controller.quorum.bootstrap.servers=|controller.quorum.voters=1@|' "$properties"
  fi
  java -Xmx512m -Xms128m -XX:+UseSerialGC "${logging[@]}" -cp "$classes" kafka.Kafka "$properties" \
    >>"$LOGS/broker-$name.log" 2>&1 </dev/null &
  BROKER_PID[$name]=$!
}

# The variables are those of launch_kafka.
format_kafka() {
  java -Xmx128m -XX:TieredStopAtLevel=1 "${logging[@]}" -cp "$classes" kafka.tools.StorageTool \
    format --standalone -t "$(random_cluster_id)" -c "$properties" --feature eligible.leader.replicas.version=0 \
    >"$LOGS/broker-$name.log" 2>&1 || { cat "$LOGS/broker-$name.log" >&2; exit 1; }
}

# Asks Corelog to stop, which is a case of its own; nobody reads a real Kafka's data again, so it is not waited for.
stop_brokers() {
  local name
  for name in "${!BROKER_PID[@]}"; do
    case ${BROKER_KIND[$name]} in
      corelog) stop_corelog "$name" ;;
      kafka) kill -KILL "${BROKER_PID[$name]}" 2>/dev/null || true; wait "${BROKER_PID[$name]}" 2>/dev/null || true ;;
    esac
    unset "BROKER_PID[$name]"
  done
}

stop_corelog() {
  local code=0
  end_broker "$1" || code=$?
  if [ $code -eq 0 ]; then
    echo "ok - SIGTERM stops the broker with exit code 0"
  else
    echo "not ok - SIGTERM stops the broker with exit code 0"
    echo "# it ended with $code; its log ends with:"
    tail -n 5 "$LOGS/broker-$1.log" | sed 's/^/# /'
  fi >>"$LOGS/broker.tap"
}

# Ends a broker in an orderly way; its exit code.
end_broker() {
  local pid=${BROKER_PID[$1]} waited=0
  kill -TERM "$pid" 2>/dev/null || true
  while kill -0 "$pid" 2>/dev/null && [ $waited -lt $((BROKER_STOP_SECONDS_MAX * 10)) ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
  kill_broker "$1"
}

kill_broker() {
  local pid=${BROKER_PID[$1]} code=0
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || code=$?
  return $code
}

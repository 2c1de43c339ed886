# Gets what the suites need, through ordinary package managers only.
# Holds: one function for each kind of package, each a no-op when its inputs have not changed.
# Never touches: brokers, results.

WORK=$INTEROP_ROOT/.work
RUN=$WORK/run-$$
LOGS=$RUN/logs
RUN_DATA=$RUN/data

# What is installed is shared; logs and data are each run's own, so that two runs do not meet. Those of dead runs go.
prepare_work_folder() {
  local old
  for old in "$WORK"/run-*; do
    [ -d "/proc/${old##*-}" ] || rm -rf "$old"
  done
  mkdir -p "$LOGS" "$RUN_DATA" "$WORK/stamps"
}

# Runs a command only if one of the named inputs changed since it last succeeded: once NAME INPUT... -- COMMAND...
once() {
  local name=$1 inputs=() digest; shift
  while [ "$1" != -- ]; do inputs+=("$1"); shift; done
  shift
  digest=$(find "${inputs[@]}" -type f -print0 \
    | sort -z | xargs -0 sha256sum | sha256sum)
  [ "$(cat "$WORK/stamps/$name" 2>/dev/null)" != "$digest" ] || return 0
  echo "installing for $name"
  if ! "$@" >"$LOGS/install-$name.log" 2>&1; then
    echo "installing for $name failed:" >&2
    tail -n 40 "$LOGS/install-$name.log" >&2
    return 1
  fi
  printf '%s' "$digest" >"$WORK/stamps/$name"
}

# Debian packages, fetched only when one of them is missing: apt_packages COMMAND=PACKAGE...
apt_packages() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair##*=}")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "installing Debian packages: ${missing[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"; } \
    >"$LOGS/install-apt.log" 2>&1 || { tail -n 40 "$LOGS/install-apt.log" >&2; return 1; }
}

install_kcat() { apt_packages kcat=kcat jq=jq; }

build_java() {
  (cd "$INTEROP_ROOT" && mvn -B -q -ntp compile)
}

# The broker, the tools, the Java suite and the differential run come from one Maven build.
install_java() {
  once java "$INTEROP_ROOT/pom.xml" "$INTEROP_ROOT/kafka" "$INTEROP_ROOT/common" "$INTEROP_ROOT/java" "$INTEROP_ROOT/differential" "$INTEROP_ROOT/files/pom.xml" \
    "$INTEROP_ROOT/files/src" -- build_java
}

build_go() {
  (cd "$INTEROP_ROOT/franz-go" && go build -o "$WORK/franz-go" .)
}

install_go() {
  once go "$INTEROP_ROOT/franz-go" -- build_go
}

build_python() {
  local client=$1
  python3 -m venv --clear "$WORK/venv-$client"
  "$WORK/venv-$client/bin/pip" install -q --disable-pip-version-check -r "$INTEROP_ROOT/$client/requirements.txt"
}

install_confluent_kafka() {
  once confluent-kafka "$INTEROP_ROOT/confluent-kafka/requirements.txt" -- build_python confluent-kafka
}

install_kafka_python() {
  once kafka-python "$INTEROP_ROOT/kafka-python/requirements.txt" -- build_python kafka-python
}

build_node() {
  mkdir -p "$WORK/kafkajs"
  cp "$INTEROP_ROOT"/kafkajs/package{,-lock}.json "$WORK/kafkajs/"
  (cd "$WORK/kafkajs" && npm ci --no-audit --no-fund)
}

install_node() {
  once kafkajs "$INTEROP_ROOT/kafkajs/package.json" "$INTEROP_ROOT/kafkajs/package-lock.json" -- build_node
}

build_corelog() {
  (cd "$WORKSPACE_ROOT" && cargo build --release -p corelog-broker)
}

# The binary under test; an explicit --broker-bin is used as it is, never rebuilt.
install_corelog() {
  [ "$AGAINST" = corelog ] || return 0
  if [ -z "$BROKER_BIN" ]; then
    BROKER_BIN=${CARGO_TARGET_DIR:-$WORKSPACE_ROOT/target}/release/corelog
    [ -x "$BROKER_BIN" ] || { echo "building $BROKER_BIN"; build_corelog; }
  fi
  [ -x "$BROKER_BIN" ] || { echo "no broker binary at $BROKER_BIN" >&2; return 1; }
}

# Installs for the chosen suites side by side: most of the time is waiting for downloads. One run at a time.
install_for_suites() {
  local suite step steps=() jobs=() failed=0 lock
  exec {lock}>"$WORK/install.lock"
  flock "$lock"
  for suite in "$@"; do
    for step in ${SUITE_INSTALLS[$suite]}; do
      [[ " ${steps[*]-} " == *" $step "* ]] || steps+=("$step")
    done
  done
  [ "$AGAINST" = kafka ] && [[ " ${steps[*]} " != *" install_java "* ]] && steps+=(install_java)
  install_corelog
  for step in "${steps[@]}"; do "$step" & jobs+=($!); done
  for step in "${jobs[@]}"; do wait "$step" || failed=1; done
  exec {lock}>&-
  return $failed
}

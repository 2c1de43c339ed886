# The test runner of the suites that are shell scripts.
# Holds: cases and assertions. Never touches: brokers.

TAP_FAILED=0
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

# case_of NAME FUNCTION [ARGUMENT...]: the function fails by a non-zero status; what it wrote to stderr is the reason.
case_of() {
  local name=$1; shift
  if (set -e; "$@") 2>"$SCRATCH/reason"; then
    echo "ok - $name"
  else
    TAP_FAILED=1
    echo "not ok - $name"
    tail -n 8 "$SCRATCH/reason" | sed 's/^/# /'
  fi
}

# Each assertion ends the case (exit, not return: a caller's "||" or "if" would switch set -e off).
fail() { echo "$*" >&2; exit 1; }

equal() { [ "$1" = "$2" ] || fail "$3: expected <$1>, got <$2>"; }

contains() { grep -qF -- "$2" <<<"$1" || fail "$3: no <$2> in: $(head -c 600 <<<"$1")"; }

# eventually COMMAND...: a Kafka controller answers before its brokers have replayed the change.
eventually() {
  local attempt
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    ("$@") 2>/dev/null && return
    sleep 0.5
  done
  "$@"
}

finish() { exit $TAP_FAILED; }

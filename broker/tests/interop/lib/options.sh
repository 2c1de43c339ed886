# Command line of the interop suite.
# Holds: the options, their defaults and the choice of suites. Never touches: the network, the disk.

usage() {
  cat <<'TEXT'
usage: broker/tests/interop/run [--against corelog|kafka] [--only NAME]... [--broker-bin PATH]
                                [--set NAME=VALUE]... [--list] [--keep]

  --against     the broker under test (default corelog); "kafka" runs the suite against the real thing,
                which proves the tests themselves
  --only        run one suite; may be repeated (see --list)
  --broker-bin  the corelog binary (default target/release/corelog, built when missing)
  --set         passed on to corelog as it is
  --keep        keep logs and data folders also when everything passed
TEXT
}

AGAINST=corelog
BROKER_BIN=
KEEP=no
CORELOG_SETTINGS=()
SELECTED_SUITES=()

parse_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --against) AGAINST=${2:?--against needs corelog or kafka}; shift 2 ;;
      --only) SELECTED_SUITES+=("${2:?--only needs a name}"); shift 2 ;;
      --broker-bin) BROKER_BIN=$(realpath "${2:?--broker-bin needs a path}"); shift 2 ;;
      --set) CORELOG_SETTINGS+=("--set" "${2:?--set needs name=value}"); shift 2 ;;
      --list) printf '%s\n' "${ALL_SUITES[@]}"; exit 0 ;;
      --keep) KEEP=yes; shift ;;
      -h|--help) usage; exit 0 ;;
      *) usage >&2; exit 2 ;;
    esac
  done
  case $AGAINST in corelog|kafka) ;; *) usage >&2; exit 2 ;; esac
  [ ${#SELECTED_SUITES[@]} -gt 0 ] || SELECTED_SUITES=("${ALL_SUITES[@]}")
  local suite
  for suite in "${SELECTED_SUITES[@]}"; do
    [[ " ${ALL_SUITES[*]} " == *" $suite "* ]] || { echo "no suite named $suite; see --list" >&2; exit 2; }
  done
}

# Turns the suites' TAP lines into a table and the closing line.
# Holds: counting. Never touches: brokers.

declare -A SUITE_TIME=()

count_lines() { grep -cE "$1" "$2" || true; }

print_report() {
  local suite file passed failed skipped all_passed=0 all_failed=0
  printf '\n%-18s %7s %7s %8s %8s\n' suite passed failed skipped seconds
  for suite in "${SELECTED_SUITES[@]}" broker; do
    file=$LOGS/$suite.tap
    skipped=$(count_lines '^ok - .*# SKIP' "$file")
    passed=$(( $(count_lines '^ok - ' "$file") - skipped ))
    failed=$(count_lines '^not ok - ' "$file")
    printf '%-18s %7d %7d %8d %8d\n' "$suite" "$passed" "$failed" "$skipped" "${SUITE_TIME[$suite]-0}"
    all_passed=$((all_passed + passed))
    all_failed=$((all_failed + failed))
  done
  echo
  [ $all_failed -eq 0 ] || echo "logs: ${LOGS#"$WORKSPACE_ROOT"/}"
  echo "$all_passed passed, $all_failed failed"
  ANY_FAILED=$all_failed
  [ $all_failed -eq 0 ]
}

# Logs stay when something failed (or was asked for); data folders only when asked for.
leave_logs() {
  [ "$KEEP" = yes ] && return
  rm -rf "$RUN_DATA"
  [ "${ANY_FAILED-1}" -ne 0 ] || rm -rf "$RUN"
}

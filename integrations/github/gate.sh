#!/usr/bin/env bash
# One step of CI: run the job, judge or save it, and leave the findings for the code host. All it is told
# stands in variables (action.yml); it works in other systems than GitHub's as well.
set -uo pipefail
monitor() { "${WHYIDLE_PYTHON:-python}" -m whyidle.monitor "$@"; }
told() { if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "$1" >>"$GITHUB_OUTPUT"; fi; }

repeat=${WHYIDLE_REPEAT:-1}
baseline=${WHYIDLE_BASELINE:-}
options=(--json --repeat "$repeat")
if [ -n "$baseline" ] && [ "${WHYIDLE_SAVE:-false}" != true ]; then
  options+=(--gate "$baseline" --annotate)
  [ -n "${WHYIDLE_FAIL_SLOWER:-}" ] && options+=(--fail-slower "$WHYIDLE_FAIL_SLOWER")
fi

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
monitor run "${options[@]}" -- bash -euo pipefail -c "$WHYIDLE_RUN" >"$answer"
code=$?
[ -s "$answer" ] || exit "$code"

# The recording that was judged: the middle one of several.
of_gate='import json, sys; print(json.loads(sys.stdin.readlines()[-1]).get("gate", {}).get(sys.argv[1], ""))'
asked() { "${WHYIDLE_PYTHON:-python}" -c "$of_gate" "$1" <"$answer"; }
run=$(asked run)
outcome=$(asked outcome)
if [ -n "$baseline" ] && [ "${WHYIDLE_SAVE:-false}" = true ] && [ "$code" -eq 0 ]; then
  monitor baseline save "$baseline" --newest "$repeat" && outcome=saved || code=$?
fi
told "run=${run:-last}"
told "outcome=$outcome"

[ -z "$outcome" ] && monitor diagnose last --format github
[ -n "${WHYIDLE_SARIF:-}" ] && monitor diagnose "${run:-last}" --format sarif >"$WHYIDLE_SARIF"
[ -n "${GITHUB_STEP_SUMMARY:-}" ] && monitor diagnose "${run:-last}" --format markdown >>"$GITHUB_STEP_SUMMARY"

[ "$code" -eq 7 ] && [ "$outcome" = not_judged ] && [ "${WHYIDLE_NOT_JUDGED:-warn}" = warn ] && code=0
exit "$code"

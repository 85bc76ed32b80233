#!/usr/bin/env bash
# One step of CI: run the job, judge or save it, and leave the findings for the code host. All it is told
# stands in variables (action.yml); it works in other systems than GitHub's as well.
set -uo pipefail
monitor() { "${WHYIDLE_PYTHON:-python}" -m whyidle.monitor "$@"; }
told() { if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "$1" >>"$GITHUB_OUTPUT"; fi; }

repeat=${WHYIDLE_REPEAT:-1}
baseline=${WHYIDLE_BASELINE:-}
sarif=${WHYIDLE_SARIF:-}
save=false
[ -n "$baseline" ] && [ "${WHYIDLE_SAVE:-false}" = true ] && save=true
options=(--json --repeat "$repeat")
if [ -n "$baseline" ] && [ "$save" = false ]; then
  options+=(--gate "$baseline" --annotate)
  [ -n "${WHYIDLE_FAIL_SLOWER:-}" ] && options+=(--fail-slower "$WHYIDLE_FAIL_SLOWER")
fi

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
# One of an earlier run would be taken for this one's.
[ -n "$sarif" ] && rm -f "$sarif"
monitor run "${options[@]}" -- bash -euo pipefail -c "$WHYIDLE_RUN" >"$answer"
code=$?
# The recording that was judged, the middle one of several; else the last. A failure has none.
asked() { "${WHYIDLE_PYTHON:-python}" -c "$of_answer" "$1" <"$answer"; }
of_answer='import json, sys; last = json.loads(([*sys.stdin] or ["{}"])[-1])
print(last.get("gate", {"run": last.get("run", "")}).get(sys.argv[1], ""))'
run=$(asked run)
if [ -z "$run" ]; then
  # Nothing was recorded, and it was said why.
  case $save$baseline in false*/*) [ -e "$baseline" ] ||
    echo "In CI this step makes it, once, on the main branch: save: true (WHYIDLE_SAVE=true)." >&2 ;; esac
  exit "$code"
fi
outcome=$(asked outcome)
[ -z "$outcome" ] && [ "$code" -ne 0 ] && outcome=job_failed
if [ "$save" = true ] && [ "$code" -eq 0 ]; then
  monitor baseline save "$baseline" --newest "$repeat" && outcome=saved || code=$?
fi
told "run=$run"
told "outcome=$outcome"

summary=${GITHUB_STEP_SUMMARY:-/dev/null}
[ "$outcome" = job_failed ] &&
  echo "The job itself failed, with exit code $code: nothing was judged or saved." | tee -a "$summary" >&2
case $outcome in "" | job_failed) monitor diagnose "$run" --format github ;; esac
if [ -n "$sarif" ]; then
  # Whole, or not at all: who uploads it takes an empty one for a fault of its own.
  mkdir -p "$(dirname "$sarif")"
  if monitor diagnose "$run" --format sarif >"$sarif.part"; then mv "$sarif.part" "$sarif"; else rm -f "$sarif.part"; fi
fi
monitor diagnose "$run" --format markdown >>"$summary"

[ "$code" -eq 7 ] && [ "$outcome" = not_judged ] && [ "${WHYIDLE_NOT_JUDGED:-warn}" = warn ] && code=0
exit "$code"

#!/bin/sh
# slurm.conf: Epilog=/etc/slurm/slurm-epilog.sh
# Says in the node's log what a job has left on its GPUs: the next one would find them taken.
# It ends no process, and never fails: an epilog that does drains the node.
: "${WHYIDLE_URL:=http://@NEAR@/metrics}"
job=${SLURM_JOB_ID:-}
[ -n "$job" ] || exit 0
# The exporter looks each second.
sleep 2
page=$(curl --silent --fail --max-time 3 "$WHYIDLE_URL") || exit 0
left=$(printf '%s\n' "$page" | sed -n "/^whyidle_job_info{.*slurm_job=\"$job\"/s/.*,pid=\"\([0-9]*\)\".*/\1/p")
for pid in $left; do
  logger -t whyidle "job $job has ended and left process $pid on a GPU"
done
exit 0

#!/bin/sh
# Attaches to a job in a pod that has neither whyidle nor a shell:
#   ./attach-in-pod.sh POD [CONTAINER] [options of monitor attach]
# It adds a container to the pod for a while, in the job's namespaces, which ends with the recording.
# The right to do so is pods/ephemeralcontainers; sysadmin is for SYS_PTRACE, and for the job's files.
# NAMESPACE and IMAGE may be given: NAMESPACE=research ./attach-in-pod.sh train-0
set -eu
[ $# -ge 1 ] || { sed -n '2,6s/^# *//p' "$0" >&2; exit 2; }
pod=$1
shift
container=${1:-}
case $container in
  "" | -*) container=$(kubectl get pod "$pod" ${NAMESPACE:+--namespace "$NAMESPACE"} \
    --output 'jsonpath={.spec.containers[0].name}') ;;
  *) shift ;;
esac
# The job is the first process that the container has started, or what that has started.
exec kubectl debug "$pod" ${NAMESPACE:+--namespace "$NAMESPACE"} --target="$container" \
  --image="${IMAGE:-@IMAGE@}" --profile=sysadmin --stdin --tty --quiet \
  -- monitor attach "${JOB:-1}" "$@"

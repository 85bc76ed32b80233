#!/bin/sh
# slurm.conf: Prolog=/etc/slurm/slurm-prolog.sh
# A node that takes a job has its exporter: it is started where it is not running.
# A prolog that fails, or waits, drains the node: this one does neither.
systemctl is-active --quiet whyidle-export && exit 0
systemctl start --no-block whyidle-export 2>/dev/null ||
  logger -t whyidle "job ${SLURM_JOB_ID:-?}: whyidle-export could not be started"
exit 0

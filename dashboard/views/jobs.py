"""The jobs that run on this machine, as ``monitor ps`` lists them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard import settings
from whyidle.dashboard.views.cache import remember
from whyidle.monitor.app import access, ps
from whyidle.monitor.app.jobs import find_jobs
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.render import numbers

# Several pages that are open ask only once in so many seconds.
_FRESH_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class RunningJob:
    """One job: what a person wants to know before watching it."""

    pid: int
    name: str
    facts: str
    # The run that records it now.
    run: int | None


def found() -> tuple[list[RunningJob], str | None]:
    """Return the jobs, and what keeps this user from attaching to them."""
    tick = int(time.monotonic() / _FRESH_SECONDS)
    return remember(("jobs", tick), _found)


def _found() -> tuple[list[RunningJob], str | None]:
    fs = ProcFs()
    shut = access.closed(fs)
    now = ps.recorded_jobs(settings.current().store)
    running = []
    for job in find_jobs(fs).jobs:
        who, recorded = job.identity, now.get(job.identity.key.pid)
        steps = None if recorded is None else recorded.steps_per_s
        facts = [
            f"pid {who.key.pid}", who.user, *sorted(who.frameworks or ())[:1],
            f"GPU {', '.join(job.gpus)}" if job.gpus else "", ps.busy(job.busy),
            f"{numbers.amount(steps, '')} steps/s" if steps is not None else "",
            f"attach: {ps.may_attach(job, shut)}",
        ]  # fmt: skip
        said = " · ".join(each for each in facts if each and each != numbers.DASH)
        running.append(
            RunningJob(who.key.pid, who.script, said, None if recorded is None else recorded.run)
        )
    return running, None if shut is None else f"{shut.what} {shut.next_step}"

"""The agent in a process, for as long as a command needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from whyidle.monitor.attach import ladder, precheck
from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.core.errors import NotPermitted, Problem, TargetGone, UsageProblem
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes.target import Target


@contextlib.contextmanager
def entered(target: Target, command: str, say: Callable[[str], None]) -> Iterator[Link]:
    """Bring the agent into a process, for as long as it is needed."""
    key = target.key
    nothing = precheck.without_framework(target)
    if nothing is not None:
        raise UsageProblem(nothing.what, "See which processes have: monitor ps")
    say(f"Going into process {key.pid} …")
    outcome = ladder.enter(target)
    if not outcome.inside:
        raise _not_entered(target, command, outcome.refusal)
    link = Link.open(key, target.fs)
    if link is None:
        raise Problem(
            f"The agent in process {key.pid} went again before it was asked anything.",
            f"Try again: monitor {command} {key.pid}",
        )
    try:
        yield link
    finally:
        # Others who watch the job keep their agent.
        link.leave()
        link.close()


def _not_entered(target: Target, command: str, refusal: Refusal | None) -> Problem:
    pid = target.pid
    if target.fs.stat(pid) is None:
        return TargetGone(f"Process {pid} has ended meanwhile.", "See what runs with: monitor ps")
    if refusal is None:
        return NotPermitted(f"Process {pid} cannot be entered.", f"See why: monitor doctor {pid}")
    # Who only watches from outside gets nothing of what the command is for.
    step = refusal.next_step.replace("Try again: monitor attach", f"Try again: monitor {command}")
    if step.endswith("--observe") or not step:
        step = f"See every way in: monitor doctor {pid}"
    return NotPermitted(refusal.what, step)

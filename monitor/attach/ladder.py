"""The ladder into a job: methods from the gentlest on, each tried only where nothing rules it out.

    agent        already there, from `monitor run` or an earlier attach
    remote_exec  Python 3.14's own interface: no stop
    ptrace       the built-in injector: two stops of about a millisecond, later one
    outside      nothing of ours in the job; always possible

A method has worked once the agent's socket answers, not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whyidle.monitor.attach import existing, injector, precheck, remote_exec
from whyidle.monitor.attach.answers import (
    AGENT,
    OUTSIDE,
    PTRACE,
    REMOTE_EXEC,
    NotEntered,
    Outcome,
    Refusal,
    Rung,
)
from whyidle.monitor.attach.payload import payload
from whyidle.monitor.attach.ptrace.refused import again
from whyidle.monitor.link.link import Link, LinkRefused
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.tree import is_alive

# How long an agent may take to answer: one that is there, and one that has just come in. A new
# thread waits for the interpreter's lock behind the job's own.
HELLO_SECONDS, FIRST_HELLO_SECONDS = 0.5, 5.0
POLL_SECONDS = 0.02
# A job that waits for its disk, or that another program samples, is free again in a moment.
PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """One way in: what rules it out, and how to enter by it."""

    name: str
    refusal: Callable[[Target], Refusal | None]
    enter: Callable[[Target, str, float], tuple[float, ...]]
    seconds: float


METHODS = (
    # It does not run while the job sleeps outside of Python.
    Method(REMOTE_EXEC, remote_exec.refusal, remote_exec.enter, 2.0),
    Method(PTRACE, injector.refusal, injector.enter, 5.0),
)


def rungs(target: Target, seconds: float = HELLO_SECONDS) -> tuple[Rung, ...]:
    """Return every method with its refusal as of now; touches nothing.

    An agent that may be there has so many seconds to answer.
    """
    barred = precheck.refusal(target) or precheck.without_framework(target)
    return (
        Rung(AGENT, existing.refusal(target, seconds)),
        *(Rung(m.name, barred or m.refusal(target)) for m in METHODS),
        Rung(OUTSIDE),
    )


def best(rungs: tuple[Rung, ...]) -> Rung:
    """Return the method that would be used."""
    return next(rung for rung in rungs if rung.refused is None)


def enter(target: Target, *, observe: bool = False) -> Outcome:
    """Enter by the first method that works; waits a few seconds at most."""
    began = time.monotonic()
    tried: list[Rung] = []
    stops: list[float] = []
    method = OUTSIDE
    for rung in _tries(target, stops) if not observe else ():
        tried.append(rung)
        if rung.refused is None:
            method = rung.name
            break
    if method == OUTSIDE:
        tried.append(Rung(OUTSIDE))
    return Outcome(method, tuple(tried), tuple(stops), time.monotonic() - began)


def _tries(target: Target, stops: list[float]) -> Iterator[Rung]:
    there = existing.refusal(target, HELLO_SECONDS)
    yield Rung(AGENT, there)
    # An impostor in the agent's place would be in the way of the next one, too.
    barred = there if there not in {None, existing.NOT_THERE} else _refusal_after_waiting(target)
    for method in METHODS:
        yield Rung(
            method.name, barred or method.refusal(target) or _try_method(target, method, stops)
        )


def _refusal_after_waiting(target: Target) -> Refusal | None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while precheck.temporary(target) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return precheck.refusal(target)


def _try_method(target: Target, method: Method, stops: list[float]) -> Refusal | None:
    """Try one way in; return why the agent is not in."""
    try:
        stops += method.enter(target, payload({"method": method.name}), method.seconds)
        return _wait_for_hello(target)
    except NotEntered as answer:
        return answer.refusal
    except LinkRefused as refused:
        return Refusal(refused.what, refused.next_step)


def _wait_for_hello(target: Target) -> Refusal | None:
    deadline = time.monotonic() + FIRST_HELLO_SECONDS
    while time.monotonic() < deadline:
        link = Link.open(target.key, target.fs)
        if link is not None:
            link.close()
            return None
        stat = target.fs.stat(target.pid)
        if stat is None or not is_alive(target.key, stat):
            return Refusal(f"Process {target.pid} has ended meanwhile.", "See: monitor ps")
        time.sleep(POLL_SECONDS)
    return Refusal(
        f"The agent is in process {target.pid} and has not had its turn yet: the job hardly ever"
        " lets another thread run Python.",
        again(target.pid),
    )

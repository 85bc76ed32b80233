"""``monitor try``: a change in a running job, measured against itself, and taken back."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import click
from msgspec import to_builtins

from whyidle.monitor.app.entering import entered
from whyidle.monitor.app.suggest import SCHEMA, show_all, suggest_for, target_of
from whyidle.monitor.core.contracts.trying import RatioJson, TryJson
from whyidle.monitor.core.errors import Exit, UsageProblem
from whyidle.monitor.core.interrupts import ended_by_signals
from whyidle.monitor.core.paths import database
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes.ranks import rank_of
from whyidle.monitor.processes.target import Target
from whyidle.monitor.processes.worker import worker_of
from whyidle.monitor.render import trying as render
from whyidle.monitor.render.jsonl import line as json_line
from whyidle.monitor.trying.audit import Audit
from whyidle.monitor.trying.blocks import Measured, Plan
from whyidle.monitor.trying.guard import MemoryGuard
from whyidle.monitor.trying.knobs import Knob, named
from whyidle.monitor.trying.line import Line
from whyidle.monitor.trying.sequential import Estimate
from whyidle.monitor.trying.switches import Inside, Outside, Switch
from whyidle.monitor.trying.trial import YOU, Outcome, Trial


def run(
    *,
    pid: str | None,
    knob: str | None,
    seconds: float | None,
    keep: bool,
    numerics: bool,
    suggest: bool,
    listed: bool,
    as_json: bool,
) -> None:
    """Try a knob, or say which there are."""
    if listed:
        show_all(as_json=as_json)
        return
    if pid is None:
        raise UsageProblem(
            "Which process is meant?", "List the jobs with `monitor ps`, then: monitor try PID KNOB"
        )
    if suggest:
        suggest_for(pid, as_json=as_json)
        return
    if knob is None:
        raise UsageProblem(
            "Which knob is to be tried?",
            f"See what the findings point to: monitor try {pid} --suggest",
        )
    found = _try(pid, *named(knob), seconds, keep=keep, numerics=numerics)
    click.echo(json_line(found) if as_json else "\n".join(render.lines(found)))
    if found.stopped == YOU:
        raise SystemExit(Exit.INTERRUPTED)


# One try -----------------------------------------------------------------------------------------
def _try(
    pid: str, knob: Knob, value: Any, seconds: float | None, *, keep: bool, numerics: bool
) -> TryJson:
    target = worker_of(target_of(pid), "try")
    key = target.key
    _check_numerics(target, knob, value, allowed=numerics)
    seed = secrets.randbits(32)
    with ended_by_signals(), entered(target, "try", _tell) as link:
        audit = Audit(database(), key, knob.name, _command(target))
        with closing(audit), _switch(link, target, knob, value, audit) as (line, switch):
            trial = Trial(
                line=line,
                knob=knob,
                switch=switch,
                seconds=seconds,
                seed=seed,
                memory=MemoryGuard(key, target.fs),
                begun=_Begun(audit, knob, value, switch),
                tell=_tell,
                paired=_paired(audit),
            )
            found = trial.run(keep=keep)
            answer = _answer(trial, audit.run, value, found)
            text = next(render.lines(answer))
            ratio = to_builtins(answer.ratio)
            audit.note(answer.state, text, old=switch.old, value=value, ratio=ratio)
            return answer


class _Begun:
    """Writes down the first change, once."""

    def __init__(self, audit: Audit, knob: Knob, value: Any, switch: Switch) -> None:
        self._audit, self._knob, self._value, self._switch = audit, knob, value, switch
        self._done = False

    def __call__(self) -> None:
        if not self._done:
            self._done = True
            text = f"{self._knob.name}: tried, in turns with what was before ({self._switch.old})"
            self._audit.note("on", text, old=self._switch.old, value=self._value)


def _paired(audit: Audit) -> Callable[[Plan, Measured, Estimate | None], None]:
    def told(plan: Plan, found: Measured, estimate: Estimate | None) -> None:
        without, with_it = found.pairs_s[-1]
        audit.pair(
            f"{len(found.pairs_s)} of at most {plan.pairs} pairs",
            most=plan.pairs, without_s=without, with_s=with_it, ratio=to_builtins(_ratio(estimate)),
        )  # fmt: skip

    return told


def _ratio(estimate: Estimate | None) -> RatioJson | None:
    if estimate is None:
        return None
    return RatioJson(low=estimate.low, middle=estimate.middle, high=estimate.high)


@contextmanager
def _switch(
    link: Link, target: Target, knob: Knob, value: Any, audit: Audit
) -> Iterator[tuple[Line, Switch]]:
    line = Line(link)
    if knob.is_inside:
        yield line, Inside(line, knob, value)
        return
    outside = Outside(target.key, knob, value, audit.facts)
    line.beat = outside.beat
    try:
        yield line, outside
    finally:
        outside.close()


def _check_numerics(target: Target, knob: Knob, value: Any, *, allowed: bool) -> None:
    if knob.numerics is None:
        return
    asked = render.with_value(knob.name, value)
    if not allowed:
        raise UsageProblem(
            f"{knob.name} may change results: {knob.numerics}.",
            f"If that is meant: monitor try {target.pid} {asked} --allow-numerics",
        )
    rank = rank_of(target.fs.environment(target.pid) or {})
    if rank is not None and (rank.world_size or 1) > 1:
        raise UsageProblem(
            f"Process {target.pid} is one of {rank.world_size} that train together: {knob.name} in"
            " one alone would let their results differ.",
            "Set it in the program, and compare two runs: monitor compare RUN RUN",
        )


def _command(target: Target) -> str | None:
    who = target.identity
    return None if who is None else who.script


def _answer(trial: Trial, run: int, value: Any, found: Outcome) -> TryJson:
    estimate, plan, measured = found.estimate, found.plan, found.measured
    return TryJson(
        schema=SCHEMA,
        pid=trial.line.link.key.pid,
        run=run,
        knob=trial.knob.name,
        value=value,
        old=trial.switch.old,
        ratio=_ratio(estimate),
        verdict="not certain" if estimate is None else estimate.verdict,
        step_s_without=measured.step_s[0],
        step_s_with=measured.step_s[1],
        pairs=len(measured.ratios),
        most_pairs=plan.pairs,
        block_s=plan.block_s,
        settle_s=plan.settle_s,
        seed=plan.seed,
        steps=measured.steps,
        phases=measured.phases,
        seconds=found.seconds,
        stopped=found.stopped,
        state="kept" if found.is_kept else "left" if found.is_left else "back",
    )


_told = [0.0]


def _tell(what: str) -> None:
    """Tell a person who looks on what is going on, now and then."""
    if sys.stderr.isatty() and time.monotonic() - _told[0] > 5:
        _told[0] = time.monotonic()
        with suppress(OSError):
            click.echo(what, err=True)

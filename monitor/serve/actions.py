"""The tools that touch a job or start something: there only with ``--allow-actions``.

Each does it through the command that a person would type, as a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import convert
from pydantic import Field

from whyidle.monitor.app import background
from whyidle.monitor.control import client
from whyidle.monitor.core.contracts.trying import SuggestedJson, TryJson
from whyidle.monitor.core.defaults import WATCH_SECONDS
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.paths import database
from whyidle.monitor.processes import by_name, job
from whyidle.monitor.processes.target import Target
from whyidle.monitor.serve import brief
from whyidle.monitor.serve.reading import Answer
from whyidle.monitor.store import Reader, Run, check_label
from whyidle.monitor.tracing.policy import SHARE
from whyidle.monitor.trying.knobs import named

# By then a recording has looked for findings twice.
LOOK_AFTER_S: Final = 20
BETWEEN_S: Final = 0.2
TRACE_PATIENCE_S: Final = 45.0
# To go in, to end blocks that are short of steps, and to go out.
SLACK_S: Final = 60.0
ENDING_S: Final = 15.0

Process = Annotated[str, Field(description="a pid, or the name of a script such as train.py")]
_recorders: list[subprocess.Popen[bytes]] = []


def attach(
    process: Process,
    seconds: Annotated[
        float, Field(ge=10, le=86_400, description="how long, unless the job ends before")
    ] = 120,
    label: Annotated[
        str | None, Field(description="a name to find it by, such as before", max_length=100)
    ] = None,
) -> Answer:
    """Watch a running job in the background: returns its run at once, findings come in 20 s.

    A small thread goes into the job and leaves it at the end; the job stops for milliseconds, and
    its results stay the same. A job that is recorded already is left as it is.
    """
    check_label(label)
    target = _target(process)
    _recorders[:] = [each for each in _recorders if each.poll() is None]
    running = _recording(target)
    if running is not None:
        return {**brief.run(running), "is_new": False, "look_after_s": 0}
    named = [] if label is None else ["--label", label]
    number, recorder = background.record(target, "--for", str(seconds), *named, trace_share=SHARE)
    _recorders.append(recorder)
    with Reader.open(database()) as reader:
        found = reader.find(str(number))
    ends = {"ends_after_s": seconds, "end_it_with": f"monitor stop {number}"}
    return {**brief.run(found), "is_new": True, "look_after_s": LOOK_AFTER_S, **ends}


def trace_now(
    process: Process,
    seconds: Annotated[float, Field(gt=0, le=10, description="how long")] = 1.0,
) -> Answer:
    """Take a profiler's trace of a running job now, and say where its time goes.

    It holds the job up for some milliseconds at its begin and end. It is kept with the run that
    records the job, whose findings rest on it then.
    """
    target = _target(process)
    running = _recording(target)
    return _alone(target, seconds) if running is None else _asked(running, seconds)


def try_knob(
    process: Process,
    knob: Annotated[
        str | None,
        Field(description="NAME or NAME=VALUE; without it the knobs that findings point to"),
    ] = None,
    seconds: Annotated[float, Field(ge=5, le=600, description="at most so long")] = 60,
    allow_numerics: Annotated[
        bool, Field(description="also what may change digits of what the job computes")
    ] = False,
) -> Answer:
    """Try a change in a running job, in turns with none, say what it gives, and take it back.

    Without `knob` it lists those that findings of the job point to, with what they need and risk;
    a job that nobody records is watched for that first. The answer comes when the try is over.
    """
    target = _target(process)
    if knob is None:
        words = ["try", str(target.pid), "--suggest", "--json"]
        found, _ = _asked_of(words, WATCH_SECONDS + SLACK_S)
        return {
            "pid": target.pid,
            "suggested": brief.suggested(convert(found["suggested"], list[SuggestedJson])),
        }
    # What is no knob could be an option of the command.
    named(knob)
    words = ["try", str(target.pid), knob, "--for", str(seconds), "--json"]
    more = ["--allow-numerics"] if allow_numerics else []
    found, _ = _asked_of([*words, *more], seconds + SLACK_S)
    return brief.tried(convert(found, TryJson))


# A tool that changes or tries something is one function more in here.
TOOLS: Final[tuple[Callable[..., Answer], ...]] = (attach, trace_now, try_knob)


def end() -> None:
    """Leave no child behind as a zombie; recordings go on."""
    for recorder in _recorders:
        recorder.poll()


def _target(process: str) -> Target:
    return Target.named(process) if process.isdecimal() else by_name.find(process)


def _recording(target: Target) -> Run | None:
    if not database().exists():
        return None
    began = job.whole(target).key
    with Reader.open(database()) as reader:
        mine = [
            run
            for run in reader.unended()
            if (run.target_pid, run.target_start_ticks) == began and run.is_recording
        ]
    return mine[-1] if mine else None


def _asked(run: Run, seconds: float) -> Answer:
    """Have the recorder of a run take it."""
    asked = client.ask_trace(database(), run.id, seconds)
    until = time.monotonic() + TRACE_PATIENCE_S
    while not asked.is_over and time.monotonic() < until:
        time.sleep(BETWEEN_S)
        asked = client.state(database(), run.id)
    head: Answer = {"run": run.id, "trace": asked.trace, "says": brief.text(asked.what)}
    if asked.state is not client.State.KEPT:
        why = asked.what if asked.is_over else f"it is not there after {TRACE_PATIENCE_S:g} s"
        return {**head, "abstained": brief.text(why), **brief.parts(None)}
    with Reader.open(database()) as reader:
        last = reader.last_trace(run.id)
    answer = None if last is None else last["answer"]
    budget = None if answer is None else answer["step_budget"] or answer["budget"]
    return {**head, "abstained": None if budget else "it shows no work", **brief.parts(budget)}


def _alone(target: Target, seconds: float) -> Answer:
    words = ["trace", str(target.pid), "--seconds", str(seconds), "--json"]
    answer, said = _asked_of(words, TRACE_PATIENCE_S)
    budget = answer["step_budget"] or answer["budget"]
    head: Answer = {"run": None, "trace": None, "says": brief.text(said)}
    return {**head, "abstained": None if budget else "it shows no work", **brief.parts(budget)}


def _asked_of(words: list[str], patience_s: float) -> tuple[Answer, str]:
    """Return what a command answers, and said beside; raises what it said instead."""
    line = [sys.executable, "-m", "whyidle.monitor", *words]
    with subprocess.Popen(  # noqa: S603  ourselves
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, beside = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            # It takes back what it has changed.
            process.terminate()
            try:
                process.communicate(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
            what = f"No answer of monitor {words[0]} came within {patience_s:g} s."
            raise Problem(what, "Attach first.") from None
    said = beside.decode(errors="replace").removeprefix("monitor: ").strip()
    try:
        answer = dict(json.loads(out))
    except ValueError:
        answer = {}
    if not answer or "error" in answer:
        # A failure under --json is an answer too; what a person reads is said beside it.
        why = said or f"monitor {words[0]} ended with {process.returncode}."
        raise Problem(brief.text(why))
    return answer, said

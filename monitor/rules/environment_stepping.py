"""The environments of reinforcement learning are stepped in Python, one after the other.

## What it sees
Main-thread samples in the `step` of environments (Gymnasium, or your classes), or in a policy on
one observation.

## Why it costs
The device computes one row, then waits for Python.

## How to fix
Processes help up to the number of cores; steps of some ten microseconds are faster as arrays. Call
`render` only when someone watches.

## When it is wrong
More environments mean shorter rollouts, which changes the training. Evaluation counts too.

## Documents
Beyond the five documents.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from whyidle.monitor.code.environments import acts, only_one, played
from whyidle.monitor.code.trains import trains_at
from whyidle.monitor.core.amounts import LITTLE, MOSTLY, SURELY
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain
from whyidle.monitor.core.host_class import ELSEWHERE, HOST_WORK, OF_FRAMEWORK, HostClass
from whyidle.monitor.rules import Fix, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.asides import taken
from whyidle.monitor.signals.phases import Phase

# What else is done for one observation at a time.
_ACTS: Final = OF_FRAMEWORK | HOST_WORK | {HostClass.UNCLEAR}
_MANY: Final = (
    "Step them in other processes while the device learns, several in each. Many are already"
    " stepped in one call; numba or jax.jit for their formulas, or more cores, make it faster."
)

_ONE: Final = (
    "Step the environment in a thread while the device learns. The program rules out more than"
    " one environment, at {}:{}: its loop and its buffer would have to take several first."
)


def detect(window: Window) -> Verdict:
    """Judge the time in environments."""
    account = window.sampled
    rows = [row for row in account.rows if row.phase is Phase.ENVIRONMENT]
    own = [row for row in rows if _is_own(row)]
    if not own:
        return None
    stepping = taken(account, own, is_sure=True)
    acting = [row for row in account.rows if _acted(row) is not None]
    acts = sum(row.share for row in acting)
    is_many = sum(row.share for row in own if _is_many(row)) >= MOSTLY * stepping.least
    # Of those that give arrays one call of the policy serves many.
    alone = 0.0 if is_many or any(_gives_arrays(row) for row in own) else acts
    if stepping.least + alone < LITTLE:
        return None
    unclear = [row for row in rows if row.doing is HostClass.UNCLEAR and not _is_own(row)]
    # Two of them side by side take half as long: so much has every machine.
    low = stepping.gain(window, 1.0 if is_many else 1 - SURELY).low
    at_most = taken(account, (*own, *unclear, *acting), is_sure=True)
    where = (*stepping.where(lambda row: row.begins)[:1], *stepping.where(_inner))
    title = f"Stepping environments takes {stepping.most:.0%} of the main thread's time"
    if alone > stepping.most:
        where = (*taken(account, acting).where(_acted)[:1], *where)
        share = alone + stepping.most
        title = f"Playing one environment takes {share:.0%} of the main thread's time"
    makes = {"main thread: makes actions": window.job.sampled(acts) if acts else None}
    fixes = both(_MANY) if is_many else None
    for file in () if is_many else dict.fromkeys(place.file for place in where):
        if (line := only_one(file)) is not None:
            fixes = both(_ONE.format(PurePath(file).name, line))
            break
    return Found(
        gain=Gain.between(low, at_most.gain(window, 0.0).high),
        evidence=(*stepping.evidence(window), *Evidence.known(makes)),
        where=where,
        slice=Slice.IDLE_UNKNOWN if window.device == "gpu" else None,
        confidence=Confidence.INFERRED,
        severity=Severity.LOW if is_many else None,
        title=title,
        fixes=fixes,
    )


def _is_own(row: HostRow) -> bool:
    """Tell whether a row is work of the host's; an environment may compute on the device."""
    if row.doing is HostClass.UNCLEAR and row.frames:
        return row.frames[0].line in played(row.frames[0].file).on_host
    return row.doing in HOST_WORK


def _acted(row: HostRow) -> CodeLine | None:
    """Return the line at which a row makes an action that a step is waiting for."""
    line = acts(row.frames) if row.phase is Phase.STEP and row.doing in _ACTS else None
    if line is None:
        return None
    # What is learned on the way from one action to the next is no part of it.
    inside = row.frames[: row.frames.index(line) + 1]
    return None if any(map(trains_at, inside)) else line


def _is_many(row: HostRow) -> bool:
    """Tell whether many are advanced at once: by other processes, or by the user's own arrays."""
    if row.doing in ELSEWHERE:
        return True
    return _gives_arrays(row) and row.frames[0].line in played(row.frames[0].file).inside


def _gives_arrays(row: HostRow) -> bool:
    """Tell whether a row begins at a call that gives a reward for each of many."""
    return row.begins is not None and row.begins.line in played(row.begins.file).many


def _inner(row: HostRow) -> CodeLine | None:
    """Return the innermost line, where that is not the call itself."""
    return row.frames[0] if row.frames and row.frames[0] != row.begins else None


rule = Rule(
    title="Environments are stepped one after the other in Python",
    fixes={
        "pytorch": Fix(
            "Step many environments per call, and ask the policy once for all. Use"
            " AsyncVectorEnv, SubprocVecEnv, or arrays with a row for each, and longer rollouts"
            " for each update.",
            """\
# a process each
envs = gymnasium.vector.AsyncVectorEnv([make_env] * 16)
observations, _ = envs.reset()
for _ in range(rollout):
    with torch.no_grad():
        # one call for all of them
        actions = policy(torch.as_tensor(observations)).argmax(1)
    acted = envs.step(actions.cpu().numpy())
    observations, rewards, ended, cut, _ = acted""",
        ),
        "jax": Fix(
            "Write the environment in jax.numpy, and run many with vmap and scan. Where that is"
            " not possible, use AsyncVectorEnv or SubprocVecEnv.",
            """\
def play(states, key):
    actions = policy(params, states)
    states, rewards = jax.vmap(step_of_one)(states, actions)
    return states, rewards

# under jax.jit
states, rewards = jax.lax.scan(play, states, jax.random.split(key, 128))""",
        ),
    },
    paced_by="samples",
)

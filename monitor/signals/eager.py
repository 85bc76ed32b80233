"""Operations that JAX runs one by one, outside of any function that the user compiled.

A trace counts them; stack samples show how much of the main thread's time they take, and where.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from whyidle.monitor.core.finding import Place
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.traced import Traced

_CALL: Final = re.compile(r"PjitFunction\((.*)\)")
# What ``jax.lax`` and ``jax.numpy`` compile under their own names outside of compiled functions.
_OWN: Final = (
    "_mean _normal _reduce_max _reduce_min _reduce_sum _threefry_split _uniform _var _where abs add"
    " add_any argmax argmin broadcast broadcast_in_dim clip concatenate conv_general_dilated"
    " convert_element_type copy cos cumsum div divide dot_general dynamic_slice"
    " dynamic_update_slice einsum equal erf exp expand_dims floor gather gelu greater greater_equal"
    " integer_pow iota less less_equal log log1p log_softmax logistic logsumexp matmul max maximum"
    " mean min minimum mul multiply neg negative not_equal ones_like outer pad pow power ravel"
    " reduce_max reduce_min reduce_sum relu reshape rsqrt scatter scatter-add select_n sigmoid sign"
    " silu sin slice softmax sqrt square squeeze stack std sub subtract sum swapaxes take"
    " take_along_axis tanh transpose true_divide var where zeros_like"
)
OWN: Final = frozenset(_OWN.split())
# Loops and branches of ``jax.lax``: outside of a compiled function their bodies are new to JAX in
# each call, and are compiled each time.
CONTROL: Final = frozenset({"scan", "while", "while_loop", "cond", "switch", "fori_loop", "map"})


@dataclass(frozen=True, slots=True)
class Eager:
    """The single operations among all calls of compiled programs."""

    kinds: int
    calls: int
    # Of all calls of programs.
    share: float
    # How many there are for each call of the rarest: about as many as a step has.
    in_a_step: float


def eager(trace: Traced) -> Eager | None:
    """Count the single operations; ``None``: the trace has no calls of JAX."""
    counts = {call["name"]: call["count"] for call in trace.calls(_CALL.pattern) if call["count"]}
    if not counts:
        return None
    own = {name: n for name, n in counts.items() if name[len("PjitFunction(") : -1] in OWN}
    calls = sum(own.values())
    per_step = trace.calls_per_step("|".join(map(re.escape, own))) if own else None
    rarest = min(own.values(), default=1)
    return Eager(
        len(own),
        calls,
        calls / sum(counts.values()),
        calls / rarest if per_step is None else per_step.value,
    )


@dataclass(frozen=True, slots=True)
class EagerTime:
    """The share of the main thread's time in single operations, and the lines that run them."""

    share: float
    where: tuple[Place, ...]


def eager_time(account: HostAccount) -> EagerTime:
    """Sum up the rows of single operations, with what the framework does at the same lines.

    A model of layers prepares each operation in Python of its own. A line that mostly calls a
    compiled function counts only as far as it was found in single operations.
    """
    is_beside = {HostClass.FRAMEWORK, HostClass.FRAMEWORK_WAIT}
    beside = {
        (p.file, p.line, p.function): p for p in account.lines(lambda row: row.doing in is_beside)
    }
    where = []
    for place in account.lines(lambda row: row.doing is HostClass.EAGER):
        own, found = place.share or 0.0, beside.get((place.file, place.line, place.function))
        more = 0.0 if found is None or found.share is None else found.share
        where.append(replace(place, share=own + more if more <= own else own))
    where.sort(key=lambda place: -(place.share or 0.0))
    nowhere = sum(r.share for r in account.rows if r.doing is HostClass.EAGER and not r.frames)
    share = min(1.0, nowhere + sum(place.share or 0.0 for place in where))
    return EagerTime(share, tuple(where))


def kinds_alive(programs: Mapping[str, int] | None) -> int:
    """Return how many of the most frequent programs alive are single operations."""
    return sum(name.removeprefix("jit_") in OWN | CONTROL for name in programs or ())

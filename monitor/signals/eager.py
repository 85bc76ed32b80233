"""Operations that JAX runs one by one, outside of any function that the user compiled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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

"""A switch for the search of errors is turned off where it was left on."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, plain_text
from whyidle.monitor.fixes._change import Change, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Wanted

_SET: Final = ("torch.autograd.set_detect_anomaly",
               "torch.autograd.anomaly_mode.set_detect_anomaly")  # fmt: skip
_WITHIN: Final = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")
_OPTIONS: Final = ("jax_debug_nans", "jax_debug_infs", "jax_disable_jit", "jax_enable_checks",
                   "jax_check_tracer_leaks")  # fmt: skip
_CONTEXTS: Final = ("jax.debug_nans", "jax.debug_infs", "jax.checking_leaks",
                    "jax.check_tracer_leaks")  # fmt: skip
_VARIABLES: Final = ("CUDA_LAUNCH_BLOCKING", "JAX_DEBUG_NANS", "JAX_DEBUG_INFS",
                     "JAX_DISABLE_JIT")  # fmt: skip
NOTE: Final = "Errors such as NaN are no longer reported where they arise."


def change(source: Source, _wanted: Wanted) -> Change:
    """Turn off every such switch of the file."""
    found = Change(source)
    for call in source.calls:
        _call(source, call, found)
    for node in source.everything:
        # os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        match node:
            case ast.Assign(targets=[ast.Subscript(value=of, slice=name), *_], value=value):
                is_of = source.means(of, "os.environ") and _text(source, name) in _VARIABLES
                if is_of and _text(source, value) not in {None, "0", "", "False", "false"}:
                    found.replace(value, '"0"')
            case _:
                pass
    found.notes.append(NOTE)
    return found


def _call(source: Source, call: ast.Call, found: Change) -> None:
    if source.means(call.func, *_SET):
        _off(source, argument(call, "mode", 0), call, found)
    elif source.means(call.func, *_WITHIN):
        name = source.code(call.func).replace("detect_anomaly", "set_detect_anomaly")
        if source.spelt("torch", call) is None and "." not in name:
            raise Refused("detect_anomaly is imported by its name alone", call)
        found.replace(call, f"{name}(False)")
    elif source.means(call.func, "jax.config.update"):
        if _text(source, argument(call, "name", 0)) in _OPTIONS:
            _off(source, argument(call, "val", 1), call, found)
    elif source.means(call.func, *_CONTEXTS):
        if (given := argument(call, "new_val", 0)) is not None:
            _off(source, given, call, found)
    elif source.means(call.func, "jax.disable_jit"):
        found.without_arguments(call, "False")
    else:
        given = argument(call, "detect_anomaly")
        if source.means(given, "True"):
            _off(source, given, call, found)


def _off(source: Source, value: ast.expr | None, call: ast.Call, found: Change) -> None:
    if value is None:
        raise Refused("what it is set to is not among its arguments", call)
    if source.means(value, "False"):
        return
    if not source.means(source.constant(value), "True"):
        raise SetElsewhere("whether it is on", value, "False", call)
    found.replace(value, "False")


def _text(source: Source, node: ast.expr | None) -> str | None:
    return plain_text(source.constant(node))


codemod = Codemod(
    title="The search for errors is turned off", rules=("debugging_mode", "costly_setting")
)

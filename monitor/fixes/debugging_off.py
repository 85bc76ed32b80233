"""A switch for the search of errors is turned off where it was left on."""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._pieces import argument
from whyidle.monitor.fixes._source import Source

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
    found = Change()
    for call in source.calls:
        _call(source, call, found)
    for node in source.everything:
        if isinstance(node, cst.Assign):
            _variable(source, node, found)
    if not found.edits:
        raise NotHere
    found.notes.append(NOTE)
    return found


def _call(source: Source, call: cst.Call, found: Change) -> None:
    if source.means(call.func, *_SET):
        _off(source, argument(call, "mode", 0), call, found)
    elif source.means(call.func, *_WITHIN):
        name = source.code(call.func).replace("detect_anomaly", "set_detect_anomaly")
        if source.spelt("torch", call) is None and "." not in name:
            raise Refused("detect_anomaly is imported by its name alone", source.line(call))
        found.replace(call, cst.parse_expression(f"{name}(False)"))
    elif source.means(call.func, "jax.config.update"):
        option = argument(call, "name", 0)
        if option is not None and _text(source, option.value) in _OPTIONS:
            _off(source, argument(call, "val", 1), call, found)
    elif source.means(call.func, *_CONTEXTS):
        _off(source, argument(call, "new_val", 0), call, found, default=False)
    elif source.means(call.func, "jax.disable_jit"):
        found.edits[call] = lambda old: old.with_changes(args=[cst.Arg(cst.Name("False"))])
    else:
        given = argument(call, "detect_anomaly")
        if given is not None and source.means(given.value, "True"):
            _off(source, given, call, found)


def _off(
    source: Source, arg: cst.Arg | None, call: cst.Call, found: Change, *, default: bool = True
) -> None:
    if arg is None:
        if default:
            raise Refused("what it is set to is not among its arguments", source.line(call))
        return
    if source.means(arg.value, "False"):
        return
    known = source.constant(arg.value)
    if known is None or not source.means(known, "True"):
        raise Refused("whether it is on is decided elsewhere", source.line(call))
    found.replace(arg.value, cst.Name("False"))


def _variable(source: Source, node: cst.Assign, found: Change) -> None:
    """Change ``os.environ["CUDA_LAUNCH_BLOCKING"] = "1"``."""
    target = node.targets[0].target
    if not isinstance(target, cst.Subscript) or not source.means(target.value, "os.environ"):
        return
    index = target.slice[0].slice
    name = _text(source, index.value) if isinstance(index, cst.Index) else None
    if name in _VARIABLES and _text(source, node.value) not in {None, "0", "", "False", "false"}:
        found.replace(node.value, cst.SimpleString('"0"'))


def _text(source: Source, node: cst.BaseExpression) -> str | None:
    known = source.constant(node)
    if isinstance(known, cst.SimpleString) and isinstance(known.evaluated_value, str):
        return known.evaluated_value
    return None


codemod = Codemod(
    title="The search for errors is turned off",
    rules=("debugging_mode", "costly_setting"),
    change=change,
)

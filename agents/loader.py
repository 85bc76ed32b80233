"""Load the agent's modules in a job, from text and a little at a time.

The text of this file runs first, on a thread of its own, in a namespace of its own. The job waits
while anything is compiled, so the modules come in small pieces with a pause after each. Only the
package itself is in ``sys.modules``: a job that iterates over those must not see them grow.
"""

from __future__ import annotations
import __future__

import _thread
import atexit
import builtins
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Module = tuple[str, bool, list[str]]
    # Whether the job has begun to exit, and what its exit waits for.
    Door = tuple[list[bool], _thread.LockType]

# How long it may keep the job waiting at a stretch, and how many times as long it rests after that.
STRETCH_SECONDS = 0.0005
RESTS = 9
LONGEST_REST_SECONDS = 0.02
# A pause that took so long means that threads compete for the interpreter. They take it from us
# anyway after 5 ms, and we wait long for it after each pause: then there are fewer.
FIGHT_SECONDS = 0.01
FIGHT_STRETCH_SECONDS = 0.005
# They need nothing that a job does not have already, and guard the loading of the others.
FIRST = ("", "forks", "load_guard")


def load(
    package: str, digest: str, modules: list[Module], options: dict[str, Any], door: Door
) -> None:
    """Start the agent, once; whatever goes wrong stays in here and leaves nothing behind."""
    mine: Any = type(sys)(package)
    vars(mine).update(
        __path__=[], digest=digest, pid=os.getpid(), ready=False, inside={}, guard=None
    )
    try:
        _block_signals()
        if _gives_way(package, digest):
            sys.modules.pop(package, None)
        found = sys.modules.setdefault(package, mine)
        if found is mine:
            _bring(mine, modules, door)
        if vars(found)["ready"]:
            vars(found)["inside"]["core"].start(options)
    except BaseException:  # not even a SystemExit may reach the job
        if sys.modules.get(package) is mine and not vars(mine)["ready"]:
            sys.modules.pop(package, None)
    finally:
        if mine.guard is not None:
            mine.guard.end()
        _open(door)


def _bring(mine: Any, modules: list[Module], door: Door) -> None:
    bring = _bringer(mine)
    for module in (m for m in modules if m[0] in FIRST):
        bring(module, _thread.allocate_lock())
    mine.guard = mine.inside["load_guard"].LoadGuard(mine.__name__)
    if door[0]:
        # The job's exit began before it could wait for the guard.
        raise SystemExit
    for module in (m for m in modules if m[0] not in FIRST):
        bring(module, mine.guard)
    mine.ready = True
    mine.guard.step_aside()


def _open(door: Door) -> None:
    """Let the job exit without us."""
    leaving, ended = door
    if not leaving:
        atexit.unregister(leaving.append)
        atexit.unregister(ended.acquire)
    ended.release()


def _block_signals() -> None:
    """Leave signals to the job's own threads; all but faults of our own."""
    signal: Any = __import__("_signal")
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


def _gives_way(package: str, digest: str) -> bool:
    """Tell whether what is there is of no use: an older agent at rest, or half of one.

    A job that forks while a thread of it loads the agent leaves the half to its child.
    """
    found = vars(sys.modules[package]) if package in sys.modules else None
    if found is None:
        return False
    if not found.get("ready"):
        return found.get("pid") != os.getpid()
    alive = getattr(found.get("inside", {}).get("core"), "alive", None)
    return found.get("digest") != digest and not (alive is not None and alive())


def _bringer(package: Any) -> Callable[..., None]:
    """Return what loads one module, piece by piece."""
    flags = __future__.annotations.compiler_flag
    names = {**vars(builtins), "__import__": _importer(package)}
    rest = _rester()

    def bring(module: Module, guard: Any) -> None:
        name, has_inner, pieces = module
        made = _module(package, name, has_inner=has_inner)
        vars(made)["__builtins__"] = names
        for piece in pieces:
            with guard:
                code = compile(piece, f"<{made.__name__}>", "exec", flags, dont_inherit=True)
                exec(code, vars(made))  # noqa: S102  our own text
            rest()

    return bring


def _rester() -> Callable[[], None]:
    """Return what pauses where a pause is due."""
    stretch, began = STRETCH_SECONDS, time.thread_time()

    def rest() -> None:
        nonlocal stretch, began
        taken = time.thread_time() - began
        if taken > stretch:
            slept, rests = time.perf_counter(), min(RESTS * taken, LONGEST_REST_SECONDS)
            time.sleep(rests)
            fight = time.perf_counter() - slept - rests > FIGHT_SECONDS
            stretch = FIGHT_STRETCH_SECONDS if fight else STRETCH_SECONDS
            began = time.thread_time()

    return rest


def _importer(package: Any) -> Callable[..., Any]:
    """Return the ``__import__`` of our modules: a relative import finds one of them."""

    def find(name: str, names: Any = None, local: Any = None, wanted: Any = (), up: int = 0) -> Any:
        if not up:
            return builtins.__import__(name, names, local, wanted, 0)
        base = names["__package__"].split(".")
        full = ".".join([*base[1 : len(base) - up + 1], *filter(None, [name])])
        return package.inside[full]

    return find


def _module(package: Any, name: str, *, has_inner: bool) -> Any:
    """Return the empty module of this name; the package itself for the empty name."""
    if name:
        full = f"{package.__name__}.{name}"
        module: Any = type(sys)(full)
        module.__package__ = full if has_inner else full.rpartition(".")[0]
        above, _, leaf = name.rpartition(".")
        setattr(package.inside[above], leaf, module)
    else:
        module = package
        module.__package__ = package.__name__
    package.inside[name] = module
    return module

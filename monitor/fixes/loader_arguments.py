"""A DataLoader gets worker processes that stay alive.

Proved first: which data set it is, that its samples do not depend on the process that loads them
(no device, no open file, no random numbers, nothing kept), and that it can be sent to a worker.
"""

from __future__ import annotations

import ast
import builtins
import math
import sys
from collections.abc import Iterator
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, has_stars, inside, is_of_self, is_plain, targets
from whyidle.monitor.code.source import Function, arguments, callee, dotted, last
from whyidle.monitor.core.amounts import MOSTLY
from whyidle.monitor.fixes._change import Change, NotHere, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.signals.loading_cause import HAS_WORKERS, OVERLAPS, SPENDS, WAITS_FOR_INPUT
from whyidle.monitor.signals.loading_kinds import LOAD_LOOKS, LoadKind

LOADER: Final = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
DATA: Final = "torch.utils.data."
# Data sets of PyTorch's over others, or over tensors.
_WRAPS: Final = tuple(
    f"{DATA}{prefix}{name}"
    for prefix in ("", "dataset.")
    for name in ("TensorDataset", "Subset", "ConcatDataset", "random_split")
)
_MAP_STYLE: Final = (f"{DATA}Dataset", f"{DATA}dataset.Dataset")
# The place of num_workers among the arguments.
_WORKERS_AT: Final = 5
# More than so many seldom help: each holds a copy of what it touches.
MOST_WORKERS: Final = 8
# What opens something that two processes must not read together.
_OPENS: Final = {"open", "File", "connect", "Environment", "memmap", "open_group", "ZipFile"}
# Functions of these give a sample, and keep nothing.
_KNOWN: Final = ("torch.", "numpy.", "PIL.", "json.", "os.path.", "math.", "time.", "pathlib.",
                 "torchvision.io.", "cv2.", "scipy.", "pickle.", "io.")  # fmt: skip
_TO_DEVICE: Final = {"cuda", "to", "device_put", "device"}
_RANDOM: Final = {"random", "rand", "randn", "randint", "randperm", "normal", "uniform", "choice",
                  "shuffle", "sample", "default_rng", "bernoulli", "rand_like", "randn_like",
                  "permutation", "standard_normal", "integers", "getrandbits", "randrange",
                  "normal_", "uniform_", "random_", "bernoulli_"}  # fmt: skip
_KEEPS: Final = {"append", "add", "update", "setdefault", "pop", "extend", "clear", "put",
                 "write"}  # fmt: skip
WAITS: Final = tuple(SPENDS.format(LOAD_LOOKS[kind].words) for kind in OVERLAPS)
STARTS: Final = SPENDS.format(LOAD_LOOKS[LoadKind.START].words)
# Where a worker begins as a new Python, it imports the program again.
STARTS_ANEW: Final = sys.platform != "linux" or sys.version_info >= (3, 14)
MORE_THAN_ONE: Final = (
    "several loaders load in the main process, and it is not certain which one is slow"
)


def change(source: Source, wanted: Wanted) -> Change:
    """Give the loader that was found its workers."""
    call = _found(source, wanted)
    try:
        return _changed(source, wanted, call)
    except Refused as refused:
        # It is what has to change; of anything else it is what cannot be proved.
        refused.edits = refused.is_about(call)
        raise


def _changed(source: Source, wanted: Wanted, call: ast.Call) -> Change:
    workers, number = _workers(call), _number(source, call)
    count = _needed(wanted)
    stars = "arguments of the loader come from elsewhere (* or **)" if has_stars(call) else None
    if number is None and workers is not None and _are_too_few(wanted, count):
        raise SetElsewhere("num_workers", workers, str(count), call, stars)
    if stars is not None:
        raise Refused(stars, call)
    persistent = argument(call, "persistent_workers")
    stay = persistent is not None and not source.means(persistent, "False")
    more = number is not None and number < count and (not number or _only_waits(wanted) > 0)
    if stay and number != 0 and not more:
        raise Refused("the loader has workers that stay alive already", call)
    if stay and number == 0:
        raise Refused("persistent_workers is set by other code", call)
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        raise Refused("its data set is not among its arguments", call)
    _Proof(source, call).of(dataset)
    _check_use(source, call)
    found = Change(source)
    new = {} if stay else {"persistent_workers": "True"}
    if number is None and workers is not None:
        new = {"persistent_workers": f"{source.code(workers)} > 0"}
    elif more and workers is not None:
        # A constant of one loader is changed where it stands.
        is_constant = isinstance(workers, ast.Name) and len(source.uses(workers)) == 1
        named = source.value(workers) if is_constant else None
        found.replace(named or workers, str(count))
    elif more:
        new = {"num_workers": str(count), **new}
    found.arguments(call, new)
    found.notes.append("Random numbers, as of shuffling, differ from the second epoch on.")
    return found


def _found(source: Source, wanted: Wanted) -> ast.Call:
    loaders = source.calls_of(*LOADER)
    slow = [call for call in loaders if _only_waits(wanted) or _in_main(source, call)]
    if not slow:
        raise NotHere
    if len(slow) == 1 and len(loaders) == 1:
        return slow[0]
    if len({ast.dump(x) for call in loaders if (x := _workers(call)) is not None}) == 1 and all(
        _number(source, call) is None for call in loaders
    ):
        # One option is for all of them.
        return slow[0]
    near = [call for call in slow if any(_is_near(source, call, x) for x in wanted.lines)]
    if len(near) != 1:
        raise Refused(MORE_THAN_ONE, slow[0])
    return near[0]


def _in_main(source: Source, call: ast.Call) -> bool:
    """Tell whether it may load in the main process, or its workers end with each epoch."""
    persistent = argument(call, "persistent_workers")
    stay = persistent is not None and not source.means(persistent, "False")
    return not stay or _number(source, call) is None


def _is_near(source: Source, call: ast.Call, line: int) -> bool:
    """Tell whether a line is its own, its data set's, or that of the loop over it."""
    made = source.constant(argument(call, "dataset", 0))
    kind = source.definition(made.func) if isinstance(made, ast.Call) else None
    if source.covers(source.statement(call), line) or (kind and source.covers(kind, line)):
        return True
    return any(
        source.line(use) == line and any(isinstance(x, ast.For) for x in source.around(use))
        for use in _uses(source, call)
    )


def _uses(source: Source, call: ast.Call) -> list[ast.Name]:
    """Return where the name is read that a loader is given."""
    match source.parent(call):
        case ast.Assign(targets=[ast.Name() as name]):
            return source.uses(name)
        case _:
            return []


def _workers(call: ast.Call) -> ast.expr | None:
    """Return what says how many workers a loader has: an argument, or the key of ``**settings``."""
    given = argument(call, "num_workers", _WORKERS_AT)
    settings = [each.value for each in call.keywords if each.arg is None]
    if given is None and len(settings) == 1:
        return ast.Subscript(settings[0], ast.Constant("num_workers"), ast.Load())
    return given


def _number(source: Source, call: ast.Call) -> int | None:
    """Return how many workers it has; ``None``: other code says so."""
    known = source.constant(_workers(call))
    if known is None:
        return 0
    return int(ast.literal_eval(known)) if is_plain(known) else None


def _only_waits(wanted: Wanted) -> float:
    """Return the part of its time that it spends on waits that take no core, if that is most."""
    waits = max((wanted.number(each) or 0.0) for each in WAITS)
    return waits if waits > MOSTLY and wanted.number(WAITS_FOR_INPUT) else 0.0


def _needed(wanted: Wanted) -> int:
    """Return as many workers as cores; where they only wait, as many as load a batch in a step."""
    count, waits, idle = wanted.cores, wanted.number(WAITS_FOR_INPUT), _only_waits(wanted)
    if waits is not None and idle:
        # A batch takes one worker so many times as long as the rest of a step; and what they do
        # besides waiting must find its cores.
        rest = max(1 - waits, 1 / MOST_WORKERS)
        needed = math.ceil((wanted.number(HAS_WORKERS) or waits) / rest)
        count = max(count, min(needed, round(count / max(1 - idle, 1 / MOST_WORKERS))))
    return max(1, min(MOST_WORKERS, count))


def _are_too_few(wanted: Wanted, count: int) -> bool:
    """Tell whether more workers are what helps; where it is not known how many it has, they do."""
    has = wanted.number(HAS_WORKERS) or 0
    return has < count and not (has and wanted.number(STARTS))


def _check_use(source: Source, call: ast.Call) -> None:
    """Refuse a loader that starts its workers again and again, or is changed while it works."""
    for name in ("collate_fn", "worker_init_fn"):
        given = argument(call, name)
        known = source.definition(given)
        is_sent = source.imported(given) is not None or (known and source.is_of_top(known))
        if given is not None and not is_sent:
            raise Refused(f"its {name} cannot be sent to a worker", call)
        if given is not None and (why := _depends(source, known)):
            raise Refused(f"its {name} {why}", call)
    for name in ("multiprocessing_context", "timeout", "prefetch_factor", "generator"):
        if argument(call, name) is not None:
            raise Refused(f"{name} is set for the loader", call)
    if STARTS_ANEW and source.function(call) is None and "__name__" not in source.words:
        raise Refused("nothing keeps a worker from running the whole program again", call)
    if any("set_start_method" in dotted(x.func) for x in source.calls):
        raise Refused("the program chooses how processes are started", call)
    for use in _uses(source, call):
        above = source.call_with(use)
        is_begun = above is not None and source.means(above.func, "iter")
        if above is None or not is_begun:
            continue
        if _is_taken(source, above) and (source.loops(above) or source.function(above)):
            raise Refused("it starts again for each batch (iter), and so would its workers", above)
        if source.loops(above):
            raise Refused("it starts again in a loop (iter), and so would its workers", above)


def _is_taken(source: Source, begun: ast.Call) -> bool:
    """Tell whether one batch is all that is taken: ``next(iter(loader))``."""
    taken = source.call_with(begun)
    return taken is not None and source.means(taken.func, "next")


class _Proof:
    """That a data set gives the same samples in whatever process."""

    def __init__(self, source: Source, loader: ast.Call) -> None:
        self.source, self.loader, self.depth = source, loader, 0

    def of(self, value: ast.expr) -> None:
        """Refuse a data set of which it is not certain."""
        self.depth += 1
        made = self.source.constant(value)
        if self.depth > 4 or not isinstance(made, ast.Call):
            raise Refused(
                f"what its data set is cannot be told: {self.source.code(value)}",
                self.loader,
            )
        name, kind = self.source.imported(made.func), self.source.definition(made.func)
        if name in _WRAPS:
            self._wrapped(made, str(name))
        elif kind is not None:
            self._own(made, kind)
        else:
            what = self.source.code(made.func)
            raise Refused(f"its data set, {what}, is made elsewhere", self.loader)
        if isinstance(value, ast.Name):
            self._unchanged(value)

    def _wrapped(self, made: ast.Call, name: str) -> None:
        if name.endswith("TensorDataset"):
            for each in made.args:
                if isinstance(each, ast.Starred):
                    raise Refused("its tensors come from elsewhere (*)", self.loader)
                self._on_host(each)
        elif name.endswith("ConcatDataset"):
            raise Refused("its data set is made of several", self.loader)
        else:
            self.of(made.args[0])

    def _own(self, made: ast.Call, kind: Function | ast.ClassDef) -> None:
        source = self.source
        if not isinstance(kind, ast.ClassDef) or not source.is_of_top(kind):
            raise Refused("its data set cannot be sent to a worker: it is no class of the module",
                          self.loader)  # fmt: skip
        bases = [x.value if isinstance(x, ast.Subscript) else x for x in kind.bases]
        if len(bases) != 1 or not source.means(bases[0], *_MAP_STYLE):
            what = "it is not a plain Dataset: each worker may give all of its samples again"
            raise Refused(what, kind)
        for each in arguments(made):
            self._on_host(each)
        for name in (x for x in inside(kind) if isinstance(x, ast.Name)):
            # A value that the module sets.
            if source.is_of_module(name) and source.imported(name) is None:
                self._on_host(name)
        if why := _depends(source, kind):
            raise Refused(f"its data set {why}", kind)

    def _on_host(self, value: ast.AST) -> None:
        """Refuse what may lie on a device: a worker that forks must not touch one."""
        for node in _origin(self.source, value):
            is_moved = isinstance(node, ast.Attribute) and node.attr in _TO_DEVICE
            if is_moved or (isinstance(node, ast.keyword) and node.arg == "device"):
                raise Refused("its data may lie on the device, which no worker may touch", node)
            if isinstance(node, ast.arg):
                raise Refused("its data comes into the function from elsewhere: it may lie on the "
                              "device", node)  # fmt: skip
        if any(self.source.calls_of("torch.set_default_device")):
            raise Refused("tensors are made on a device by default", self.loader)

    def _unchanged(self, dataset: ast.Name) -> None:
        """Refuse a data set that the program changes: workers keep what they began with."""
        for use in self.source.uses(dataset):
            above = self.source.parent(use)
            if isinstance(above, ast.Attribute):
                call = self.source.parent(above)
                is_called = isinstance(call, ast.Call) and call.func is above
                if is_called or isinstance(above.ctx, ast.Store):
                    raise Refused("the program changes or asks its data set while it trains", use)


def _origin(source: Source, value: ast.AST, depth: int = 0) -> Iterator[ast.AST]:
    """Yield the pieces that a value is made with, through the names of this function."""
    for node in inside(value):
        yield node
        for place in source.assigned(node) if isinstance(node, ast.Name) and depth < 6 else ():
            if isinstance(place, ast.arg):
                yield place
            elif isinstance(place, ast.Name):
                statement = source.statement(place)
                if not source.covers(statement, source.line(node)):
                    yield from _origin(source, statement, depth + 1)


def _unknown(source: Source, call: ast.Call, code: ast.AST, depth: int) -> str | None:
    """Say why it is not known what a call does to a sample; ``None``: it is."""
    name, func, known = source.imported(call.func), call.func, source.definition(call.func)
    if name is not None:
        is_known = name in dir(builtins) or name.startswith(_KNOWN)
        return None if is_known else f"calls {name}, of which nothing is known"
    if isinstance(func, ast.Attribute):
        methods = {x.name for x in inside(code) if isinstance(x, Function)}
        is_known = not is_of_self(func) or func.attr in methods
        return None if is_known else f"calls self.{func.attr}, of which nothing is known"
    if isinstance(known, Function) and depth < 4:
        return _depends(source, known, depth + 1)
    is_known = known is not None or not isinstance(func, ast.Name)
    return None if is_known else f"calls {callee(call)}, of which nothing is known"


def _depends(source: Source, code: Function | ast.ClassDef | None, depth: int = 0) -> str | None:
    """Say why what some code returns depends on the process that runs it; ``None``: it does not."""
    for node in () if code is None else inside(code):
        some = (x for x in (node, *source.around(node)) if isinstance(x, Function))
        function = next(some, None)
        at_start = function is not None and function.name in {"__init__", "__post_init__"}
        if isinstance(node, ast.Global | ast.Nonlocal):
            return "keeps something outside itself"
        if isinstance(node, ast.Call) and code is not None:
            if (why := _call_depends(source, node, code, depth, at_start=at_start)) is not None:
                return why
        if not at_start:
            for target in targets(node):
                kept = target.value if isinstance(target, ast.Subscript) else target
                if isinstance(kept, ast.Attribute):
                    return f"keeps something from sample to sample ({source.code(kept)})"
            marks = node.decorator_list if isinstance(node, Function | ast.ClassDef) else ()
            if any("cache" in source.code(mark) for mark in marks):
                return "caches samples, and each worker would do that again"
    return None


def _call_depends(
    source: Source, call: ast.Call, code: Function | ast.ClassDef, depth: int, *, at_start: bool
) -> str | None:
    name, word = callee(call), last(call)
    if at_start and word in _OPENS:
        return f"holds something open ({name})"
    if word in _TO_DEVICE or name.startswith(("jax.", "jnp.", "torch.cuda.")):
        return f"may touch the device ({name})"
    if at_start:
        return None
    if word in _RANDOM:
        return f"draws random numbers ({name}), others in each worker"
    if why := _unknown(source, call, code, depth):
        return why
    return f"keeps something from sample to sample ({name})" if word in _KEEPS else None


codemod = Codemod(
    title="Worker processes that stay alive load the batches",
    rules=("input_starved",),
    framework="pytorch",
    says="workers",
)

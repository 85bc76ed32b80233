"""A DataLoader gets worker processes that stay alive.

Proved first: which data set it is, that its samples do not depend on the process that loads them
(no device, no open file, no random numbers, nothing kept), and that it can be sent to a worker.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._pieces import argument, dotted, has_stars, inside, with_argument
from whyidle.monitor.fixes._source import Source

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
# Where a worker begins as a new Python, it imports the program again.
STARTS_ANEW: Final = sys.platform != "linux" or sys.version_info >= (3, 14)
MORE_THAN_ONE: Final = (
    "several loaders load in the main process, and it is not certain which one is slow"
)


def change(source: Source, wanted: Wanted) -> Change:
    """Give the loader that was found its workers."""
    call = _found(source, wanted)
    where = source.line(call)
    if has_stars(call):
        raise Refused("arguments of the loader come from elsewhere (* or **)", where)
    workers = argument(call, "num_workers", _WORKERS_AT)
    number = _number(source, None if workers is None else workers.value, where)
    persistent = argument(call, "persistent_workers")
    if persistent is not None and not source.means(persistent.value, "False"):
        if number:
            raise Refused("the loader has workers that stay alive already", where)
        raise Refused("persistent_workers is set by other code", where)
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        raise Refused("its data set is not among its arguments", where)
    _Proof(source, where).of(dataset.value)
    _check_use(source, call, where)
    change = Change()
    change.edits[call] = lambda updated: _with_workers(updated, number, wanted)
    change.notes.append(
        "Workers that stay alive shuffle in another random order from the second epoch on."
    )
    return change


def _with_workers(call: cst.Call, number: int, wanted: Wanted) -> cst.Call:
    if number == 0:
        if (
            argument(call, "num_workers") is None
            and len([a for a in call.args if a.keyword is None]) > _WORKERS_AT
        ):
            args = list(call.args)
            count = cst.Integer(str(_wanted(wanted)))
            args[_WORKERS_AT] = args[_WORKERS_AT].with_changes(value=count)
            call = call.with_changes(args=args)
        else:
            call = with_argument(call, "num_workers", str(_wanted(wanted)))
    return with_argument(call, "persistent_workers", "True")


def _wanted(wanted: Wanted) -> int:
    return max(1, min(MOST_WORKERS, wanted.cores))


def _found(source: Source, wanted: Wanted) -> cst.Call:
    loaders = source.calls_of(*LOADER)
    if not loaders:
        raise NotHere
    slow = [call for call in loaders if _in_main(source, call)]
    if not slow:
        raise NotHere
    if len(slow) == 1 and len(loaders) == 1:
        return slow[0]
    near = [call for call in slow if any(_is_near(source, call, x) for x in wanted.lines)]
    if len(near) != 1:
        raise Refused(MORE_THAN_ONE, source.line(slow[0]))
    return near[0]


def _in_main(source: Source, call: cst.Call) -> bool:
    """Tell whether it loads in the main process, or its workers end with each epoch."""
    persistent = argument(call, "persistent_workers")
    return persistent is None or source.means(persistent.value, "False")


def _is_near(source: Source, call: cst.Call, line: int) -> bool:
    """Tell whether a line is its own, its data set's, or that of the loop over it."""
    if source.covers(source.statement(call), line):
        return True
    dataset = argument(call, "dataset", 0)
    made = None if dataset is None else source.constant(dataset.value)
    kind = source.definition(made.func) if isinstance(made, cst.Call) else None
    if kind is not None and source.covers(kind, line):
        return True
    name = _name_of(source, call)
    uses = [] if name is None else source.uses(name)
    return any(
        source.line(use) == line and any(isinstance(x, cst.For) for x in source.around(use))
        for use in uses
    )


def _name_of(source: Source, call: cst.Call) -> cst.Name | None:
    """Return the name that a loader is given."""
    above = source.parent(call)
    if isinstance(above, cst.Assign) and len(above.targets) == 1:
        target = above.targets[0].target
        return target if isinstance(target, cst.Name) else None
    return None


def _number(source: Source, value: cst.BaseExpression | None, line: int) -> int:
    known = source.constant(value)
    if known is None:
        return 0
    if isinstance(known, cst.Integer):
        return int(known.value.replace("_", ""), 0)
    if isinstance(known, cst.Name) and known is value:
        raise Refused("num_workers is not a number in this file", line)
    raise Refused("num_workers is computed: how many there are is not certain", line)


def _check_use(source: Source, call: cst.Call, line: int) -> None:
    """Refuse a loader that starts its workers again and again, or is changed while it works."""
    for name in ("collate_fn", "worker_init_fn"):
        given = argument(call, name)
        if given is not None and not _can_be_sent(source, given.value):
            raise Refused(f"its {name} cannot be sent to a worker", line)
        if given is not None and (why := _depends(source, source.definition(given.value))):
            raise Refused(f"its {name} {why}", line)
    for name in ("multiprocessing_context", "timeout", "prefetch_factor", "generator"):
        if argument(call, name) is not None:
            raise Refused(f"{name} is set for the loader", line)
    if STARTS_ANEW and source.function(call) is None and "__name__" not in source.words:
        raise Refused("nothing keeps a worker from running the whole program again", line)
    if any("set_start_method" in dotted(x.func) for x in source.calls):
        raise Refused("the program chooses how processes are started", line)
    loader = _name_of(source, call)
    for use in [] if loader is None else source.uses(loader):
        above = source.parent(source.parent(use) or use)
        if isinstance(above, cst.Call) and source.means(above.func, "iter") and source.loops(above):
            raise Refused("the loader is begun anew in a loop (iter): so would its workers be",
                          source.line(above))  # fmt: skip


def _can_be_sent(source: Source, value: cst.BaseExpression) -> bool:
    if source.imported(value) is not None:
        return True
    found = source.definition(value)
    return found is not None and source.parent(found) is source.module


class _Proof:
    """That a data set gives the same samples in whatever process."""

    def __init__(self, source: Source, line: int) -> None:
        self.source, self.line, self.depth = source, line, 0

    def of(self, value: cst.BaseExpression) -> None:
        """Refuse a data set of which it is not certain."""
        self.depth += 1
        made = self.source.constant(value)
        if self.depth > 4 or not isinstance(made, cst.Call):
            raise Refused(
                f"what its data set is cannot be told: {self.source.code(value)}", self.line
            )
        name = self.source.imported(made.func)
        if name in _WRAPS:
            self._wrapped(made, name)
        elif (kind := self.source.definition(made.func)) is not None:
            self._own(made, kind)
        else:
            what = self.source.code(made.func)
            raise Refused(f"its data set is made elsewhere: {what}", self.line)
        if isinstance(value, cst.Name):
            self._unchanged(value)

    def _wrapped(self, made: cst.Call, name: str) -> None:
        if name.endswith("TensorDataset"):
            for arg in made.args:
                if arg.star:
                    raise Refused("its tensors come from elsewhere (*)", self.line)
                self._on_host(arg.value)
        elif name.endswith("ConcatDataset"):
            raise Refused("its data set is made of several", self.line)
        else:
            self.of(made.args[0].value)

    def _own(self, made: cst.Call, kind: cst.FunctionDef | cst.ClassDef) -> None:
        if not isinstance(kind, cst.ClassDef) or self.source.parent(kind) is not self.source.module:
            raise Refused("its data set cannot be sent to a worker: it is no class of the module",
                          self.line)  # fmt: skip
        bases = [
            x.value.value if isinstance(x.value, cst.Subscript) else x.value for x in kind.bases
        ]
        if len(bases) != 1 or not self.source.means(bases[0], *_MAP_STYLE):
            what = "it is not a plain Dataset: each worker may give all of its samples again"
            raise Refused(what, self.source.line(kind))
        for arg in made.args:
            self._on_host(arg.value)
        for name in (x for x in inside(kind) if isinstance(x, cst.Name)):
            if not _is_attribute(self.source, name) and _is_of_module(self.source, name):
                self._on_host(name)
        if why := _depends(self.source, kind):
            raise Refused(f"its data set {why}", self.source.line(kind))

    def _on_host(self, value: cst.BaseExpression) -> None:
        """Refuse what may lie on a device: a worker that forks must not touch one."""
        for node in _origin(self.source, value):
            if isinstance(node, cst.Attribute) and node.attr.value in _TO_DEVICE:
                raise Refused("its data may lie on the device, which no worker may touch",
                              self.source.line(node))  # fmt: skip
            if isinstance(node, cst.Arg) and node.keyword and node.keyword.value == "device":
                raise Refused("its data may lie on the device, which no worker may touch",
                              self.source.line(node))  # fmt: skip
            if isinstance(node, cst.Param):
                raise Refused("its data comes into the function from elsewhere: it may lie on the "
                              "device", self.source.line(node))  # fmt: skip
        if any(self.source.calls_of("torch.set_default_device")):
            raise Refused("tensors are made on a device by default", self.line)

    def _unchanged(self, dataset: cst.Name) -> None:
        """Refuse a data set that the program changes: workers keep what they began with."""
        for use in self.source.uses(dataset):
            above = self.source.parent(use)
            if isinstance(above, cst.Attribute):
                target = self.source.parent(above)
                is_call = isinstance(target, cst.Call) and target.func is above
                if is_call or isinstance(target, cst.AssignTarget | cst.AugAssign):
                    raise Refused("the program changes or asks its data set while it trains",
                                  self.source.line(use))  # fmt: skip


def _origin(source: Source, value: cst.CSTNode, depth: int = 0) -> Iterator[cst.CSTNode]:
    """Yield the pieces that a value is made with, through the names of this function."""
    for node in inside(value):
        yield node
        if isinstance(node, cst.Name) and depth < 6 and not _is_attribute(source, node):
            try:
                places = source.assigned(node)
            except KeyError:
                continue
            for place in places:
                if isinstance(place, cst.Param):
                    yield place
                elif isinstance(place, cst.Name):
                    statement = source.statement(place)
                    if not source.covers(statement, source.line(node)):
                        yield from _origin(source, statement, depth + 1)


def _is_of_module(source: Source, name: cst.Name) -> bool:
    """Tell whether a name is a value that the module sets."""
    module = source.scope(source.module)
    try:
        found = list(source.scope(name)[name.value])
    except KeyError:
        return False
    return any(x.scope is module for x in found) and source.imported(name) is None


def _is_attribute(source: Source, name: cst.Name) -> bool:
    above = source.parent(name)
    return (isinstance(above, cst.Attribute) and above.attr is name) or (
        isinstance(above, cst.Arg) and above.keyword is name
    )


def _unknown(source: Source, call: cst.Call, code: cst.CSTNode, depth: int) -> str | None:
    """Say why it is not known what a call does to a sample; ``None``: it is."""
    name = source.imported(call.func)
    if name is not None:
        known = name in dir(builtins) or name.startswith(_KNOWN)
        return None if known else f"calls {name}, of which nothing is known"
    if isinstance(call.func, cst.Attribute):
        if not isinstance(call.func.value, cst.Name) or call.func.value.value != "self":
            return None
        methods = {x.name.value for x in inside(code) if isinstance(x, cst.FunctionDef)}
        called = call.func.attr.value
        return None if called in methods else f"calls self.{called}, of which nothing is known"
    known_function = source.definition(call.func)
    if isinstance(known_function, cst.FunctionDef) and depth < 4:
        return _depends(source, known_function, depth + 1)
    if isinstance(call.func, cst.Name) and known_function is None:
        return f"calls {call.func.value}, of which nothing is known"
    return None


def _depends(
    source: Source, code: cst.FunctionDef | cst.ClassDef | None, depth: int = 0
) -> str | None:
    """Say why what some code returns depends on the process that runs it; ``None``: it does not."""
    for node in () if code is None else inside(code):
        function = next(
            (x for x in (node, *source.around(node)) if isinstance(x, cst.FunctionDef)), None
        )
        at_start = function is not None and function.name.value in {"__init__", "__post_init__"}
        if isinstance(node, cst.Global | cst.Nonlocal):
            return "keeps something beside itself"
        if isinstance(node, cst.Call):
            name = dotted(node.func) or getattr(getattr(node.func, "attr", None), "value", "")
            last = name.rpartition(".")[2]
            if at_start and last in _OPENS:
                return f"holds something open ({name})"
            if last in _TO_DEVICE or name.startswith(("jax.", "jnp.", "torch.cuda.")):
                return f"may touch the device ({name})"
            if not at_start and last in _RANDOM:
                return f"draws random numbers ({name}), others in each worker"
            if code is not None and (why := _unknown(source, node, code, depth)):
                if not at_start:
                    return why
            if not at_start and last in {"append", "add", "update", "setdefault", "pop", "extend",
                                         "clear", "put", "write"}:  # fmt: skip
                return f"keeps something from sample to sample ({name})"
        if not at_start and isinstance(node, cst.AssignTarget | cst.AugAssign):
            target = node.target
            kept = target.value if isinstance(target, cst.Subscript) else target
            if isinstance(kept, cst.Attribute):
                return f"keeps something from sample to sample ({source.code(kept)})"
        if not at_start and isinstance(node, cst.Decorator) and "cache" in source.code(node):
            return "caches samples, which each worker would do anew"
    return None


codemod = Codemod(
    title="Worker processes that stay alive load the batches",
    rules=("input_starved",),
    change=change,
)

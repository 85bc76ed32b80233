"""Whether code trains: by what it calls, and by what it makes anew. The one answer to that.

What surely trains is a call that only training has (``libraries/table.toml``), or weights that a
line changes by their gradients. Else it is what people call a function that trains, where its
text is not at hand; or the parameters of a model that a call gives back anew, whatever it is
called. What only plays, evaluates, generates or goes through a model is none of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Final

from whyidle.monitor.code.source import (
    Function,
    Named,
    arguments,
    callee,
    calls,
    functions,
    last,
    nodes_at,
    reached,
    tree_of,
    variables,
    written,
)
from whyidle.monitor.libraries.frames import is_call
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import CodeLine

Loop = ast.For | ast.AsyncFor | ast.While
# A function of the user's that trains, by its name: ``train_step``, ``update_policy``, ``fit``.
_BY_NAME: Final = re.compile(
    r"(\w*_)?(train(ing)?|learn|fit|optimi[sz]e|update)(_\w+)?|(train|learn|update)[A-Z]\w*"
)
# What is done for it, or about it.
_ABOUT: Final = re.compile(
    r"_*(load|get|make|build|create|read|fetch|log|print|save|plot|split|prepare|write|eval|valid|test"
    r"|is|set|show|init|start|end|on|inf|infinite)_\w+"
    r"|\w+_(lr|learning_rate|ema|metrics?|bar|progress|stats?|logs?|display|history|info|caches?"
    r"|(data)?loaders?|data(set)?|sets?|split|labels?|mode|buffers?|priorit\w*|targets?|average\w*"
    r"|count(er)?s?|acc|layout|traces?|one|many|config|cfg|kwargs\w*|transform|kv|masks?|table"
    r"|(for|with)_\w+)"
)
# Whose ``update`` is one: a bar of progress, a metric, a dictionary have one, too.
_LEARNERS: Final = re.compile(
    r"(.*\.)?(self|\w*(agent|policy|learner|trainer|algo|algorithm|critic|actor|model|net|network)s?)"
    r"(\[.*\])?"
)
# Whose ``train`` is no mode.
_TRAINERS: Final = re.compile(r"(.*\.)?\w*(trainer|agent|algo|algorithm|learner)")
# A pass of something that is carried on; and what is carried on, too, and trains nothing.
_STEPS: Final = re.compile(r"\w*(step|sgd|adam|epoch|iteration)(_\w+|_?fn)?")
_PLAYED: Final = re.compile(r"\w*(actor|env|environment|core|recurrent|rnn|lstm|gru|cell)_?states?")
_PLAYS: Final = re.compile(
    r"(.*[._])?(envs?|act|test|cell|prof|eval\w*|valid\w*|decod\w*|sampl\w*|p_sample|generat\w*|predict\w*"
    r"|infer\w*|denoise|simul\w*|integrat\w*|rollout\w*|lstm|gru|rnn|sched\w*)([._].*)?"
)
# Equations are solved in steps, too.
_SOLVES: Final = re.compile(r"(.*\.)?\w*(solver|integrator|stepper)\.\w+")
# What a model is made of, as its training hands it on.
_LEARNED: Final = re.compile(
    r"[wW]\d?|(?!attn|\w*_attn)\w*(params?|parameters|weights?|theta|model|learner|variables)"
    r"|\w*(opt|optim|optimizer)_?states?|(train|training|svi|runner|learner|agent|update)_?states?"
)
_RUNS_A_MODEL: Final = re.compile(
    r"(.*\.)?(\w*(model|net|network|module|layer|dropout|softmax|norm|cell|encoder|decoder|rnn|lstm|gru)|forward|apply|to"
    r"|cuda|init|replicate|unreplicate|device_put|copy|deepcopy|clone|load\w*|restore\w*|compile|jit"
    r"|normalize|clip|clamp|where|prepare|wrap\w*|quantize|DDP|\w*DataParallel|eval|train|add|append|extend|split|fold_in|max|min|next|stack|sum)"
)


def trains(file: str, body: Sequence[ast.AST]) -> bool:
    """Tell whether some statements train, by what they do and by what they call in their file."""
    return _trains(body, partial(functions, file))


def loop_trains(text: Sequence[ast.AST], loop: Loop) -> bool:
    """Tell the same of a loop, by the functions among the pieces of its text."""
    named = lambda name: (x for x in text if isinstance(x, Function) and x.name == name)  # noqa: E731
    return _trains(loop.body, named)


@lru_cache(maxsize=4096)
def trains_at(line: CodeLine) -> bool:
    """Tell whether a line trains by itself."""
    here = [x for x in nodes_at(line.file, line.line) if isinstance(x, ast.Assign | ast.AugAssign)]
    named = partial(functions, line.file)
    return any(_is_training(x, named) for x in (*calls(line.file, line.line), *here))


@lru_cache(maxsize=4096)
def trains_around(line: CodeLine) -> bool:
    """Tell whether a line is in a loop that trains."""
    around = (x for x in nodes_at(line.file, line.line) if isinstance(x, Loop))
    return any(trains(line.file, loop.body) for loop in around)


def is_training(call: ast.Call) -> bool:
    """Tell whether a call trains, by its name alone."""
    return is_call(Role.TRAIN, (callee(call),)) or _says_so(call)


def _says_so(call: ast.Call) -> bool:
    """Tell whether what people call it says that it trains."""
    owner, _, function = callee(call).rpartition(".")
    if not _BY_NAME.fullmatch(function) or _ABOUT.fullmatch(function):
        return False
    if function in {"update", "update_state"}:
        return not owner or _LEARNERS.fullmatch(owner) is not None
    # To set a mode is no training.
    return function != "train" or not _sets_a_mode(call, owner)


def _sets_a_mode(call: ast.Call, owner: str) -> bool:
    if _TRAINERS.fullmatch(owner):
        return False
    return len(call.args) <= 1 and all(each.arg == "mode" for each in call.keywords)


def _trains(body: Sequence[ast.AST], named: Named) -> bool:
    return any(_is_training(node, named) for node in reached(body, named))


def _is_training(node: ast.AST, named: Named) -> bool:
    if isinstance(node, ast.Call):
        # A name decides only where its text is not at hand.
        is_sure = is_call(Role.TRAIN, (callee(node),))
        return is_sure or (_says_so(node) and not any(named(last(node))))
    if not isinstance(node, ast.Assign | ast.AugAssign):
        return False
    return _by_gradients(node) or any(_renewed(node, named))


def _by_gradients(node: ast.Assign | ast.AugAssign) -> bool:
    """Tell whether something is changed by its gradient: ``w -= lr * w.grad``."""
    used = [x for x in ast.walk(node.value) if isinstance(x, ast.Attribute) and x.attr == "grad"]
    return bool(_targets(node) & variables(*used))


def _renewed(node: ast.Assign | ast.AugAssign, named: Named) -> Iterator[ast.expr]:
    """Yield what a call gives back of a model: ``params, loss = update(params, batch)``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return
    name = callee(node.value)
    function = name.rpartition(".")[2]
    if _RUNS_A_MODEL.fullmatch(name) or _PLAYS.fullmatch(name):
        return
    given = {written(each) for each in arguments(node.value)}
    is_step = _STEPS.fullmatch(function) is not None and not (
        _SOLVES.fullmatch(name) or any(named(function))
    )
    for target in node.targets:
        several = target.elts if isinstance(target, ast.Tuple) else [target]
        for each in several:
            text = written(each)
            end = text.rpartition(".")[2]
            is_state = (is_step and not _PLAYED.fullmatch(end)) or _LEARNED.fullmatch(end)
            if is_state and text in given - {"self"}:
                yield each


@lru_cache(maxsize=1024)
def is_learned_from(line: CodeLine) -> bool:
    """Tell whether gradients go back through what a line makes, in the function that it is in."""
    around = reversed(nodes_at(line.file, line.line))
    function = (x for x in around if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef))
    scope = next(function, None) or tree_of(line.file)
    if scope is None:
        return False
    inside = list(ast.walk(scope))
    roots = [root for node in inside for root in _taught_by(node, partial(functions, line.file))]
    if any(x.lineno <= line.line <= (x.end_lineno or x.lineno) for x in roots):
        return True
    if all(x.lineno < line.line for x in roots):
        # A name may serve again for what is only printed.
        return False
    assigned = [node for node in inside if isinstance(node, ast.Assign | ast.AugAssign)]
    wanted = variables(*roots)
    while made := [x for x in assigned if _targets(x) & wanted]:
        if any(x.lineno <= line.line <= (x.end_lineno or x.lineno) for x in made):
            return True
        assigned = [x for x in assigned if x not in made]
        wanted |= variables(*(x.value for x in made))
    return False


def _taught_by(node: ast.AST, named: Named) -> list[ast.expr]:
    """Return what one piece of code learns from."""
    match node:
        case ast.Call(func=ast.Attribute(value=loss, attr="backward")):
            return [loss]
        case ast.Call(func=ast.Attribute(attr="gradient"), args=[loss, *_]):
            return [loss]
        case ast.Assign(value=ast.Call(args=given)) if any(_renewed(node, named)):
            return given
    return []


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    return variables(*(node.targets if isinstance(node, ast.Assign) else [node.target]))

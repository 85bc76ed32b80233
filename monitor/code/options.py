"""Where the user sets a value that a line of code only passes on, and how to set another one.

An argument is followed to its definition, through parameters, attributes, keys and imports: to an
option of the command line, a variable of the environment, a key of a configuration, or a constant.
Text only: files that stacks named, and what these import from beside them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.code.declared import (
    Option,
    by_call,
    by_fields,
    default_of,
    key_in_file,
    of_absl,
    of_command,
    override,
    variable,
)
from whyidle.monitor.code.names import Source, source_of
from whyidle.monitor.code.program import (
    argument,
    has_stars,
    is_of_self,
    name_of,
    params,
    plain_text,
    targets,
)
from whyidle.monitor.code.source import Function, last, text_of
from whyidle.monitor.core.finding import at

# From a command line to a loader: parameters of a few functions, an attribute, a name for short.
DEEPEST: Final = 16
# A module is looked for beside the file that imports it, and in so many folders above.
MOST_FOLDERS: Final = 4
# What makes of a text the number that it says.
_CONVERTS: Final = ("int", "float", "bool", "str")


@dataclass(frozen=True, slots=True)
class _Value:
    """A piece of a file, and which part of the object that it is is meant: ``.data.workers``."""

    node: ast.AST
    file: str
    path: tuple[str, ...] = ()
    # How the piece is written where it is set, if it is a plain one: "WORKERS = {}".
    written: str = ""


# What is known of a value: where it is set, or another one that it is certainly made of.
_Found = Option | _Value | None


class Options:
    """The options of a program, of which some files are known."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def of(self, node: ast.expr, file: str) -> Option | None:
        """Return where a value is set; ``None``: that is not certain."""
        return self._followed(_Value(node, file), DEEPEST)

    def _followed(self, found: _Found, depth: int) -> Option | None:
        while isinstance(found, _Value) and depth:
            source, depth = self._source(found.file), depth - 1
            found = None if source is None else self._next(found, source, depth)
        return found if isinstance(found, Option) else None

    def _next(self, value: _Value, source: Source, depth: int) -> _Found:
        file, path = value.file, value.path
        found: _Found = None
        match value.node:
            case ast.Constant() as plain if not path and value.written:
                name = value.written.partition("{")[0].strip(' =:"')
                now = plain.value if type(plain.value) is int else None
                found = Option(name, f"set {value.written} at {at(file, plain.lineno)}", now=now)
            case ast.BoolOp(op=ast.Or(), values=[first, *_]):
                found = _Value(first, file, path)
            case ast.Dict(keys=keys, values=values) if path:
                some = {plain_text(k): v for k, v in zip(keys, values, strict=True) if k}
                if path[0] in some:
                    found = _Value(some[path[0]], file, path[1:], f'"{path[0]}": {{}}')
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))):
                is_variable = source.means(of, "os.environ")
                found = variable(key) if is_variable else _Value(of, file, (key, *path))
            case ast.Attribute(attr="FLAGS") if path:
                found = self._declared(path)
            case ast.Attribute(value=of, attr=key) as node:
                module = self._in_module(source.imported(node), value)
                found = module or _Value(of, file, (key, *path))
            case ast.Name() as name:
                found = self._of_name(name, source, value, depth)
            case ast.Call() as call:
                found = self._of_call(call, source, value)
            case _:
                pass
        return found

    def _of_name(self, name: ast.Name, source: Source, value: _Value, depth: int) -> _Found:
        places, file, path = source.assigned(name), value.file, value.path
        is_one = len(places) == 1 and not source.is_shared(name)
        if path and not is_one:
            # Whichever of the objects it is: of one of them it is known where its parts are set.
            objects = [x for place in places if (x := _object(source, place)) is not None]
            found = {self._followed(_Value(x, file, path), depth) for x in objects} - {None}
            return found.pop() if len(found) == 1 else None
        match places[0] if is_one else None:
            case None:
                return None
            case ast.arg() as param:
                return self._of_parameter(param, source, value, depth)
            case ast.alias() as alias:
                module = self._in_module(source.imported(name), value)
                is_object = isinstance(source.parent(alias), ast.ImportFrom)
                return module or (self._declared(path) if is_object else None)
            case place:
                given = _object(source, place) if path else source.set_to(place)
                return None if given is None else _Value(given, file, path, f"{name.id} = {{}}")

    def _in_module(self, full: str | None, value: _Value) -> _Found:
        """Return what a name of another file of the user's is set to."""
        module, _, name = (full or "").rpartition(".")
        for file in self._files(value.file, module):
            source = self._source(file)
            places = [] if source is None else source.set_in_module(name)
            given = source.set_to(places[0]) if source and len(places) == 1 else None
            if given is not None:
                return _Value(given, file, value.path, f"{name} = {{}}")
        return None

    # Calls ---------------------------------------------------------------------------------------
    def _of_call(self, call: ast.Call, source: Source, value: _Value) -> _Found:
        file, path, first = value.file, value.path, next(iter(call.args), None)
        found: _Found = None
        if first is not None and source.means(call.func, *_CONVERTS):
            found = _Value(first, file, path)
        elif source.means(call.func, "os.environ.get", "os.getenv", "os.environ.setdefault"):
            found = variable(plain_text(first))
        elif not path:
            pass
        elif (given := argument(call, path[0])) is not None:
            found = _Value(given, file, path[1:], f"{path[0]}={{}}")
        elif (made := self._definition(call, file)) is not None:
            found = self._made_by(*made, path)
        elif "parse" in last(call) or source.means(call.func, "tyro.cli"):
            found = self._declared(path)
        elif path == ("value",):
            found = of_absl(call)
        elif first is not None and "load" in last(call):
            found = key_in_file(first, path)
        elif isinstance(first, ast.Dict):
            found = _Value(first, file, path)
        return found

    def _made_by(self, made: Function | ast.ClassDef, file: str, path: tuple[str, ...]) -> _Found:
        """Return what a function of the user's returns, or a class of the user's keeps."""
        if isinstance(made, ast.ClassDef):
            return self._field(made, file, path)
        given_back = [x.value for x in ast.walk(made) if isinstance(x, ast.Return) and x.value]
        return _Value(given_back[0], file, path) if len(given_back) == 1 else None

    def _field(self, of: ast.ClassDef, file: str, path: tuple[str, ...]) -> _Found:
        """Return what an object has by a name: a field of its class, or what a method sets."""
        source = self._source(file)
        if source is None:
            return None
        places = [
            x
            for node in ast.walk(of)
            for x in targets(node)
            if (name_of(x) == path[0] and source.parent(node) is of)
            or (isinstance(x, ast.Attribute) and is_of_self(x) and x.attr == path[0])
        ]
        if len(places) == 1:
            given, written = source.set_to(places[0]), f"{source.code(places[0])} = {{}}"
            return None if given is None else _Value(given, file, path[1:], written)
        start = next((x for x in of.body if getattr(x, "name", "") == "__init__"), None)
        if not places and path[0] == "hparams" and isinstance(start, Function):
            # What Lightning's save_hyperparameters() keeps of the arguments.
            mine = (param for param in params(start) if (param.arg,) == path[1:])
            return next((_Value(x, file) for x in mine), None)
        return None

    # Parameters ----------------------------------------------------------------------------------
    def _of_parameter(self, param: ast.arg, source: Source, value: _Value, depth: int) -> _Found:
        function, path, file = source.function(param), value.path, value.file
        if not isinstance(function, Function):
            return None
        of = source.parent(function)
        if path and isinstance(of, ast.ClassDef) and function.args.args[:1] == [param]:
            return self._field(of, file, path)
        marks = [x.func if isinstance(x, ast.Call) else x for x in function.decorator_list]
        if path and any(source.means(x, "hydra.main") for x in marks):
            return override(path)
        if not path and (option := of_command(source, function, param)) is not None:
            return option
        default, written = default_of(function, param), f"{param.arg}={{}}"
        by_default = None if default is None else _Value(default, file, path, written)
        given = list(self._given(param, function, source, file))
        if not given:
            return self._declared(path) if path else by_default
        found = {
            self._followed(
                by_default if each is None else _Value(each, where, path, written), depth
            )
            for each, where in given
        }
        return found.pop() if len(found) == 1 else None

    def _given(
        self, param: ast.arg, function: Function, source: Source, file: str
    ) -> Iterator[tuple[ast.expr | None, str]]:
        """Yield what each call in the known files gives a parameter; ``None``: nothing."""
        above, placed = source.parent(function), [*function.args.posonlyargs, *function.args.args]
        of = above if isinstance(above, ast.ClassDef) else None
        number = placed.index(param) - (of is not None) if param in placed else None
        made = of if of is not None and function.name == "__init__" else function
        for where, text in list(self._texts.items()):
            there = self._source(where) if made.name in text else None
            for call in () if there is None else there.calls:
                if last(call) != made.name or has_stars(call):
                    continue
                # Of which class an object is whose method is called is not known.
                if (of is not None and made is function) or self._definition(call, where) == (
                    made,
                    file,
                ):
                    yield argument(call, param.arg, number), where

    # Declarations --------------------------------------------------------------------------------
    def _declared(self, path: tuple[str, ...]) -> Option | None:
        """Return the one option of a command line that is read by this name."""
        if len(path) != 1:
            return None
        found: set[Option | None] = set()
        program = "".join(self._texts[file] for file in self._everywhere())
        for file, text in list(self._texts.items()):
            source = self._source(file) if path[0] in text.replace("-", "_") else None
            if source is not None:
                found |= {by_call(call, path[0]) for call in source.calls}
                found |= {*by_fields(source, path[0], program)}
        found -= {None}
        return found.pop() if len(found) == 1 else None

    def _everywhere(self) -> list[str]:
        """Return the known files, and those of the user's that they import."""
        for file in list(self._texts):
            source = self._source(file)
            for node in () if source is None else source.everything:
                match node:
                    case ast.ImportFrom(module=module, names=names, level=level):
                        inside = f"{'.' * level}{module or ''}"
                        modules = [inside, *(f"{inside}.{x.name}" for x in names)]
                    case ast.Import(names=names):
                        modules = [x.name for x in names]
                    case _:
                        modules = []
                for each in modules:
                    next(self._files(file, each), None)
        return list(self._texts)

    # Files ---------------------------------------------------------------------------------------
    def _source(self, file: str) -> Source | None:
        try:
            return source_of(self._texts[file])
        except (KeyError, SyntaxError, ValueError, RecursionError):
            return None

    def _files(self, file: str, module: str) -> Iterator[str]:
        """Yield the files of the user's that a module may be which a file imports."""
        parts = [x for x in module.split(".") if x]
        above = len(module) - len(module.lstrip("."))
        folders = list(Path(file).parents)
        for folder in folders[above - 1 : above] if above else folders[:MOST_FOLDERS]:
            for rest in ("", "/__init__"):
                found = f"{folder.joinpath(*parts)}{rest}.py"
                text = self._texts.get(found) or (text_of(found) if parts else None)
                if text is not None:
                    self._texts[found] = text
                    yield found

    def _definition(self, call: ast.Call, file: str) -> tuple[Function | ast.ClassDef, str] | None:
        """Return the function or class of the user's that is called, and its file."""
        source = self._source(file)
        known = None if source is None else source.definition(call.func)
        if known is not None:
            return known, file
        module, _, name = ((source and source.imported(call.func)) or "").rpartition(".")
        for other in self._files(file, module) if module else ():
            there = self._source(other)
            for each in () if there is None else there.module.body:
                if isinstance(each, Function | ast.ClassDef) and each.name == name:
                    return each, other
        return None


def _object(source: Source, place: ast.AST) -> ast.expr | None:
    """Return what a name is set to; of several at once all: ``args, more = parse_known_args()``."""
    given, statement = source.set_to(place), source.statement(place)
    if given is None and isinstance(statement, ast.Assign):
        return statement.value
    return given

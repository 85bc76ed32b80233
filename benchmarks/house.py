"""Count what the diagnosis is made of: lines, constants, places that name libraries, models.

Run: .venv/bin/python benchmarks/house.py [COMMIT]
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = ("rules", "signals", "fixes", "code", "libraries")
# A number, or a collection of them: what is fitted, derived, or a law.
_NUMBERS: Final = (int, float)
_PACKAGES: Final = re.compile(r"(site|dist)-packages|/(torch|jax|tensorflow|keras|numpy)/")


def sources(root: Path, *rooms: str) -> Iterator[Path]:
    """Yield the files of some rooms."""
    for room in rooms:
        yield from sorted((root / "monitor" / room).rglob("*.py"))


def lines(root: Path) -> int:
    """Return the lines of all rooms, with the table of libraries."""
    table = root / "monitor" / "libraries" / "table.toml"
    files = [*sources(root, *ROOMS), *([table] if table.exists() else [])]
    return sum(len(path.read_text().splitlines()) for path in files)


def constants(root: Path) -> int:
    """Return how many names of modules stand for numbers."""
    return sum(_is_number(node) for node in _assigned(root))


def of_packages(root: Path) -> int:
    """Return how many modules hold an expression that names where a package lies."""
    found = {
        path
        for path in sources(root, *ROOMS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "re.compile"
        and _PACKAGES.search(ast.unparse(node))
    }
    return len(found)


def gain_models(root: Path) -> int:
    """Return how many functions of signals turn what a fix saves into a gain."""
    trees = [ast.parse(path.read_text()) for path in sources(root, "signals")]
    functions = [x for tree in trees for x in tree.body if isinstance(x, ast.FunctionDef)]
    returned = (x.returns for x in functions if x.name[0] != "_")
    return sum(each is not None and ast.unparse(each) == "Gain" for each in returned)


def flags(root: Path) -> int:
    """Return how many fields and functions let one finding hide another."""
    names = (
        "symptom_of", "is_last_resort", "yields_lines", "hides_host", "explains", "_stands_for",
        "_with_causes_first", "CAUSES", "Claims",
    )  # fmt: skip
    found: set[str] = set()
    for path in sources(root, "core", "diagnosis", "rules"):
        # What a comment or a sentence says is none.
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        found |= {token.string for token in tokens if token.type == tokenize.NAME}
    return len(found.intersection(names))


def _assigned(root: Path) -> Iterator[ast.expr]:
    for path in sources(root, *ROOMS):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                yield node.value


def _is_number(node: ast.expr) -> bool:
    try:
        value = eval(ast.unparse(node), {"__builtins__": {}})
    except Exception:  # noqa: BLE001  names others: no number by itself
        return False
    every = value if isinstance(value, tuple) else (value,)
    return bool(every) and all(isinstance(x, _NUMBERS) and type(x) is not bool for x in every)


COUNTED: Final[dict[str, Callable[[Path], int]]] = {
    "lines of rules, signals, fixes, code, libraries": lines,
    "constants that are numbers": constants,
    "modules that say where packages lie": of_packages,
    "gain models": gain_models,
    "ways for one finding to hide another": flags,
}


def main() -> None:
    """Print the table, of the working tree or of a commit."""
    if len(sys.argv) == 1:
        show(ROOT)
        return
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", sys.argv[1], "monitor"], capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
            tar.extractall(folder, filter="data")
        show(Path(folder))


def show(root: Path) -> None:
    """Print what is counted of a tree."""
    for name, count in COUNTED.items():
        print(f"{count(root):>7,}  {name}")


if __name__ == "__main__":
    main()

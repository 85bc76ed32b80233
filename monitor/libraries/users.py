"""Which files are the user's own code: neither Python's, nor a framework's, nor generated.

Light, so that a diagnosis of counters alone needs nothing of what reads traces.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from whyidle.monitor.libraries.names import FRAMEWORK_MODULES, STDLIB_FILES, STDLIB_FOLDERS, SURELY
from whyidle.monitor.libraries.table import PACKAGES

_INSTALLED = re.compile(
    r"(^|/)(site|dist)-packages/|/lib(32|64)?/(python|pypy)\d[\d.]*t?/|/python\d+\.zip/"
    r"|(^|/)torchinductor_[^/]*/|/__autograph_generated_file"
)
_NOTEBOOK: Final = "<ipython-input"


def is_users(path: str) -> bool:
    """Whether this file is the user's; its path may be whole, or cut by Kineto."""
    if path.startswith(_NOTEBOOK):
        return True
    if not path.endswith(".py"):  # generated code, and what pip puts into bin/
        return False
    path = path.replace("\\", "/").removeprefix("./")
    if _INSTALLED.search(path) or path.startswith(SURELY) or generated_by(path):
        return False
    folders = path.split("/")
    if folders[0] in ("", "..") or folders[0].endswith(":"):
        return package_at(folders) is None
    if len(folders) == 1:
        stem = path.removesuffix(".py")
        return stem not in STDLIB_FILES and stem not in FRAMEWORK_MODULES
    return folders[0] not in PACKAGES and folders[0] not in STDLIB_FOLDERS


def generated_by(path: str) -> str | None:
    """Return the package that wrote a file: it names the file as a module of its own."""
    package, _, rest = path.rpartition("/")[2].removesuffix(".py").partition(".")
    return package if "." in rest and package in PACKAGES else None


def package_at(folders: list[str]) -> int | None:
    """Return where a package begins in its own repository, which has its name."""
    for n, (above, package) in enumerate(pairwise(folders), 1):
        if above == "src" and n > 1:
            above = folders[n - 2]  # noqa: PLW2901  ".../transformers/src/transformers"
        if package in PACKAGES and above in (package, f"py{package}"):
            return n
    return None

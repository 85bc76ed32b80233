"""A changed copy of a program: its code copied, its large files linked to where they lie."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from whyidle.monitor.code.source import LARGEST

# A folder with more files than this is data, and is linked as a whole.
MOST_FILES: Final = 2000
_LEFT_OUT: Final = {"__pycache__", ".git", ".hg", ".venv", "venv", "node_modules", ".mypy_cache",
                    ".ruff_cache", ".pytest_cache", "wandb", "mlruns"}  # fmt: skip


def root_of(files: list[str], here: Path) -> Path:
    """Return the folder of a program: its repository, the current folder, or its files' own."""
    paths = [Path(file).resolve() for file in files]
    for above in paths[0].parents:
        if (above / ".git").exists() and all(path.is_relative_to(above) for path in paths):
            return above
    here = here.resolve()
    if here != Path.home() and here != Path("/") and all(p.is_relative_to(here) for p in paths):
        return here
    return Path(os.path.commonpath([str(path.parent) for path in paths]))


def copy(root: Path, to: Path, texts: Mapping[str, str]) -> None:
    """Write a copy of a folder in which these files have these texts."""
    to.mkdir(parents=True, exist_ok=True)
    _copy(root, to, to.resolve())
    for file, text in texts.items():
        path = to / Path(file).resolve().relative_to(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _copy(root: Path, to: Path, avoid: Path) -> None:
    for entry in sorted(root.iterdir()):
        if entry.name in _LEFT_OUT or entry.resolve() == avoid:
            continue
        target = to / entry.name
        if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
            if entry.exists() and (entry.is_dir() or entry.is_file()):
                target.symlink_to(entry.resolve())
        elif entry.is_file():
            if entry.stat().st_size > LARGEST and entry.suffix != ".py":
                target.symlink_to(entry)
            else:
                shutil.copy2(entry, target)
        elif _is_data(entry):
            target.symlink_to(entry)
        else:
            target.mkdir(exist_ok=True)
            _copy(entry, target, avoid)


def _is_data(folder: Path) -> bool:
    if (folder / "pyvenv.cfg").exists():
        return True
    with os.scandir(folder) as found:
        return sum(1 for _ in found) > MOST_FILES


def moved(words: list[str], root: Path, to: Path, here: Path) -> tuple[list[str], Path]:
    """Return a command and the folder it runs in, with what lies in a folder moved to its copy."""
    here = here.resolve()
    there = to / here.relative_to(root) if here.is_relative_to(root) else here
    return [_moved(word, root, to, here) for word in words], there


def _moved(word: str, root: Path, to: Path, here: Path) -> str:
    name, equals, value = word.rpartition("=")
    full = Path(os.path.normpath(here / value))
    if not value or not full.exists() or not full.is_relative_to(root):
        return word
    copied = to / full.relative_to(root)
    if not copied.exists():
        # Left out of the copy: an interpreter, an environment.
        return f"{name}{equals}{full}" if "/" in value else word
    is_relative = not Path(value).is_absolute() and here.is_relative_to(root)
    return word if is_relative else f"{name}{equals}{copied}"

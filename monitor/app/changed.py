"""Changed source code on disk: a copy, or the user's own files where nothing can be lost."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.monitor import fixes
from whyidle.monitor.core.errors import StorageProblem, UsageProblem

if TYPE_CHECKING:
    from whyidle.monitor.fixes import Fixed


def check(files: list[str], *, force: bool) -> None:
    """Refuse to change files whose present state could not be had back."""
    if force:
        return
    for file in files:
        folder, name = Path(file).parent, Path(file).name
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        if changed is None:
            raise UsageProblem(
                f"{folder} is in no git repository: nothing would bring your files back.",
                "See the change first, then: monitor fix ... --write --force",
            )
        if _git(folder, "ls-files", "--error-unmatch", "--", name) is None:
            raise UsageProblem(
                f"git does not have {file}: nothing would bring it back.",
                "Add and commit it, or type: monitor fix ... --write --force",
            )
        if changed.strip():
            raise UsageProblem(
                "git has uncommitted changes here, and --write would mix with them.",
                "Commit them, or type: monitor fix ... --write --force",
            )


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says of a folder; ``None``: it knows nothing of it, or is not there."""
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(folder), *words],  # noqa: S607
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout


def written(found: Fixed) -> list[str]:
    """Write the changed texts into the user's files, each at once."""
    for file, text in found.texts.items():
        path = Path(file).resolve()
        new = path.with_name(f".{path.name}.whyidle")
        try:
            new.write_bytes(text.encode())
            new.chmod(path.stat().st_mode & 0o777)
            new.replace(path)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise StorageProblem(
                f"{path} cannot be written: {error.strerror}.",
                "Take the diff instead: monitor fix",
            ) from None
    return list(found.texts)


def copied(found: Fixed, folder: Path) -> list[str]:
    """Write a changed copy of the program into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageProblem(f"{folder} is there already.", "Name a new folder: --apply-to DIR")
    root = fixes.root_of(list(found.texts), Path.cwd())
    try:
        fixes.copy(root, folder, found.texts)
    except OSError as error:
        raise StorageProblem(
            f"{folder} cannot be written: {error.strerror}.", "Name another: --apply-to DIR"
        ) from None
    return [str(folder / Path(file).resolve().relative_to(root)) for file in found.texts]

"""Where a line lies in the repository around us: code hosts know files by their path in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson, PlaceJson
from whyidle.monitor.core.errors import UsageProblem

# Where systems have the home folders of people, who need not be who reads.
_HOMES: Final = re.compile(r"(?<![\w.~-])/(?:home|Users)/[^/\s<>\"']+(?=/)|(?<![\w.~-])/root(?=/)")


@dataclass(frozen=True, slots=True)
class Repository:
    """The folder that paths are relative to."""

    root: Path

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the nearest repository of git that a folder is in; without one, the folder."""
        real = Path(os.path.realpath(folder))
        within = (each for each in (real, *real.parents) if (each / ".git").exists())
        return cls(next(within, real))

    @classmethod
    def here(cls) -> Repository:
        """Return the one around the current folder; raises a sentence where that is gone."""
        try:
            return cls.around(Path.cwd())
        except FileNotFoundError:
            raise UsageProblem(
                "The current folder has been deleted: paths cannot be told from there.",
                "Go to the folder of the job's code: cd PATH",
            ) from None

    def path(self, file: str) -> str | None:
        """Return the path of a file below the root; ``None``: it is not of this repository.

        A job in a container had its code elsewhere: there the end of its path says which it is.
        """
        if not file or not file.isprintable() or file.startswith("<"):
            return None
        real = Path(os.path.realpath(self.root / file))
        if real.is_relative_to(self.root):
            return real.relative_to(self.root).as_posix()
        try:
            if real.exists():
                return None
        except OSError:
            # No file system has such a name: code that was made of a text.
            return None
        parts = PurePosixPath(os.path.normpath(file)).parts[1:]
        ends = ("/".join(parts[place:]) for place in range(len(parts)))
        return next((end for end in ends if (self.root / end).is_file()), None)

    def shown(self, file: str) -> str:
        """Return a path as others may see it: in the repository, or without whose home it is in."""
        return self.path(file) or homeless(file)


def homeless(text: str) -> str:
    """Return text without the names of home folders."""
    home = os.path.expanduser("~")  # noqa: PTH111  Path.home() raises where there is none
    ours = text.replace(f"{home}/", "~/") if home not in {"", "/", "~"} else text
    return _HOMES.sub("~", ours)


def of(finding: FindingJson, answer: DiagnosisJson) -> tuple[PlaceJson | None, bool]:
    """Return the line to show a finding at, and whether it is the finding's own.

    Code hosts show nothing without a line. A fault of the whole job stands where its loop begins.
    """
    if finding.where:
        return finding.where[0], True
    chains = (row.chain for row in answer.host.rows if row.chain)
    return next((chain[-1] for chain in chains), None), False

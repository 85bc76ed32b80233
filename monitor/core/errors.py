"""What can go wrong, as sentences: what failed, why, and what to type next; with the exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    GONE = 3
    PERMISSION = 4
    NO_GPU = 5
    STORAGE = 6
    NOT_JUDGED = 7
    WORSE = 8
    PARTIAL = 9
    # BSD's "internal software error": none of our codes, so scripts never take it for a result.
    DEFECT = 70
    HUNG_UP = 129
    INTERRUPTED = 130


class Problem(Exception):  # noqa: N818  a sentence for the user, not a defect of ours
    """A failure that the user can act on."""

    code: int = Exit.USAGE
    # The command has printed its answer already.
    is_answered: bool = False

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def with_code(self, code: int) -> Problem:
        """Return this problem with another program's exit code."""
        self.code = code
        return self

    def __str__(self) -> str:
        return f"{self.what}\n{self.next_step}" if self.next_step else self.what


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """What fails here comes after the answer, which stands alone on stdout."""
    try:
        yield
    except Problem as problem:
        problem.is_answered = True
        raise


class UsageProblem(Problem):
    """The command line does not make sense."""


class TargetGone(Problem):
    """A process to watch is not there, or no longer; or a server that is asked does not answer."""

    code: int = Exit.GONE


class NotPermitted(Problem):
    """The system does not let us look at the target."""

    code: int = Exit.PERMISSION


class NoGpu(Problem):
    """A GPU was asked for and there is none that answers."""

    code: int = Exit.NO_GPU


class StorageProblem(Problem):
    """The store cannot be read or written."""

    code: int = Exit.STORAGE


class NotJudged(Problem):
    """Most of the time is unknown (`--fail-on`), or who is slower (`--fail-slower`, `--gate`)."""

    code: int = Exit.NOT_JUDGED
    is_answered = True

"""Why there is no sample: for good, or this once."""

from __future__ import annotations


class Unreadable(Exception):  # noqa: N818  an answer, not a defect of ours
    """The process cannot be sampled: the reason as a sentence, and what to type instead."""

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


class Ended(Exception):  # noqa: N818  an answer, not a defect of ours
    """The program whose memory was opened is no more."""


class Torn(Exception):  # noqa: N818  an answer, not a defect of ours
    """The job went on while its stack was read, and what was read makes no sense."""

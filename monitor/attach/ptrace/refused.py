"""How a step into a job ends that is not taken."""

from __future__ import annotations

from whyidle.monitor.attach.answers import Refusal


class Refused(Exception):  # noqa: N818  an answer for the user, not a defect
    """The job is not entered; what it does has not been changed.

    Without a next step the one that always helps is meant: start it with the agent inside.
    """

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.refusal = Refusal(what, next_step)


class NotNow(Exception):  # noqa: N818
    """This thread cannot be used at this moment: another one, or later."""


def again(pid: int) -> str:
    """Return the line that tries once more."""
    return f"Try again: monitor attach {pid}"

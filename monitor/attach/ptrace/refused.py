"""Why a job is not entered, or a thread not used."""

from __future__ import annotations

from whyidle.monitor.attach.answers import Refusal


class Refused(Exception):  # noqa: N818  an answer for the user, not a defect
    """The job is not entered, and is unchanged.

    No next step stands for the one that always helps: start it with the agent inside.
    """

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.refusal = Refusal(what, next_step)


class NotNow(Exception):  # noqa: N818
    """This thread cannot be used at this moment: try another one, or later."""


def again(pid: int) -> str:
    """Return the hint to try again."""
    return f"Try again: monitor attach {pid}"

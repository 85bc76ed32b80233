"""A fix as a patch: it changes the lines that it names, and those of no other program."""

from __future__ import annotations

import pytest

from whyidle.monitor.demo.patch import Changed, applied, changed

TEXT = "a\nb\n\nd\n"
PATCH = "--- x\n+++ y\n@@ -2,2 +2,3 @@\n-b\n+c\n+c\n \n"


def test_a_patch_changes_the_lines_that_it_names() -> None:
    assert applied(TEXT, PATCH) == "a\nc\nc\n\nd\n"
    # An editor takes the blank at the end of a line away.
    assert applied(TEXT, PATCH.replace("\n \n", "\n\n")) == "a\nc\nc\n\nd\n"
    assert changed(PATCH) == [Changed(2, "b", False), Changed(2, "c", True), Changed(3, "c", True)]


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        ("a\nB\n\nd\n", PATCH),
        ("a\n", PATCH),
        ("a\na\nb\n\nd\n", PATCH),
        (TEXT, PATCH.replace("+2,3", "+3,3")),
        (TEXT, PATCH.removesuffix(" \n")),
        (TEXT, PATCH.replace("+c\n", "", 1)),
        (TEXT, PATCH.replace("+c", "\\c", 1)),
        (TEXT, PATCH + "@@ -1 +1 @@\n-a\n+A\n"),
        (TEXT, ""),
    ],
)
def test_a_patch_for_another_program_is_refused(text: str, patch: str) -> None:
    with pytest.raises(ValueError, match="the patch"):
        applied(text, patch)

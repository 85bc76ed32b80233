"""What was said of all that was ever recorded is what is said of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tests.golden import WITH_SOURCE, Subject, digest, golden, said, subjects

# One of so many stands for all where nobody has minutes.
SAMPLE: Final = 12


def _compare(chosen: Iterable[Subject]) -> None:
    agreed, some = golden(), list(chosen)
    for subject, lines in zip(some, said(some), strict=True):
        assert lines == agreed[subject.name], "make golden shows all; --write agrees to it"


def test_a_sample_of_it() -> None:
    _compare(list(subjects())[::SAMPLE])


def test_all_of_it() -> None:
    _compare(subjects())


def test_it_speaks_of_nothing_that_is_gone() -> None:
    recorded = {subject.name for subject in subjects()}
    assert {name for name in golden() if not name.startswith(WITH_SOURCE)} == recorded


def test_a_title_fits_into_a_line() -> None:
    titles = (line.partition(" | ")[2] for lines in golden().values() for line in lines)
    # A name of the job's own may be as long as it likes.
    assert {x for x in titles if len(re.sub(r"^\w+(?=\(\))", "name", x)) > 60} == set()


def test_a_digest_knows_every_figure_but_the_time() -> None:
    answer = {"evidence": [{"value": 0.1234564, "age_s": 3.0}]}
    later = {"evidence": [{"value": 0.1234564, "age_s": 5.0}]}
    other = {"evidence": [{"value": 0.1234664, "age_s": 3.0}]}
    assert digest(answer) == digest(later) != digest(other)

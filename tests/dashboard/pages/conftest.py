"""What each test of a page begins with: no store that another one opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whyidle.dashboard import store_reader


@pytest.fixture(autouse=True)
def _own_stores() -> Iterator[None]:
    yield
    store_reader._opened.clear()

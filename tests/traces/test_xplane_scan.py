"""The compiled loops and those in Python: the same trace, whatever the bytes are."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.longer import many
from tests.traces.test_kineto_scan import flat
from tests.traces.test_mutations import cut_out, doubled, flipped, truncated, unpacked
from tests.traces.test_xplane_damage import HOSTILE
from tests.traces.test_xplane_wire import plane_of, seeded
from tests.traces.xplane_bytes import load, space
from whyidle.monitor.traces.xplane import chain, chunks, compiled
from whyidle.monitor.traces.xplane.vector import Buffer

pytestmark = pytest.mark.skipif(compiled.scan is None, reason="no C compiler: it was not built")

DATA: Final = Path(__file__).parents[1] / "data" / "traces"
FILES: Final = sorted(DATA.glob("xplane/*.gz")) + sorted(DATA.glob("real/xplane/*.gz"))
OF_ONE_SEED: Final = 20
BLOWS: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    flipped,
    flipped,
    truncated,
    cut_out,
    doubled,
)


def both(folder: Path, data: bytes) -> tuple[Any, Any]:
    """What comes out with the compiled loops, and without them."""
    found = flat(load(folder, data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "scan", None)
        return found, flat(load(folder, data))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_recorded_file_gives_the_same_trace(tmp_path: Path, file: Path) -> None:
    found, pure = both(tmp_path, unpacked(file))
    assert found == pure


def test_the_seeded_file_gives_the_same_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, pure = both(tmp_path, seeded(tmp_path / "seeded.xplane.pb", monkeypatch))
    assert found == pure


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_give_the_same_trace(tmp_path: Path, data: bytes) -> None:
    found, pure = both(tmp_path, data)
    assert found == pure


@pytest.mark.parametrize("seed", range(many(200)))
def test_damaged_files_give_the_same_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(chunks, "CHUNK", rng.choice((5 << 10, 24 << 10, chunks.CHUNK)))
    whole = space(plane_of(seed, rng.choice((3, 20, 100))))
    for _ in range(OF_ONE_SEED):
        found, pure = both(tmp_path, rng.choice(BLOWS)(whole, rng))
        assert found == pure


# ------------------------------------------------------------------ the loops themselves


def columns(rows: int, ids: int = 1) -> tuple[Any, ...]:
    head = (np.zeros(rows, np.int64) for _ in range(3))
    return *head, np.zeros((ids, rows), np.int64), np.zeros(rows, np.bool_)


def test_a_walk_ends_before_what_is_no_plain_event() -> None:
    buffer = Buffer(100)
    buffer.put(0, b"\x22\x01\x08\x22\x00\x22\x81\x00\x08\x28\x05\x22\x05")
    scan = compiled.scan
    assert scan is not None
    for walk in (scan.walk, chain._walk):
        assert walk(buffer.data, 0, 13, buffer.bodies, buffer.ends, 0) == (3, 9)
        assert buffer.bodies[:3].tolist() == [2, 5, 8]
        assert buffer.ends[:3].tolist() == [3, 5, 9]
        assert walk(buffer.data, 11, 13, buffer.bodies, buffer.ends, 3) == (3, 11)


@pytest.mark.parametrize(("at", "end", "row"), [(-1, 5, 0), (6, 5, 0), (0, 1000, 0), (0, 5, -1)])
def test_a_walk_outside_its_buffer_raises(at: int, end: int, row: int) -> None:
    buffer = Buffer(100)
    assert compiled.scan is not None
    with pytest.raises(ValueError, match="outside"):
        compiled.scan.walk(buffer.data, at, end, buffer.bodies, buffer.ends, row)


def test_a_walk_has_as_many_rows_as_there_is_room() -> None:
    room = np.zeros(2, np.int64), np.zeros(2, np.int64)
    assert compiled.scan is not None
    assert compiled.scan.walk(b"\x22\x00" * 5, 0, 10, *room, 0) == (2, 4)


@pytest.mark.parametrize(("body", "end"), [(-1, 2), (3, 2), (0, 5)])
def test_events_outside_their_buffer_raise(body: int, end: int) -> None:
    assert compiled.scan is not None
    with pytest.raises(ValueError, match="outside"):
        compiled.scan.decode(
            b"\x08\x01\x10\x01", np.array([body]), np.array([end]), (1,), (), *columns(1)
        )


def test_columns_of_other_lengths_raise() -> None:
    one = np.array([0])
    assert compiled.scan is not None
    for given in (columns(2), columns(1, 2), columns(0)):
        with pytest.raises(ValueError, match="lengths"):
            compiled.scan.decode(b"\x08\x01", one, one, (1,), (), *given)
    with pytest.raises(ValueError, match="too many"):
        compiled.scan.decode(b"", one[:0], one[:0], tuple(range(17)), (), *columns(0, 17))
    with pytest.raises(OverflowError):
        compiled.scan.decode(b"", one[:0], one[:0], (1 << 64,), (), *columns(0))
    with pytest.raises(BufferError):
        compiled.scan.walk(b"", 0, 0, b"", b"", 0)

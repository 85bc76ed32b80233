"""The codec of stored columns: every column comes back, and no damage gets through."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.store import columns as codec
from whyidle.monitor.store.columns import Column, pack, pack_all, unpack, unpack_all

TYPES = ("?", "i1", "i2", "i4", "i8", "u1")


@st.composite
def columns(draw: st.DrawFn) -> Column:
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    if dtype == np.bool_:
        return np.array(draw(st.lists(st.booleans(), max_size=50)), np.bool_)
    bits = 8 * dtype.itemsize
    least, most = (0, 255) if dtype == np.uint8 else (-(1 << bits - 1), (1 << bits - 1) - 1)
    near = st.integers(max(least, -300), min(most, 300))
    some = draw(st.lists(st.integers(least, most) | near, max_size=50))
    return np.array(sorted(some) if draw(st.booleans()) else some, dtype)


@examples(300)
@given(columns())
def test_every_column_comes_back(column: Column) -> None:
    found = unpack(pack(column))
    assert found.dtype == column.dtype
    assert found.tolist() == column.tolist()


@given(st.dictionaries(st.text(max_size=20), columns(), max_size=5))
def test_and_several_of_them(some: dict[str, Column]) -> None:
    found = unpack_all(pack_all(some))
    assert {name: c.tolist() for name, c in found.items()} == {
        name: c.tolist() for name, c in some.items()
    }


def test_columns_of_traces_are_small() -> None:
    rng = np.random.default_rng(1)
    start = np.cumsum(rng.integers(0, 60_000, 16_384))
    same = np.full(16_384, -1, np.int32)
    ids = np.tile(rng.integers(0, 300, 256).astype(np.int32), 64)
    assert len(pack(start)) < 2.1 * len(start)
    assert len(pack(same)) < 32
    assert len(pack(ids)) < 0.1 * len(ids)


def test_a_column_in_steps_is_stored_as_differences() -> None:
    column = np.arange(0, 1 << 40, 1 << 26)
    assert len(pack(column)) < 100


@pytest.mark.parametrize("column", [np.zeros(3), np.zeros(3, "U4"), np.zeros(3, object)])
def test_what_is_no_integer_is_refused(column: Column) -> None:
    with pytest.raises(ValueError, match="not in"):
        pack(column)


@given(st.data(), st.dictionaries(st.text(max_size=8), columns(), min_size=1, max_size=3))
def test_damage_is_reported_in_a_sentence(data: st.DataObject, some: dict[str, Column]) -> None:
    blob = bytearray(pack_all(some))
    if data.draw(st.booleans()):
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del blob[data.draw(st.integers(0, len(blob) - 1)) :]
    with pytest.raises(StorageProblem, match="damaged") as caught:
        unpack_all(bytes(blob))
    assert "monitor trace" in caught.value.next_step


@examples(300)
@given(st.binary(max_size=200))
def test_noise_is_no_column(noise: bytes) -> None:
    for read in (unpack, unpack_all):
        try:
            read(noise)
        except StorageProblem:
            continue
        assert noise[:1] == b"\0", "an empty list of columns is all that noise may say"


def forged(**changes: int) -> bytes:
    """Return a blob whose checksum is right, and whose header is wrong."""
    blob = pack(np.array([1, 5, 2, 9]))
    names = ("version", "code", "width", "delta", "count", "first", "least")
    fields = dict(zip(names, codec._HEADER.unpack_from(blob), strict=True))
    header = codec._HEADER.pack(*(fields | changes).values())
    body = blob[codec._START :]
    return header + codec._CHECK.pack(zlib.crc32(body, zlib.crc32(header))) + body


@pytest.mark.parametrize(
    "change",
    [
        {"count": 0xFFFFFFFF},
        {"count": 1 << 24},
        {"count": 5},
        {"width": 3},
        {"width": 8},
        {"code": 99},
        {"version": 2},
    ],
    ids=str,
)
def test_a_header_that_lies_is_reported(change: dict[str, int]) -> None:
    with pytest.raises(StorageProblem, match="damaged"):
        unpack(forged(**change))


def test_no_more_is_inflated_than_was_declared() -> None:
    bomb = zlib.compress(b"\0" * (100 << 20))
    assert len(codec._inflated(bomb, 8)) == 8

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.traces import stream

DATA = random.Random(1).randbytes(300_000) + b"a" * 300_000


def opened(path: Path, content: bytes) -> stream.Stream:
    path.write_bytes(content)
    file, _ = stream.open_file(path)
    return stream.GzipStream(file) if content.startswith(stream.GZIP) else stream.Stream(file)


@pytest.mark.parametrize("size", [333, 10_000, 65_536, 599_999, 600_000, 10**7])
@pytest.mark.parametrize(
    "content",
    [
        DATA,
        gzip.compress(DATA),
        gzip.compress(DATA[:5]) + gzip.compress(b"") + gzip.compress(DATA[5:]) + b"\0" * 700,
        b"".join(gzip.compress(DATA[at : at + 20_000]) for at in range(0, len(DATA), 20_000)),
    ],
)
def test_reads_of_any_size_give_the_same_bytes(tmp_path: Path, content: bytes, size: int) -> None:
    with opened(tmp_path / "a", content) as read:
        pieces = list(iter(lambda: read.read(size), b""))
        assert b"".join(pieces) == DATA
        assert {len(piece) for piece in pieces[:-1]} <= {size}
        assert read.damage is None
        assert read.consumed == len(content)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200_000))))
@examples(25)
def test_skips_and_reads_mix(
    tmp_path_factory: pytest.TempPathFactory,
    pack: Callable[[bytes], bytes],
    moves: list[tuple[bool, int]],
) -> None:
    path = tmp_path_factory.mktemp("mix") / "a"
    with opened(path, pack(DATA)) as read:
        at = 0
        for skips, size in moves:
            if skips:
                read.skip(size)
            else:
                assert read.read(size) == DATA[at : at + size]
            at = min(at + size, len(DATA))
            assert read.position == at


def test_many_tiny_members_take_no_time(tmp_path: Path) -> None:
    with opened(tmp_path / "a", gzip.compress(b"") * 50_000 + gzip.compress(b"end")) as read:
        assert read.read(100) == b"end"


@pytest.mark.parametrize("cut", [1, 8, 9, 100, 150_000, 300_000])
def test_cut_off_gzip_gives_what_is_there(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path / "a", gzip.compress(DATA)[:-cut]) as read:
        data = read.read(10**7)
        assert DATA.startswith(data)
        assert len(data) >= len(DATA) - 300_000 - cut
        assert read.damage is not None
        assert "cut off" in read.damage
        assert read.read(10) == b""


def test_damaged_gzip_gives_every_byte_before_the_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(DATA))
    packed[-6] ^= 1  # the checksum: all data came before it
    with opened(tmp_path / "a", bytes(packed)) as read:
        assert read.read(10**7) == DATA
        assert read.damage is not None
        assert "incorrect" in read.damage
    with opened(tmp_path / "a", gzip.compress(DATA) + b"tail") as read:
        assert read.read(10**7) == DATA
        assert read.damage is not None
        assert "not gzip" in read.damage


@given(st.integers(2, 3000), st.integers(1, 255))
@examples(100)
def test_flipped_bits_never_raise(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int
) -> None:
    packed = bytearray(gzip.compress(json.dumps(list(range(1000))).encode(), mtime=0))
    packed[at % len(packed)] ^= flip
    path = tmp_path_factory.mktemp("flip") / "a"
    path.write_bytes(packed)
    file, _ = stream.open_file(path)
    with stream.GzipStream(file) as read:
        assert len(read.read(10**6)) < 10**6


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    with opened(tmp_path / "a", bomb) as read:
        read.skip(1 << 40)
        assert read.position <= (64 << 20) + stream.PIECE
        assert read.damage is not None
        assert "grows more than" in read.damage
    monkeypatch.setattr(stream, "CAP", 10 << 20)
    with opened(tmp_path / "a", bomb) as read:
        read.skip(1 << 40)
        assert read.position <= (10 << 20) + stream.PIECE


def test_an_error_of_the_disk_ends_the_bytes_with_a_reason(tmp_path: Path) -> None:
    class Bad(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    (tmp_path / "a").write_bytes(DATA)
    for kind in (stream.Stream, stream.GzipStream):
        with kind(Bad(tmp_path / "a")) as read:
            assert read.read(10) == b""
            assert read.damage == "the file could not be read further: Input/output error"

"""Damaged and hostile files: a sentence or an answer, never a traceback, never a hang."""

from __future__ import annotations

import gzip
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.longer import many
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.render.trace import screen
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract

DATA = Path(__file__).parents[1] / "data" / "traces"
SEEDS = sorted((DATA / "kineto").glob("*.json.gz")) + sorted((DATA / "xplane").glob("*.pb*"))
FILES = many(1000)
LONGEST_S = 20.0
HUGE = (b"9" * 400, b"1e999", b"-9223372036854775809", b"18446744073709551616", b"1e-999", b"NaN")
WRONG = (b"null", b"[]", b"{}", b'"x"', b"true", b"[[[]]]", b'{"a":{"a":{}}}', b"\x00", b"\xff\xfe")


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 30, 300))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut_out(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:a] + data[b:]


def doubled(data: bytes, rng: random.Random) -> bytes:
    a = rng.randrange(len(data))
    b = min(len(data), a + rng.randrange(1, 20_000))
    return data[:b] + data[a:]


def retyped(data: bytes, rng: random.Random) -> bytes:
    """Put something else where a number or a string was (in XPlane: anywhere)."""
    for _ in range(rng.choice((1, 5, 50))):
        at = data.find(b": ", rng.randrange(len(data)))
        at = rng.randrange(len(data)) if at < 0 else at + 2
        end = min((p for p in (data.find(b",", at), data.find(b"}", at)) if p > 0), default=at)
        data = data[:at] + rng.choice(WRONG + HUGE) + data[end:]
    return data


def nested(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    depth = rng.choice((10, 1_000, 100_000))
    return data[:at] + rng.choice((b"[", b'{"a":', b"\x0a", b"\x22\x7f")) * depth + data[at:]


def long_lengths(data: bytes, rng: random.Random) -> bytes:
    """Varints of ten bytes and more: counts and lengths beyond anything."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 10))):
        at = rng.randrange(len(changed))
        changed[at : at + rng.randrange(12)] = b"\xff" * rng.randrange(1, 14) + b"\x01"
    return bytes(changed)


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    truncated,
    flipped,
    cut_out,
    doubled,
    retyped,
    nested,
    long_lengths,
)


@contextmanager
def a_limit(seconds: float) -> Iterator[None]:
    def too_long(*_: Any) -> None:
        raise AssertionError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.many
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_damaged_file_ends_in_an_answer_or_a_sentence(
    mutate: Callable[[bytes, random.Random], bytes], tmp_path: Path
) -> None:
    seeds = [(path, unpacked(path)) for path in SEEDS]
    answered = 0
    for number in range(FILES // len(MUTATIONS) + 1):
        rng = random.Random(f"{mutate.__name__} {number}")
        seed, data = rng.choice(seeds)
        data = mutate(data, rng)
        packed = rng.random() < 0.3
        path = tmp_path / (seed.name.removesuffix(".gz") + (".gz" if packed else ""))
        if packed:
            data = gzip.compress(data, 1)
            data = data[: rng.randrange(len(data))] if rng.random() < 0.3 else data
        path.write_bytes(data)
        try:
            with a_limit(LONGEST_S):
                answer = contract(analyse(path))
        except Problem as problem:
            assert problem.what.endswith((".", "?"))  # noqa: PT017  any sentence will do
            continue
        except Exception as error:
            kept = tmp_path / "broken"
            kept.write_bytes(data)
            raise AssertionError(f"{seed.name}, {mutate.__name__} {number}: {error!r}") from error
        answered += 1
        json.dumps(answer, allow_nan=False)
        assert screen(answer, name=path.name, top=5)
        hold(answer)
    # Most damage leaves something to read.
    assert answered > 0.2 * FILES / len(MUTATIONS)


def hold(answer: dict[str, Any]) -> None:
    """What is true of every answer, however damaged its file."""
    for device in answer["devices"]:
        budget = device["budget"]
        assert sum(budget["slices"].values()) == budget["total_ns"] == device["span_ns"]
        assert min(budget["slices"].values()) >= 0
        for name, parts in budget["details"].items():
            assert sum(parts.values()) == budget["slices"][name]
        assert device["busy_ns"] + device["idle_ns"] == device["span_ns"]
    by_slice: dict[str, int] = {}
    for place in answer["where"]:
        assert 0 <= place["share"] <= 1
        by_slice[place["slice"]] = by_slice.get(place["slice"], 0) + place["ns"]
    for name, ns in by_slice.items():
        # Picoseconds are rounded place by place.
        assert ns <= answer["budget"]["slices"][name] + len(answer["where"])
    for kernel in (*answer["top_kernels"], *answer["top_operators"]):
        assert kernel["total_ns"] >= 0
        assert 0 <= kernel["share"] <= 1

"""The compiled scanner and the reader in Python: the same columns, whatever the file holds."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples, many
from tests.traces.test_mutations import cut_out, doubled, flipped, retyped, truncated
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.traces import kineto
from whyidle.monitor.traces.kineto import reading, scanning
from whyidle.monitor.traces.model import Table
from whyidle.monitor.traces.opening import identify

pytestmark = pytest.mark.skipif(
    scanning.Scanner is None, reason="no C compiler: the scanner was not built"
)

DATA = Path(__file__).parents[1] / "data" / "traces"
FILES = sorted((DATA / "kineto").glob("*.gz")) + sorted((DATA / "real" / "kineto").glob("*.gz"))


def flat(value: Any) -> Any:
    """A trace as plain values, columns as lists with their types."""
    if isinstance(value, Table):
        return {name: flat(getattr(value, name)) for name in value.columns()}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), *value.tolist()]
    if isinstance(value, list | tuple):
        return [flat(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: flat(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def outcome(path: Path, chunk: int = 1 << 20) -> Any:
    try:
        return flat(kineto.read(identify(path), chunk=chunk))
    except Problem as error:
        return repr(error)


def both(path: Path, chunk: int = 1 << 20) -> tuple[Any, Any]:
    """What comes out with the scanner, and without it."""
    compiled = outcome(path, chunk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "scan_of", lambda _: None)
        return compiled, outcome(path, chunk)


class Counted:
    """How many pieces of a file the scanner took, and left."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.taken = self.left = 0
        take = scanning.Scan.take

        def counted(scan: scanning.Scan, piece: Any) -> bool:
            found = take(scan, piece)
            self.taken, self.left = self.taken + found, self.left + (not found)
            return found

        patch.setattr(scanning.Scan, "take", counted)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_recorded_file_gives_the_same_columns(file: Path) -> None:
    compiled, pure = both(file)
    assert compiled == pure
    assert isinstance(compiled, dict)


def test_it_reads_what_profilers_write(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for file in FILES:
        outcome(file)
    # The end of a file is looked at once more, for what follows the events.
    assert counted.taken > 0
    assert counted.left <= len(FILES)


# ------------------------------------------------------------------ events of all kinds

NUMBERS = st.one_of(
    st.integers(-5, 10**7).map(str),
    st.tuples(st.integers(0, 10**16), st.integers(0, 9999)).map(lambda p: f"{p[0]}.{p[1]}"),
    st.sampled_from(
        [
            "-0",
            "-0.5",
            "0.000",
            "1.0005",
            "1.5e3",
            "1E2",
            "01",
            "1.",
            ".5",
            "-",
            "-1.250",
            "1234567890123456.789",
            "2305843009213693.951",
            "2305843009213693",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "1e999",
            "8796093022208.001",
            "NaN",
            "Infinity",
        ]
    ),
)
TEXTS = st.one_of(
    st.sampled_from(
        [
            '"a"', '""', '"caf\u00e9 \u2603"', r'"\u0041\n\"\\\/"', r'"\ud83d\ude00"', r'"\ud83d"',
            r'"\udc00x"', r'"\x41"', '"tab\there"', '"0"', '"7"', '"' + "n" * 700 + '"', '"a\x00b"',
            r'"\u12"', '"[1, 2]"', '"float"', '"1.5"', '"}, {"', '"unclosed',
        ]
    ),
    st.text(max_size=12).map(json.dumps),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
)  # fmt: skip
OTHERS = st.sampled_from(["null", "true", "false", "[]", "{}", "[1, {}]", '{"a": [{"b": 1}]}', "x"])
VALUES = st.one_of(NUMBERS, TEXTS, OTHERS)
CATEGORIES = st.sampled_from(
    [
        "cpu_op",
        "kernel",
        "cuda_runtime",
        "python_function",
        "gpu_memcpy",
        "Trace",
        "user_annotation",
    ]
)
PHASES = st.sampled_from(["X"] * 12 + ["s", "f", "M", "i", "Z", "XX", ""])
ARGS = st.sampled_from(
    [
        "device", "stream", "correlation", "External id", "external id", "bytes", "Call stack",
        "name", "Collective name", "Process Group Name", "Seq", "dtype", "In msg nelems", "grid",
        "Input Dims",
    ]
)  # fmt: skip
SPACES = st.sampled_from(["", "", "", " ", "\n  ", "\t\r\n", "\x0b"])


@st.composite
def members(draw: st.DrawFn, pairs: list[tuple[str, str]]) -> str:
    space = draw(SPACES)
    return "{" + ",".join(f"{space}{key}{space}:{space}{value}" for key, value in pairs) + "}"


@st.composite
def events(draw: st.DrawFn) -> str:
    """Mostly sound, with a strange value here and there, a key twice, or one missing."""
    plain = draw(st.integers(0, 3))
    odd = VALUES if plain == 0 else st.nothing()
    sound = st.one_of(st.integers(0, 3).map(str), st.sampled_from(['"0"', '"a b"', '"stream 7"']))
    times = st.one_of(
        st.integers(0, 10**6).map(str),
        st.tuples(st.integers(0, 10**13), st.integers(0, 999)).map(lambda p: f"{p[0]}.{p[1]:03}"),
    )
    args = [
        (json.dumps(key), draw(st.one_of(sound, odd)))
        for key in draw(st.lists(ARGS, max_size=6, unique=plain > 0))
    ]
    pairs = [
        ('"ph"', json.dumps(draw(PHASES if plain < 2 else st.just("X")))),
        ('"cat"', draw(st.one_of(CATEGORIES.map(json.dumps), odd))),
        ('"name"', draw(st.one_of(st.sampled_from(['"f"', '"g<int>"', '"caf\u00e9"']), odd))),
        ('"pid"', draw(st.one_of(sound, odd))),
        ('"tid"', draw(st.one_of(sound, odd))),
        ('"ts"', draw(st.one_of(times, odd))),
        ('"dur"', draw(st.one_of(times, odd))),
        ('"args"', draw(st.one_of(members(args), odd))),
    ]
    if plain == 1:
        pairs.pop(draw(st.integers(0, len(pairs) - 1)))
    if plain == 0 and draw(st.booleans()):
        pairs.append(draw(st.sampled_from(pairs)))
        pairs.append((draw(TEXTS), draw(VALUES)))
    return draw(members(draw(st.permutations(pairs)) if plain == 0 else pairs))


@examples(2000)
@given(st.lists(events(), max_size=12), st.sampled_from([40, 500, 1 << 20]))
def test_whatever_events_hold_both_keep_the_same(
    tmp_path_factory: pytest.TempPathFactory, listed: list[str], chunk: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "events.json"
    text = '{"schemaVersion": 1, "traceEvents": [' + ",\n".join(listed) + "]}"
    path.write_bytes(text.encode(errors="surrogatepass"))
    compiled, pure = both(path, chunk)
    assert compiled == pure


def damaged(rng: random.Random, data: bytes) -> Iterator[bytes]:
    for damage in (truncated, flipped, cut_out, doubled, retyped):
        yield damage(data, rng)


@pytest.mark.parametrize("seed", range(many(40)))
def test_damaged_files_are_read_alike(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    whole = json.loads(gzip.decompress(rng.choice(FILES).read_bytes()))
    whole["traceEvents"] = whole["traceEvents"][: rng.randrange(20, 400)]
    data = json.dumps(whole, indent=rng.choice((None, 2))).encode()
    for text in damaged(rng, data):
        path = tmp_path / "trace.json"
        path.write_bytes(text)
        compiled, pure = both(path, rng.choice((1 << 10, 1 << 20)))
        assert compiled == pure


# ------------------------------------------------------------------ the scanner itself


def scanner() -> Any:
    return scanning.Scanner([(b"cpu_op", 2)], [(b"kernel", 0)])


def listed(*names: str) -> bytes:
    found = [{"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": 1} for n in names]
    return json.dumps(found).encode()


def new_names(found: Any) -> list[bytes]:
    return list(found[4][0])


def test_what_was_not_kept_is_new_again() -> None:
    own = scanner()
    assert new_names(own.scan(listed("a", "b"))) == [b'"a"', b'"b"']
    assert own.scan(listed(*(f"n{i}" for i in range(500)))[:-1]) is None
    assert new_names(own.scan(listed("b", "c"))) == [b'"b"', b'"c"']
    own.keep()
    found = own.scan(listed("c", "d", "b"))
    assert new_names(found) == [b'"d"']
    assert np.frombuffer(found[2][3], np.int32).tolist() == [1, 2, 0]


def test_thousands_of_names_keep_their_numbers() -> None:
    own, names = scanner(), [f"name {i}" for i in range(5_000)]
    for first in range(0, len(names), 700):
        own.scan(listed(*names[first : first + 700]))
        own.keep()
    found = own.scan(listed(*reversed(names)))
    assert not new_names(found)
    assert np.frombuffer(found[2][3], np.int32).tolist() == list(range(4_999, -1, -1))


@pytest.mark.parametrize("text", [b"", b"[", b"]", b"[]x", b"[{}]", b"[" * 10_000, b'[{"a":' * 300])
def test_what_is_no_list_of_events_is_left(text: bytes) -> None:
    assert scanner().scan(text) is None


def test_an_empty_list_is_one() -> None:
    assert scanner().scan(b" [ ] ")[0] == 0


def test_wrong_arguments_raise() -> None:
    with pytest.raises(TypeError):
        scanning.Scanner([("cpu_op", 2)], [])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="too many"):
        scanning.Scanner([(str(i).encode(), 0) for i in range(100)], [])
    with pytest.raises(TypeError):
        scanner().scan("[]")

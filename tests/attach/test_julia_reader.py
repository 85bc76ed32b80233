"""Julia's collector, read from outside: in libraries made like Julia's, and in a real Julia."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attach.targets import running, target_of
from tests.conftest import ROOT
from whyidle.monitor.attach import julia_reader
from whyidle.monitor.attach.julia_reader import LAYOUTS, Counters, JuliaReader, makes_sense
from whyidle.monitor.attach.stack_reader.unreadable import Unreadable

# The struct as the sources of each version have it, up to what is read.
LIBRARY = """
#include <stdint.h>
#include <stddef.h>
#define HIDDEN __attribute__((visibility(VISIBILITY)))
HIDDEN struct {
  int64_t allocd, deferred_alloc, freed;
  uint64_t malloc, realloc, poolalloc, bigalloc, freecall, total_time, total_allocd;
#if SINCE_SWEEP
  uint64_t since_sweep;
#endif
  size_t interval;
  int pause, full_sweep;
  uint64_t max_pause, max_memory;
} gc_num = {-5, 1, 2, 3, 4, 5, 6, 7, 8000, 9000,
#if SINCE_SWEEP
  10,
#endif
  11, PAUSES, 3, 14, 15};
HIDDEN int64_t live_bytes = 70000;
uint64_t NAME(jl_gc_total_hrtime)(void) { return TOTAL; }
int64_t NAME(jl_gc_live_bytes)(void) { return live_bytes; }
const char *NAME(jl_ver_string)(void) { return VERSION; }
"""
LOADED = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[object]:
    """Make a library like Julia's and load it into a process; returns a reader of that."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("a library like Julia's needs a C compiler: apt-get install gcc libc6-dev")

    @contextmanager
    def reader(
        version: str, *flags: str, name: str = "libjulia-internal.so.1", **defined: str
    ) -> Iterator[JuliaReader]:
        minor = int(version.split(".")[1])
        values = {
            "VERSION": f'"{version}"',
            "VISIBILITY": '"hidden"',
            "SINCE_SWEEP": str(int(minor < 10)),
            "NAME(x)": "x" if minor < 8 else "i##x",
            "PAUSES": "20",
            "TOTAL": "gc_num.total_time",
            **defined,
        }
        source, library = tmp_path / "julia.c", tmp_path / name
        source.write_text(LIBRARY)
        macros = [f"-D{each}={value}" for each, value in values.items()]
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", *flags, *macros, "-o", library, source],
            check=True,
        )
        with running(LOADED.replace("sys.argv[1]", repr(str(library)))) as job:
            opened = JuliaReader(target_of(job.pid))
            try:
                yield opened
            finally:
                opened.close()

    return reader


WHOLE = Counters(8000, 20, 3, 9000, 70000)


@pytest.mark.parametrize("version", ["1.5.3", "1.7.0", "1.9.4", "1.10.4", "1.12.1", "1.13.0-rc1"])
def test_all_counters_of_the_known_versions(made, version: str) -> None:  # type: ignore[no-untyped-def]
    with made(version) as reader:
        assert (reader.version, reader.only_total) == (version, None)
        assert reader.read() == WHOLE


def test_each_version_has_one_layout_without_gaps() -> None:
    assert sorted(LAYOUTS) == [(1, minor) for minor in range(5, 14)]


@pytest.mark.parametrize(
    "flags",
    [("-fcf-protection=full",), ("-fno-omit-frame-pointer",), ("-DGLOBAL",)],
    ids=["marked", "frame pointer", "by address"],
)
def test_code_of_other_builds(made, flags: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    shown = {"VISIBILITY": '"default"'} if "-DGLOBAL" in flags else {}
    with made("1.11.2", *flags, **shown) as reader:
        read = reader.read()
        assert read is not None
        assert (read.pause_ns, read.pauses, read.allocated) == (8000, 20, 9000)


def test_of_an_unknown_version_the_time_alone(made) -> None:  # type: ignore[no-untyped-def]
    with made("1.99.0") as reader:
        assert reader.read() == Counters(8000, alive=70000)
        assert reader.only_total is not None
        assert "Julia 1.99.0" in reader.only_total


def test_counters_that_cannot_be_are_not_read(made) -> None:  # type: ignore[no-untyped-def]
    # Fewer pauses than full ones.
    with made("1.11.2", PAUSES="2") as reader:
        assert reader.read() == Counters(8000, alive=70000)
        assert "are not what Julia 1.11.2 has there" in str(reader.only_total)


@pytest.mark.parametrize(
    "defined",
    [{"TOTAL": "gc_num.total_time+1"}, {"TOTAL": "0"}, {"NAME(x)": "other_##x"}],
    ids=["more than a load", "no load", "not exported"],
)
def test_code_that_we_do_not_know_is_said_and_not_read(made, defined: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    with (
        pytest.raises(Unreadable, match="is not the one load that we know"),
        made("1.11.2", **defined),
    ):
        pass


def test_the_library_of_a_program_that_brings_julia_along(made) -> None:  # type: ignore[no-untyped-def]
    with made("1.12.1", name="IClx_libjulia-internal.so.1.12") as reader:
        assert reader.read() == WHOLE


def test_a_version_that_the_library_does_not_say_is_taken_from_its_name(made) -> None:  # type: ignore[no-untyped-def]
    with made("1.9.4", name="libjulia-internal.so.1.9", VERSION="0") as reader:
        assert reader.version == "1.9"
        assert reader.read() == WHOLE


def test_a_process_without_julia(tmp_path: Path) -> None:
    with running() as job, pytest.raises(Unreadable, match=r"No library of Julia's was found"):
        JuliaReader(target_of(job.pid))


def test_a_process_that_has_ended() -> None:
    with running() as job:
        target = target_of(job.pid)
    with pytest.raises(Unreadable):
        JuliaReader(target)


@pytest.mark.parametrize(
    ("counters", "fits"),
    [
        (Counters(0, 0, 0, 0), True),
        (Counters(9, 0, 0, 5), False),
        (Counters(0, 3, 0, 5), False),
        (Counters(9, 3, -1, 5), False),
        (Counters(9), False),
    ],
)
def test_whether_counters_can_be(counters: Counters, fits: bool) -> None:
    assert makes_sense(counters) is fits


def test_on_another_processor_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(julia_reader.platform, "machine", lambda: "riscv64")
    with pytest.raises(Unreadable, match="not read from outside on riscv64"):
        JuliaReader(target_of(os.getpid()))


COUNTS = r"""
keep = Any[]
for turn in 1:400
    push!(keep, [rand(50) for _ in 1:2000])
    length(keep) > 50 && popfirst!(keep)
end
GC.gc()
GC.enable(false)
println("ready"); flush(stdout)
readline()
n = Base.gc_num()
println(join((n.total_time, n.pause, n.full_sweep, n.total_allocd, VERSION), " "))
"""


def test_a_real_julia_says_the_same_itself() -> None:
    julia = ROOT / ".venv" / "bin" / "julia"
    if not julia.exists():
        pytest.skip("no Julia here: .ci/julia gets one on Debian amd64")
    job = subprocess.Popen(
        [julia, "--startup-file=no", "-e", COUNTS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        reader = JuliaReader(target_of(job.pid))
        read = reader.read()
        said = job.communicate("\n")[0].split()
    finally:
        job.kill()
    assert read is not None
    assert [str(x) for x in (read.pause_ns, read.pauses, read.full, read.allocated)] == said[:4]
    assert reader.version == said[4]
    assert read.pauses is not None
    assert read.pauses > 3
    assert read.full
    # What has ended is no error.
    assert reader.read() is None
    reader.close()


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(julia_reader._IN_TEXT, b"1.10.0-rc2")
    assert not re.match(julia_reader._IN_TEXT, b"\x00\x01")

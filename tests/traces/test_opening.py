from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import socket
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.core import errors
from whyidle.monitor.store.schema import APPLICATION_ID
from whyidle.monitor.traces import file_types, opening
from whyidle.monitor.traces.opening import identify

KINETO = b'\n{\n  "schemaVersion": 1,\n  "traceEvents": []}'
XSPACE = b"\x0a\x0d\x08\x01\x12\x09/host:CPU"
# A packet: time, writer, sequence; and one that holds a tree of processes.
PERFETTO = b"\x0a\x07\x40\x90\x4e\x18\x01\x50\x02"
TREE = b"\x0a\x0b\x12\x05\x0a\x03\x08\x01\x10\x18\x00\x50\x01"

Put = Callable[[bytes], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def _put(content: bytes, name: str = "file") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return _put


def refusal(path: Path) -> str:
    with pytest.raises(errors.Problem) as caught:
        identify(path)
    assert caught.value.next_step
    return caught.value.what


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (KINETO, "kineto"),
        (b"\xef\xbb\xbf" + KINETO, "kineto"),
        (b'[{"ph": "X"}]', "kineto"),
        (b'{"deviceProperties": [' + b" " * 100_000, "kineto"),
        (XSPACE, "xplane"),
        (b"\x0a\xff\xff\x7f\x12\x09/host:CPU", "xplane"),
        (b"\x0a\x0b\x12\x09/host:CPU", "xplane"),
        (b"SQLite format 3\0" + b"\0" * 84, "nsys"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_kind_is_told_by_content(
    put: Put, content: bytes, kind: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(content)
    source = identify(put(packed))
    assert (source.format, source.compressed) == (kind, pack is gzip.compress)
    assert source.size == len(packed)
    for _ in range(2):
        with source.open() as opened:
            assert opened.read(10**6) == content
            assert opened.damage is None
            assert (opened.position, opened.consumed) == (len(content), len(packed))


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("trace.json"))
    return made.getvalue()


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("trace.json", KINETO)
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"{}", "a JSON file without traceEvents"),
        (b'{"a": 1}\n{"a": 2}\n', "a JSON file without traceEvents"),
        (b"[1, 2]", "a JSON list that is no list"),
        (b"[]", "a JSON list that is no list"),
        (b'[{"name": "a"}]', "a JSON list that is no list"),
        (PERFETTO, "a Perfetto trace"),
        (TREE, "a Perfetto trace"),
        (b"\x0a\x02\x52\x00\x12\x00", "a protobuf file of another kind"),
        (b"\0" * 5000, "nothing but zero bytes"),
        (_zip(), "a zip archive"),
        (_tar(), "a tar archive"),
        (bz2.compress(KINETO), "compressed with bzip2"),
        (lzma.compress(KINETO), "compressed with xz"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "compressed with zstd"),
        (b"\x7fELF\x02\x01\x01", "ELF"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"  <html lang=en>", "a web page"),
        (b"<?xml version='1.0'?>", "an XML file"),
        (pickle.dumps({"segments": []}), "a pickle"),
        (b"step 1 loss 0.5\n\x1b[31mstep 2\x1b[0m\n", "plain text"),
        ("{}".encode("utf-16"), "UTF-16"),
        (bytes(range(256)), "no kind of file that is known"),
    ],
)
def test_other_kinds_get_a_sentence(put: Put, content: bytes, words: str) -> None:
    assert words in refusal(put(content))
    if content:
        inside = refusal(put(gzip.compress(content)))
        assert words in inside
        assert "gzip, and inside" in inside


def test_a_store_of_ours_is_known(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE a (b)")
    connection.commit()
    assert identify(path).format == "nsys"
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.commit()
    connection.close()
    assert "our own recordings" in refusal(path)


@pytest.mark.parametrize("name", ["report.nsys-rep", "old.qdrep", "raw.qdstrm", "report.NSYS-REP"])
@pytest.mark.parametrize("content", [bytes(range(256)), b"PK\x03\x04zipped"])
def test_a_report_of_nsight_systems_is_known_by_its_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(errors.UsageProblem) as caught:
        identify(path)
    assert "Nsight Systems" in caught.value.what
    assert "nsys export --type sqlite" in caught.value.next_step
    if not name.endswith(".qdstrm"):
        assert f"-o trace.sqlite {path} && monitor trace" in caught.value.next_step
    # What is inside counts more than the name.
    path.write_bytes(KINETO)
    assert identify(path).format == "kineto"


def test_a_name_with_control_characters_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\x1b[31m\n\xff\xc3\xa9")
    path.write_bytes(b"")
    assert "a\\x1b[31m\\n\\xff\u00e9 is empty" in refusal(path)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "is a pipe" in refusal(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert "is a socket" in refusal(tmp_path / "socket")
    assert "is a device" in refusal(Path("/dev/null"))
    assert "There is no file" in refusal(tmp_path / "none")
    assert "There is no file" in refusal(Path(__file__) / "none")
    assert "cannot be opened" in refusal(tmp_path / ("x" * 300))
    assert "no name that a file can have" in refusal(Path("a\0b"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "cannot be opened" in refusal(loop)


def test_a_file_that_is_closed_to_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(opening, "open_file", refuse)
    with pytest.raises(errors.NotPermitted, match="may not read"):
        identify(tmp_path / "a")


def test_a_folder_names_its_newest_trace(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)
    for age, name in enumerate(["new.pt.trace.json.gz", "old.xplane.pb"]):
        path = tmp_path / "plugins" / "profile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(KINETO)
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "plugins" / "notes.txt").write_text("newest, no trace")
    with pytest.raises(errors.UsageProblem) as caught:
        identify(tmp_path)
    assert caught.value.next_step.endswith("plugins/profile/new.pt.trace.json.gz")


def test_a_folder_is_looked_through_with_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_ENTRIES", 20)
    for number in range(50):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "a.json").touch()
    (tmp_path / "0" / "up").symlink_to(tmp_path)
    assert len(list(opening.traces_in(tmp_path))) <= 20


@given(st.binary(max_size=400))
@examples(300)
def test_no_head_confuses(head: bytes) -> None:
    for begin in (b"", b"\x0a", b"{", b"SQLite format 3\0"):
        if file_types.format_of(begin + head, whole=True) is None:
            assert all(file_types.describe(begin + head, ".json"))


def test_a_gzip_without_content(put: Put) -> None:
    assert "cut off" in refusal(put(gzip.compress(KINETO)[:10]))
    assert "compressed twice" in refusal(put(gzip.compress(gzip.compress(KINETO))))
    assert "holds nothing" in refusal(put(gzip.compress(b"")))


@pytest.mark.parametrize("length", [ord("["), ord("{")])
def test_a_plane_whose_length_looks_like_a_bracket_is_no_json(length: int, tmp_path: Path) -> None:
    name = b"/host:CPU"
    plane = b"\x12" + bytes([len(name)]) + name
    rest = length - len(plane) - 2
    plane += b"\x32" + bytes([rest]) + b"\0" * rest
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(b"\x0a" + bytes([length]) + plane)
    assert opening.identify(file).format == "xplane"

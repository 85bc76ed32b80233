"""Exports that are damaged, strange or none: a sentence or an answer, never a traceback."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.longer import many
from tests.traces.nsys_file import COLUMNS, GENERATIONS, PID, Export, Span, Story, write
from tests.traces.test_mutations import LONGEST_S, a_limit, flipped, hold, truncated
from tests.traces.test_nsys import training
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.render.trace import screen
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.loading import load

ODD: tuple[Any, ...] = (
    None, "", "text", "12", b"\x00\xff", 1.5, float("inf"), -1, 0, 2**63 - 1, -(2**63), 2**61, -5,
)  # fmt: skip
READ = [table for table in COLUMNS if table.startswith(("CUPTI", "NVTX", "OSRT", "String", "PROF"))]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    story, _ = training()
    story.spans.append(Span("wait", "poll", 0, 10**6, tid=9))
    return write(story, tmp_path / "a.sqlite")


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


def refusal(path: Path) -> UsageProblem:
    with pytest.raises(UsageProblem) as caught:
        load(path)
    assert caught.value.next_step
    return caught.value


# ---------------------------------------------------------------------- what is no export


def test_a_database_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path / "cookies.db", "CREATE TABLE cookies (start, end)")
    problem = refusal(path)
    assert "no export of Nsight Systems: it has none of the tables" in problem.what
    assert "nsys export --type sqlite" in problem.next_step


def test_a_database_without_tables_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path / "empty.db", "CREATE TABLE a (b)", "DROP TABLE a")
    assert "it has no tables" in refusal(path).what


def test_a_view_is_not_asked(tmp_path: Path) -> None:
    """Somebody's schema may count to the end of days."""
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    path = changed(tmp_path / "trap.db", f"CREATE VIEW NVTX_EVENTS AS {endless}")
    with a_limit(LONGEST_S):
        assert "no export" in refusal(path).what


def test_tables_that_are_still_in_the_journal(tmp_path: Path, export: Path) -> None:
    path = tmp_path / "live.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("CREATE TABLE NVTX_EVENTS (start, end)")
        db.commit()
        problem = refusal(path)
        assert "still in its journal" in problem.what
        assert "PRAGMA wal_checkpoint" in problem.next_step
    # Beside tables that can be read, it is a warning.
    Path(f"{export}-wal").write_bytes(b"x")
    assert any("was not read" in warning for warning in load(export).warnings)


def test_a_name_with_odd_characters_opens(export: Path) -> None:
    odd = export.rename(export.with_name("a b?c#d%20é.sqlite"))
    assert load(odd).devices


def test_nothing_is_written_beside_the_file(export: Path) -> None:
    before = (export.read_bytes(), sorted(export.parent.iterdir()))
    load(export)
    assert (export.read_bytes(), sorted(export.parent.iterdir())) == before


@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.7, 0.99])
def test_a_truncated_export_is_told(export: Path, share: float) -> None:
    data = export.read_bytes()
    export.write_bytes(data[: int(len(data) * share)])
    try:
        warnings = load(export).warnings
    except UsageProblem as problem:
        assert "damaged SQLite file" in problem.what  # noqa: PT017
    else:
        assert "cut off" in warnings[0]


def test_a_file_without_cuda_says_how_to_record_it(tmp_path: Path) -> None:
    story = Story(spans=[Span("place", "forward", 0, 10), Span("wait", "poll", 0, 10)])
    answer = contract(analyse(write(story, tmp_path / "a.sqlite")))
    assert answer["devices"] == []
    said = " ".join(answer["warnings"])
    assert "no work of CUDA" in said
    assert "--trace=cuda,nvtx,osrt" in said


def test_empty_tables_are_an_answer(tmp_path: Path) -> None:
    path = write(training()[0], tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as db:
        there = [name for (name,) in db.execute("SELECT name FROM sqlite_master")]
    changed(path, *(f"DELETE FROM {table}" for table in there))
    answer = contract(analyse(path))
    assert answer["devices"] == []
    assert answer["warnings"]


# ---------------------------------------------------------------------- what an export may lack


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
                                   "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds",
                                   "ThreadNames", "TARGET_INFO_GPU"])  # fmt: skip
def test_any_column_may_be_missing(export: Path, table: str) -> None:
    data = export.read_bytes()
    for column in COLUMNS[table]:
        export.write_bytes(data)
        changed(export, f'ALTER TABLE {table} DROP COLUMN "{column}"')
        answer = contract(analyse(export))
        hold(dict(answer))
        if column in ("start", "end"):
            assert any(f"Table {table} has no start or no end" in w for w in answer["warnings"])
        assert answer["devices"]


@pytest.mark.parametrize("table", READ)
def test_any_table_may_be_missing(export: Path, table: str) -> None:
    changed(export, f"DROP TABLE IF EXISTS {table}")
    hold(dict(contract(analyse(export))))


def test_names_fall_back_on_others(tmp_path: Path) -> None:
    path = write(training()[0], tmp_path / "a.sqlite", 2024)
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = NULL")
    names = {kernel["name"] for kernel in contract(analyse(path))["top_kernels"]}
    assert names == {"ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
    changed(path, "DROP TABLE StringIds")
    assert {k["name"] for k in contract(analyse(path))["top_kernels"]} == {"(no name)"}


@pytest.mark.parametrize("number", [-5, -(2**63), 2**63 - 1, 1.5])
def test_a_name_that_is_no_id_is_none(export: Path, number: float) -> None:
    changed(export, f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = {number}",
            f"UPDATE NVTX_EVENTS SET textId = {number}, text = NULL")  # fmt: skip
    calls = contract(analyse(export))["calls"]
    assert {call["name"] for call in calls} <= {"(no name)", "poll"}


def test_capital_letters_do_not_matter(export: Path) -> None:
    wanted = contract(analyse(export))["budget"]
    changed(export, 'ALTER TABLE NVTX_EVENTS RENAME COLUMN "globalTid" TO GLOBALTID',
            "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO x",
            "ALTER TABLE x RENAME TO cupti_activity_kind_kernel")  # fmt: skip
    assert contract(analyse(export))["budget"] == wanted


def test_ranges_that_never_ended_and_times_that_cannot_be_are_counted(export: Path) -> None:
    changed(
        export,
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid)"
        f" VALUES (5, NULL, 59, 'step 99', {PID << 24 | PID})",
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text) VALUES ('soon', 7, 59, 'step 99')",
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end) VALUES (0, 0)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end) VALUES (90000000, 80000000)",
    )
    said = load(export).warnings
    assert "1 range had not ended when the recording did: left out." in said
    assert "2 events could not be read: no time that can be." in said
    assert "1 event ended before the start: taken as without duration." in said


@pytest.mark.parametrize("generation", GENERATIONS)
def test_nothing_at_all_in_any_generation(tmp_path: Path, generation: Any) -> None:
    export = Export(tmp_path / "a.sqlite", generation)
    export.string("lonely")
    export.close()
    assert contract(analyse(tmp_path / "a.sqlite"))["devices"] == []


# ---------------------------------------------------------------------- by chance


def odd_values(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as db:
        for _ in range(rng.choice((1, 5, 40))):
            table = rng.choice(READ)
            column = rng.choice(list(COLUMNS[table]))
            where = "" if rng.random() < 0.1 else f"WHERE rowid % 7 = {rng.randrange(7)}"
            try:
                db.execute(f'UPDATE {table} SET "{column}" = ? {where}', (rng.choice(ODD),))
            except sqlite3.Error:
                continue  # the table, or the constraint, is not there to be broken
        db.commit()


def on_bytes(change: Callable[[bytes, random.Random], bytes]) -> Callable[..., None]:
    return lambda path, rng: path.write_bytes(change(path.read_bytes(), rng)) and None


CHANGES = {"odd values": odd_values, "flipped": on_bytes(flipped), "truncated": on_bytes(truncated)}


@pytest.mark.many
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happened_to_it_there_is_an_answer(change: str, export: Path) -> None:
    data, answered, tries = export.read_bytes(), 0, many(300) // len(CHANGES) + 1
    for number in range(tries):
        export.write_bytes(data)
        rng = random.Random(f"{change} {number}")
        CHANGES[change](export, rng)
        try:
            with a_limit(LONGEST_S):
                answer = dict(contract(analyse(export)))
        except Problem as problem:
            assert problem.what.endswith((".", "?"))  # noqa: PT017  any sentence will do
            continue
        except Exception as error:
            raise AssertionError(f"{change} {number}: {error!r}") from error
        answered += 1
        json.dumps(answer, allow_nan=False)
        assert screen(answer, name="a.sqlite", top=5)  # type: ignore[arg-type]
        hold(answer)
    assert answered > 0.2 * tries

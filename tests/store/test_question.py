"""Questions in SQL of somebody else: they see the views, change nothing, and end soon."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from pathlib import Path

import pytest

from tests.dashboard.pairs import make
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.store import schema, views
from whyidle.monitor.store.question import LONGEST_SQL, ask, described


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asked") / "whyidle.db"
    make(path)
    return path


def test_the_views_have_what_the_tables_have(store: Path) -> None:
    found = ask(store, "SELECT run, label, seconds, ended FROM runs ORDER BY run")
    assert found.columns == ["run", "label", "seconds", "ended"]
    assert [row[:2] for row in found.rows] == [[1, "before"], [2, "after"]]
    assert all(row[3] == "the job ended" for row in found.rows)
    (row,) = ask(
        store,
        "WITH mine AS (SELECT * FROM job_seconds WHERE run = 1)"
        " SELECT count(*), avg(loader_wait_ratio), min(at_s), max(at_s) FROM mine",
    ).rows
    assert row == [60, pytest.approx(0.65), 0.0, 59.0]
    minutes = ask(
        store, "SELECT loader_wait_ratio, steps_per_second FROM job_minutes WHERE run = 1"
    )
    assert minutes.rows
    assert all(row == [pytest.approx(0.65), pytest.approx(25.0)] for row in minutes.rows)
    shares = ask(
        store,
        "SELECT part, sum(seconds) FROM trace_slices JOIN traces USING (trace) WHERE run = 1"
        " GROUP BY part ORDER BY 2 DESC",
    )
    assert next(iter(shares.rows), ["idle_input"])[0] == "idle_input"


def test_each_view_can_be_read_and_is_described(store: Path) -> None:
    said = described(store)
    for name, says in views.names():
        assert ask(store, f"SELECT * FROM {name} LIMIT 1").columns
        assert f"{name}: {says}\n" in said
    assert "loader_wait_ratio" in said
    private = {"user", "host", "command", "info", "data", "container"}
    columns = [
        each for name, _ in views.names() for each in ask(store, f"SELECT * FROM {name}").columns
    ]
    assert not private & set(columns)
    known = {metric.column for metric in metrics_of(Scope.JOB)}
    assert known <= set(ask(store, "SELECT * FROM job_seconds LIMIT 0").columns)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM run",
        "SELECT count(command) FROM run",
        "SELECT command FROM main.run",
        "SELECT user FROM process",
        "SELECT * FROM temp.sqlite_master",
        "SELECT sql FROM sqlite_master",
        "SELECT sql FROM sqlite_temp_schema",
        "SELECT * FROM job_sample",
        "SELECT * FROM pragma_table_info('run')",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM dbstat",
        # A part of the question that goes by the name of a view.
        "WITH runs AS (SELECT * FROM run) SELECT * FROM runs",
        "WITH RECURSIVE runs AS (SELECT user FROM run UNION SELECT * FROM runs) SELECT * FROM runs",
        "SELECT * FROM (SELECT * FROM run) AS runs",
        "SELECT (SELECT max(command) FROM run) FROM runs",
        "SELECT * FROM runs WHERE EXISTS (SELECT 1 FROM run WHERE user = 'root')",
    ],
)
def test_no_table_is_read_but_through_a_view(store: Path, sql: str) -> None:
    with pytest.raises(UsageProblem):
        ask(store, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '/etc/passwd' AS p",
        "ATTACH ':memory:' AS p",
        "DETACH main",
        "DELETE FROM run",
        "UPDATE run SET label = 'x'",
        "INSERT INTO run (started_ms) VALUES (1)",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t AS SELECT * FROM run",
        "CREATE TEMP VIEW w AS SELECT * FROM run",
        "DROP TABLE run",
        "DROP VIEW runs",
        "VACUUM",
        "VACUUM INTO '/tmp/stolen.db'",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA temp_store_directory = '/tmp'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "SAVEPOINT x",
        "EXPLAIN SELECT * FROM run",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT writefile('/tmp/x', 'x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT 1; DELETE FROM run",
        "SELECT",
        "",
        "\0",
        "SELECT * FROM runs WHERE label = ?",
        "SELECT zeroblob(1000000000)",
        "SELECT printf('%.*c', 1000000000, 'x')",
        "SELECT 1 " + "+1" * 4000,
        "x" * (LONGEST_SQL + 1),
        "SELECT '\ud800'",
    ],
)
def test_whatever_else_is_asked_is_refused_in_a_sentence_and_changes_nothing(
    store: Path, sql: str
) -> None:
    def content() -> list[str]:
        # A reader may leave the index of the log behind.
        files = [p for p in sorted(store.parent.iterdir()) if not p.name.endswith(("-shm", "-wal"))]
        return [f"{p.name} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in files]

    before = content()
    try:
        rows = ask(store, sql).rows
    except Problem:
        rows = []
    # Text that grew too long is unknown.
    assert rows in ([], [[None]])
    assert content() == before
    assert not Path("/tmp/stolen.db").exists()


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
        "SELECT count(*) FROM job_seconds a, job_seconds b, job_seconds c, job_seconds d",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n ORDER BY 1",
        # One function that goes on for seconds.
        "SELECT instr(zeroblob(1000000), cast(zeroblob(500000) || '' AS blob) || x'01')",
        "SELECT length(replace(hex(zeroblob(400000)), hex(zeroblob(20000)) || '1', 'x'))",
    ],
)
def test_a_question_without_end_is_ended(store: Path, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(UsageProblem, match=r"longer than 0\.3 s"):
        ask(store, sql, seconds=0.3)
    assert time.monotonic() - began < 3


def test_what_json_has_no_number_for_is_text(store: Path) -> None:
    assert ask(store, "SELECT 9e999, -9e999, 1.5").rows == [["inf", "-inf", 1.5]]


def test_rows_and_values_are_limited(store: Path) -> None:
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 9999)"
    found = ask(store, f"{many} SELECT x FROM n")
    assert (len(found.rows), found.more) == (200, True)
    assert ask(store, "SELECT x'00ff' AS b").rows == [["2 bytes"]]
    assert not ask(store, "SELECT 1").more


def test_an_answer_of_any_size_costs_little_memory(store: Path) -> None:
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300)"
    found = ask(store, f"{many} SELECT {', '.join(['zeroblob(500000)'] * 20)} FROM n")
    assert found.more
    assert found.rows == [["500000 bytes"] * 20]
    with pytest.raises(UsageProblem, match="MiB"):
        ask(store, f"SELECT {', '.join(['zeroblob(1000000)'] * 400)}")


def test_an_older_file_has_the_views_that_it_can_have(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE run (id INTEGER PRIMARY KEY, label TEXT, started_ms INTEGER,"
        " ended_ms INTEGER, end_reason TEXT, script TEXT, framework TEXT, python TEXT,"
        " exit_code INTEGER);"
        "INSERT INTO run VALUES (1, 'x', 0, 1000, 'ended', 's', 'f', 'p', 0);"
        f"PRAGMA application_id = {schema.APPLICATION_ID}; PRAGMA user_version = 1;"
    )
    connection.close()
    assert ask(path, "SELECT run, seconds FROM runs").rows == [[1, 1.0]]
    with pytest.raises(UsageProblem, match="no such table"):
        ask(path, "SELECT * FROM job_seconds")


def test_no_store_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no recordings"):
        ask(tmp_path / "none.db", "SELECT 1")

"""Courses: what was known stands where it was, what was not is a gap with its reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.dashboard.gpu_jobs import Job, job
from whyidle.dashboard.views import time_range as spans
from whyidle.dashboard.views.cache import _KEPT, forget_others, remember
from whyidle.dashboard.views.csv_export import as_csv
from whyidle.dashboard.views.series import NEVER_READ, SeriesSource, Subject
from whyidle.dashboard.views.time_range import ALL, MOST_POINTS, TimeRange
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import LOST, UNSUPPORTED
from whyidle.monitor.store import Reader


@pytest.fixture
def made(tmp_path: Path) -> Job:
    found = job(tmp_path / DATABASE, gpus=3, seconds=300, lost=100)
    found.end()
    return found


@pytest.fixture
def source(made: Job) -> Iterator[SeriesSource]:
    with Reader.open(made.writer.path) as reader:
        run = reader.find("last")
        yield SeriesSource(reader, run.id, spans.of(reader, run, ALL, made.ts_ms))


def subjects(made: Job) -> list[Subject]:
    return [Subject(gpu, f"GPU {i}") for i, gpu in enumerate(made.gpus)]


def test_a_chart_of_many_lines_has_no_more_points_than_one(source: SeriesSource, made: Job) -> None:
    all_series = source.of(m.GPU_POWER, subjects(made) * 8)
    assert sum(len(series.times) for series in all_series) <= MOST_POINTS


def test_a_lost_gpu_leaves_a_gap_and_the_mean_too(source: SeriesSource, made: Job) -> None:
    mean = source.mean(m.GPU_UTILISATION, subjects(made))
    known = [time for time, value in zip(mean.times, mean.values, strict=True) if value is not None]
    assert known[-1] < made.ts_ms - 95_000
    assert mean.times[-1] > made.ts_ms - 5_000
    least, most = mean.least[0], mean.most[0]
    assert least is not None
    assert most is not None
    assert least < mean.values[0] < most  # type: ignore[operator]


def test_the_mean_of_one_keeps_its_least_and_most(source: SeriesSource, made: Job) -> None:
    assert source.mean(m.GPU_POWER, subjects(made)[:1]).least


def test_what_is_unknown_says_why(source: SeriesSource, made: Job) -> None:
    assert source.why_not(m.GPU_POWER, made.gpus[-1]) == LOST
    assert source.one(m.GPU_XID, made.gpus[0]).unknown == UNSUPPORTED
    assert source.one(m.HOST_CPU, made.run).unknown == NEVER_READ


def test_a_peak_is_when_it_was_highest(source: SeriesSource, made: Job) -> None:
    series = source.of(m.GPU_POWER, subjects(made)[:1])[0]
    peak = series.peak
    assert peak is not None
    assert peak[1] == max(value for value in series.most if value is not None)
    around = source.span.around(peak[0])
    assert around.start_ms <= peak[0] <= around.end_ms
    assert around.seconds < source.span.seconds
    assert around.name != source.span.name


def test_what_stands_still_is_read_once(
    source: SeriesSource, made: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = source.of(m.GPU_POWER, subjects(made))
    monkeypatch.setattr(Reader, "series", None)
    assert source.of(m.GPU_POWER, subjects(made)) == first


def test_another_file_with_a_run_of_that_number_is_read_again(
    source: SeriesSource, made: Job, tmp_path: Path
) -> None:
    first = source.one(m.JOB_CPU, made.run)
    other = job(tmp_path / "other" / DATABASE, gpus=1, seconds=100, ago=1000)
    other.end()
    with Reader.open(other.writer.path) as reader:
        again = SeriesSource(reader, made.run, source.span).one(m.JOB_CPU, made.run)
    assert again != first


def test_a_table_has_a_column_for_each_line_and_nothing_for_what_is_unknown(
    source: SeriesSource, made: Job
) -> None:
    all_series = [*source.of(m.GPU_POWER, subjects(made)), source.one(m.JOB_STEP_P50, made.run)]
    head, *rows = as_csv([*all_series, source.one(m.HOST_CPU, made.run)]).splitlines()
    assert head == "time,GPU 0: power (W),GPU 1: power (W),GPU 2: power (W),step p50 (s)"
    assert rows[0].count(",") == 4
    assert rows[-1].split(",")[3] == ""
    assert rows[0].startswith("20")


def test_a_table_leaves_no_cell_empty_that_is_known(source: SeriesSource, made: Job) -> None:
    fine = source.of(m.GPU_POWER, subjects(made)[:1], 150)[0]
    coarse = source.of(m.JOB_CPU, [Subject(made.run, "job")], 40)[0]
    assert len(fine.times) > 1.5 * len(coarse.times)
    _, *rows = as_csv([fine, coarse]).splitlines()
    assert len(rows) >= len(coarse.times)
    assert all(cell for row in rows for cell in row.split(","))


def test_lines_of_one_table_have_the_same_points(source: SeriesSource, made: Job) -> None:
    table = replace(source, grid=50)
    several = table.of(m.GPU_POWER, subjects(made)[:2])
    mean = table.mean(m.GPU_UTILISATION, subjects(made)[:2], points=160)
    assert len({tuple(series.times) for series in (*several, mean)}) == 1
    assert source.mean(m.GPU_UTILISATION, subjects(made)[:2], points=160).times != mean.times


def test_what_was_answered_of_a_file_that_is_gone_is_let_go(
    source: SeriesSource, made: Job
) -> None:
    source.one(m.JOB_CPU, made.run)
    assert any(question[0] is source.reader for question in _KEPT)
    another = object()
    remember((another, "what"), lambda: 1)
    forget_others(another)
    assert list(_KEPT) == [(another, "what")]


@pytest.mark.parametrize("name", spans.RANGES)
def test_every_range_of_a_live_run_ends_now(tmp_path: Path, name: str) -> None:
    made = job(tmp_path / DATABASE, gpus=1, seconds=200)
    with Reader.open(made.writer.path) as reader:
        run = reader.find("last")
        span = spans.of(reader, run, name, made.ts_ms)
    made.end()
    assert span.is_live
    assert run.started_ms <= span.start_ms < span.end_ms
    assert made.ts_ms - span.end_ms <= 50_000
    wanted = spans.RANGES[name]
    assert wanted is None or span.seconds <= wanted + 1


def test_a_long_span_moves_on_in_leaps_so_that_its_charts_stand_still(tmp_path: Path) -> None:
    made = job(tmp_path / DATABASE, gpus=1, seconds=20)
    with Reader.open(made.writer.path) as reader:
        run = reader.find("last")
        ticks = [made.ts_ms + 60_000 + i * 1000 for i in range(60)]
        ends = {spans.of(reader, run, "24h", tick).end_ms for tick in ticks}
        minute = {spans.of(reader, run, "1m", tick).end_ms for tick in ticks}
    made.end()
    assert len(ends) <= 3
    assert len(minute) == 60


def test_local_time_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    spans.local.cache_clear()
    there = spans.local(0)
    monkeypatch.undo()
    time.tzset()
    spans.local.cache_clear()
    assert there == 5.5 * 3_600_000


def test_how_long_a_span_is() -> None:
    assert TimeRange(0, 90_000, is_live=False).seconds == 90

"""Whose line a slice of the budget is."""

from __future__ import annotations

import numpy as np

from tests.traces.placing import AUTOGRAD, ITEM, LOADER, MAIN, Job, Span, ticks_by_place
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.corrections import correct
from whyidle.monitor.traces.model import Site, Thread
from whyidle.monitor.traces.where.hotspots import why_none


class TestFrames:
    def test_idle_time_is_split_where_the_innermost_frame_changes(self) -> None:
        job = Job(
            ("train.py(10): main", 0, 100, MAIN),
            ("data.py(3): __getitem__", 20, 50, MAIN),
            ("torch/functional.py(9): stack", 30, 40, MAIN),
        )
        found = job.hotspots((0, 60, Cause.INPUT, MAIN), (60, 90, Cause.SYNC, MAIN))
        assert ticks_by_place(found) == {
            ("idle_input", "train.py", 10): 30,
            ("idle_input", "data.py", 3): 30,
            ("idle_sync", "train.py", 10): 30,
        }
        assert {p.share for p in found if p.slice == Slice.IDLE_INPUT} == {0.5}
        assert {p.source for p in found} == {"frames"}
        assert not any(p.exact_line for p in found)

    def test_what_lies_outside_the_work_of_the_device_is_of_no_slice(self) -> None:
        job = Job(("train.py(10): main", 0, 100, MAIN), ops=((30, 60, Cause.KERNEL, -1),))
        job.device.ops.end[0] = 40
        segments = [(0, 30, Cause.INPUT, MAIN), (30, 35, Cause.INPUT, MAIN)]
        segments += [(35, 60, Cause.SYNC, MAIN), (60, 90, Cause.INPUT, MAIN)]
        found = job.hotspots(*segments)
        assert [(p.slice, p.ticks, p.share) for p in found] == [
            (Slice.IDLE_INPUT, 5, 1.0),
            (Slice.IDLE_SYNC, 5, 1.0),
        ]

    def test_more_names_than_a_pair_of_small_numbers_holds(self) -> None:
        job = Job(("train.py(10): main", 0, 100, MAIN), (ITEM, 0, 60, MAIN))
        job.names[:0] = [f"x{i}" for i in range(70_000)]
        job.trace.host.name += np.int32(70_000)
        (found,) = job.hotspots((0, 100, Cause.PYTHON, MAIN))
        assert (found.site, found.ticks) == (Site("train.py", 10, "main"), 100)
        assert [(c.name, c.ticks) for c in found.calls] == [("Tensor.item", 60)]

    def test_time_without_a_frame_of_the_users_has_no_place(self) -> None:
        job = Job(("train.py(10): main", 20, 50, MAIN), ("torch/x.py(9): f", 50, 90, MAIN))
        found = job.hotspots((0, 60, Cause.PYTHON, MAIN))
        assert ticks_by_place(found) == {("idle_dispatch", "train.py", 10): 30}
        assert found[0].share == 0.5

    def test_the_calls_out_of_a_frame_tell_its_lines_apart(self) -> None:
        job = Job(
            ("train.py(10): main", 0, 100, MAIN),
            (LOADER, 0, 60, MAIN),
            ("torch/utils/data/_utils/fetch.py(50): fetch", 10, 50, MAIN),
            (ITEM, 60, 80, MAIN),
        )
        (found,) = job.hotspots((0, 100, Cause.PYTHON, MAIN))
        assert [(c.name, c.ticks) for c in found.calls] == [(LOADER, 60), ("Tensor.item", 20)]

    def test_a_thread_without_users_code_is_where_the_main_thread_is(self) -> None:
        job = Job(
            ("train.py(10): main", 0, 100, MAIN),
            ("train.py(4): step", 30, 60, MAIN),
            ("autograd::engine", 0, 100, AUTOGRAD),
        )
        found = job.hotspots((20, 50, Cause.OP, AUTOGRAD))
        assert ticks_by_place(found) == {
            ("idle_dispatch", "train.py", 10): 10,
            ("idle_dispatch", "train.py", 4): 20,
        }

    def test_the_main_thread_is_the_one_with_the_number_of_the_process(self) -> None:
        job = Job(
            ("train.py(10): main", 40, 60, MAIN),
            ("prefetch.py(3): run", 0, 100, AUTOGRAD),
            ("x", 0, 1, 2),
        )
        job.trace.threads.append(Thread("worker", 7, "8"))
        assert ticks_by_place(job.hotspots((45, 55, Cause.OP, 2))) == {
            ("idle_dispatch", "train.py", 10): 10
        }
        assert ticks_by_place(job.hotspots((45, 55, Cause.OP, AUTOGRAD))) == {
            ("idle_dispatch", "prefetch.py", 3): 10
        }

    def test_another_process_tells_nothing(self) -> None:
        job = Job(("train.py(10): main", 0, 100, MAIN), ("x", 0, 100, 2))
        job.trace.threads.append(Thread("other", 8, "8"))
        assert job.hotspots((0, 50, Cause.OP, 2)) == []

    def test_the_clock_of_the_host_is_set_back(self) -> None:
        job = Job(("train.py(10): main", 100, 130, MAIN))
        found = job.hotspots((0, 20, Cause.OP, MAIN), (20, 60, Cause.SYNC, MAIN), skew=100)
        assert ticks_by_place(found) == {
            ("idle_dispatch", "train.py", 10): 20,
            ("idle_sync", "train.py", 10): 10,
        }

    def test_what_an_import_runs_is_told_by_its_path_only(self) -> None:
        spans = (
            ("$train.py:10 main", 0, 100, MAIN),
            ("$<frozen importlib._bootstrap>:1165 _find_and_load", 20, 60, MAIN),
            ("$blas.py:1 <module>", 30, 50, MAIN),
        )
        (found,) = Job(*spans).hotspots((0, 100, Cause.PYTHON, MAIN))
        assert (found.site, found.ticks) == (Site("train.py", 10, "main"), 100)
        spans = (
            ("<frozen importlib._bootstrap>(1165): _find_and_load", 20, 60, MAIN),
            ("blas.py(1): <module>", 30, 50, MAIN),
        )
        (found,) = Job(*spans).hotspots((30, 60, Cause.PYTHON, MAIN))
        assert (found.site, found.ticks) == (Site("blas.py", 1, "<module>"), 20)

    def test_spans_without_length_thread_or_name_do_no_harm(self) -> None:
        job = Job(("train.py(10): main", 5, 5, MAIN), ("train.py(12): f", 1, 9, -1))
        job.trace.host.name[0] = -1
        job.trace.threads.clear()
        assert job.hotspots((0, 20, Cause.OP, -1)) == []


class TestWork:
    JOB = (
        ("train.py(10): main", 0, 100, MAIN),
        ("model.py(5): forward", 10, 20, MAIN),
        ("launch1", 12, 14, MAIN),
        ("launch2", 30, 32, MAIN),
        ("launch3", 15, 16, AUTOGRAD),
    )

    def test_work_belongs_to_the_line_that_launched_it(self) -> None:
        job = Job(*self.JOB, ops=((50, 60, Cause.KERNEL, 1), (60, 65, Cause.KERNEL, 2)))
        found = job.hotspots((50, 65, Cause.KERNEL, -1))
        assert ticks_by_place(found) == {
            ("compute", "model.py", 5): 10,
            ("compute", "train.py", 10): 5,
        }

    def test_of_two_at_once_the_first_one_owns_the_time(self) -> None:
        job = Job(*self.JOB, ops=((50, 60, Cause.KERNEL, 2), (52, 70, Cause.KERNEL, 1)))
        found = job.hotspots((50, 70, Cause.KERNEL, -1))
        assert ticks_by_place(found) == {
            ("compute", "train.py", 10): 10,
            ("compute", "model.py", 5): 10,
        }

    def test_only_what_is_exposed_counts(self) -> None:
        job = Job(*self.JOB, ops=((50, 60, Cause.KERNEL, 1), (55, 70, Cause.COMM, 2)))
        found = job.hotspots((50, 60, Cause.KERNEL, -1), (60, 70, Cause.COMM, -1))
        assert ticks_by_place(found) == {
            ("compute", "model.py", 5): 10,
            ("exposed_comm", "train.py", 10): 10,
        }

    def test_autograd_launches_for_the_main_thread(self) -> None:
        job = Job(*self.JOB, ops=((50, 60, Cause.KERNEL, 3),))
        assert ticks_by_place(job.hotspots((50, 60, Cause.KERNEL, -1))) == {
            ("compute", "model.py", 5): 10
        }

    def test_the_queue_belongs_to_what_waits_in_it(self) -> None:
        starts = ((30, 2), (50, 1), (70, 2))
        job = Job(*self.JOB, ops=tuple((a, a + 10, Cause.KERNEL, i) for a, i in starts))
        found = job.hotspots((40, 50, Cause.QUEUED, -1), (60, 70, Cause.LAUNCH_LATENCY, -1))
        assert ticks_by_place(found) == {
            ("idle_queue", "model.py", 5): 10,
            ("idle_queue", "train.py", 10): 10,
        }

    def test_work_without_a_launch_has_no_place(self) -> None:
        job = Job(*self.JOB, ops=((50, 60, Cause.KERNEL, 9), (60, 70, Cause.KERNEL, 9)))
        assert job.hotspots((50, 70, Cause.KERNEL, -1)) == []

    def test_a_cpu_runs_work_where_and_when_it_is_called(self) -> None:
        job = Job(*self.JOB, ops=((12, 14, Cause.KERNEL, -1), (22, 30, Cause.KERNEL, -1)))
        job.names.append("main")
        job.device.kind = "cpu"
        job.device.ops.stream[:] = len(job.names) - 1
        segments = ((12, 14, Cause.KERNEL, -1), (22, 30, Cause.KERNEL, -1))
        assert ticks_by_place(job.hotspots(*segments)) == {
            ("compute", "model.py", 5): 2,
            ("compute", "train.py", 10): 8,
        }

    def test_two_threads_of_a_cpu_that_are_called_the_same_keep_their_lines(self) -> None:
        spans = [("a.py(3): f", 0, 100, 0), ("b.py(4): g", 0, 100, 2), ("c.py(5): h", 0, 100, 3)]
        mine = [("aten::mm", 10, 20, 0), ("aten::mm", 40, 60, 2), ("aten::mm", 70, 99, 3)]
        idle = [(LOADER, 0, 9, 1), ("aten::stack", 2, 5, 1)]  # no work: it lies in a loader
        job = Job(*spans, *mine, *idle)
        job.trace.threads = [Thread("worker", 7, str(i)) for i in range(4)]
        job.trace.devices = []
        correct(job.trace)
        segments = ((10, 20), (40, 60), (70, 99))
        found = job.hotspots(*((a, b, Cause.HOST_WORK, -1) for a, b in segments))
        assert {file: ticks for (_, file, _), ticks in ticks_by_place(found).items()} == {
            "a.py": 10,
            "b.py": 20,
            "c.py": 29,
        }

    def test_the_line_that_hlo_names_beats_the_line_of_the_launch(self) -> None:
        job = Job(*self.JOB, ops=tuple((a, a + 10, Cause.KERNEL, 2) for a in (50, 60, 70)))
        job.device.ops.hlo_module[:] = 3
        job.device.ops.hlo_op[:] = [1, 2, -1]
        job.trace.sources = {
            (3, 1): Site("/home/me/model.py", 33),
            (3, 2): Site("/lib/python3.11/site-packages/flax/linen/linear.py", 4),
        }
        found = job.hotspots((50, 80, Cause.KERNEL, -1))
        assert [(p.site.file, p.ticks, p.source, p.exact_line) for p in found] == [
            ("train.py", 20, "frames", False),
            ("/home/me/model.py", 10, "hlo", True),
        ]

    def xla_on_cpu(self, *spans: Span) -> Job:
        """One operation on the thread of Python, then one on a thread of XLA's."""
        ops = ((10, 20, Cause.KERNEL, -1), (30, 40, Cause.KERNEL, -1))
        job = Job(("$train.py:10 main", 0, 100, MAIN), ("dot.1", 30, 40, AUTOGRAD), *spans, ops=ops)
        job.names += ["main", "autograd"]
        job.trace.format, job.device.kind = "xplane", "cpu"
        job.device.ops.stream[:] = [len(job.names) - 2, len(job.names) - 1]
        job.device.ops.name[:] = job.names.index("dot.1")
        return job

    def test_what_xla_runs_on_a_thread_of_its_own_is_not_where_python_is_by_then(self) -> None:
        found = self.xla_on_cpu().hotspots((10, 20, Cause.KERNEL, -1), (30, 40, Cause.KERNEL, -1))
        assert ticks_by_place(found) == {("compute", "train.py", 10): 10}

    def test_on_a_cpu_hlo_is_found_by_the_name_of_the_operation(self) -> None:
        job = self.xla_on_cpu()
        dot = job.names.index("dot.1")
        job.trace.sources = {(7, dot): Site("/me/model.py", 3), (8, dot): Site("/me/model.py", 3)}
        segments = ((10, 20, Cause.KERNEL, -1), (30, 40, Cause.KERNEL, -1))
        assert ticks_by_place(job.hotspots(*segments)) == {("compute", "/me/model.py", 3): 20}
        # Two programs that do not agree: which one it was is unknown.
        job.trace.sources[8, dot] = Site("/me/model.py", 4)
        assert ticks_by_place(job.hotspots(*segments)) == {("compute", "train.py", 10): 10}

    def test_a_path_that_hlo_knows_completes_the_names_of_frames(self) -> None:
        job = self.xla_on_cpu()
        job.trace.sources = {(7, 99): Site("/me/train.py", 3), (7, 98): Site("/me/util.py", 3)}
        assert ticks_by_place(job.hotspots((10, 30, Cause.OP, MAIN))) == {
            ("idle_dispatch", "/me/train.py", 10): 20
        }


class TestCallStacks:
    LIB = "/opt/lib/python3.7/site-packages/torch/nn/functional.py(9): f;"

    def job(self, *more: Span) -> Job:
        """Forward on line 46, in two operators, then backward on line 50."""
        spans = (("a", 0, 10, MAIN), ("b", 15, 20, MAIN), ("c", 30, 40, MAIN), *more)
        return Job(*spans).stacked(
            a=f"{self.LIB}train.py(46): <module>",
            b="train.py(46): <module>",
            c="train.py(50): <module>",
        )

    def test_they_know_the_line_itself(self) -> None:
        found = self.job().hotspots((0, 10, Cause.OP, MAIN))
        assert ticks_by_place(found) == {("idle_dispatch", "train.py", 46): 10}
        assert [(p.source, p.exact_line) for p in found] == [("call stack", True)]

    def test_a_pause_counts_between_two_operators_of_one_line_only(self) -> None:
        found = self.job().hotspots((0, 60, Cause.OP, MAIN))
        assert ticks_by_place(found) == {
            ("idle_dispatch", "train.py", 46): 20,
            ("idle_dispatch", "train.py", 50): 10,
        }

    def test_autograd_works_for_the_line_that_was_told_last(self) -> None:
        job = self.job(("aten::mul_backward", 42, 60, AUTOGRAD))
        found = job.hotspots((22, 35, Cause.OP, AUTOGRAD), (35, 60, Cause.OP, AUTOGRAD))
        assert ticks_by_place(found) == {
            ("idle_dispatch", "train.py", 46): 8,
            ("idle_dispatch", "train.py", 50): 30,
        }

    def test_beside_frames_they_are_made_of_the_lines_of_frames(self) -> None:
        job = self.job(("train.py(12): main", 50, 60, MAIN))
        found = job.hotspots((0, 60, Cause.OP, MAIN))
        assert {p.source for p in found} == {"frames", "call stack"}
        assert not any(p.exact_line for p in found)


class TestWhyNone:
    def test_without_frames_it_says_how_to_record_them(self) -> None:
        assert "with_stack=True" in why_none(Job(("aten::mul", 0, 1, MAIN)).trace)

    def test_code_of_frameworks_alone_is_named_as_such(self) -> None:
        job = Job((LOADER, 0, 9, MAIN), ops=((3, 4, Cause.KERNEL, -1),))
        assert job.hotspots((0, 9, Cause.INPUT, MAIN)) == []
        assert "frameworks" in why_none(job.trace)

    def test_users_code_elsewhere_in_time_is_told(self) -> None:
        job = Job(("train.py(3): main", 0, 9, MAIN))
        assert job.hotspots((20, 29, Cause.OP, MAIN)) == []
        assert "no time" in why_none(job.trace)

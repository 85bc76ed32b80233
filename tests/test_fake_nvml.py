"""The fake NVML, through the real binding, each time in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests import fake_nvml

TAPES = Path(__file__).parent / "data" / "tapes"
# What every script below has at hand.
PRELUDE = """
import ctypes, json, os, sys, threading, time
from pynvml import *

def error(function, *arguments):
    try:
        function(*arguments)
    except NVMLError as problem:
        return problem.value
    return 0

def show(value):
    print(json.dumps(value))

def gpm(first, second, *ids):
    get = c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(ids), sample1=first, sample2=second)
    for slot, id_ in enumerate(ids):
        get.metrics[slot].metricId = id_
    nvmlGpmMetricsGet(get)
    return [(get.metrics[i].nvmlReturn, str(get.metrics[i].value)) for i in range(len(ids))]
"""
HEAD = """\
whyidle-nvml-tape 1
gpu 0
const 0 uuid GPU-1
const 0 pci_bus_id 00000000:19:00.0
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


class Player:
    """Runs scripts against a tape."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library = library
        self.folder = folder

    def start(
        self, tape: Path | str, script: str, *, calls: Path | None = None, **pids: int | Path
    ) -> subprocess.CompletedProcess[str]:
        if isinstance(tape, str):
            path = self.folder / "test.tape"
            path.write_text(HEAD + tape)
            tape = path
        pids.setdefault("trainer", 4711)
        pids.setdefault("neighbour", 4712)
        variables = fake_nvml.environment(self.library, tape, calls=calls, epoch=None, **pids)
        return subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(
        self, tape: Path | str, script: str, *, calls: Path | None = None, **pids: int | Path
    ) -> Any:
        script = "nvmlInit()\ngpu = nvmlDeviceGetHandleByIndex(0)\n" + textwrap.dedent(script)
        done = self.start(tape, script, calls=calls, **pids)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def play(library: Path, tmp_path: Path) -> Player:
    return Player(library, tmp_path)


@pytest.mark.parametrize("tape", sorted(TAPES.glob("*.tape")), ids=lambda tape: tape.stem)
def test_every_tape_is_read(play: Player, tape: Path) -> None:
    done = play.start(tape, "show(error(nvmlInit))")
    assert done.stderr == ""
    assert json.loads(done.stdout) == {"mismatch": 18, "no_driver": 9}.get(tape.stem, 0)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("trakc 0 fan 0:1", "'trakc' is no directive"),
        ("track 1 fan 0:1", "no device '1' so far"),
        ("track 0 fan 0=1", "'0=1' is not time:value or time:!error"),
        ("track 0 fan 1:1 0:1", "'0:1' is earlier than the point before it"),
        ("proc 0 $NOBODY 0-1", "the environment variable WHYIDLE_TAPE_NOBODY is not set"),
        ("proc 0 1 0-1 colour=red", "a process has no 'colour'"),
        ("fault 0 nvmlX 0 !1", "'0' is not from-to"),
        ("gpu 3", "expected gpu 1"),
        ("const 0 name", "'const' needs more words"),
    ],
)
def test_a_mistake_is_reported_with_its_line(play: Player, line: str, sentence: str) -> None:
    done = play.start(line, "show(error(nvmlInit))")
    assert json.loads(done.stdout) == 999
    assert f"test.tape:5: {sentence}" in done.stderr


def test_missing_tape(play: Player, tmp_path: Path) -> None:
    done = play.start(tmp_path / "none.tape", "show(error(nvmlInit))")
    assert json.loads(done.stdout) == 999
    assert "cannot read the tape" in done.stderr


def test_one_gpu(play: Player) -> None:
    answer = play(
        TAPES / "one_gpu.tape",
        """
        pci = nvmlDeviceGetPciInfo(gpu)
        memory, memory2 = nvmlDeviceGetMemoryInfo(gpu), nvmlDeviceGetMemoryInfo(gpu, nvmlMemory_v2)
        use = nvmlDeviceGetUtilizationRates(gpu)
        show({
            "driver": nvmlSystemGetDriverVersion(),
            "nvml": nvmlSystemGetNVMLVersion(),
            "cuda": nvmlSystemGetCudaDriverVersion_v2(),
            "count": nvmlDeviceGetCount(),
            "index": nvmlDeviceGetIndex(gpu),
            "name": nvmlDeviceGetName(gpu),
            "uuid": nvmlDeviceGetUUID(gpu),
            "pci": [pci.busId, pci.busIdLegacy, pci.bus, pci.pciDeviceId],
            "by_uuid": nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(gpu))),
            "by_pci": nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId("0000:19:00.0")),
            "capability": nvmlDeviceGetCudaComputeCapability(gpu),
            "architecture": nvmlDeviceGetArchitecture(gpu),
            "memory": [memory.total - memory.free - memory.used, memory.used - memory2.used],
            "reserved": memory2.reserved,
            "use": [use.gpu, use.memory],
            "power": [nvmlDeviceGetPowerUsage(gpu), nvmlDeviceGetEnforcedPowerLimit(gpu)],
            "temperature": [
                nvmlDeviceGetTemperature(gpu, 0), nvmlDeviceGetTemperatureV(gpu, 0)
            ],
            "clocks": [nvmlDeviceGetClockInfo(gpu, i) for i in range(4)],
            "now": nvmlDeviceGetClock(gpu, NVML_CLOCK_SM, NVML_CLOCK_ID_CURRENT),
            "reasons": nvmlDeviceGetCurrentClocksEventReasons(gpu),
            "pcie": [
                nvmlDeviceGetCurrPcieLinkGeneration(gpu), nvmlDeviceGetCurrPcieLinkWidth(gpu)
            ],
            "ecc": [
                nvmlDeviceGetEccMode(gpu),
                nvmlDeviceGetTotalEccErrors(gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, 0),
            ],
            "mig": nvmlDeviceGetMigMode(gpu),
            "fan": error(nvmlDeviceGetFanSpeed, gpu),
        })
        """,
    )
    assert answer == {
        "driver": "580.82.07",
        "nvml": "13.580.82.07",
        "cuda": 13000,
        "count": 1,
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-00000000-0000-4000-8000-000000000000",
        "pci": ["00000000:19:00.0", "0000:19:00.0", 0x19, 0x233510DE],
        "by_uuid": 0,
        "by_pci": 0,
        "capability": [9, 0],
        "architecture": 9,
        "memory": [0, 641728512],
        "reserved": 641728512,
        "use": [97, 41],
        "power": [612000, 700000],
        "temperature": [58, 58],
        "clocks": [1890, 1890, 3201, 1605],
        "now": 1890,
        "reasons": 4,
        "pcie": [5, 16],
        "ecc": [[1, 1], 0],
        "mig": [0, 0],
        "fan": 3,
    }


def test_init_and_handles(play: Player) -> None:
    answer = play(
        "track 0 fan 0:1",
        """
        other = ctypes.cast(ctypes.pointer(ctypes.c_uint()), c_nvmlDevice_t)
        codes = [
            error(nvmlDeviceGetFanSpeed, other),
            error(nvmlDeviceGetFanSpeed, None),
            error(nvmlDeviceGetHandleByIndex, 1),
            error(nvmlDeviceGetHandleByUUID, "GPU-2"),
        ]
        nvmlInit()
        nvmlShutdown()
        codes.append(error(nvmlDeviceGetFanSpeed, gpu))
        nvmlShutdown()
        codes.append(error(nvmlDeviceGetFanSpeed, gpu))
        codes.append(error(nvmlShutdown))
        show(codes)
        """,
    )
    assert answer == [2, 2, 2, 6, 0, 1, 1]


def test_steps_lines_counters_and_loop(play: Player) -> None:
    answer = play(
        """
        set loop 2
        set speed 1000
        track 0 fan 0:1 1:2
        line 0 pstate 0:0 1:10
        ramp 0 field.197 0:0 1:100
        ramp 0 field.198 0:0 1:1000 wrap=500
        """.replace("    ", ""),
        """
        seen = {(nvmlDeviceGetFanSpeed(gpu)) for _ in range(20000)}
        levels = {(nvmlDeviceGetPerformanceState(gpu)) for _ in range(20000)}
        first = nvmlDeviceGetFieldValues(gpu, [197])[0]
        time.sleep(0.1)
        second, wrapped = nvmlDeviceGetFieldValues(gpu, [197, 198])
        seconds = (second.timestamp - first.timestamp) / 1e6 * 1000
        show({
            "seen": sorted(seen),
            "levels": sorted(levels),
            "slope": (second.value.ullVal - first.value.ullVal) / seconds,
            "wrapped": wrapped.value.ullVal < 500,
        })
        """,
    )
    assert answer["seen"] == [1, 2]
    assert answer["levels"] == list(range(11))
    assert answer["slope"] == pytest.approx(100, rel=0.1)
    assert answer["wrapped"]


def test_fields_have_their_own_result_type_and_scope(play: Player) -> None:
    answer = play(
        """
        track 0 field.82 0:61
        track 0 field.83 0:9223372036854775807
        track 0 field.185 0:!4
        track 0 field.138.4294967295 0:900
        track 0 field.138.0 0:100
        track 0 field.193 0:-5
        track 0 field.94 0:7
        fieldtype 94 ushort
        """.replace("    ", ""),
        """
        ids = [82, 83, 185, (138, 0xFFFFFFFF), 138, (138, 5), 193, 94, 197]
        values = nvmlDeviceGetFieldValues(gpu, ids)
        show([(v.nvmlReturn, v.valueType, v.value.ullVal, v.value.siVal) for v in values])
        """,
    )
    assert [row[0] for row in answer] == [0, 0, 4, 0, 0, 3, 0, 0, 3]
    assert answer[0][1:3] == [1, 61]
    assert answer[1][1:3] == [3, 9223372036854775807]
    assert [answer[3][2], answer[4][2]] == [900, 100]
    assert [answer[6][1], answer[6][3]] == [5, -5]
    assert answer[7][1:3] == [6, 7]


def test_gpm_is_the_mean_between_two_samples(play: Player) -> None:
    answer = play(
        """
        set speed 100
        track 0 gpm.supported 0:1
        track 0 gpm.2 0:0 10:50
        track 0 gpm.3 0:1 10:nan
        track 0 gpm.5 0:1 10:!4
        line 0 gpm.10 0:0 20:100
        """.replace("    ", ""),
        """
        first, second = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
        nvmlGpmSampleGet(gpu, first)
        time.sleep(0.2)
        nvmlGpmSampleGet(gpu, second)
        result = gpm(first, second, 2, 3, 5, 10, 7)
        wrong = c_nvmlGpmMetricsGet_t(version=2, numMetrics=1, sample1=first, sample2=second)
        empty = c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=first)
        show([
            nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
            result,
            error(nvmlGpmMetricsGet, wrong),
            error(nvmlGpmMetricsGet, empty),
        ])
        nvmlGpmSampleFree(first)
        """,
    )
    supported, metrics, wrong, empty = answer
    assert (supported, wrong, empty) == (1, 25, 2)
    assert [code for code, _ in metrics] == [0, 0, 4, 0, 3]
    stepped, nan, line = (float(metrics[i][1]) for i in (0, 1, 3))
    end = 10 / (1 - stepped / 50)  # when the second sample was taken, on a busy machine later
    assert end == pytest.approx(20, rel=0.5)
    assert math.isnan(nan)
    assert line == pytest.approx((1000 + 100 * max(0, end - 20)) / max(end, 20), rel=0.1)


def test_gpm_touches_only_the_slots_asked_for(play: Player) -> None:
    """Bindings differ in the length of the array, and the library cannot know it."""
    answer = play(
        "track 0 gpm.supported 0:1\ntrack 0 gpm.2 0:50",
        """
        class Short(ctypes.Structure):
            _fields_ = [
                ("version", ctypes.c_uint), ("numMetrics", ctypes.c_uint),
                ("sample1", c_nvmlGpmSample_t), ("sample2", c_nvmlGpmSample_t),
                ("metric", c_nvmlGpmMetric_t), ("canary", ctypes.c_ubyte * 4096),
            ]
        samples = [nvmlGpmSampleGet(gpu, nvmlGpmSampleAlloc()) for _ in range(2)]
        get = Short(version=1, numMetrics=1, sample1=samples[0], sample2=samples[1])
        get.metric.metricId = 2
        ctypes.memset(get.canary, 0x5A, 4096)
        nvmlGpmMetricsGet(get)
        show([get.metric.value, set(get.canary) == {0x5A}])
        """,
    )
    assert answer == [50, True]


def test_processes_and_their_samples(play: Player) -> None:
    answer = play(
        """
        set speed 10
        proc 0 $TRAINER 0-inf memory=1000 sm=60 mem=20
        proc 0 $NEIGHBOUR 0-5 memory=none sm=0 mem=0
        proc 0 77 0-inf memory=5 type=G
        proc 0 78 0-inf memory=5 type=M sm=150
        """.replace("    ", ""),
        """
        early = error(nvmlDeviceGetProcessUtilization, gpu, 0)
        before = [(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses(gpu)]
        ids = nvmlDeviceGetComputeRunningProcesses_v2(gpu)[0].gpuInstanceId
        time.sleep(0.6)
        after = [p.pid for p in nvmlDeviceGetComputeRunningProcesses(gpu)]
        samples = nvmlDeviceGetProcessUtilization(gpu, 0)
        last = max(s.timeStamp for s in samples)
        newer = error(nvmlDeviceGetProcessUtilization, gpu, last)
        time.sleep(0.2)
        again = nvmlDeviceGetProcessUtilization(gpu, last)
        infos = nvmlDeviceGetProcessesUtilizationInfo(gpu, last)
        show({
            "early": early, "before": before, "after": after, "ids": ids,
            "graphics": [p.pid for p in nvmlDeviceGetGraphicsRunningProcesses(gpu)],
            "mps": [p.pid for p in nvmlDeviceGetMPSComputeRunningProcesses(gpu)],
            "details": [
                p.pid for p in nvmlDeviceGetRunningProcessDetailList(
                    gpu, nvmlProcessDetailList_v1, NVML_PROCESS_MODE_COMPUTE)
            ],
            "samples": sorted({(s.pid, s.smUtil, s.memUtil) for s in samples}),
            "count": len(samples),
            "newer": newer,
            "again": [all(s.timeStamp > last for s in again), len(again)],
            "infos": len(infos) >= len(again),
            "age": time.time() - last / 1e6,
        })
        """,
    )
    assert answer["early"] in {0, 6}  # a sample may just have come
    assert answer["before"] == [[4711, 1000], [4712, None]]
    assert answer["after"] == [4711]
    assert answer["ids"] == 0xFFFFFFFF
    assert (answer["graphics"], answer["mps"], answer["details"]) == ([77], [78], [4711])
    assert answer["samples"] == [[78, 150, 0], [4711, 60, 20]]
    assert answer["count"] >= 6
    assert answer["newer"] in {0, 6}
    assert answer["again"][0]
    assert answer["again"][1] >= 2
    assert answer["infos"]
    assert 0 < answer["age"] < 10


def test_a_pid_may_come_later(play: Player, tmp_path: Path) -> None:
    answer = play(
        "proc 0 $TRAINER 0-inf memory=1\nproc 0 $SELF 0-inf memory=1",
        f"""
        path = {str(tmp_path / "pid")!r}
        before = [p.pid for p in nvmlDeviceGetComputeRunningProcesses(gpu)]
        with open(path, "w") as file: file.write("99\\n")
        after = [p.pid for p in nvmlDeviceGetComputeRunningProcesses(gpu)]
        show([before == [os.getpid()], after == [99, os.getpid()]])
        """,
        trainer=tmp_path / "pid",
    )
    assert answer == [True, True]


def test_driver_samples(play: Player) -> None:
    answer = play(
        "track 0 power.usage 0:500000",
        """
        time.sleep(0.2)
        kind, samples = nvmlDeviceGetSamples(gpu, NVML_TOTAL_POWER_SAMPLES, 0)
        last = samples[-1].timeStamp
        newer = nvmlDeviceGetSamples(gpu, NVML_TOTAL_POWER_SAMPLES, samples[0].timeStamp)[1]
        show([
            kind, len(samples), samples[0].sampleValue.uiVal,
            newer[0].timeStamp > samples[0].timeStamp,
            error(nvmlDeviceGetSamples, gpu, NVML_TOTAL_POWER_SAMPLES, last + 10**9),
            error(nvmlDeviceGetSamples, gpu, NVML_GPU_UTILIZATION_SAMPLES, 0),
        ])
        """,
    )
    assert answer[0] == 1
    assert answer[1] >= 8
    assert answer[2:] == [500000, True, 6, 3]


def test_mig(play: Player) -> None:
    answer = play(
        TAPES / "mig.tape",
        """
        mig = nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        samples = [nvmlGpmMigSampleGet(gpu, 9, nvmlGpmSampleAlloc()) for _ in range(2)]
        show({
            "mode": nvmlDeviceGetMigMode(gpu),
            "most": nvmlDeviceGetMaxMigDeviceCount(gpu),
            "third": error(nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2),
            "name": nvmlDeviceGetName(mig),
            "uuid": nvmlDeviceGetIndex(
                nvmlDeviceGetHandleByUUID("MIG-00000000-0000-4000-8000-000000000002")),
            "is": [
                nvmlDeviceIsMigDeviceHandle(mig).value, nvmlDeviceIsMigDeviceHandle(gpu).value
            ],
            "ids": [nvmlDeviceGetGpuInstanceId(mig), nvmlDeviceGetComputeInstanceId(mig)],
            "parent": nvmlDeviceGetUUID(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)),
            "memory": nvmlDeviceGetMemoryInfo(mig).used,
            "sms": nvmlDeviceGetAttributes(mig).multiprocessorCount,
            "use": error(nvmlDeviceGetUtilizationRates, gpu),
            "process_use": error(nvmlDeviceGetProcessUtilization, gpu, 0),
            "samples": error(nvmlDeviceGetSamples, gpu, 1, 0),
            "processes": [
                [(p.pid, p.gpuInstanceId) for p in nvmlDeviceGetComputeRunningProcesses(handle)]
                for handle in (gpu, mig, nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1))
            ],
            "power": [nvmlDeviceGetPowerUsage(gpu), error(nvmlDeviceGetPowerUsage, mig)],
            "gpm": gpm(*samples, 1, 2),
        })
        """,
    )
    assert answer == {
        "mode": [1, 1],
        "most": 7,
        "third": 6,
        "name": "NVIDIA H200 MIG 1g.18gb",
        "uuid": 1,
        "is": [1, 0],
        "ids": [9, 0],
        "parent": "GPU-00000000-0000-4000-8000-000000000000",
        "memory": 8500000000,
        "sms": 16,
        "use": 3,
        "process_use": 3,
        "samples": 3,
        "processes": [[[4711, 9]], [[4711, 9]], []],
        "power": [220000, 3],
        "gpm": [[0, "71.0"], [0, "55.0"]],
    }


def test_a_lost_gpu_reports_its_xid_and_leaves_the_other_alone(play: Player) -> None:
    answer = play(
        TAPES / "lost.tape",
        """
        lost = nvmlDeviceGetHandleByIndex(1)
        events = nvmlEventSetCreate()
        for handle in (gpu, lost):
            nvmlDeviceRegisterEvents(handle, nvmlEventTypeXidCriticalError, events)
        early = error(nvmlEventSetWait_v2, events, 10)
        sample = nvmlGpmSampleGet(lost, nvmlGpmSampleAlloc())
        event = nvmlEventSetWait_v2(events, 5000)
        late = error(nvmlEventSetWait_v2, events, 10)
        nvmlEventSetFree(events)
        calls = (
            nvmlDeviceGetName, nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo,
            nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetPciInfo,
        )
        show({
            "waits": [early, late],
            "event": [
                event.eventType, event.eventData, event.gpuInstanceId,
                ctypes.addressof(event.device.contents) == ctypes.addressof(lost.contents),
            ],
            "lost": [error(call, lost) for call in calls],
            "fields": error(nvmlDeviceGetFieldValues, lost, [83]),
            "gpm": error(gpm, sample, sample, 2),
            "handle": error(nvmlDeviceGetHandleByIndex, 1),
            "other": [error(call, gpu) for call in calls],
        })
        """,
    )
    assert answer == {
        "waits": [10, 10],
        "event": [8, 79, 0xFFFFFFFF, True],
        "lost": [15] * 5,
        "fields": 15,
        "gpm": 15,
        "handle": 15,
        "other": [0] * 5,
    }


def test_a_hang_blocks_only_its_caller(play: Player) -> None:
    answer = play(
        "gpu 1\ntrack * utilization.gpu 0:1\ntrack * utilization.memory 0:1\n"
        "fault 1 nvmlDeviceGetUtilizationRates 0-inf hang=1",
        """
        stuck = nvmlDeviceGetHandleByIndex(1)
        took = []
        def call():
            start = time.monotonic()
            nvmlDeviceGetUtilizationRates(stuck)
            took.append(time.monotonic() - start)
        thread = threading.Thread(target=call)
        thread.start()
        start, calls = time.monotonic(), 0
        while thread.is_alive():
            nvmlDeviceGetUtilizationRates(gpu)
            calls += 1
        show([took[0], calls])
        """,
    )
    assert answer[0] >= 1
    assert answer[1] > 1000


def test_no_permission(play: Player) -> None:
    answer = play(
        TAPES / "no_permission.tape",
        """
        show([
            nvmlDeviceGetUtilizationRates(gpu).gpu,
            error(nvmlGpmSampleGet, gpu, nvmlGpmSampleAlloc()),
            error(nvmlDeviceGetComputeRunningProcesses, gpu),
            error(nvmlDeviceGetProcessUtilization, gpu, 0),
            nvmlDeviceGetFieldValues(gpu, [83])[0].nvmlReturn,
        ])
        """,
    )
    assert answer == [77, 4, 4, 4, 4]


def test_an_older_gpu(play: Player) -> None:
    answer = play(
        TAPES / "ampere.tape",
        """
        fields = nvmlDeviceGetFieldValues(gpu, [83, 197, 198, 185, 74])
        show([
            nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
            error(nvmlGpmSampleGet, gpu, nvmlGpmSampleAlloc()),
            error(nvmlDeviceGetCurrentClocksEventReasons, gpu),
            [field.nvmlReturn for field in fields],
        ])
        """,
    )
    assert answer == [0, 3, 13, [0, 3, 3, 3, 3]]


def test_sentinels_keep_every_bit(play: Player) -> None:
    answer = play(
        TAPES / "sentinels.tape",
        """
        samples = [nvmlGpmSampleGet(gpu, nvmlGpmSampleAlloc()) for _ in range(2)]
        fields = nvmlDeviceGetFieldValues(gpu, [83, 198])
        show([
            nvmlDeviceGetUtilizationRates(gpu).memory,
            nvmlDeviceGetPowerUsage(gpu),
            [field.value.ullVal for field in fields],
            gpm(*samples, 2, 3, 13),
            nvmlDeviceGetComputeRunningProcesses(gpu)[0].usedGpuMemory,
        ])
        """,
    )
    assert answer == [
        0xFFFFFFFF,
        0xFFFFFFFF,
        [0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF],
        [[0, "0.0"], [0, "nan"], [0, "-1.0"]],
        None,
    ]


def test_eight_gpus_differ(play: Player) -> None:
    answer = play(
        TAPES / "eight_gpus.tape",
        """
        gpus = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
        show([
            len({nvmlDeviceGetUUID(gpu) for gpu in gpus}),
            len({nvmlDeviceGetPowerUsage(gpu) for gpu in gpus}),
        ])
        """,
    )
    assert answer == [8, 8]


def test_calls_are_counted_and_pcie_throughput_is_slow(play: Player, tmp_path: Path) -> None:
    took = play(
        "track 0 pcie.throughput.tx 0:1\ntrack 0 fan 0:1",
        """
        for _ in range(3): nvmlDeviceGetFanSpeed(gpu)
        start = time.monotonic()
        nvmlDeviceGetPcieThroughput(gpu, NVML_PCIE_UTIL_TX_BYTES)
        show(time.monotonic() - start)
        """,
        calls=tmp_path / "calls",
    )
    assert took >= 0.02
    counts = fake_nvml.count_calls(tmp_path / "calls")
    assert counts["nvmlDeviceGetFanSpeed"] == 3
    assert counts["nvmlDeviceGetPcieThroughput"] == 1
    assert "nvmlShutdown" not in counts


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install gcc libc6-dev"):
        fake_nvml.build(tmp_path)

"""Ask a JAX job's server for a trace: ``python -m whyidle.monitor.tracing.profiler_client``.

The trace goes to stdout; then the times of its window to stderr, or why there is none. The field
numbers are those of profiler_service.proto and profiler_options.proto in openxla/xla.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any, Final

from whyidle.monitor.core.protobuf import BYTES, Damaged, fields, written

METHOD: Final = "/tensorflow.ProfilerService/Profile"
# Field numbers of ProfileRequest, ProfileOptions and ProfileResponse.
DURATION_MS, OPTIONS, ROOT, SESSION, HOST, EMIT_XSPACE = 1, 4, 5, 6, 7, 9
HOST_TRACER, DEVICE_TRACER, PYTHON_TRACER, VERSION, ENABLE_HLO, OPTIONS_DURATION_MS = (
    2,
    3,
    4,
    5,
    7,
    9,
)
RAISE_ERROR: Final = 13
XSPACE: Final = 8
# A server too old to answer with the trace writes a file instead: there it goes nowhere.
NOWHERE: Final = b"/dev/null"
TOO_OLD: Final = "the job's jaxlib is too old to send a trace back"
_PR_SET_PDEATHSIG: Final = 1
_BUSY: Final = "another profiling session active"


def request(milliseconds: int) -> bytes:
    """Return the request: just enough to see where the time goes, without Python calls."""
    options = {VERSION: 1, HOST_TRACER: 2, DEVICE_TRACER: 1, PYTHON_TRACER: 0, ENABLE_HLO: 1}
    packed = b"".join(written(n, value) for n, value in options.items())
    packed += written(OPTIONS_DURATION_MS, milliseconds) + written(RAISE_ERROR, 1)
    return b"".join(
        (
            written(DURATION_MS, milliseconds),
            written(OPTIONS, packed),
            written(ROOT, NOWHERE),
            written(SESSION, b"whyidle"),
            written(HOST, b"whyidle"),
            written(EMIT_XSPACE, 1),
        )
    )


def trace_of(answer: bytes) -> memoryview | None:
    """Return the trace in an answer; ``None`` if there is none."""
    found = None
    try:
        for number, wire, value, stop in fields(answer, 0, len(answer)):
            if (number, wire) == (XSPACE, BYTES):
                found = memoryview(answer)[value:stop]
    except (Damaged, IndexError):
        return None
    return found


def ask(port: int, milliseconds: int, seconds: float, most: int) -> bytes:
    """Return the server's answer; raises ``grpc.RpcError``."""
    import grpc  # noqa: PLC0415  heavy, and only here

    options = (("grpc.max_receive_message_length", most), ("grpc.enable_http_proxy", 0))
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        method = channel.unary_unary(METHOD)
        answer: bytes = method(request(milliseconds), timeout=seconds)
        return answer


def why(error: Any) -> str:
    """Return in words why there is no trace."""
    code, details = error.code().name, str(error.details() or "")
    if NOWHERE.decode() in details:
        return TOO_OLD
    if _BUSY in details.lower():
        return "another trace of the job is being taken, by the job itself or another program"
    return {
        "UNAVAILABLE": "what listens there does not speak gRPC",
        "UNIMPLEMENTED": "what listens there is no profiler server of JAX",
        "DEADLINE_EXCEEDED": "the job's profiler server did not answer in time",
        "RESOURCE_EXHAUSTED": "the trace is longer than one may be",
    }.get(code, f"the job's profiler server says: {details or code}")


def main(arguments: list[str]) -> int:
    """Ask, and pass the trace on."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    port, milliseconds, seconds, most = arguments
    # stderr is for our own messages; gRPC logs a lot there.
    os.environ["GRPC_VERBOSITY"] = "NONE"
    began, realtime = time.monotonic_ns(), time.time_ns()
    try:
        answer = ask(int(port), int(milliseconds), float(seconds), int(most))
    except Exception as error:  # noqa: BLE001  reported in a sentence
        said = why(error) if hasattr(error, "code") else f"{type(error).__name__}: {error}"
        print(said, file=sys.stderr)  # noqa: T201  the answer
        return 1
    ended = min(time.monotonic_ns(), began + int(milliseconds) * 1_000_000)
    trace = trace_of(answer)
    if not trace:
        print(TOO_OLD, file=sys.stderr)  # noqa: T201  the answer
        return 1
    with open(1, "wb", closefd=False) as out:
        out.write(trace)
    print(began, ended, realtime, file=sys.stderr)  # noqa: T201  the answer
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which pods the kubelet has given the GPUs of this host to, by its pod-resources socket.

The field numbers are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.core.protobuf import BYTES, Damaged, fields, text
from whyidle.monitor.sources.gpu import GpuFacts

SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
METHOD: Final = "/v1.PodResourcesLister/List"
SECONDS: Final = 2.0
MOST_BYTES: Final = 16 << 20
# Pods that take turns on one GPU; with more of them a page would grow without end.
MOST_OF_A_GPU: Final = 8
_PODS = 1
_NAME, _NAMESPACE, _CONTAINERS = 1, 2, 3
_DEVICES = 2
_RESOURCE, _IDS = 1, 2
_VENDOR: Final = "nvidia.com/"
# One of several that take turns on a GPU: GPU-...::2. On GKE they are numbered: nvidia0/gi3/vgpu1.
_TURN: Final = re.compile(r"::\d+$|/vgpu\d+$")
_NUMBERED: Final = re.compile(r"nvidia(\d+)(?:/gi(\d+))?")


class Allocation(NamedTuple):
    """A container that has a GPU."""

    namespace: str
    pod: str
    container: str


Allocations = Mapping[str, tuple[Allocation, ...]]


def read(socket: Path = SOCKET) -> Allocations:
    """Return who has each device, by the device plugin's name of it; nobody without a kubelet.

    Raises a sentence where it does not answer.
    """
    if not socket.exists():
        return {}
    try:
        grpc = import_module("grpc")
    except ImportError:
        raise UsageProblem(
            "The kubelet's pods need the library grpcio, which is not installed.",
            f"Install it: {to_install('kubernetes')}",
        ) from None
    try:
        return parsed(_ask(grpc, socket))
    except grpc.RpcError as error:
        said = f"{error.code().name.lower()}: {error.details()}"
        step = "" if os.access(socket, os.W_OK) else "Only root may ask it: run as root."
        raise Problem(f"The kubelet at {socket} names no pods: {said}.", step) from None
    except Damaged:
        raise Problem(f"What answers at {socket} is no kubelet.") from None


def _ask(grpc: Any, socket: Path) -> bytes:
    options = (("grpc.max_receive_message_length", MOST_BYTES), ("grpc.enable_http_proxy", 0))
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        answer: bytes = channel.unary_unary(METHOD)(b"", timeout=SECONDS)
        return answer


def parsed(answer: bytes) -> Allocations:
    """Read an answer to List; raises ``Damaged``."""
    found: dict[str, set[Allocation]] = {}
    for pod in _messages(answer, _PODS):
        name, namespace = _text(pod, _NAME), _text(pod, _NAMESPACE)
        for container in _messages(pod, _CONTAINERS):
            who = Allocation(namespace, name, _text(container, _NAME))
            for devices in _messages(container, _DEVICES):
                if _text(devices, _RESOURCE).startswith(_VENDOR):
                    for each in _messages(devices, _IDS):
                        found.setdefault(_TURN.sub("", text(each)), set()).add(who)
    return {device: tuple(sorted(who)) for device, who in found.items()}


def of_gpus(gpus: Iterable[GpuFacts], allocations: Allocations) -> Allocations:
    """Return who has each GPU, by its index here."""
    found = {}
    numbers = {
        (hit[1], hit[2]): who
        for device, who in allocations.items()
        if (hit := _NUMBERED.fullmatch(device))
    }
    for gpu in gpus:
        whole = gpu.mig_of or gpu.index
        instance = None if gpu.mig_of is None else str(gpu.mig_instance)
        if who := allocations.get(gpu.uuid or "") or numbers.get((whole, instance)):
            found[gpu.index] = who[:MOST_OF_A_GPU]
    return found


def owner(held: Iterable[str], of_gpu: Allocations, pod: str) -> Allocation | None:
    """Return which container a job in a pod is, by the GPUs that it holds.

    Where several take turns on them, by the name that the pod gives itself.
    """
    choices = [set(of_gpu.get(index, ())) for index in held]
    common = set.intersection(*choices) if choices else set()
    if len(common) > 1:
        common = {each for each in common if each.pod == pod}
    return common.pop() if len(common) == 1 else None


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    for each, wire, value, stop in fields(message, 0, len(message)):
        if (each, wire) == (number, BYTES):
            yield message[value:stop]


def _text(message: bytes, number: int) -> str:
    return next((text(each) for each in _messages(message, number)), "")

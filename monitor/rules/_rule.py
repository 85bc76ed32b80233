"""What a rule is. One rule is one file in this folder, named after the fault.

A rule never invents a gain: it names the part of the time that its fix saves, as a range. A
rule that lacks a signal says what would bring it, and never fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from whyidle.monitor.core.finding import Fix, Framework, Lacking, Verdict
from whyidle.monitor.signals.window import Device, Window

# What rules cite: "D2 §4" is a section of the second.
DOCUMENTS: Final = {
    "D1": "Flax框架中GPU使用问题的深度解析与优化方案",
    "D2": "Flux.jl项目中GPU内存管理与性能优化的实践指南",
    "D3": "搞定JAX高效并行训练",
    "D4": "JAX性能优化实战:7个变换让TPU/GPU吃满算力",
    "D5": "GPU利用率90%的秘诀:PyTorch/TensorFlow高阶优化技巧",
}
Detect = Callable[[Window], Verdict]


def both(text: str, code: str = "") -> dict[Framework, Fix]:
    """Return a fix that is the same for PyTorch and for JAX."""
    return dict.fromkeys(("pytorch", "jax"), Fix(text, code))


class Kind(StrEnum):
    """What a rule is about; errors and risks stand first, what is only to know last."""

    ERROR = "error"
    TIME = "time"
    MEMORY = "memory"
    INFORMATION = "information"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One fault. Its id is the name of its file, its page the docstring of it."""

    title: str
    documents: tuple[str, ...] = ("beyond the documents",)
    fixes: Mapping[Framework, Fix]
    kind: Kind = Kind.TIME
    # It is silent about jobs that are known to use none of these, or to compute elsewhere.
    only: tuple[Framework, ...] = ()
    device: Device | None = None
    # What gets faster: where the fix makes a step larger, only the samples show it.
    paced_by: Literal["steps", "samples"] = "steps"
    # Filled in by ``rules.load``: what its file is called, does and says.
    id: str = field(default="", compare=False)
    detect: Detect = field(default=lambda _: None, compare=False)
    page: str = field(default="", compare=False, repr=False)

    def judge(self, window: Window) -> Verdict:
        """Ask it about a job: nothing of one that it is not about; raises ``Contradiction``."""
        if self.only and window.frameworks and not any(map(window.uses, self.only)):
            return None
        if self.device is not None and window.device not in {self.device, None}:
            return None
        try:
            return self.detect(window)
        except Lacking as lacking:
            return lacking.verdict

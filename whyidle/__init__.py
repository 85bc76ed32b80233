"""Why a running JAX or PyTorch job leaves its GPU idle: what programs may call.

    import whyidle

    for batch in loader:
        with whyidle.step():              # one step of a loop that no library marks
            ...
        with whyidle.phase("validation"):     # what is no step
            ...

    whyidle.diagnose("last").verdict.text     # a run, a label, a pid or a trace file
    whyidle.compare(12, 13).speedup           # before and after a change

In a notebook: ``%load_ext whyidle``. Nothing else is part of the interface, and nothing here
imports a framework. Training jobs import this: what only readers need is loaded when it is called.
"""

from __future__ import annotations

from whyidle.monitor.core.marks import phase, step

# Known to type checkers by its name: a job that marks steps loads not even `typing` for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from whyidle.monitor.core.contracts.comparison import ComparisonJson
    from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson

    __version__: str

__all__ = ["__version__", "compare", "diagnose", "load_ipython_extension", "phase", "step"]


def diagnose(target: str | int | Path = "last") -> DiagnosisJson:
    """Return what ``monitor diagnose TARGET --json`` says, with names instead of keys.

    ``target``: a run by its number, its label or ``last``, a running process, or a trace file.
    """
    from whyidle.monitor.app import windows  # noqa: PLC0415
    from whyidle.monitor.diagnosis import diagnose as diagnosis  # noqa: PLC0415

    return diagnosis.as_json(diagnosis.diagnose(windows.of(str(target))))


def compare(a: str | int | Path, b: str | int | Path) -> ComparisonJson:
    """Return what ``monitor compare A B --json`` says of two runs or trace files."""
    from whyidle.monitor.app.compare import sides  # noqa: PLC0415
    from whyidle.monitor.compare import compare as compared  # noqa: PLC0415
    from whyidle.monitor.compare.answer import as_json  # noqa: PLC0415

    return as_json(compared(*sides(str(a), str(b))))


def load_ipython_extension(shell: object) -> None:
    """Add ``%%whyidle`` and ``%whyidle`` to a notebook."""
    from whyidle.monitor import load_ipython_extension as load  # noqa: PLC0415

    load(shell)


def __getattr__(name: str) -> str:
    """Return the version, which is looked up only when somebody asks."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("whyidle")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

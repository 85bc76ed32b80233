"""The part ``debugging modes``: options of JAX's that are made for finding errors, and a trace."""

from __future__ import annotations

from ..framework import Part
from ..modules import Missing, loaded
from ..wire import DEBUG_MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# These slow each step; of the others a person may want to know.
SLOW = ("debug_nans", "debug_infs", "disable_jit")
OPTIONS = (*SLOW, "enable_x64", "log_compiles", "check_tracer_leaks", "enable_checks")
# Kept where it is used, not among the others.
UNOPTIMISED = "disable_most_optimizations"


class DebuggingModes(Part):
    """Reads them as they are for the whole process: this thread has no values of its own."""

    name = "debugging modes"

    def begin(self) -> None:
        """Find the options that this version has."""
        self._was_profiled = False
        if not _options():
            raise Missing("jax._src.config has none of the options that we know")

    def second(self, _now: int) -> dict[str, int | None]:
        """Count those that slow a step."""
        found, profiles = _options(), _profiles() is True
        self._was_profiled = self._was_profiled or profiles
        return {DEBUG_MODES: sum(found.get(name, False) for name in SLOW) + profiles}

    def facts(self) -> dict[str, Any]:
        """Return their values, and whether the job traced itself since this was last asked."""
        was, self._was_profiled = self._was_profiled, False
        found: dict[str, Any] = dict(_options())
        more = {
            UNOPTIMISED: _value((loaded("jax._src.compiler") or {}).get(f"_{UNOPTIMISED.upper()}")),
            "compilation_cache": _caches(),
            "own_profiler": None if _profiles() is None else was,
        }
        found.update({name: value for name, value in more.items() if value is not None})
        return found


def _options() -> dict[str, bool]:
    names = loaded("jax._src.config") or {}
    values = {name: _value(names.get(name)) for name in OPTIONS}
    return {name: value for name, value in values.items() if isinstance(value, bool)}


def _caches() -> bool | None:
    """Tell whether compiled programs are kept on disk; ``None`` where this version does not say."""
    names = loaded("jax._src.config") or {}
    enabled, folder = names.get("enable_compilation_cache"), names.get("compilation_cache_dir")
    if enabled is None or folder is None:
        return None
    return _value(enabled) is True and bool(_value(folder))


def _profiles() -> bool | None:
    """Tell whether the user's trace runs: ours is not noted there."""
    state: Any = (loaded("jax._src.profiler") or {}).get("_profile_state")
    if not hasattr(state, "profile_session"):
        return None
    return state.profile_session is not None


def _value(option: Any) -> Any:
    return getattr(option, "value", None)

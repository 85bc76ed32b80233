"""The job's modules are inspected, and none of their code runs."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from whyidle.agents.modules import Missing, loaded, names_of, need


class AskedError(Exception):
    """Code of the job's has run."""


class Nosy(ModuleType):
    """A module that notices each access to it."""

    def __getattribute__(self, name: str) -> object:
        raise AskedError(name)


def test_a_lazy_module_is_not_imported_by_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("colorsys")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "colorsys", module)
    spec.loader.exec_module(module)
    assert loaded("colorsys") is None
    assert "rgb_to_hsv" not in object.__getattribute__(module, "__dict__")
    assert module.rgb_to_hsv is not None
    names = loaded("colorsys")
    assert names is not None
    assert "rgb_to_hsv" in names


def test_what_is_no_module_of_the_ordinary_kind_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nosy", Nosy("nosy"))
    assert loaded("nosy") is None
    assert names_of(None) is None
    with pytest.raises(Missing, match="no module nosy"):
        need("nosy", "anything")


def test_what_is_being_imported_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    half = ModuleType("half")
    half.__spec__ = importlib.util.spec_from_loader("half", None)
    assert half.__spec__ is not None
    monkeypatch.setitem(sys.modules, "half", half)
    assert loaded("half") is not None
    monkeypatch.setattr(half.__spec__, "_initializing", True, raising=False)
    assert loaded("half") is None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Missing, match=r"no sys\.flags\.nothing"):
        need("sys", "flags", "nothing")
    assert need("sys", "flags", "optimize") == sys.flags.optimize

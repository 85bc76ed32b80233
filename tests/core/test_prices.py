"""Prices from the environment: none is assumed, and one that is no number says so."""

from __future__ import annotations

import pytest

from whyidle.monitor.core.prices import CURRENCY, GPU_HOUR, KWH, NO_PRICE, Prices


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (KWH, GPU_HOUR, CURRENCY):
        monkeypatch.delenv(name, raising=False)


def test_without_a_price_nothing_costs_anything_known() -> None:
    assert Prices.here().of(3.6e6, 1.0) == (None, NO_PRICE)


def test_energy_and_hours_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KWH, " 0.25 ")
    assert Prices.here().of(7.2e6, 3.0) == (0.5, None)
    monkeypatch.setenv(GPU_HOUR, "2")
    monkeypatch.setenv(CURRENCY, "EUR")
    assert Prices.here().of(7.2e6, 3.0) == (6.5, None)
    assert Prices.here().currency == "EUR"


def test_hours_have_a_price_where_no_power_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_HOUR, "2")
    assert Prices.here().of(None, 3.0) == (6.0, None)
    monkeypatch.setenv(KWH, "0.25")
    assert Prices.here().of(None, 3.0) == (None, "no power is read")


@pytest.mark.parametrize("text", ["30ct", "-1", "nan", "inf", "0,30"])
def test_what_is_no_price_says_what_to_type(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_HOUR, "2")
    monkeypatch.setenv(KWH, text)
    money, why = Prices.here().of(3.6e6, 1.0)
    assert money is None
    assert why == f"{KWH} is no price: export {KWH}=0.30"

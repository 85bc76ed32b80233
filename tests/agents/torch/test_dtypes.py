"""A job whose default type is float64 is found by what its optimizers move."""

from __future__ import annotations

import pytest

from tests.agents.torch.inside import probe
from tests.rules.windows import found, judge, window

torch = pytest.importorskip("torch")


def dtypes(default: object) -> object:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with probe() as observed:
            model(torch.ones(3)).sum().backward()
            optimizer.step()
            observed.second()
            observed.second()
            return observed.state()
    finally:
        torch.set_default_dtype(before)


def test_a_default_of_float64_is_found_and_one_of_float32_is_not() -> None:
    double, single = dtypes(torch.float64), dtypes(torch.float32)
    finding = found("double_precision", window(facts={"torch": double}))
    assert finding.evidence[0].value == 1.0
    assert judge("double_precision", window(facts={"torch": single})) is None

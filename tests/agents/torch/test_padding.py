"""What a look at a batch says of its padding, and that it leaves the batch alone."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.agents.torch.inside import Observed, probe
from whyidle.agents.torch import padding
from whyidle.agents.torch.loaders import LOOK, batch_looks

torch = pytest.importorskip("torch")

Parts = namedtuple("Parts", "tokens labels")
LENGTHS = (12, 40, 7, 25, 30, 19, 22, 31)


@dataclass
class Held:
    tokens: Any


def tokens(width: int = 64, pad: int = 0) -> Any:
    rows = torch.full((len(LENGTHS), width), pad)
    for row, length in zip(rows, LENGTHS, strict=True):
        row[:length] = torch.arange(5, 5 + length)
    return rows


@pytest.fixture
def observed() -> Iterator[Observed]:
    with probe() as found:
        found.second()
        yield found


def looked(observed: Observed, batch: Any, collate: Callable[[Any], Any] | None = None) -> Any:
    """Return what is said after a loader has given this batch."""
    loader = torch.utils.data.DataLoader(
        [batch], batch_size=1, collate_fn=collate or (lambda got: got[0])
    )
    observed.second()
    for _ in range(padding.EARLY_SECONDS + 1):
        list(loader)
        observed.second()
    return observed.state().get("padding")


@pytest.mark.parametrize(
    "batch",
    [
        tokens(),
        tokens(pad=-100),
        tokens().int().flip(1),
        (tokens(), torch.arange(8)),
        {"input_ids": tokens(), "attention_mask": (tokens() != 0).long()},
        UserDict(input_ids=tokens(pad=50256)),
        Parts(tokens(), torch.arange(8)),
        Held([tokens()]),
        tokens().float(),
        tokens()[:, :, None].repeat(1, 1, 3).float(),
    ],
)
def test_padding_is_seen_in_every_kind_of_batch(observed: Observed, batch: Any) -> None:
    said = looked(observed, batch)
    assert (said["length"], said["longest"]) == (64, 40)
    assert said["mean"] == round(sum(LENGTHS) / len(LENGTHS))
    assert said["batches"] >= 1


@pytest.mark.parametrize(
    "batch",
    [
        torch.randint(0, 2, (8, 64)),
        torch.cat([torch.randn(8, 60), torch.zeros(8, 4)], 1),
        (tokens() != 0).long(),
        torch.zeros(8, 64),
        torch.zeros(8, 3, 64, 64),
        torch.arange(64)[None].repeat(8, 1),
        tokens()[:2],
        tokens().to("meta"),
        tokens().to_sparse(),
        tokens().T,
        torch.empty(8, 64, 0),
        "words",
        None,
        [1, 2.0, [[[[[[tokens()]]]]]]],
    ],
)
def test_what_shows_none_is_not_reported(observed: Observed, batch: Any) -> None:
    assert looked(observed, batch) is None


def test_rows_as_long_as_the_longest_are_no_padding(observed: Observed) -> None:
    said = looked(observed, tokens(width=max(LENGTHS)))
    assert (said["length"], said["longest"]) == (40, 40)


def test_no_line_of_the_jobs_runs_and_nothing_is_kept(observed: Observed) -> None:
    class Loud(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> Any:
            raise AssertionError("it was asked")

    class Lazy:
        @property
        def tokens(self) -> Any:
            raise AssertionError("it was asked")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    class Watching(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, *_: Any, **__: Any) -> Any:
            raise AssertionError(func)

    copies: list[Any] = []
    look = padding._looking(copies.append)
    batch = [tokens().as_subclass(Loud), Lazy(), tokens()]
    with Watching():
        look(batch)
    assert [form for form, *_ in copies[0]] == [(8, 64)]
    assert all(type(raw) is bytes for *_, raw in copies[0])
    batch[2].resize_(8, 128)


def test_what_a_signal_handler_raises_reaches_the_job() -> None:
    def interrupted(_: Any) -> None:
        raise ValueError("the job's own")

    look = padding._looking(interrupted)
    with pytest.raises(ValueError, match="the job's own"):
        look(tokens())


def test_a_look_is_asked_for_now_and_then(observed: Observed) -> None:
    wanted = 0
    part = next(x for x in observed.probe._on if isinstance(x, padding.Padding))
    for _ in range(10 * padding.SECONDS):
        observed.second()
        if batch_looks.pop(LOOK, None) is not None:
            wanted += 1
            part._copies.append([])
    early = padding.EARLY_LOOKS
    assert early < wanted <= early + 10
    observed.context.hooks.undo()
    assert not batch_looks

"""What a look at a batch says of its padding, and that it leaves the batch alone."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
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
        OrderedDict(words=tokens(), odd=tokens().to_sparse()),
        defaultdict(list, words=tokens()),
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
        torch.arange(64)[None].repeat(8, 1).mul(torch.arange(64) < 60),
        tokens()[:2].float(),
        # Pictures of whole numbers, as of masks.
        tokens()[:, :, None].repeat(1, 1, 16),
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


@pytest.mark.parametrize(
    "batch",
    [
        tokens(width=max(LENGTHS)),
        # All end with the same token, and none is longer than that.
        torch.cat([torch.randint(5, 900, (8, 39)), torch.full((8, 1), 2)], 1),
    ],
)
def test_rows_as_long_as_the_longest_are_no_padding(observed: Observed, batch: Any) -> None:
    said = looked(observed, batch)
    assert (said["length"], said["longest"]) == (40, 40)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_rows_of_tokens(observed: Observed, number: int) -> None:
    said = looked(observed, tokens(width=128)[:number])
    assert (said["length"], said["longest"]) == (128, max(LENGTHS[:number]))


def test_how_much_of_a_batch_is_in_such_rows(observed: Observed) -> None:
    captions = {"ids": tokens(), "pictures": torch.zeros(8, 3, 64, 64)}
    assert looked(observed, captions)["part"] == round(64 / (64 + 3 * 64 * 64), 2)


def test_all_that_has_the_length_of_the_rows_is_a_part_of_them(observed: Observed) -> None:
    batch = {"ids": tokens(), "labels": tokens(pad=-100), "kind": torch.arange(8)}
    assert looked(observed, batch)["part"] == round(128 / 129, 2)


def test_large_batches_cost_no_more(observed: Observed) -> None:
    many = torch.randn(16384, 16)
    long = tokens(width=4096)[torch.arange(512) % 7]
    seen: list[Any] = []
    padding._looking(seen.append)([many, long])
    ((_, copies),) = seen
    for *_, rows in copies:
        assert len(rows) <= padding.MOST_ROWS
        assert sum(map(len, rows)) <= padding.MOST_BYTES
    # From all over it.
    assert copies[0][3][-1] == many[16384 * 255 // 256].numpy().tobytes()
    assert padding._counted({(512, 4096): 1}, copies[1:])[1] == max(LENGTHS)  # type: ignore[index]


def test_a_tensor_whose_memory_was_given_back(observed: Observed) -> None:
    gone = tokens()
    gone.untyped_storage().resize_(0)
    assert looked(observed, gone) is None


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

    seen: list[Any] = []
    look = padding._looking(seen.append)
    batch = [tokens().as_subclass(Loud), Lazy(), tokens()]
    with Watching():
        look(batch)
    ((shapes, copies),) = seen
    assert shapes == {(8, 64): 8 * 64}
    assert all(type(row) is bytes for *_, rows in copies for row in rows)
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
            part._seen.append(({}, []))
    early = padding.EARLY_LOOKS
    assert early < wanted <= early + 10
    observed.context.hooks.undo()
    assert not batch_looks

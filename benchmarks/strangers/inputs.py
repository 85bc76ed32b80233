"""Data of the same form and size as what the programs load, made of noise."""

from __future__ import annotations

import gzip
import pickle
import random
import string
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

SEED: Final = 0


def _noise() -> Any:
    return np.random.default_rng(SEED)


def _idx(path: Path, array: Any) -> None:
    """Write an array as the files of MNIST are, packed and not."""
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    raw = head + array.astype("u1").tobytes()
    path.write_bytes(raw)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(raw, 1))


def mnist(place: Path) -> None:
    """Write the four files of MNIST: 60,000 and 10,000 pictures."""
    place.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    for part, number in (("train", 60_000), ("t10k", 10_000)):
        _idx(place / f"{part}-images-idx3-ubyte", noise.integers(0, 256, (number, 28, 28)))
        _idx(place / f"{part}-labels-idx1-ubyte", noise.integers(0, 10, (number,)))


def mnist_npz(place: Path) -> None:
    """Write MNIST as Keras keeps it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    parts = {}
    for part, number in (("train", 60_000), ("test", 10_000)):
        parts[f"x_{part}"] = noise.integers(0, 256, (number, 28, 28)).astype("u1")
        parts[f"y_{part}"] = noise.integers(0, 10, (number,)).astype("u1")
    np.savez(place, **parts)


def cifar10(place: Path) -> None:
    """Write the batches of CIFAR-10 as Python's pickles."""
    place.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        batch = {
            b"data": noise.integers(0, 256, (10_000, 3072)).astype("u1"),
            b"labels": noise.integers(0, 10, 10_000).tolist(),
        }
        (place / name).write_bytes(pickle.dumps(batch))
    names = {b"label_names": [f"kind {n}".encode() for n in range(10)]}
    (place / "batches.meta").write_bytes(pickle.dumps(names))


def words(place: Path, number: int = 200_000) -> None:
    """Write a text of words that come as often as those of a language do."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(SEED)
    known = [
        "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(8000)
    ]
    weights = [1 / (rank + 1) for rank in range(len(known))]
    drawn = draw.choices(known, weights, k=number)
    place.write_text("\n".join(" ".join(drawn[n : n + 12]) + "." for n in range(0, number, 12)))


def names(place: Path) -> None:
    """Write a list of names, one on each line."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(SEED)
    made = ("".join(draw.choices("aeiounrstlm", k=draw.randint(3, 10))) for _ in range(30_000))
    place.write_text("\n".join(made) + "\n")


def pictures(place: Path, number: int = 400, side: int = 256, classes: int = 4) -> None:
    """Write JPEGs in a folder for each class."""
    noise = _noise()
    for index in range(number):
        folder = place / f"class{index % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        small = noise.integers(0, 256, (side // 8, side // 8, 3)).astype("u1")
        Image.fromarray(small).resize((side, side)).save(folder / f"{index}.jpg")


MAKERS: Final[dict[str, Callable[[Path], None]]] = {
    "mnist": mnist,
    "mnist_npz": mnist_npz,
    "cifar10": cifar10,
    "words": words,
    "names": names,
    "pictures": pictures,
}

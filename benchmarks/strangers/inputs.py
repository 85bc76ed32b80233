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
from scipy.sparse import csr_matrix

from benchmarks.strangers import tfrecords

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
    """Write the batches of CIFAR-10; keys are text and bytes, for both ways to read them."""
    place.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        data = noise.integers(0, 256, (10_000, 3072)).astype("u1")
        labels = noise.integers(0, 10, 10_000).tolist()
        batch = {b"data": data, "data": data, b"labels": labels, "labels": labels}
        (place / name).write_bytes(pickle.dumps(batch))
    names = [f"kind {n}" for n in range(10)]
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))


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


def tfds_mnist(place: Path) -> None:
    """Write MNIST as ``tensorflow_datasets`` keeps it."""
    noise = _noise()
    splits = {
        split: {
            "image": [tfrecords.png(x) for x in noise.integers(0, 256, (number, 28, 28), "u1")],
            "label": noise.integers(0, 10, number),
        }
        for split, number in (("train", 60_000), ("test", 10_000))
    }
    features = {"image": tfrecords.picture(28), "label": tfrecords.label(10)}
    tfrecords.write(place, "3.0.1", features, splits)


def tfds_binarized_mnist(place: Path) -> None:
    """Write MNIST in black and white as ``tensorflow_datasets`` keeps it."""
    noise = _noise()
    splits = {
        split: {"image": [tfrecords.png(x) for x in noise.integers(0, 2, (number, 28, 28), "u1")]}
        for split, number in (("train", 50_000), ("validation", 10_000), ("test", 10_000))
    }
    tfrecords.write(place, "1.0.0", {"image": tfrecords.picture(28)}, splits)


def tfds_penguins(place: Path) -> None:
    """Write the four measures of penguins as ``tensorflow_datasets`` keeps them."""
    noise = _noise()
    rows = {"features": noise.random((334, 4)), "species": noise.integers(0, 3, 334)}
    features = {"features": tfrecords.vector(4), "species": tfrecords.label(3)}
    tfrecords.write(place, "1.0.0", features, {"train": rows})


def corpus(place: Path) -> None:
    """Write a text to train on, and a tenth of it to validate and to test on each."""
    for name, number in (("train", 600_000), ("valid", 60_000), ("test", 60_000)):
        words(place / f"{name}.txt", number)


def cora(place: Path) -> None:
    """Write a graph of papers that cite each other, as the two tables of Cora are."""
    place.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    has = (noise.random((2708, 1433)) < 0.013).astype(int)
    kinds = noise.integers(0, 7, 2708)
    rows = (f"{n} {' '.join(map(str, has[n]))} kind{kinds[n]}" for n in range(2708))
    (place / "cora.content").write_text("\n".join(rows) + "\n")
    edges = noise.integers(0, 2708, (5429, 2))
    (place / "cora.cites").write_text("\n".join(f"{a} {b}" for a, b in edges) + "\n")


def planetoid(place: Path) -> None:
    """Write the same graph as the pickles of Planetoid are."""
    place.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    has = csr_matrix((noise.random((2708, 1433)) < 0.013).astype("f4"))
    kinds = np.eye(7, dtype="i4")[noise.integers(0, 7, 2708)]
    ends = noise.integers(0, 2708, (2708, 2))
    parts: dict[str, Any] = {
        "x": has[:140], "allx": has[:1708], "tx": has[1708:],
        "y": kinds[:140], "ally": kinds[:1708], "ty": kinds[1708:],
        "graph": {n: [int(a), int(b)] for n, (a, b) in enumerate(ends)},
    }  # fmt: skip
    for name, part in parts.items():
        (place / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (place / "ind.cora.test.index").write_text("\n".join(map(str, range(1708, 2708))) + "\n")


def sentence_pairs(place: Path) -> None:
    """Write short sentences in two languages, one pair on each line."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(SEED)
    known = ["".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(2500)]
    lines = (
        f"i am {' '.join(draw.choices(known, k=5))} .\t{' '.join(draw.choices(known, k=6))} ."
        for _ in range(8000)
    )
    place.write_text("\n".join(lines) + "\n")


def pets(place: Path) -> None:
    """Write JPEGs whose names tell their class, in one folder."""
    pictures(place / "of", number=480)
    for path in sorted((place / "of").glob("*/*.jpg")):
        path.rename(place / f"{path.parent.name}_{path.stem}.jpg")


def masks(place: Path) -> None:
    """Write pictures, and for each a mask of what is to be found in it."""
    noise = _noise()
    for part in ("imgs", "masks"):
        (place / part).mkdir(parents=True, exist_ok=True)
    for index in range(120):
        small = noise.integers(0, 256, (24, 36, 3)).astype("u1")
        Image.fromarray(small).resize((288, 192)).save(place / "imgs" / f"car{index}.jpg")
        found = (noise.random((24, 36)) < 0.3).astype("u1") * 255
        mask = Image.fromarray(found).resize((288, 192), Image.Resampling.NEAREST)
        mask.save(place / "masks" / f"car{index}_mask.gif")


def tokens_uint16(place: Path) -> None:
    """Write numbers of tokens of GPT-2 as an array."""
    place.parent.mkdir(parents=True, exist_ok=True)
    # Some of them only, as in simple stories; and one more than fills whole sequences.
    np.save(place, _noise().integers(0, 4000, 64 * 4000 + 33).astype("u2"))


def token_records(place: Path) -> None:
    """Write texts as numbers of 512 tokens, each a record."""
    place.mkdir(parents=True, exist_ok=True)
    noise = _noise()
    for part in ("train", "val"):
        rows = {"ids": [noise.integers(0, 512, 1000).astype("<u2").tobytes() for _ in range(500)]}
        tfrecords.records(place / f"{part}_00.tfrecord", rows)


MAKERS: Final[dict[str, Callable[[Path], None]]] = {
    "mnist": mnist,
    "mnist_npz": mnist_npz,
    "cifar10": cifar10,
    "words": words,
    "names": names,
    "pictures": pictures,
    "corpus": corpus,
    "cora": cora,
    "planetoid": planetoid,
    "sentence_pairs": sentence_pairs,
    "pets": pets,
    "masks": masks,
    "tfds_mnist": tfds_mnist,
    "tfds_binarized_mnist": tfds_binarized_mnist,
    "tfds_penguins": tfds_penguins,
    "tokens_uint16": tokens_uint16,
    "token_records": token_records,
}

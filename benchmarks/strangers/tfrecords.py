"""Data sets as ``tensorflow_datasets`` keeps them once prepared, written without TensorFlow.

All records of a file are of one length: their checksums are computed together.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

# The checksum of TFRecords: CRC-32C, by the byte.
_POLYNOMIAL: Final = 0x82F63B78
_FEATURES: Final = "tensorflow_datasets.core.features."
_LENGTHS: Final = {"bytes": 1, "float": 2, "int": 3}

Columns = Mapping[str, Sequence[bytes] | Any]


def write(
    place: Path, version: str, features: Mapping[str, Any], splits: Mapping[str, Columns]
) -> None:
    """Write the splits of a data set, and what it says of itself, into ``place/version``."""
    folder = place / version
    folder.mkdir(parents=True, exist_ok=True)
    # A configuration is a folder of its own in that of the data set.
    name = place.name if place.parent.name == "tensorflow_datasets" else place.parent.name
    kept = []
    for split, columns in splits.items():
        number = records(folder / f"{name}-{split}.tfrecord-00000-of-00001", columns)
        kept.append({"name": split, "shardLengths": [str(number)]})
    said: dict[str, Any] = {
        "name": name,
        "version": version,
        "splits": kept,
        "fileFormat": "tfrecord",
    }
    if len(features) == 2:
        keys = {"items": [{"featureKey": key} for key in features]}
        said["supervisedKeys"] = {"tuple": keys}
    if name != place.name:
        said["configName"] = place.name
    (folder / "dataset_info.json").write_text(json.dumps(said))
    kind = f"{_FEATURES}features_dict.FeaturesDict"
    known = {"type": kind, "content": {"features": features}}
    (folder / "features.json").write_text(
        json.dumps(known | {"proto_cls": "tensorflow_datasets.FeaturesDict"})
    )


def records(path: Path, columns: Columns) -> int:
    """Write a file of rows; return how many there are."""
    examples = _examples(columns)
    path.write_bytes(_framed(examples))
    return len(examples)


def picture(side: int) -> dict[str, Any]:
    """Describe a picture of gray."""
    image = {"shape": {"dimensions": [str(side), str(side), "1"]}, "dtype": "uint8"}
    return {"pythonClassName": f"{_FEATURES}image_feature.Image", "image": image}


def label(classes: int) -> dict[str, Any]:
    """Describe a number of a class."""
    kind = f"{_FEATURES}class_label_feature.ClassLabel"
    return {"pythonClassName": kind, "classLabel": {"numClasses": str(classes)}}


def vector(number: int) -> dict[str, Any]:
    """Describe a vector of float32."""
    tensor = {"shape": {"dimensions": [str(number)]}, "dtype": "float32", "encoding": "none"}
    return {"pythonClassName": f"{_FEATURES}tensor_feature.Tensor", "tensor": tensor}


def png(image: Any) -> bytes:
    """Return a gray picture as a PNG that is not compressed: all of one size are as long."""
    height, width = image.shape
    rows = np.zeros((height, width + 1), "u1")
    rows[:, 1:] = image
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in parts
    )


def _examples(columns: Columns) -> list[bytes]:
    """Return each row as a ``tf.train.Example``."""
    made = []
    for row in zip(*columns.values(), strict=True):
        features = b""
        for name, value in zip(columns, row, strict=True):
            if isinstance(value, bytes):
                kind, inner = "bytes", _field(1, value)
            elif np.issubdtype(value.dtype, np.floating):
                kind, inner = "float", _field(1, value.astype("<f4").tobytes())
            else:
                kind, inner = "int", _field(1, _varint(int(value)))
            entry = _field(1, name.encode()) + _field(2, _field(_LENGTHS[kind], inner))
            features += _field(1, entry)
        made.append(_field(1, features))
    return made


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _framed(examples: Sequence[bytes]) -> bytes:
    """Return examples with their lengths and checksums around them."""
    rows = np.frombuffer(b"".join(examples), "u1").reshape(len(examples), -1)
    length = np.frombuffer(rows.shape[1].to_bytes(8, "little"), "u1")[None]
    head = np.repeat(np.concatenate([length, _checksums(length)], axis=1), len(rows), axis=0)
    return np.concatenate([head, rows, _checksums(rows)], axis=1).tobytes()


def _checksums(rows: Any) -> Any:
    """Return the four bytes after each row."""
    table = np.arange(256, dtype="u4")
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1).astype("u4")
    found = np.full(len(rows), 0xFFFFFFFF, "u4")
    for column in rows.T:
        found = table[(found ^ column) & 0xFF] ^ found >> 8
    found = ~found
    masked = (found >> 15 | found << 17) + np.uint32(0xA282EAD8)
    return masked.astype("<u4").view("u1").reshape(-1, 4)

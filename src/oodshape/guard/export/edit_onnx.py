"""The bytes of an exported ONNX file: a checksum at their end, and no data in other files.

The checksum is the last entry of the model's metadata, so any ONNX runtime reads the file. It covers every byte before
it. This module needs neither onnx nor torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import reading

ADVICE = "give the file that `oodshape export` wrote"
LARGEST = (1 << 31) - 1  # bytes of a protobuf message
MOST_FIELDS = 1_000_000  # of a model outside of its raw data; large networks have some ten thousand
# An entry of ModelProto.metadata_props: its field number and size, then key and value, each with theirs
CHECKSUM = "oodshape_checksum"
KEY = CHECKSUM.encode()
HEX = 64
START = bytes([14 << 3 | 2, 4 + len(KEY) + HEX, 1 << 3 | 2, len(KEY)]) + KEY + bytes([2 << 3 | 2, HEX])
# The fields of each message of onnx.proto (names without Proto) that are, or contain, tensors or the file's metadata
MESSAGES = {
    "Model": {7: "Graph", 14: "StringStringEntry", 20: "TrainingInfo"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
}
EXTERNAL_DATA, DATA_LOCATION, TENSOR_NAME, RAW_DATA = 13, 14, 8, 9  # fields of TensorProto
FLOAT = 1  # TensorProto.DataType
GRAPH, METADATA, FUNCTIONS, INITIALIZER = 7, 14, 25, 5  # fields of ModelProto, and of GraphProto


def add_checksum(model: bytes) -> bytes:
    """Append the checksum to a serialized model."""
    return model + START + hashlib.sha256(model).hexdigest().encode()


def read_exported(path: Path) -> bytes:
    """Read an exported file.

    Raises:
        InputError: its checksum is missing or wrong, or it refers to data in other files.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    with reading(path, ADVICE), path.open("rb") as file:
        size, tail = path.stat().st_size, len(START) + HEX
        file.seek(max(size - tail, 0))
        entry = file.read(tail)
        if not tail < size <= LARGEST or not entry.startswith(START):
            raise InputError(f"{path} has no checksum of oodshape at its end: it is damaged or another file; {ADVICE}")
        file.seek(0)
        data = file.read(size)
        if data != add_checksum(data[:-tail]):
            raise InputError(f"{path} is damaged: its checksum is wrong; restore it from a copy, or export it again")
        check_model_fields(data)
    return data


def check_model_fields(model: bytes) -> None:
    """Refuse a model with a tensor in another file, with local functions, or with two values of one metadata key.

    Runtimes have read files outside of the model's folder. They inline functions, which makes a graph of any size of a
    few of them. Of two values, some take the first and some the last.
    """
    left, count, keys = [("Model", 0, len(model))], 0, set[bytes]()
    while left:
        message, start, end = left.pop()
        for field in _fields(model, start, end):
            count += 1
            if count > MOST_FIELDS:
                raise InputError(f"its graph has more than {MOST_FIELDS:,} fields")
            if message == "Model" and field.number == FUNCTIONS:
                raise InputError("its graph has local functions, which export does not write; export it again")
            external = field.number == EXTERNAL_DATA or (field.number == DATA_LOCATION and field.value)
            if message == "Tensor" and external:
                raise InputError("its graph refers to data in another file, which is not read; export it again")
            if message == "StringStringEntry" and field.number == 1:
                key = model[field.inside : field.end]
                if key in keys - {KEY}:
                    raise InputError("its metadata has two values of one key; export it again")
                keys.add(key)
            inner = MESSAGES.get(message, {}).get(field.number)
            if field.wire == 2 and inner is not None:
                left.append((inner, field.inside, field.end))


def replace_threshold(sealed: bytes, threshold: NDArray[np.float32], metadata: Mapping[str, str]) -> bytes:
    """Return an exported file with another default of its input `threshold` and other values in its metadata."""
    kept, graph = [], b""
    for field in _fields(sealed, 0, len(sealed)):
        whole = sealed[field.start : field.end]
        if field.number == GRAPH:
            parts = _fields(sealed, field.inside, field.end)
            graph += b"".join(sealed[part.start : part.end] for part in parts if not _is_threshold(sealed, part))
        elif field.number != METADATA or not any(
            whole.startswith(_metadata_entry(key), field.inside - field.start) for key in (*metadata, CHECKSUM)
        ):
            kept.append(whole)
    tensor = make_field(TENSOR_NAME, b"threshold") + make_field(RAW_DATA, threshold.astype("<f4").tobytes())
    tensor = bytes([1 << 3]) + _as_varint(len(threshold)) + bytes([2 << 3, FLOAT]) + tensor  # dims, data_type
    entries = [
        make_field(METADATA, _metadata_entry(key) + make_field(2, value.encode())) for key, value in metadata.items()
    ]
    return add_checksum(b"".join([*kept, make_field(GRAPH, graph + make_field(INITIALIZER, tensor)), *entries]))


def _is_threshold(model: bytes, part: ProtoField) -> bool:
    inside = _fields(model, part.inside, part.end) if part.number == INITIALIZER else ()
    return any(each.number == TENSOR_NAME and model[each.inside : each.end] == b"threshold" for each in inside)


def _metadata_entry(key: str) -> bytes:
    return make_field(1, key.encode())


class ProtoField(NamedTuple):
    """One field of a message: where it starts, where its content starts, where it ends; `value` if it is a number."""

    number: int
    wire: int
    value: int
    start: int
    inside: int
    end: int


def _fields(data: bytes, at: int, end: int) -> Iterator[ProtoField]:
    while at < end:
        start = at
        tag, inside = _varint(data, start)
        wire, value = tag & 7, 0
        if wire in (0, 2):
            value, inside = _varint(data, inside)
        at = inside + {0: 0, 1: 8, 2: value, 5: 4}[wire]  # a KeyError: the file is damaged
        if at > end or tag >> 32:
            raise InputError("its graph is damaged")
        yield ProtoField(tag >> 3, wire, value, start, inside, at)


def make_field(number: int, content: bytes) -> bytes:
    """Encode a field that holds bytes, text or a message."""
    return _as_varint(number << 3 | 2) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, in groups of 7 bits, and the place after it."""
    value = 0
    for shift in range(0, 35, 7):  # tags and sizes have 32 bits
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    while data[at] >= 0x80:  # of other numbers only 0 matters
        at += 1
    return value | 1 << 35, at + 1

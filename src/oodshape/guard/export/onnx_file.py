"""The bytes of an exported ONNX file: a checksum at their end, and no data in other files.

The checksum is the last entry of the model's metadata, so any ONNX runtime reads the file. It covers every byte before
it. This module needs neither onnx nor torch.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.core.reading import reading

ADVICE = "give the file that `oodshape export` wrote"
LARGEST = (1 << 31) - 1  # bytes of a protobuf message
MOST_FIELDS = 1_000_000  # of a model outside of its raw data; large networks have some ten thousand
# An entry of ModelProto.metadata_props: its field number and size, then key and value, each with theirs
KEY = b"oodshape_checksum"
HEX = 64
START = bytes([14 << 3 | 2, 4 + len(KEY) + HEX, 1 << 3 | 2, len(KEY)]) + KEY + bytes([2 << 3 | 2, HEX])
# The fields of each message of onnx.proto that are, or contain, tensors or the file's metadata
MESSAGES = {
    "ModelProto": {7: "GraphProto", 14: "StringStringEntryProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
    "StringStringEntryProto": {},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # fields of TensorProto


def seal(model: bytes) -> bytes:
    """Append the checksum to a serialized model."""
    return model + START + hashlib.sha256(model).hexdigest().encode()


def read_sealed(path: Path) -> bytes:
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
        if data != seal(data[:-tail]):
            raise InputError(f"{path} is damaged: its checksum is wrong; restore it from a copy, or export it again")
        check_fields(data)
    return data


def check_fields(model: bytes) -> None:
    """Refuse a model with a tensor in another file, or with two values of one metadata key.

    Runtimes have read files outside of the model's folder; of two values, some take the first and some the last.
    """
    left, fields, keys = [("ModelProto", 0, len(model))], 0, set[bytes]()
    while left:
        message, at, end = left.pop()
        while at < end:
            tag, first = _varint(model, at)
            number, wire, value = tag >> 3, tag & 7, 0
            if wire in (0, 2):
                value, first = _varint(model, first)
            at = first + {0: 0, 1: 8, 2: value, 5: 4}[wire]  # a KeyError: the file is damaged
            fields += 1
            if at > end or tag >> 32 or fields > MOST_FIELDS:
                raise InputError(f"its graph is damaged, or has more than {MOST_FIELDS:,} fields")
            if message == "TensorProto" and (number == EXTERNAL_DATA or (number == DATA_LOCATION and value)):
                raise InputError("its graph refers to data in another file, which is not read; export it again")
            if message == "StringStringEntryProto" and number == 1:
                if model[first:at] in keys - {KEY}:
                    raise InputError("its metadata has two values of one key; export it again")
                keys.add(model[first:at])
            if wire == 2 and number in MESSAGES[message]:
                left.append((MESSAGES[message][number], first, at))


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

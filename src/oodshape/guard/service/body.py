"""The images in a request: multipart files, or base64 in JSON; every limit is kept while the body arrives."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any, NamedTuple

from oodshape.core.reading import one_line
from oodshape.guard.service.settings import Settings


class Refused(Exception):
    """A request that cannot be answered: the status, and why."""

    def __init__(self, status: int, detail: str) -> None:
        """Keep both."""
        super().__init__(detail)
        self.status, self.detail = status, detail


class Upload(NamedTuple):
    """One image as it was sent."""

    name: str
    data: bytes


async def uploads(kind: str, length: str, stream: AsyncIterator[bytes], limits: Settings) -> list[Upload]:
    """The images of a request with this content type and length, or `Refused`."""
    medium, _, rest = kind.partition(";")
    medium = medium.strip().lower()
    if medium not in ("multipart/form-data", "application/json"):
        raise Refused(415, f"send multipart/form-data or application/json, not {one_line(medium, 60) or 'nothing'}")
    if length.isdigit() and int(length) > limits.max_bytes:
        raise _too_large(limits)
    try:
        body = await asyncio.wait_for(_whole(stream, limits), limits.max_seconds)
    except TimeoutError:
        raise Refused(408, f"the request did not arrive within {limits.max_seconds:g} seconds") from None
    found = _from_json(body) if medium == "application/json" else _from_multipart(body, rest)
    if not found:
        raise Refused(400, "there is no image: send files in the field images, or base64 in the JSON list images")
    if len(found) > limits.max_images:
        raise Refused(413, f"{len(found)} images are more than {limits.max_images} in one request")
    return found


async def _whole(stream: AsyncIterator[bytes], limits: Settings) -> bytes:
    """The body, which may have no end: cut at the limit."""
    parts, size = [], 0
    async for part in stream:
        size += len(part)
        if size > limits.max_bytes:
            raise _too_large(limits)
        parts.append(part)
    return b"".join(parts)


def _too_large(limits: Settings) -> Refused:
    return Refused(413, f"the request is larger than {limits.max_bytes:,} bytes")


def _from_json(body: bytes) -> list[Upload]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {one_line(error)}") from None
    images = said.get("images") if isinstance(said, dict) else None
    if not isinstance(images, list) or not all(isinstance(each, str) for each in images):
        raise Refused(400, 'the JSON must be {"images": ["<base64>", ...]}')
    try:
        return [Upload(f"image {i}", base64.b64decode(each, validate=True)) for i, each in enumerate(images)]
    except (binascii.Error, ValueError) as error:
        raise Refused(400, f"an image is no base64: {one_line(error)}") from None


def _from_multipart(body: bytes, rest: str) -> list[Upload]:
    """The files of a form, whatever their fields are called; other fields are an error."""
    multipart: Any = import_module("python_multipart.multipart")
    _, options = multipart.parse_options_header(f"multipart/form-data;{rest}")
    boundary = options.get(b"boundary")
    if not boundary:
        raise Refused(400, "the multipart body has no boundary")
    form = _Form(multipart)
    try:
        parser = multipart.MultipartParser(boundary, form.callbacks)
        parser.write(body)
        parser.finalize()
    except multipart.FormParserError as error:
        raise Refused(400, f"the multipart body is broken: {one_line(error)}") from None
    if not form.ended:
        raise Refused(400, "the multipart body ends before its last part")
    return form.found


class _Form:
    """What the parser calls, part by part."""

    def __init__(self, multipart: Any) -> None:
        self.multipart = multipart
        self.found: list[Upload] = []
        self.ended = False
        self._header = self._value = b""
        self._disposition = b""
        self._data: list[bytes] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        """By the names that the parser knows."""
        names = ("part_begin", "part_data", "part_end", "header_field", "header_value", "header_end", "end")
        return {f"on_{name}": getattr(self, name) for name in names}

    def part_begin(self) -> None:
        self._data, self._disposition = [], b""

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def part_end(self) -> None:
        _, options = self.multipart.parse_options_header(self._disposition)
        name = options.get(b"filename", b"").decode("utf-8", "replace")
        field = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" not in options and field != "images":
            raise Refused(400, f"the field {one_line(repr(field), 60)} is no image: send files in the field images")
        self.found.append(Upload(one_line(name, 200) or f"image {len(self.found)}", b"".join(self._data)))

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def end(self) -> None:
        self.ended = True

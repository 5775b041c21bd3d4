"""Parse a request body into images: the files of a multipart form, or base64 in JSON.

The whole body is at hand and limited in size. Images are counted before any of them is copied or decoded, and every
search over the body is one call that runs at the speed of C.
"""

from __future__ import annotations

import base64
import binascii
import json
from email.message import Message
from email.parser import HeaderParser
from typing import NamedTuple

from oodshape.core.files import one_line

MAX_PART_HEADER = 4096  # bytes
JSON_SHAPE = 'the JSON must be {"images": ["<base64>", ...]}'


class Refused(Exception):
    """A request that is not answered with scores: the HTTP status, and why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Upload(NamedTuple):
    """One encoded image and its name."""

    name: str
    data: bytes


def parse_images(content_type: str, body: bytearray, max_images: int) -> list[Upload]:
    """The images in a body with this content type.

    Raises:
        Refused: there is no image, there are more than `max_images`, or the body is malformed.
    """
    header = Message()
    header["content-type"] = content_type
    parse = _parse_json if header.get_content_type() == "application/json" else _parse_form
    images = parse(header, body, max_images)
    if not images:
        raise Refused(400, "there is no image: send files in the field images, or base64 in the JSON list images")
    return images


def _parse_json(header: Message, body: bytearray, max_images: int) -> list[Upload]:
    # base64 contains none of these characters, so the counts bound how many values json.loads can create
    if body.count(b"[") + body.count(b"{") > 2:
        raise Refused(400, JSON_SHAPE)
    if body.count(b",") >= max_images:
        raise _too_many(max_images)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {one_line(error)}") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise Refused(400, JSON_SHAPE)
    try:
        return [Upload(f"image {i}", base64.b64decode(image, validate=True)) for i, image in enumerate(images)]
    except (binascii.Error, ValueError) as error:
        raise Refused(400, f"an image is not base64: {one_line(error)}") from None


def _parse_form(header: Message, body: bytearray, max_images: int) -> list[Upload]:
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not 0 < len(boundary) <= 70:
        raise Refused(400, "the multipart body has no boundary, or one of more than 70 characters")
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    start = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    images: list[Upload] = []
    while start != 1:
        start += len(delimiter)
        if body.startswith(b"--", start):
            return images
        if len(images) == max_images:
            raise _too_many(max_images)
        end = body.find(b"\r\n" + delimiter, start)
        images.append(_parse_part(len(images), body, start, end))
        start = end + 2
    raise Refused(400, "the multipart body ends before its last part")


def _parse_part(number: int, body: bytearray, start: int, end: int) -> Upload:
    data = body.find(b"\r\n\r\n", start, min(start + MAX_PART_HEADER, end))
    if data < 0:
        raise Refused(400, f"part {number} of the form has no end, no headers or over {MAX_PART_HEADER} bytes of them")
    header = HeaderParser().parsestr(body[start:data].decode("utf-8", "replace").lstrip())
    field, name = header.get_param("name", "", "content-disposition"), header.get_filename()
    if name is None and field != "images":
        raise Refused(400, f"the field {one_line(repr(field), 60)} is not an image: send files in the field images")
    return Upload(one_line(name or "") or f"image {number}", bytes(memoryview(body)[data + 4 : end]))


def _too_many(max_images: int) -> Refused:
    return Refused(413, f"there are more than {max_images} images in one request")

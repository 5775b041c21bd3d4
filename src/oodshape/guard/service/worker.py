"""A scoring process: request bodies in, verdicts out. It may be killed at any time."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from multiprocessing.connection import Connection
from typing import Any

import PIL.Image
from filelock import lock_descriptor, unlock_descriptor

from oodshape.core.errors import InputError
from oodshape.core.files import one_line
from oodshape.guard.export.guarded_file import GuardedFile
from oodshape.guard.service.body import Refused, parse_images
from oodshape.guard.service.settings import Settings
from oodshape.guard.verdict import Verdict
from oodshape.images.decode.formats import open_format
from oodshape.images.decode.read import Unreadable

Json = dict[str, Any]
SLICE_SECONDS = 0.5  # then another request may have its turn
SLICE_BYTES = 1 << 26  # of decoded images in a slice
DECODE_SECONDS = 5  # of processor time for one image
QUICK_SECONDS = 0.5  # of processor time for an image that several processes may decode at the same time
LARGE = 1 << 22  # pixels; larger images are decoded by one process at a time, as slow ones are


def run_worker(connection: Connection, settings: Settings, lock: str) -> None:
    """Describe the file, or why it is refused; then answer until the web process closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the web process stops this one
    settings.limits.use()
    warnings.filterwarnings("ignore", category=PIL.Image.DecompressionBombWarning)  # our limits apply
    try:
        scorer = Scorer(settings, lock)
    except InputError as error:
        return _send(connection, {"error": str(error)})
    with suppress(EOFError, OSError):
        _send(connection, scorer.describe())
        while True:
            job = json.loads(connection.recv_bytes())
            body = bytearray(job["size"])  # one copy of what may be large
            connection.recv_bytes_into(body)
            _send(connection, scorer.score(job["content_type"], body, job["first"], slow=job["slow"]))


def _send(connection: Connection, message: Json) -> None:
    # not pickle: a process that an image has taken over could send code to the web process
    connection.send_bytes(json.dumps(message).encode())


class Scorer:
    """The exported file, and how a body is scored with it."""

    def __init__(self, settings: Settings, lock: str) -> None:
        self.max_images = settings.max_images
        self.guarded = GuardedFile(settings.file, threads=1, provider=settings.provider)
        self.lock = open(lock, "ab")  # noqa: SIM115 (open as long as the process)
        # a black image: what cannot work fails now, and the first request is as fast as the others
        size = self.guarded.preprocessing.size or self.guarded.size or (64, 64)
        image = BytesIO()
        PIL.Image.new("RGB", size[::-1]).save(image, "PNG")
        self.guarded(image.getvalue())

    def describe(self) -> Json:
        """The description of the file for the web process."""
        metadata = self.guarded.metadata
        return {
            "method": metadata.method,
            "classes": [*metadata.names] or metadata.classes,
            "alpha": metadata.alpha,
            "calibration_images": len(metadata.calibration),
            "per_class": metadata.groups is not None,
            "held_out": metadata.held_out,
            "guarantee": metadata.guarantee,
        }

    def score(self, content_type: str, body: bytearray, first: int, *, slow: bool = False) -> Json:
        """The rows of the images from number `first` on that fit into a slice, and how many images there are.

        slow: Only the first of them, and only if no other process decodes a large or slow image now.
        """
        try:
            images = parse_images(content_type, body, self.max_images)
        except Refused as refused:
            return {"status": refused.status, "detail": refused.detail}
        except Exception as error:  # the standard library's parsers fail in many ways on malformed parameters
            return {"status": 400, "detail": f"the body is malformed: {one_line(error)}"}
        found: list[Any] = []
        end, size = time.monotonic() + SLICE_SECONDS, 0
        for image in images[first : first + 1 if slow else None]:
            if found and (time.monotonic() > end or size > SLICE_BYTES):
                break
            try:
                found.append(self._decode(image.data, slow=slow))
                size += found[-1].nbytes
            except InputError as error:
                # not the error itself: its traceback would keep the body in memory
                found.append(error.reason if isinstance(error, Unreadable) else str(error))
            except _Busy:
                break
        decoded = [i for i, each in enumerate(found) if not isinstance(each, str)]
        for i, verdict in zip(decoded, self.guarded.verdicts([found[i] for i in decoded]), strict=True):
            found[i] = str(verdict) if isinstance(verdict, InputError) else verdict
        names = [image.name for image in images[first:]]
        return {"images": len(images), "rows": [_row(name, each) for name, each in zip(names, found, strict=False)]}

    def _decode(self, data: bytes, *, slow: bool) -> Any:
        # the system releases the lock if this process is killed
        if slow and not lock_descriptor(self.lock.fileno(), blocking=False):
            raise _Busy
        try:
            with _limited_time(DECODE_SECONDS if slow else QUICK_SECONDS):
                if not self._is_large(data) or slow:
                    return self.guarded.pixels(data)
        finally:
            if slow:
                unlock_descriptor(self.lock.fileno())
        return self._decode(data, slow=True)

    def _is_large(self, data: bytes) -> bool:
        try:
            with open_format(BytesIO(data)) as image:
                size, limit = image.size, LARGE // 4 if image.format == "JPEG2000" else LARGE  # whose decoder is slow
        except Exception:  # a broken file can raise almost anything, and does so again where it is decoded
            return False
        preprocessing = self.guarded.preprocessing
        wanted = self.guarded.size if preprocessing.resize is None and preprocessing.crop is None else None
        if wanted is not None and sorted(wanted) != sorted(size):  # known without decoding
            raise InputError(f"is {size[0]} x {size[1]} pixels; this network only accepts {wanted[1]} x {wanted[0]}")
        return size[0] * size[1] > limit


class _Busy(Exception):
    """Another process decodes a large or slow image, which may take hundreds of megabytes; this one has to wait."""


@contextmanager
def _limited_time(seconds: float) -> Iterator[None]:
    """End the process if the block takes too much processor time: nothing else stops a decoder written in C."""
    if sys.platform == "win32":  # which has no timer of processor time
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _row(name: str, answer: Verdict | str) -> Json:
    if isinstance(answer, str):
        return {"name": name, "accepted": None, "error": answer}
    label, index, score, p_value, accepted, threshold, error = answer
    if error:
        return {"name": name, "accepted": None, "error": error}
    return {
        "name": name,
        "class": label,
        "class_index": index,
        "score": score,
        "p_value": None if math.isnan(p_value) else p_value,
        "accepted": accepted,
        "threshold": None if math.isnan(threshold) else threshold,
    }

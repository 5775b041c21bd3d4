"""TarImages: the images inside tar files, WebDataset's layout among them, each read from its place in the archive."""

from __future__ import annotations

import tarfile
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.images.formats import EXTENSIONS
from oodshape.images.places import matched, opened, read_bytes, root_of, stamp
from oodshape.images.stored import Stored
from oodshape.images.walking import no_image

PACKED = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
BLOCK = tarfile.BLOCKSIZE  # an archive ends with blocks of zeros
FORGET = 256  # members after which the reader's own list of them is dropped


class TarImages(Stored):
    """The images of one tar file or of a glob of them: archives by name, images in the order inside.

    An image is called by its archive and its path there. A member with the same key and the ending .cls holds its
    label, as WebDataset has it. The headers are read once; an image is then read alone, wherever the archive lies.
    """

    def __init__(self, given: str, *, upright: bool = False) -> None:
        """Read the headers of all archives."""
        self.upright = upright
        self.archives, self.root = matched(given), root_of(given)
        self.name = PurePath(given).name
        self.members: list[str] = []
        places: list[tuple[int, int, int]] = []  # archive, first byte, size
        labels: list[int] = []
        for number, archive in enumerate(self.archives):
            if archive.lower().endswith(PACKED):
                raise InputError(
                    f"{archive} is compressed, and its images cannot be read one by one; unpack it to .tar"
                )
            with reading(archive, "it must be a tar file"):
                try:
                    found = _scanned(archive)
                except tarfile.TarError as error:
                    raise InputError(f"{archive} is no tar file, or ends early ({error}); copy it again") from None
            self.members += [name for name, *_ in found]
            places += [(number, first, size) for _, first, size, _ in found]
            labels += [label for *_, label in found]
        if not self.members:
            raise no_image(given)
        self._places, self._labels = np.array(places, np.int64), np.array(labels, np.int64)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.members)

    def called(self, index: int) -> str:
        """Archive and path inside it."""
        return f"{self.archives[self._places[index, 0]]}/{self.members[index]}"

    def below_root(self, index: int) -> str:
        """The archive from the given folder, and the path inside it."""
        archive = self.archives[self._places[index, 0]]
        return f"{archive.removeprefix(f'{self.root}/') if self.root else archive}/{self.members[index]}"

    def number(self, called: str) -> int:
        """Its place among all."""
        return next(row for row in range(len(self)) if self.called(row) == called)

    def data(self, index: int) -> bytes:
        """The member's bytes."""
        number, first, size = self._places[index].tolist()
        data = read_bytes(self.archives[number], first, first + size)
        if len(data) < size:
            raise OSError(f"its archive ends after {len(data)} of {size} bytes")
        return data

    @property
    def labels(self) -> NDArray[np.int64]:
        """[N]: those of the .cls members."""
        return self._labels

    @property
    def _stamps(self) -> tuple[str, ...]:
        return tuple(map(stamp, self.archives))


def _scanned(archive: str) -> list[tuple[str, int, int, int]]:
    """(path, first byte, size, label) of the images in an archive, in their order."""
    images: list[tuple[str, int, int]] = []
    labels: dict[str, int] = {}
    with opened(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        while (member := tar.next()) is not None:
            name = member.name.removeprefix("./")
            if member.isreg() and not any(word.startswith(".") for word in name.split("/")):
                if name.lower().endswith(EXTENSIONS):
                    images.append((name, member.offset_data, member.size))
                elif name.endswith(".cls") and member.size < 32:
                    here = file.tell()
                    file.seek(member.offset_data)
                    labels[_key(name)] = _label(file.read(member.size))
                    file.seek(here)
            if len(tar.members) >= FORGET:  # type: ignore[attr-defined]
                tar.members.clear()  # type: ignore[attr-defined]
        # Python's reader stops without a word at a damaged header, and the images after it would be lost
        file.seek(tar.offset)
        if file.read(BLOCK) != bytes(BLOCK):
            raise tarfile.ReadError(f"after {len(images)} images")
    return [(name, first, size, labels.get(_key(name), -1)) for name, first, size in images]


def _key(name: str) -> str:
    """What the members of one sample share: the path up to the first dot of its last word."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _label(data: bytes) -> int:
    try:
        return max(int(data), -1)
    except ValueError:
        return -1

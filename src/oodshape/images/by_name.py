"""Data sets by a word: `digits:train`, `folder:PATH`, `list:PATH`, `cifar10:train`, `catalog:imagenet/Texture`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.images.catalog import CATALOG
from oodshape.images.digits import digits_sets
from oodshape.images.folders import ImageFolder, ImageList
from oodshape.images.image_set import ArraySet, ImageSet
from oodshape.images.limits import npz_within

FORMS = "digits:NAME, folder:PATH, list:PATH, array:PATH.npz, catalog:BENCHMARK/SET"


class Missing(InputError):
    """A data set that is not on this machine; the message says where to get it and where to put it."""


def open_source(source: str, base: Path, data: Path | None = None, *, any_list: bool = False) -> ImageSet:
    """The data set that a source names; paths are relative to `base`, catalogued sets lie below `data`.

    A list that is not the published one is refused, unless `any_list` will do.
    """
    kind, colon, rest = source.partition(":")
    if not colon or not rest:
        raise InputError(f"a data source has one of the forms {FORMS}; got {source!r}")
    path = base / Path(rest).expanduser()
    if kind == "digits":
        return _digits(rest)
    if kind == "catalog":
        return _catalogued(rest, data, any_list)
    if kind not in ("folder", "list", "array"):
        raise InputError(f"{kind!r} is no kind of data source; the forms are {FORMS}")
    if not path.exists():
        raise Missing(f"there is no {path}")
    if kind == "array":
        return _array(path)
    return ImageFolder(path) if kind == "folder" else ImageList(path)


@cache
def _all_digits() -> dict[str, ArraySet]:
    return digits_sets()


def _digits(name: str) -> ArraySet:
    if name not in _all_digits():
        raise InputError(f"digits has no set {name!r}; there are {', '.join(_all_digits())}")
    return _all_digits()[name]


def _catalogued(rest: str, data: Path | None, any_list: bool) -> ImageSet:
    benchmark, _, name = rest.partition("/")
    if benchmark not in CATALOG:
        raise InputError(f"the catalog has no benchmark {benchmark!r}; there are {', '.join(CATALOG)}")
    rows = CATALOG[benchmark].named()
    if name not in rows:
        raise InputError(f"{benchmark} has no set {name!r}; there are {', '.join(rows)}")
    if data is None:
        raise Missing(f"{rows[name].name}: say where the data lie with --data DIR or OODSHAPE_DATA")
    if rows[name].find(data) is None:
        raise Missing(
            f"{rows[name].name}: not below {data}; get {rows[name].get}, and put it at {data / rows[name].put}"
        )
    images = rows[name].open(data)
    other = "" if any_list else rows[name].differs(data, len(images))
    if other:
        raise InputError(f"{other}; get the published lists, or take these as they are with --other-lists")
    return images


def _array(path: Path) -> ArraySet:
    """An .npz file with `images` (uint8) and, where there are any, `labels`."""
    way_out = "it must be an .npz file with `images` and perhaps `labels`"
    with reading(path, way_out):
        found = npz_within(path)
        if found.keys() - {"images", "labels"} or "images" not in found:
            raise InputError(f"{path} holds {', '.join(found) or 'nothing'}; {way_out}")
        return ArraySet(path.stem, **found)

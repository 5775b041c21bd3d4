"""An address in a list from elsewhere opens a store of bytes, and nothing else of fsspec's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oodshape import InputError
from oodshape.images.sources.listing import image_set
from oodshape.images.sources.storage import readable


@pytest.mark.parametrize(
    "address",
    [
        "reference://a.png::file://{file}",
        "REFERENCE://a.png::file://{file}",
        "simplecache::reference://a.png::file://{file}",
        "file://{file}::reference://a.png",
        "zip://a.png::file://{file}",
        "dir://a.png::file://{file}",
        "github://owner:repository@main/a.png",
    ],
)
def test_file_systems_that_read_more_than_bytes_are_refused(address: str, tmp_path: Path) -> None:
    """In fsspec 2026.1 and earlier the templates of a reference file run code; it is refused with every version."""
    file = tmp_path / "evil.json"
    code = f"{{{{ cycler.__init__.__globals__.os.mkdir('{tmp_path}/CODE_RAN') }}}}"
    generated = {"key": code, "url": "file:///dev/null", "dimensions": {"i": [1]}}
    file.write_text(json.dumps({"version": 1, "refs": {"a.png": "x"}, "gen": [generated]}))
    given = address.format(file=file)
    (tmp_path / "list.txt").write_text(f"{given}\n")
    with pytest.raises(InputError, match="cannot be opened|there is no file|cannot be read") as caught:
        image_set(tmp_path / "list.txt")[0]
    assert "\n" not in str(caught.value)
    if "://" in given.partition("::")[0]:
        with pytest.raises(InputError, match="addresses begin with file://"):
            readable(given)
    assert not (tmp_path / "CODE_RAN").exists()

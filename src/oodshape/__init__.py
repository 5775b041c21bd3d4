"""Out-of-distribution detection for image classifiers by feature shaping.

from oodshape import Features, METHODS
train = Features.from_arrays(train_features, head=(weight, bias))
detector = METHODS["optfs-e"].fit(train).calibrate(held_out_features)
detector.decide(Features.from_arrays(new_features, head=(weight, bias)))
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

# name -> module, from the imports of the stub; imported when first asked for, so that `import oodshape` takes no time
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: home for home, name in re.findall(r"^from oodshape\.([\w.]+) import (\w+) as", _STUB, re.MULTILINE)}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """The public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module 'oodshape' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"oodshape.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from oodshape.core.errors import missing_extra

        raise ImportError(missing_extra(error, f"oodshape.{name}")) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)

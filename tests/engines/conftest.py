"""One small Ray on this machine for all tests of the engine, and a guard of digits in files."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folders_of_digits import write_digits
from oodshape import Guard

MODEL = "zoo:digits-convnet"


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Its address."""
    pytest.importorskip("ray", reason="need Ray (make test-ray)")
    pytest.importorskip("pyarrow", reason="shards of scores are Parquet")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        address = begun(ray)
    yield address
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its processes are left to end by themselves
        ray.shutdown()
        gc.collect()


def begun(ray: Any, times: int = 5) -> str:
    """The address of a new Ray; it gives itself half a minute to start, and a busy machine may need more than one."""
    how = {"num_cpus": 2, "object_store_memory": 100_000_000, "include_dashboard": False}
    for left in range(times - 1, -1, -1):
        try:
            found = ray.init(address="local", log_to_driver=False, logging_level="error", **how)
            return str(found.address_info["gcs_address"])
        except Exception as error:
            if not left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    raise AssertionError


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_digits(tmp_path_factory.mktemp("digits"), train=200, val=80, test=90, ood=10)
    how: dict[str, Any] = {"method": "energy", "progress": False, "batch_size": 16}
    Guard.fit(MODEL, images=root / "train", calibrate=root / "val", **how).save(root / "guard.safetensors")
    return root

"""Two nodes of Ray on this machine, each with its own object store, an S3 server, and a guard of digits in files."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from folders_of_digits import write_digits
from oodshape import Guard

MODEL = "zoo:digits-convnet"


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    """A client of an S3 server on loopback, which the workers know too: it is there before Ray."""
    pytest.importorskip("s3fs", reason="need s3fs and moto (make test-ray)")
    server = pytest.importorskip("moto.server", reason="need moto (make test-ray)").ThreadedMotoServer(port=0)
    import boto3

    server.start()
    said = {"ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()), "DEFAULT_REGION": "us-east-1"}
    said |= {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in said.items():
            patch.setenv(f"AWS_{name}", value)
        yield boto3.client("s3")
    server.stop()


@pytest.fixture(scope="session")
def nodes(s3: Any) -> Iterator[Any]:
    """Two nodes, and this process as their driver."""
    pytest.importorskip("ray", reason="need Ray (make test-ray)")
    pytest.importorskip("pyarrow", reason="shards of scores are Parquet")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        cluster = started(lambda: Cluster(initialize_head=True, head_node_args={"include_dashboard": False}))
        started(cluster.add_node)  # one core, and 150 MB of objects
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its processes are left to end by themselves
        ray.shutdown()
        cluster.shutdown()
        gc.collect()


def started(start: Callable[[], Any], times: int = 5) -> Any:
    """A node of Ray, which gives itself half a minute to start; a busy machine may need more than one."""
    for left in range(times - 1, -1, -1):
        try:
            return start()
        except Exception as error:
            if not left or "timed out during startup" not in str(error):
                raise
    raise AssertionError


@pytest.fixture
def third(nodes: Any) -> Any:
    """One more node."""
    return started(nodes.add_node)


@pytest.fixture(scope="session")
def cluster(nodes: Any) -> str:
    """The address of the nodes."""
    return str(nodes.address)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_digits(tmp_path_factory.mktemp("digits"), train=200, val=80, test=90, ood=10)
    how: dict[str, Any] = {"method": "energy", "progress": False, "batch_size": 16}
    Guard.fit(MODEL, images=root / "train", calibrate=root / "val", **how).save(root / "guard.safetensors")
    return root

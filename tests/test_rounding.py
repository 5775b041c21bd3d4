"""The simulated rounding of `pytest --rounding SEED`."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from rounding import rounding

pytestmark = pytest.mark.usefixtures("no_other_mode")

A, B = torch.randn(2, 48, 48, generator=torch.Generator().manual_seed(0))
IMAGES = A.view(4, 3, 12, 16)
# name -> (function, the sum of the absolute values of its terms)
FUNCTIONS: dict[str, tuple[Callable[[], Tensor], Tensor]] = {
    "mm": (lambda: A @ B, A.abs() @ B.abs()),
    "addmm": (lambda: torch.addmm(A, A, B, beta=-1), A.abs() + A.abs() @ B.abs()),
    "in place": (lambda: A.clone().addmm_(A, B), A.abs() + A.abs() @ B.abs()),
    "conv": (lambda: conv2d(IMAGES, IMAGES[:, :, :3, :3]), conv2d(IMAGES.abs(), IMAGES[:, :, :3, :3].abs())),
    "sum": (lambda: A.sum(dim=1), A.abs().sum(dim=1)),
    "norm": (lambda: A.norm(dim=0), A.norm(dim=0)),
    "softmax": (lambda: A.softmax(dim=1), A.softmax(dim=1)),
    "logsumexp": (lambda: A.logsumexp(1), A.logsumexp(1).abs() + 1),
    "attention": (lambda: scaled_dot_product_attention(A[None], B[None], A[None]), torch.full((), 5.0)),
    "float64": (lambda: A.double() @ B.double(), 2**-29 * (A.abs() @ B.abs())),
    "half": (lambda: (A.half() @ B.half()).float(), 2**13 * (A.abs() @ B.abs())),  # one unit of float16
}


@pytest.fixture
def no_other_mode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo `--rounding` itself."""
    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", inspect.unwrap(threading.Thread._bootstrap_inner))
    with _disable_current_modes():
        yield


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_move_within_the_limit(name: str, inference: bool) -> None:
    function, terms = FUNCTIONS[name]
    with torch.inference_mode(inference):
        exact = function()
        found = []
        for seed in range(8):
            with rounding(seed):
                found.append(function())
                assert torch.equal(found[-1], function())
    assert any(not torch.equal(found[0], other) for other in found)
    unit = torch.finfo(exact.dtype).eps if exact.dtype == torch.float64 else 2.0**-23
    for moved in found:
        assert ((moved - exact).abs() <= 1.5 * 2.0**-23 * terms + 0.5 * unit * exact.abs()).all()


def test_exact_sums_stay() -> None:
    counts = torch.arange(100.0)
    with rounding(1):
        assert counts.sum() == 4950
        assert torch.equal(torch.ones(40, 40) @ torch.ones(40, 2), torch.full((40, 2), 40.0))
        assert torch.full((40,), torch.inf).sum() == torch.inf

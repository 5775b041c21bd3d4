"""The simulated rounding of `pytest --rounding SEED`."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from rounding import rounding

pytestmark = pytest.mark.usefixtures("no_other_mode")

A, B = torch.randn(2, 48, 48, generator=torch.Generator().manual_seed(0))
IMAGES = A.view(4, 3, 12, 16)
# name -> (function, the sum of the absolute values of its terms)
FUNCTIONS: dict[str, tuple[Callable[[], Tensor], Tensor]] = {
    "mm": (lambda: A @ B, A.abs() @ B.abs()),
    "linear": (lambda: nn.functional.linear(A, B.T, A[0]), A.abs() @ B.abs() + A[0].abs()),
    "addmm": (lambda: torch.addmm(A, A, B, beta=-1), A.abs() + A.abs() @ B.abs()),
    "einsum": (lambda: torch.einsum("nd,dc->nc", A, B), A.abs() @ B.abs()),
    "mv": (lambda: A @ B[0], A.abs() @ B[0].abs()),
    "dot": (lambda: A[0] @ B[0], A[0].abs() @ B[0].abs()),
    "out": (lambda: torch.mm(A, B, out=torch.empty(48, 48)), A.abs() @ B.abs()),
    "in place": (lambda: A.clone().addmm_(A, B), A.abs() + A.abs() @ B.abs()),
    "conv": (lambda: conv2d(IMAGES, IMAGES[:, :, :3, :3]), conv2d(IMAGES.abs(), IMAGES[:, :, :3, :3].abs())),
    "sum": (lambda: A.sum(dim=1), A.abs().sum(dim=1)),
    "mean": (lambda: A.mean(), A.abs().mean()),
    "cumsum": (lambda: A.cumsum(0), A.abs().cumsum(0)),
    "norm": (lambda: A.norm(dim=0), A.norm(dim=0)),
    "var": (lambda: A.var(dim=0), A.var(dim=0)),
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


def test_another_batch_size_gives_other_bits() -> None:
    with rounding(1):
        assert not torch.equal((A @ B)[:5], A[:5] @ B)
        assert torch.equal(A.square(), A * A)
        assert torch.equal(A[:, :8].sum(dim=1), A[:, :8].clone().sum(dim=1))


def test_exact_sums_stay() -> None:
    counts = torch.arange(100.0)
    with rounding(1):
        assert counts.sum() == 4950
        assert torch.equal(torch.ones(40, 40) @ torch.ones(40, 2), torch.full((40, 2), 40.0))
        assert torch.full((40,), torch.inf).sum() == torch.inf


def test_gradients_move() -> None:
    weight = IMAGES[:, :, :3, :3].clone().requires_grad_()
    exact = torch.autograd.grad(conv2d(IMAGES, weight).square().sum(), weight)[0]
    with rounding(1):
        moved = torch.autograd.grad(conv2d(IMAGES, weight).square().sum(), weight)[0]
    assert not torch.equal(moved, exact)
    torch.testing.assert_close(moved, exact, rtol=1e-4, atol=1e-3)


class Overriding(threading.Thread):
    """A thread with a `run` of its own, as anyio's."""

    def run(self) -> None:
        self.found = A @ B


def test_threads_are_covered() -> None:
    with rounding(1):
        thread = Overriding()
        thread.start()
        thread.join()
        assert torch.equal(thread.found, A @ B)
    assert not torch.equal(thread.found, A @ B)
    after = Overriding()
    after.start()
    after.join()
    assert torch.equal(after.found, A @ B)


def test_tracing_sees_the_functions_themselves() -> None:
    net, rows = nn.Linear(48, 48), A.clone()
    with torch.no_grad(), rounding(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        moved = net(rows)
        program = torch.export.export(net, (rows,), dynamic_shapes=({0: torch.export.Dim("n")},))
        compiled = torch.compile(net, backend="eager", fullgraph=True)(rows)
        traced = torch.jit.trace(net, rows)  # type: ignore[no-untyped-call]
    calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert calls == ["aten.linear.default"]
    assert torch.equal(compiled, moved)
    assert not torch.equal(moved, net(rows))
    assert "rand" not in str(traced.graph)

"""Networks whose features or outputs no threshold could hold for: refused, with the cause and the fix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oodshape import METHODS, Classifier, Features, Guard, InputError, Preprocessing
from oodshape.images.sources.memory import as_image
from oodshape.networks.classifier import network_fingerprint

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A small classifier; `tracked`: whether its normalisation has statistics of its own."""

    def __init__(self, *, tracked: bool = True, random: bool = False, outputs: int = 5) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=tracked)
        self.random, self.fc = random, nn.Linear(144, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.fc(nn.functional.dropout(x, 0.5, training=self.random))


def test_features_that_depend_on_the_batch_or_on_chance_are_refused() -> None:
    net, sizes = Net(), []
    net.register_forward_pre_hook(lambda _, images: sizes.append(len(images[0])))
    classifier = Classifier(net, probe=IMAGES)
    sizes.clear()
    for _ in range(2):
        classifier.check_repeatable(IMAGES[:2])
    assert sizes == [2, 2, 1, 1]  # four forward passes, once
    with pytest.raises(
        InputError, match=r"depend on the other images of its batch \(norm: track_running_stats=False\)"
    ):
        Classifier(Net(tracked=False)).check_repeatable(IMAGES[:2])
    with pytest.raises(InputError, match="random in eval mode too"):
        Classifier(Net(random=True)).check_repeatable(IMAGES[:2])
    with pytest.raises(InputError, match="depend on the other images"):
        Features.extract(Classifier(Net(tracked=False)), [IMAGES], prepared=True, progress=False)


def test_one_output_is_refused_and_the_fix_works() -> None:
    net = Net(outputs=1)
    with pytest.raises(InputError, match=r"one output .* two logits \(0, z\)"):
        Classifier(net)(IMAGES)
    two, head = nn.Linear(144, 2), net.fc
    two.weight.data = torch.cat([0 * head.weight, head.weight]).data
    two.bias.data = torch.cat([0 * head.bias, head.bias]).data
    z = net.eval()(IMAGES)
    net.fc = two
    torch.testing.assert_close(Classifier(net)(IMAGES).logits, torch.cat([0 * z, z], dim=1))


def test_a_segmentation_network_is_refused_by_its_output_shape() -> None:
    with pytest.raises(InputError, match=r"returns \[2, 3, 8, 8\], values at many places"):
        Classifier(nn.Conv2d(1, 3, 1))(IMAGES[:2])
    with pytest.raises(InputError, match=r"returns \[2, 8, 5\], values at many places"):
        Classifier(nn.Sequential(nn.Flatten(1, 2), nn.Linear(8, 5)))(IMAGES[:2])


def test_a_data_parallel_network_is_the_one_inside() -> None:
    net = Net()
    wrapped = Classifier(nn.DataParallel(net))
    assert wrapped.net is net
    assert wrapped.fingerprint == Classifier(net).fingerprint
    torch.testing.assert_close(wrapped(IMAGES).logits, Classifier(net)(IMAGES).logits)


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(InputError, match="images are on the meta device"):
        Classifier(Net())(IMAGES.to("meta"))
    with pytest.raises(InputError, match="weights are on the meta device"):
        network_fingerprint(Net().to("meta"))
    pictures = list(np.random.default_rng(0).integers(256, size=(100, 8, 8, 1), dtype=np.uint8))
    with pytest.raises(InputError, match="weights are on the meta device"):
        Guard.fit(Net().to("meta"), images=pictures, preprocessing=Preprocessing((0.5,), (0.5,)), method="energy")
    with pytest.raises(InputError, match="meta device has no values"):
        as_image(torch.empty(1, 8, 8, device="meta"), upright=False)


def test_equal_calibration_scores_are_warned_of() -> None:
    data = Features.from_arrays(np.random.default_rng(0).normal(size=(50, 3)), (np.ones((1, 3)), None))
    with pytest.warns(UserWarning, match="all 50 calibration scores are equal: this method does not tell"):
        METHODS["msp"].fit(data).calibrate(data)

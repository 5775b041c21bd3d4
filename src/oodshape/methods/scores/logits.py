"""Scores of the logits, [N, C] -> [N]: MSP, temperature scaling, max logit, energy, GEN; and GradNorm."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from oodshape.core.values import AtLeast, Positive
from oodshape.features.features import Features
from oodshape.features.moments import TEMPERATURES, Moments, Statistic
from oodshape.methods.slots import Evidence, FittedScore, LearnsNothing, Score, ScoreRecipe
from oodshape.methods.training_set import CHECKED, Training, uses_labels


class MaxSoftmax(Score):
    """max softmax(logits / temperature) (Hendrycks & Gimpel, 2017).

    In float32 it is exactly 1 for every logit that leads by 17 or more: `LogSoftmax` tells these apart.

    >>> MaxSoftmax()(torch.tensor([[0.0, 0.0], [0.0, 100.0]]))
    tensor([0.5000, 1.0000])
    """

    temperature: Annotated[float, Positive()] = 1.0

    def __call__(self, logits: Tensor) -> Tensor:
        above = logits - logits.amax(dim=1, keepdim=True)
        return above.div_(self.temperature).exp_().sum(dim=1).reciprocal_()


class LogSoftmax(Score):
    """max log softmax(logits): the order of `MaxSoftmax`, told apart where that is 1 in float32.

    >>> LogSoftmax()(torch.tensor([[0.0, 0.0], [0.0, 20.0], [0.0, 30.0]]))
    tensor([-6.9315e-01, -2.0612e-09, -9.3576e-14])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        """The log of the largest probability, -log(1 + what the other classes have next to it)."""
        largest = logits.max(dim=1, keepdim=True)
        # the others alone: next to the 1 of the largest they would be lost
        others = (logits - largest.values).exp_().scatter_(1, largest.indices, 0.0).sum(dim=1)
        return -torch.log1p(others)


class MaxLogit(Score):
    """max logit (Hendrycks et al., 2022).

    >>> MaxLogit()(torch.tensor([[1.0, 3.0]]))
    tensor([3.])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.amax(dim=1)


class Energy(Score):
    """log sum exp(logits) (Liu et al., 2020).

    >>> Energy()(torch.tensor([[0.0, 0.0]]))
    tensor([0.6931])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        return torch.logsumexp(logits, dim=1)


class Tempered(FittedScore):
    """max log softmax(logits / temperature)."""

    temperature: Annotated[float, Positive()]

    def of(self, seen: Evidence) -> Tensor:
        return LogSoftmax()(seen.logits / self.temperature)


class TemperatureScaling(ScoreRecipe):
    """max log softmax(logits / T), T in 1/8..8 the one at which the labels are most likely (Guo et al., 2017).

    The likelihood has its maximum where the mean logit under the probabilities equals that of the labels. ID images
    that were held out (`fit(..., held_out=...)`) serve where there are any: a network is surer of its training images.
    From sums alone (parts, Ray) T is interpolated between 13 temperatures, within 1 % of the maximum. Without labels in
    the network's order T is 1.
    """

    needs = CHECKED | {Statistic.LABEL_SURPRISE}
    reads_features = False

    def fit(self, train: Training) -> Tempered:
        features = train.maybe_features if train.held_out is None else train.held_out
        moments = train.moments(self.needs) if features is None else features.moments(self.needs)
        if not uses_labels(moments, "auto"):
            return Tempered(1.0)
        start = _interpolate_temperature(moments)
        return Tempered(start if features is None else _find_likeliest_temperature(features, start))


def _interpolate_temperature(moments: Moments) -> float:
    """Where the summed surprise is 0; the lowest or highest temperature where it never is."""
    from scipy.interpolate import PchipInterpolator

    surprise, logs = moments.parts[Statistic.LABEL_SURPRISE], np.log(TEMPERATURES)  # it falls as T rises
    if surprise[0] <= 0 or surprise[-1] >= 0:
        return TEMPERATURES[0] if surprise[0] <= 0 else TEMPERATURES[-1]
    return float(np.exp(PchipInterpolator(logs, surprise).roots(extrapolate=False)[0]))


def _find_likeliest_temperature(features: Features, start: float) -> float:
    """The temperature of the largest likelihood, by Newton's method on its logarithm; a pass for each step."""
    assert features.labels is not None
    head, log, limits = features.head.to("cpu"), math.log(start), np.log([TEMPERATURES[0], TEMPERATURES[-1]])
    for _ in range(STEPS):
        surprise, variance = 0.0, 0.0
        for first, raw in features.chunks(parts=8):
            logits = head.logits(raw.float().cpu()).double()
            own = logits.gather(1, features.labels[first : first + len(raw), None])
            probabilities = (logits / math.exp(log)).softmax(dim=1)
            mean = (probabilities * logits).sum(dim=1, keepdim=True)
            surprise += float((mean - own).sum())
            variance += float((probabilities * (logits - mean).square()).sum())
        step = surprise * math.exp(log) / variance if variance > 0 else 0.0
        before, log = log, float(np.clip(log + step, *limits))
        if abs(log - before) < CLOSE:
            break
    return math.exp(log)


STEPS, CLOSE = 20, 1e-7  # at most, and of the logarithm


class Gen(Score):
    """Minus the generalised entropy of the top probabilities: -sum p^gamma (1 - p)^gamma (Liu et al., 2023).

    Logarithms keep 1 - p of a sure prediction, which rounds to 0 in float32.

    >>> Gen(gamma=0.5)(torch.tensor([[0.0, 0.0]]))
    tensor([-1.])
    """

    gamma: Annotated[float, Positive()] = 0.1
    top: Annotated[int, AtLeast(1)] = 100

    def __call__(self, logits: Tensor) -> Tensor:
        highest = logits.topk(min(self.top, logits.shape[1]), dim=1)
        total = torch.logsumexp(logits, dim=1, keepdim=True)
        log_p = highest.values - total
        others = logits.scatter(1, highest.indices[:, :1], -torch.inf)
        first = torch.logsumexp(others, dim=1, keepdim=True) - total  # log(1 - p) of the largest, exactly
        log_rest = torch.cat([first, torch.log1p(-log_p[:, 1:].exp())], dim=1)
        return -(self.gamma * (log_p + log_rest)).exp().sum(dim=1)


class GradNorm(LearnsNothing, FittedScore, ScoreRecipe):
    """The L1 norm of the gradient of KL(uniform, p) at the head's weights (Huang et al., 2021), in closed form.

    ||z||_1 sum_c |C p_c - 1|: the gradient is an outer product, so no backward pass is needed.
    """

    def of(self, seen: Evidence) -> Tensor:
        p = seen.logits.softmax(dim=1)
        return seen.features.abs().sum(dim=1) * (p * p.shape[1] - 1).abs().sum(dim=1)

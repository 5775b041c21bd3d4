"""OpenOOD's postprocessors written again in numpy, scipy and scikit-learn, from what its source computes.

One function each of (data, z) -> a score per row, higher = ID; `data` holds what OpenOOD hands to a method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, rel_entr, softmax
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors

Array = np.ndarray


@dataclass
class Data:
    """Features and labels of ID training and validation images, and the head."""

    train: Array
    train_labels: Array
    val: Array
    val_labels: Array
    weight: Array
    bias: Array

    def logits(self, z: Array) -> Array:
        return z @ self.weight.T + self.bias

    @property
    def classes(self) -> int:
        return len(self.bias)


def _unit(z: Array) -> Array:
    return z / np.linalg.norm(z, axis=-1, keepdims=True) + 1e-10


def msp(data: Data, z: Array) -> Array:
    return softmax(data.logits(z).astype(np.float32), axis=1).max(axis=1)  # with its ties


def mls(data: Data, z: Array) -> Array:
    return data.logits(z).max(axis=1)


def ebo(data: Data, z: Array) -> Array:
    return logsumexp(data.logits(z), axis=1)


def temp_scaling(data: Data, z: Array) -> Array:
    logits = data.logits(data.val)
    rows = np.arange(len(logits))

    def surprise(log_t: float) -> float:
        scaled = logits / np.exp(log_t)
        return float((logsumexp(scaled, axis=1) - scaled[rows, data.val_labels]).mean())

    best = minimize_scalar(surprise, bounds=(-2, 2), method="bounded").x
    return softmax(data.logits(z) / np.exp(best), axis=1).max(axis=1)


def gen(data: Data, z: Array, gamma: float = 0.1, top: int = 100) -> Array:
    p = np.sort(softmax(data.logits(z), axis=1), axis=1)[:, -top:]
    return -(p**gamma * (1 - p) ** gamma).sum(axis=1)


def react(data: Data, z: Array, percentile: float = 90) -> Array:
    limit = np.percentile(data.val.flatten(), percentile)
    return logsumexp(data.logits(z.clip(max=limit)), axis=1)


def _kept(z: Array, percentile: float) -> tuple[Array, int]:
    """The places of the largest values; which of equal ones is torch's choice, there as here."""
    k = z.shape[1] - int(np.round(z.shape[1] * percentile / 100))
    return torch.topk(torch.from_numpy(z).float(), k, dim=1, sorted=False).indices.numpy(), k


def ash(data: Data, z: Array, percentile: float = 90) -> Array:
    chosen, k = _kept(z, percentile)
    shaped = np.zeros_like(z)
    np.put_along_axis(shaped, chosen, np.repeat(z.sum(axis=1, keepdims=True) / k, k, axis=1), axis=1)
    return logsumexp(data.logits(shaped), axis=1)


def scale(data: Data, z: Array, percentile: float = 85) -> Array:
    chosen, _ = _kept(z, percentile)
    factor = z.sum(axis=1) / np.take_along_axis(z, chosen, axis=1).sum(axis=1)
    return logsumexp(data.logits(z * np.exp(factor)[:, None]), axis=1)


def dice(data: Data, z: Array, percentile: float = 90) -> Array:
    contribution = data.train.mean(axis=0)[None] * data.weight
    masked = data.weight * (contribution > np.percentile(contribution, percentile))
    return logsumexp(z @ masked.T + data.bias, axis=1)


def knn(data: Data, z: Array, k: int = 50) -> Array:
    distances, _ = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(_unit(data.train)).kneighbors(_unit(z))
    return -distances[:, -1]


def vim(data: Data, z: Array, dim: int = 256) -> Array:
    u = -np.linalg.pinv(data.weight) @ data.bias
    covariance = EmpiricalCovariance(assume_centered=True).fit(data.train - u).covariance_
    values, vectors = np.linalg.eigh(covariance)
    rest = vectors[:, np.argsort(-values)[dim:]]
    residual = np.linalg.norm((data.train - u) @ rest, axis=1)
    alpha = data.logits(data.train).max(axis=1).mean() / residual.mean()
    return logsumexp(data.logits(z), axis=1) - alpha * np.linalg.norm((z - u) @ rest, axis=1)


def _gaussians(data: Data) -> tuple[Array, Array, Array, Array]:
    means = np.array([data.train[data.train_labels == c].mean(axis=0) for c in range(data.classes)])
    within = EmpiricalCovariance().fit(data.train - means[data.train_labels]).precision_
    center = data.train.mean(axis=0)
    return means, within, center, EmpiricalCovariance().fit(data.train - center).precision_


def _distances(z: Array, mean: Array, precision: Array) -> Array:
    return np.einsum("ni,ij,nj->n", z - mean, precision, z - mean, optimize=True)


def mds(data: Data, z: Array) -> Array:
    means, precision, _, _ = _gaussians(data)
    return np.max([-_distances(z, mean, precision) for mean in means], axis=0)


def rmds(data: Data, z: Array) -> Array:
    _, _, center, background = _gaussians(data)
    return mds(data, z) + _distances(z, center, background)


def she(data: Data, z: Array) -> Array:
    right = data.logits(data.train).argmax(axis=1) == data.train_labels
    means = np.array([data.train[right & (data.train_labels == c)].mean(axis=0) for c in range(data.classes)])
    return (z * means[data.logits(z).argmax(axis=1)]).sum(axis=1)


def klm(data: Data, z: Array) -> Array:
    p_val, p = softmax(data.logits(data.val), axis=1), softmax(data.logits(z), axis=1)
    seen = p_val.argmax(axis=1)
    templates = [p_val[seen == c].mean(axis=0) for c in range(data.classes) if (seen == c).any()]
    return -rel_entr(p[:, None], np.array(templates)[None]).sum(axis=2).min(axis=1)


def gradnorm(data: Data, z: Array) -> Array:
    p = softmax(data.logits(z), axis=1)
    return np.array([np.abs(np.outer(data.classes * q - 1, row)).sum() for q, row in zip(p, z, strict=True)])


def nnguide(data: Data, z: Array, bank: Array, k: int = 100) -> Array:
    guide = _unit(bank) * logsumexp(data.logits(bank), axis=1)[:, None]
    k = min(k, len(guide))
    return np.sort(_unit(z) @ guide.T, axis=1)[:, -k:].mean(axis=1) * logsumexp(data.logits(z), axis=1)


def fdbd(data: Data, z: Array) -> Array:
    logits = data.logits(z)
    first = logits.argmax(axis=1)
    gaps = np.abs(logits - logits.max(axis=1, keepdims=True))
    lengths = np.linalg.norm(data.weight[None] - data.weight[:, None], axis=2)
    np.fill_diagonal(lengths, 1)
    away = np.linalg.norm(z - data.train.mean(axis=0), axis=1)
    return (gaps / lengths[first]).sum(axis=1) / away


def nci(data: Data, z: Array, alpha: float = 0.0001) -> Array:
    apart = z - data.train.mean(axis=0)
    along = (data.weight[data.logits(z).argmax(axis=1)] * apart).sum(axis=1) / np.linalg.norm(apart, axis=1)
    return along + alpha * np.abs(z).sum(axis=1)

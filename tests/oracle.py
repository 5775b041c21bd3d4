"""Naive oracles: slow, obvious computations that the library must agree with."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np


def naive_auroc(id_scores: list[float], ood_scores: list[float]) -> Fraction:
    """P(id > ood) + P(id = ood) / 2, pair by pair."""
    halves = sum(2 * (a > b) + (a == b) for a in id_scores for b in ood_scores)
    return Fraction(halves, 2 * len(id_scores) * len(ood_scores))


def naive_fpr_at_tpr(id_scores: list[float], ood_scores: list[float], tpr: Fraction) -> Fraction:
    """The share of OOD at or above the largest score that at least the share tpr of ID reaches."""
    kept = [t for t in id_scores if Fraction(sum(a >= t for a in id_scores), len(id_scores)) >= tpr]
    return Fraction(sum(b >= max(kept) for b in ood_scores), len(ood_scores))


def naive_detection_error(id_scores: list[float], ood_scores: list[float]) -> Fraction:
    """The smallest of P(id < t) / 2 + P(ood >= t) / 2 over every score as the threshold t; at most 1/2."""
    errors = [Fraction(1, 2)]
    for t in [*id_scores, *ood_scores]:
        missed = Fraction(sum(a < t for a in id_scores), len(id_scores))
        accepted = Fraction(sum(b >= t for b in ood_scores), len(ood_scores))
        errors.append((missed + accepted) / 2)
    return min(errors)


def naive_optfs(
    train: np.ndarray, classes: np.ndarray, weight: np.ndarray, edges: np.ndarray, norm: float
) -> np.ndarray:
    """theta by the paper's formula: a mask per interval, value by value, in float64."""
    z, w = train.astype(np.float64), weight.astype(np.float64)[classes]
    masks = [(z >= a) & (z < b) for a, b in itertools.pairwise(edges)]
    impact = np.array([(mask * z * w).sum(axis=1).mean() for mask in masks])
    return impact / np.linalg.norm(impact) * norm


def naive_shape(z: np.ndarray, edges: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """theta(z) z, a mask per interval."""
    shaped = np.zeros_like(z)
    for a, b, t in zip(edges[:-1], edges[1:], theta, strict=True):
        shaped += np.where((z >= a) & (z < b), t * z, 0.0)
    return shaped


def _keep(row: np.ndarray, p: float) -> list[int]:
    kept = len(row) - round(p * len(row))
    return sorted(range(len(row)), key=lambda j: -row[j])[:kept]


def _ash(z: np.ndarray, p: float, value) -> np.ndarray:
    shaped = np.zeros_like(z)
    for i, row in enumerate(z):
        keep = _keep(row, p)
        for j in keep:
            shaped[i, j] = value(row, keep, j)
    return shaped


def _splitmix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def naive_noise(row: np.ndarray, seed: int) -> list[float]:
    """Uniform numbers from the bits of a row, in Python integers modulo 2^64."""
    places = [0x9E3779B97F4A7C15 * (j + 1) % 2**64 for j in range(len(row))]
    bits = (row.astype(np.float32) + np.float32(0)).view(np.int32).tolist()
    total = sum(_splitmix((b + p) % 2**64) for b, p in zip(bits, places, strict=True))
    start = _splitmix((total + seed) % 2**64)
    return [(_splitmix((start + p) % 2**64) >> 40) / 2**24 for p in places]


def naive_scores(name: str, train: np.ndarray, z: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """[N] scores of a method of the table with its general settings, by the formula, in float64."""
    train, z, weight, bias = (x.astype(np.float64) for x in (train, z, weight, bias))
    classes = (train @ weight.T + bias).argmax(axis=1)
    alpha, beta = np.quantile(train, [0.001, 0.999])
    edges = alpha + (beta - alpha) / 100 * np.arange(101)
    theta = naive_optfs(train, classes, weight, edges, 10.0) if name.startswith("optfs") else None
    t = np.quantile(train, 0.9)
    shaped, head = z, weight
    if name == "optfs-e+react":
        shaped = naive_shape(np.where(z == 0, 1.0, z), edges, theta) / np.where(z == 0, 1.0, z)
        shaped = np.where(z == 0, naive_shape(np.full_like(z, 1e-12), edges, theta) / 1e-12, shaped)
        shaped = shaped * np.minimum(z, t)
    elif theta is not None:
        shaped = naive_shape(z, edges, theta)
    elif name == "react":
        shaped = np.minimum(z, t)
    elif name == "bfact":
        shaped = z / np.sqrt(1 + (z / np.quantile(train, 0.95)) ** 4)
    elif name == "vra-p":
        low, high = np.quantile(train, [0.6, 0.95])
        shaped = np.where(z < low, 0.0, np.where(z < high, z, high))
    elif name == "ash-p":
        shaped = _ash(z, 0.6, lambda row, keep, j: row[j])
    elif name == "ash-b":
        shaped = _ash(z, 0.65, lambda row, keep, j: row.sum() / len(keep))
    elif name == "ash-s":
        shaped = _ash(z, 0.9, lambda row, keep, j: row[j] * np.exp(row.sum() / row[keep].sum()))
    elif name == "ash-rand":
        shaped = _ash(z, 0.75, lambda row, keep, j: 10 * naive_noise(row, 0)[j])
    if "dice" in name:
        contribution = weight * train.mean(axis=0)
        head = np.where(contribution > np.quantile(contribution, 0.7), weight, 0.0)
    logits = np.array([[(row * w).sum() for w in head] for row in shaped]) + bias
    if name == "optfs-v":
        frozen = (z @ weight.T + bias).argmax(axis=1)
        return (weight[frozen] * shaped).sum(axis=1)
    temperature = 1000.0 if name == "odin" else 1.0
    if name in ("msp", "odin", "optfs-msp"):
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        return 1.0 / powers.sum(axis=1)
    if name in ("mls", "optfs-mls"):
        return logits.max(axis=1)
    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


def naive_impacts(z: np.ndarray, classes: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """[N, K] interval-specific feature impacts, a mask per interval, in float64."""
    z, w = z.astype(np.float64), weight.astype(np.float64)[classes]
    return np.stack([(((z >= a) & (z < b)) * z * w).sum(axis=1) for a, b in itertools.pairwise(edges)], axis=1)


def naive_profile(z: np.ndarray, shaped: np.ndarray, edges: np.ndarray) -> tuple[list[float], list[float], list[int]]:
    """Mean and standard deviation of shaped / z per interval, value by value, and how many; z = 0 left out."""
    means, stds, counts = [], [], []
    for a, b in itertools.pairwise(edges):
        pairs = zip(z.ravel().tolist(), shaped.ravel().tolist(), strict=True)
        ratios = [s / x for x, s in pairs if a <= x < b and x != 0]
        counts.append(len(ratios))
        means.append(float(np.mean(ratios)) if ratios else float("nan"))
        stds.append(float(np.std(ratios)) if ratios else float("nan"))
    return means, stds, counts


def naive_loss(theta: np.ndarray, c: float, inside: np.ndarray, outside: np.ndarray, penalty: float, loss) -> float:
    """Half the mean loss over ID and over OOD impacts plus the penalty."""
    margins = inside @ theta + c, -(outside @ theta) - c
    return sum(float(np.mean([loss(m) for m in part])) for part in margins) / 2 + penalty / 2 * float(theta @ theta)

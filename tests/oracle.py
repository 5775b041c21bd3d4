"""Naive oracles: slow, obvious computations that the library must agree with."""

from __future__ import annotations

import itertools
import math
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
    if name in NEWER:
        return np.array(NEWER[name](train, z, weight, bias))
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


# Methods since the paper: one function each of (train, z, weight, bias) -> a score per row, image by image


def _logits(row: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> list[float]:
    return [float((row * w).sum() + b) for w, b in zip(weight, bias, strict=True)]


def _energy(logits: list[float]) -> float:
    top = max(logits)
    return top + math.log(sum(math.exp(x - top) for x in logits))


def _softmax(logits: list[float]) -> list[float]:
    powers = [math.exp(x - max(logits)) for x in logits]
    return [x / sum(powers) for x in powers]


def _class(row: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> int:
    return int(np.argmax(_logits(row, weight, bias)))


def _class_rows(train: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> dict[int, np.ndarray]:
    classes = [_class(row, weight, bias) for row in train]
    return {c: train[[k == c for k in classes]] for c in sorted(set(classes))}


def _mean_of(c: int, rows: dict[int, np.ndarray], train: np.ndarray) -> np.ndarray:
    return rows[c].mean(axis=0) if c in rows else train.mean(axis=0)


def _directions(z: np.ndarray) -> np.ndarray:
    return np.array([row / np.linalg.norm(row) for row in z])


def naive_gen(train, z, weight, bias):
    scores = []
    for row in z:
        p = _softmax(_logits(row, weight, bias))
        rest = [sum(p[:i] + p[i + 1 :]) for i in range(len(p))]  # 1 - p would lose the digits of a sure prediction
        top = sorted(range(len(p)), key=lambda i: -p[i])[:100]
        scores.append(-sum((p[i] * rest[i]) ** 0.1 for i in top))
    return scores


def naive_scale(train, z, weight, bias):
    factors = [math.exp(row.sum() / row[_keep(row, 0.85)].sum()) for row in z]
    return [_energy(_logits(row * f, weight, bias)) for row, f in zip(z, factors, strict=True)]


def naive_lts(train, z, weight, bias):
    scores = []
    for row in z:
        positive = sorted((max(x, 0.0) for x in row), reverse=True)
        factor = (sum(positive) / sum(positive[: round(0.05 * len(row))])) ** 2
        scores.append(_energy([factor * x for x in _logits(row, weight, bias)]))
    return scores


def naive_ras(train, z, weight, bias):
    profile = np.mean([sorted(row) for row in train], axis=0)
    scores = []
    for row in z:
        shaped = np.zeros_like(row)
        for rank, j in enumerate(sorted(range(len(row)), key=lambda j: (row[j], j))):
            shaped[j] = profile[rank]
        scores.append(_energy(_logits(shaped, weight, bias)))
    return scores


def naive_bats(train, z, weight, bias):
    mean, sigma = train.mean(axis=0), train.std(axis=0)
    return [_energy(_logits(np.clip(row, mean - sigma, mean + sigma), weight, bias)) for row in z]


def naive_gradnorm(train, z, weight, bias):
    scores = []
    for row in z:
        p = _softmax(_logits(row, weight, bias))
        gradient = [[(len(p) * p_c - 1) * x for x in row] for p_c in p]  # of -sum_c log p_c at the weights
        scores.append(sum(abs(g) for line in gradient for g in line))
    return scores


def naive_klm(train, z, weight, bias):
    rows = _class_rows(train, weight, bias)
    templates = [np.mean([_softmax(_logits(row, weight, bias)) for row in part], axis=0) for part in rows.values()]
    scores = []
    for row in z:
        p = _softmax(_logits(row, weight, bias))
        divergences = [
            sum(a * (math.log(a) - math.log(max(b, 1e-30))) for a, b in zip(p, template, strict=True) if a > 0)
            for template in templates
        ]
        scores.append(-min(divergences))
    return scores


def naive_she(train, z, weight, bias):
    rows = _class_rows(train, weight, bias)
    return [float(row @ _mean_of(_class(row, weight, bias), rows, train)) for row in z]


def naive_fdbd(train, z, weight, bias):
    scores = []
    for row in z:
        logits, c = _logits(row, weight, bias), _class(row, weight, bias)
        others = [k for k in range(len(logits)) if k != c]
        distances = [abs(logits[k] - logits[c]) / np.linalg.norm(weight[k] - weight[c]) for k in others]
        scores.append(np.mean(distances) / np.linalg.norm(row - train.mean(axis=0)))
    return scores


def naive_nci(train, z, weight, bias):
    scores = []
    for row in z:
        away = row - train.mean(axis=0)
        along = weight[_class(row, weight, bias)] @ away / np.linalg.norm(away)
        scores.append(along + 0.001 * np.abs(row).sum())
    return scores


def naive_vim(train, z, weight, bias):
    origin = -np.linalg.pinv(weight) @ bias
    _, _, axes = np.linalg.svd(train - origin)
    rest = axes[train.shape[1] // 2 :]

    def residual(row: np.ndarray) -> float:
        return float(np.linalg.norm(rest @ (row - origin)))

    largest = np.mean([max(_logits(row, weight, bias)) for row in train])
    alpha = largest / np.mean([residual(row) for row in train])
    return [_energy(_logits(row, weight, bias)) - alpha * residual(row) for row in z]


def _shrunk(scatter: np.ndarray, free: int) -> np.ndarray:
    s, m = scatter / free, len(scatter)
    square, trace = np.trace(s @ s), np.trace(s)
    share = min(1.0, ((1 - 2 / m) * square + trace**2) / ((free + 1 - 2 / m) * (square - trace**2 / m)))
    return (1 - share) * s + share * trace / m * np.eye(m)


def _mahalanobis(train, z, weight, bias) -> tuple[list[float], list[float]]:
    rows = {c: _directions(part) for c, part in _class_rows(train, weight, bias).items()}
    everything = np.concatenate(list(rows.values()))
    apart = [row - part.mean(axis=0) for part in rows.values() for row in part]
    inverse = np.linalg.inv(_shrunk(sum(np.outer(d, d) for d in apart), len(train) - len(rows)))
    around = [row - everything.mean(axis=0) for row in everything]
    background = np.linalg.inv(_shrunk(sum(np.outer(d, d) for d in around), len(train) - 1))
    nearest, whole = [], []
    for row in _directions(z):
        differences = [row - part.mean(axis=0) for part in rows.values()]
        nearest.append(min(float(d @ inverse @ d) for d in differences))
        d = row - everything.mean(axis=0)
        whole.append(float(d @ background @ d))
    return nearest, whole


def naive_mds(train, z, weight, bias):
    return [-near for near in _mahalanobis(train, z, weight, bias)[0]]


def naive_rmds(train, z, weight, bias):
    return [whole - near for near, whole in zip(*_mahalanobis(train, z, weight, bias), strict=True)]


def naive_knn(train, z, weight, bias):
    bank = _directions(train)
    return [-sorted(np.linalg.norm(row - other) for other in bank)[9] for row in _directions(z)]


def naive_caref(train, z, weight, bias):
    rows = _class_rows(train, weight, bias)
    means = [_mean_of(_class(row, weight, bias), rows, train) for row in z]
    return [-np.abs(row - mean).sum() / np.abs(row).sum() for row, mean in zip(z, means, strict=True)]


def naive_cadref(train, z, weight, bias):
    rows = _class_rows(train, weight, bias)
    usual = np.mean([_energy(_logits(row, weight, bias)) for row in train])
    scores = []
    for row in z:
        c = _class(row, weight, bias)
        errors = (row - _mean_of(c, rows, train)) / np.abs(row).sum()
        along = sum(abs(e) for e, w in zip(errors, weight[c], strict=True) if e * w > 0)
        against = sum(abs(e) for e, w in zip(errors, weight[c], strict=True) if e * w < 0)
        scores.append(-(along * usual / _energy(_logits(row, weight, bias)) + against))
    return scores


def naive_nnguide(train, z, weight, bias):
    energies = [_energy(_logits(row, weight, bias)) for row in train]
    bank = _directions(train)
    scores = []
    for row, direction in zip(z, _directions(z), strict=True):
        guides = sorted((e * (direction @ other) for e, other in zip(energies, bank, strict=True)), reverse=True)
        scores.append(_energy(_logits(row, weight, bias)) * np.mean(guides[:10]))
    return scores


NEWER = {
    "gen": naive_gen,
    "scale": naive_scale,
    "lts": naive_lts,
    "ras": naive_ras,
    "bats": naive_bats,
    "gradnorm": naive_gradnorm,
    "klm": naive_klm,
    "she": naive_she,
    "fdbd": naive_fdbd,
    "nci": naive_nci,
    "vim": naive_vim,
    "mds++": naive_mds,
    "rmds++": naive_rmds,
    "knn": naive_knn,
    "caref": naive_caref,
    "cadref": naive_cadref,
    "nnguide": naive_nnguide,
}


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

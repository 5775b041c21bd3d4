"""Methods since the paper: one function each of (train, z, weight, bias) -> a score per row, image by image."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from oracle.shaping import kept, naive_energies, naive_optfs, naive_shape


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
    factors = [math.exp(row.sum() / row[kept(row, 0.85)].sum()) for row in z]
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


def _likeliest(scatter: np.ndarray, free: int) -> float:
    """The share under which an image left out is likeliest, if all lie at the mean distance: inverses, no tricks."""
    s, m = scatter / free, len(scatter)

    def surprise(share: float) -> float:
        a = (1 - share) * free / (free - 1) * s + share * np.trace(s) / m * np.eye(m)
        r, b = np.trace(np.linalg.inv(a) @ s), (1 - share) / (free - 1)
        return np.linalg.slogdet(a)[1] + math.log(1 - b * r) + r / (1 - b * r)

    return float(min(2.0 ** (np.arange(-80, 1) / 4), key=surprise))


def _mahalanobis(train, z, weight, bias, *, unit=True, likely=False) -> tuple[list[float], list[float]]:
    of = _directions if unit else np.asarray
    rows = {c: of(part.astype(float)) for c, part in _class_rows(train, weight, bias).items()}
    everything = np.concatenate(list(rows.values()))
    apart = [row - part.mean(axis=0) for part in rows.values() for row in part]
    around = [row - everything.mean(axis=0) for row in everything]
    scatters = [sum(np.outer(d, d) for d in parts) for parts in (apart, around)]
    free = [len(train) - len(rows), len(train) - 1]
    if likely:
        share, m = _likeliest(scatters[0], free[0]), len(scatters[0])
        made = [
            (1 - share) * s / f + share * np.trace(s) / f / m * np.eye(m) for s, f in zip(scatters, free, strict=True)
        ]
    else:
        made = [_shrunk(s, f) for s, f in zip(scatters, free, strict=True)]
    inverse, background = (np.linalg.inv(s) for s in made)
    nearest, whole = [], []
    for row in of(z.astype(float)):
        differences = [row - part.mean(axis=0) for part in rows.values()]
        nearest.append(min(float(d @ inverse @ d) for d in differences))
        d = row - everything.mean(axis=0)
        whole.append(float(d @ background @ d))
    return nearest, whole


def naive_mds(train, z, weight, bias, **how):
    return [-near for near in _mahalanobis(train, z, weight, bias, **how)[0]]


def naive_rmds(train, z, weight, bias, **how):
    return [whole - near for near, whole in zip(*_mahalanobis(train, z, weight, bias, likely=True, **how), strict=True)]


def naive_temperature(train, z, weight, bias):
    """Without labels the temperature is 1."""
    return [math.log(max(_softmax(_logits(row, weight, bias)))) for row in z]


def naive_neco(train, z, weight, bias):
    mean, deviation = train.mean(axis=0, dtype=float), train.std(axis=0, dtype=float)
    sizes, axes = np.linalg.eigh(np.cov(((train - mean) / deviation).T))
    kept, total = [], 0.0
    for size, axis in sorted(zip(sizes, axes.T, strict=True), key=lambda pair: -pair[0]):
        kept.append(axis)
        total += size
        if total >= 0.9 * sizes.sum():
            break
    scores = []
    for row in z:
        t = (row - mean) / deviation
        inside = math.sqrt(sum(float(axis @ t) ** 2 for axis in kept))
        scores.append(inside / np.linalg.norm(t) * max(_logits(row, weight, bias)))
    return scores


def naive_cop(train, z, weight, bias):
    """PCA by singular values of the centred directions, and reconstructions made one by one."""
    directions = np.array([row / np.linalg.norm(row) for row in train.astype(float)])
    mean = directions.mean(axis=0)
    _, sizes, axes = np.linalg.svd(directions - mean, full_matrices=False)
    kept = [axis for axis, before in zip(axes, np.cumsum(sizes**2) - sizes**2, strict=True)
            if before < 0.9 * (sizes**2).sum() * (1 - 1e-9)]  # fmt: skip

    def terms(row):
        t = row / np.linalg.norm(row) - mean
        rebuilt = sum(float(axis @ t) * axis for axis in kept)
        return _energy(_logits(row, weight, bias)), float(np.linalg.norm(t - rebuilt))

    known = np.array([terms(row) for row in train.astype(float)])
    scaled = [(np.array(terms(row.astype(float))) - known.mean(axis=0)) / known.std(axis=0) for row in z]
    return [energy - residual for energy, residual in scaled]


def naive_ora(train, z, weight, bias):
    """The projections are made, and their angles measured by the cosine."""
    mean = train.mean(axis=0, dtype=float)
    scores = []
    for row in z:
        logits, c = _logits(row, weight, bias), _class(row, weight, bias)
        angles = []
        for k in range(len(logits)):
            if k != c:
                w = (weight[c] - weight[k]).astype(float)
                there = row - (logits[c] - logits[k]) / (w @ w) * w
                u, v = row - mean, there - mean
                angles.append(math.acos(u @ v / np.linalg.norm(u) / np.linalg.norm(v)) / math.pi)
        scores.append(max(angles))
    return scores


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


def naive_optfs_f(
    train: np.ndarray, z: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, by_sign: bool = False
) -> list[float]:
    """Energy with theta ~ impact / energy of each interval, the energy of the features kept.

    With `by_sign`, theta is that of the paper where features are not signed.
    """
    alpha, beta = np.quantile(train, [0.001, 0.999])
    edges = alpha + (beta - alpha) / 100 * np.arange(101)
    theta = naive_optfs(train, (train @ weight.T + bias).argmax(axis=1), weight, edges, 10.0)
    signed = (train < 0).mean() > 0.01
    if signed or not by_sign:
        energy = naive_energies(train, edges)
        theta = np.array([i / e if e > 0 else 0.0 for i, e in zip(theta, energy, strict=True)])
        theta *= math.sqrt(energy.sum() / sum(t * t * e for t, e in zip(theta, energy, strict=True)))
    shaped = naive_shape(z, edges, theta)
    if signed:
        shaped += np.where(z < edges[0], theta[0] * z, 0.0) + np.where(z >= edges[-1], theta[-1] * z, 0.0)
    return [_energy(_logits(row, weight, bias)) for row in shaped]


NEWER = {
    "optfs-f": naive_optfs_f,
    "optfs": partial(naive_optfs_f, by_sign=True),
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
    "temperature": naive_temperature,
    "mds": partial(naive_mds, unit=False),
    "rmds": partial(naive_rmds, unit=False),
    "neco": naive_neco,
    "cop": naive_cop,
    "ora": naive_ora,
}

"""The scores of the paper's methods, by the formula; `naive_scores` knows the newer ones too."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from oracle.newer_methods import NEWER
from oracle.shaping import kept, naive_optfs, naive_shape


def _ash(z: np.ndarray, p: float, value) -> np.ndarray:
    shaped = np.zeros_like(z)
    for i, row in enumerate(z):
        keep = kept(row, p)
        for j in keep:
            shaped[i, j] = value(row, keep, j)
    return shaped


def _splitmix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def naive_noise(count: int, seed: int) -> list[float]:
    """Uniform numbers by place, in Python integers modulo 2^64."""
    salt = int.from_bytes(blake2b(f"noise {seed}".encode(), digest_size=8).digest(), "little")
    keys = [_splitmix((_splitmix(0x9E3779B97F4A7C15 * place % 2**64) + salt) % 2**64) for place in range(count)]
    return [(key >> 40) / 2**24 for key in keys]


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
        shaped = _ash(z, 0.75, lambda row, keep, j: 10 * naive_noise(len(row), 0)[j])
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
        return 1.0 / powers.sum(axis=1) if name == "odin" else -np.log(powers.sum(axis=1))
    if name in ("mls", "optfs-mls"):
        return logits.max(axis=1)
    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))

"""Linear models of what was measured: least squares, with an intercept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.scale.values import Point

CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Model:
    """``constant + coefficient x term + …``; a term is a size, or a product of sizes, written ``epochs x sinks``."""

    figure: str
    coefficients: Mapping[str, float]

    def __call__(self, **at: float) -> float:
        """Return what the model says at a size."""
        return sum(coefficient * _term(name, at) for name, coefficient in self.coefficients.items())


def fit(figure: str, terms: Sequence[str], points: Sequence[Point]) -> Model:
    """Fit to the medians. Each point weighs by its size's inverse, so that small ones count as much as large ones.

    Raises:
        ValueError: there are not more points than coefficients.
    """
    own = [point for point in points if point.figure == figure]
    names = [CONSTANT, *terms]
    if len(own) <= len(names):
        raise ValueError(f"{figure}: {len(own)} points are too few for {len(names)} coefficients")
    rows = np.array([[_term(name, point.at) for name in names] for point in own], dtype=np.float64)
    values = np.array([point.median for point in own], dtype=np.float64)
    weights = 1 / np.maximum(values, 1e-9)
    found, *_ = np.linalg.lstsq(rows * weights[:, None], values * weights, rcond=None)
    return Model(figure, {name: float(value) for name, value in zip(names, found, strict=True)})


def _term(name: str, at: Mapping[str, float]) -> float:
    if name == CONSTANT:
        return 1.0
    return float(np.prod([at[part] for part in name.split(" x ")]))

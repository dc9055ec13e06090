"""Sums of checksums of rows, as votes and the log hold them: the algorithm's name, a colon, and digits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODULUS = 2**64


def added(checksums: Iterable[str]) -> str:
    """Return the checksum of all rows together. Raises ``ValueError`` unless there are any, of one algorithm."""
    parts = [each.rpartition(":") for each in checksums]
    (algorithm,) = {name + colon for name, colon, _ in parts}
    return f"{algorithm}{sum(int(digits, 16) for *_, digits in parts) % _MODULUS:016x}"

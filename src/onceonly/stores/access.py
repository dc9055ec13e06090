"""How a store is reached and who asks: what a job gave to Hadoop, taken over into the words of ``obstore``. Pure.

A job says ``spark.hadoop.fs.s3a.…``, ``fs.azure.…`` or ``fs.gs.…``; what it does not say the machine knows: its
environment, its profile, its role. What names a class of Java's, or a file that only Java reads, is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.options import Secret
from onceonly.stores.address import LOCAL, Kind
from onceonly.stores.logins import azure, google, s3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.stores.address import Address
    from onceonly.stores.logins.common import Access

HADOOP = "spark.hadoop."
_TAKEN = (
    "fs.s3a.", "fs.s3.", "fs.azure.", "fs.gs.", "google.cloud.", "fs.defaultFS", "dfs.", "hadoop.security.",
)  # fmt: skip
_ACCESS: dict[Kind, Callable[[Hadoop, Address], Access]] = {
    Kind.S3: s3.access,
    Kind.AZURE: azure.access,
    Kind.GCS: google.access,
}


class Hadoop:
    """The settings of Hadoop that are about stores, by their names there. Travels to other processes; never shown."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        """Take from all that Hadoop or Spark was given; names may begin with ``spark.hadoop.``, which come last."""
        found: dict[str, str] = {}
        for name in sorted(given or {}, key=lambda name: name.startswith(HADOOP)):
            short = name.removeprefix(HADOOP)
            if short.startswith(_TAKEN):
                found[short] = Secret((given or {})[name])
        self._given = found

    def __repr__(self) -> str:
        return f"Hadoop({len(self._given)} settings)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hadoop) and self._given == other._given

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return (Hadoop, ({name: str(value) for name, value in self._given.items()},))

    def get(self, *names: str, default: str = "") -> str:
        """Return the first of these settings that says something."""
        return next((value for name in names if (value := str(self._given.get(name, "")).strip())), default)

    def has(self, *names: str) -> bool:
        """Tell whether one of these settings is given, also as an empty text."""
        return any(name in self._given for name in names)

    def for_spark(self) -> dict[str, str]:
        """Return all of it as settings of a session. They may hold secrets."""
        return {f"{HADOOP}{name}": str(value) for name, value in self._given.items()}

    @property
    def file_system(self) -> str:
        """The file system of a path without a scheme."""
        return self.get("fs.defaultFS", default=LOCAL)

    def access(self, address: Address) -> Access:
        """Return how an object store is reached. Raises ``ConfigurationError`` that names what cannot be taken over."""
        return _ACCESS[address.kind](self, address)

"""The options of the Iceberg sink. Those of the catalogue, ``catalog.…``, are pyiceberg's own, whatever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.families import loaded
from onceonly.options import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

CATALOG = "catalog."


def identifier(text: str) -> tuple[str, ...]:
    """Read the name of a table with its namespace: ``sales.orders``. Raises ``ValueError``."""
    parts = tuple(part.strip() for part in text.split("."))
    if len(parts) < 2 or not all(parts):  # noqa: PLR2004  namespace and name
        raise ValueError(text)
    return parts


DECLARED = (
    Option(
        name="table", required=True, read=identifier, form="a namespace and a name, as sales.orders",
        doc="the table, with its namespace: sales.orders",
    ),
    Option(
        name="catalog", default="default",
        doc="the name of the catalogue, as pyiceberg's own configuration has it, if it has",
    ),
    Option(name="catalog.type", doc="what the catalogue is: rest, sql, hive, glue, …"),
    Option(name="catalog.uri", doc="where the catalogue is"),
    Option(name="catalog.warehouse", doc="where the catalogue has its tables"),
    *loaded.DECLARED,
)  # fmt: skip


def split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the sink's own options, and the properties of the catalogue by pyiceberg's names. Pure."""
    properties = {
        name[len(CATALOG) :]: str(value) for name, value in given.items() if name.lower().startswith(CATALOG)
    }
    declared = {option.name.lower() for option in DECLARED}
    own = {
        name: value
        for name, value in given.items()
        if not name.lower().startswith(CATALOG) or name.lower() in declared
    }
    return own, properties

"""How each system's SQL is spoken: a module a dialect, and here what all of them share."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from onceonly.sinks.sql.dialects.dialect import Dialect
    from onceonly.sinks.sql.options import SqlOptions

DIALECTS = {
    "duckdb": "duckdb:DuckDb",
    "mariadb": "mysql:MySql",
    "mysql": "mysql:MySql",
    "postgres": "postgres:Postgres",
    "postgresql": "postgres:Postgres",
    "sqlite": "sqlite:Sqlite",
}
"""Module and class by the scheme of the url."""


def dialect_of(options: SqlOptions) -> Dialect:
    """Return the dialect of an address; its client is imported when it connects. Raises ``ConfigurationError``."""
    scheme = options.url.scheme
    if scheme not in DIALECTS:
        raise ConfigurationError(
            f"The option url begins with {scheme or 'no scheme'}, which is no database that is known here.",
            next_step=f"begin it with one of {', '.join(f'{each}://' for each in DIALECTS)}; a file is named by its "
            "whole path behind that, as in sqlite:////data/r.db",
        )
    module, _, name = DIALECTS[scheme].partition(":")
    found: type[Dialect] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return found(options)

"""Which of Spark's types a table keeps, and which of a table's types take them. Driver; needs pyarrow.

A type is taken where each of its values is kept as it is or refused by itself: an integer goes into a narrower one if
it is in range, a text into no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.families.columns import arrow_of, find, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


def schema_of(columns: Sequence[tuple[str, str]], *, who: str) -> pa.Schema:
    """Return the columns of a query as Arrow's. Raises ``ConfigurationError`` that names one that no table keeps."""
    import pyarrow as pa

    fields = []
    for name, text in columns:
        kind = arrow_of(parse(text))
        if kind is None:
            raise ConfigurationError(
                f"{who}: the column {name} is of type {text}, which no table keeps.",
                next_step="cast or drop it, for example by to_json or cast('string')",
            )
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def choose(given: pa.Schema, table: pa.Schema, *, who: str) -> pa.Schema:
    """Return those of the table's columns that the query gives, in the table's order.

    Raises ``ConfigurationError`` for a column that the table lacks, for a type that it does not take, and for one that
    may not be null and is not given.
    """
    import pyarrow as pa

    chosen = {}
    for field in given:
        name = find(field.name, table.names)
        if name is None:
            raise ConfigurationError(
                f"{who} has no column {field.name}; it has {', '.join(table.names)}.",
                next_step="drop or rename the column, add it to the table, or have it added by the option merge.schema",
            )
        if name in chosen:
            raise ConfigurationError(
                f"{who}: two columns of the query are its column {name}.",
                next_step="drop or rename one of them",
            )
        if not takes(table.field(name).type, field.type):
            raise ConfigurationError(
                f"{who}: its column {name} is of type {table.field(name).type}, and the query gives {field.type}.",
                next_step="cast the column in the query, so that nothing is turned into something else unseen",
            )
        chosen[name] = table.field(name)
    missing = [field.name for field in table if field.name not in chosen and not field.nullable]
    if missing:
        raise ConfigurationError(
            f"{who}: its column {missing[0]} is NOT NULL, and the query does not give it.",
            next_step=f"add {missing[0]} to the query, or let the table's column be null",
        )
    return pa.schema([field for field in table if field.name in chosen])


def takes(target: pa.DataType, source: pa.DataType) -> bool:
    """Say whether a column of the one type takes values of the other. Pure."""
    from pyarrow import types

    cases: tuple[tuple[Callable[[pa.DataType], bool], Callable[[], bool]], ...] = (
        (
            types.is_integer,
            lambda: types.is_integer(target) or types.is_decimal(target) or types.is_floating(target),
        ),
        (types.is_floating, lambda: types.is_floating(target) and target.bit_width >= source.bit_width),
        (types.is_decimal, lambda: types.is_decimal(target)),
        (types.is_string, lambda: types.is_string(target) or types.is_large_string(target)),
        (types.is_binary, lambda: types.is_binary(target) or types.is_large_binary(target)),
        (
            types.is_timestamp,
            lambda: types.is_timestamp(target) and (source.tz is None) == (target.tz is None),
        ),
        (types.is_map, lambda: types.is_map(target) and _takes_map(target, source)),
        (types.is_list, lambda: _is_list(target) and takes(target.value_type, source.value_type)),
        (types.is_struct, lambda: types.is_struct(target) and _takes_struct(target, source)),
    )
    for is_of, fits in cases:
        if is_of(source):
            return bool(fits())
    return bool(source == target)


def _takes_map(target: pa.DataType, source: pa.DataType) -> bool:
    return takes(target.key_type, source.key_type) and takes(target.item_type, source.item_type)


def _takes_struct(target: pa.DataType, source: pa.DataType) -> bool:
    has, gives = {field.name: field for field in target}, {field.name: field for field in source}
    return gives.keys() <= has.keys() and all(
        takes(field.type, gives[name].type) if name in gives else field.nullable
        for name, field in has.items()
    )


def _is_list(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))

"""What a row is where it is appended: the bytes of its column ``value``, or the whole row in an envelope. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.options import Option
from onceonly.rows.json_rows import json_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from onceonly.ports import WriteContext

NONE, JSON = "none", "json"
VALUE = "value"
_KINDS = {"string", "binary"}

ENVELOPE = Option(
    name="envelope",
    doc=f"{NONE}: a row is the column {VALUE}, as it is; {JSON}: a row is all its columns as a JSON object, beside its "
    "query, sink, epoch, try, slot and number, by which a reader drops what it has had",
    default=NONE,
    choices=(NONE, JSON),
)


def check(columns: Mapping[str, str], envelope: str, others: Collection[str], who: str) -> None:
    """See that a query's columns can be appended; ``others`` may stand beside ``value``. Driver.

    Raises ``ConfigurationError``.
    """
    if envelope == JSON:
        return
    if columns.get(VALUE) not in _KINDS:
        held = f"it is {columns[VALUE]}" if VALUE in columns else f"the query has {', '.join(columns)}"
        raise ConfigurationError(
            f"{who} writes the column {VALUE}, of type string or binary, and {held}.",
            next_step=f"make it, as by select to_json(struct(*)) as {VALUE}; or set {ENVELOPE.name}={JSON}, which "
            "takes all columns",
        )
    more = next((name for name in columns if name not in {VALUE, *others}), None)
    if more is not None:
        raise ConfigurationError(
            f"{who} writes the column {VALUE}, and the column {more} would be left out.",
            next_step=f"drop it, put it into {VALUE}, or set {ENVELOPE.name}={JSON}, which takes all columns",
        )


def values(batch: pa.RecordBatch, envelope: str, context: WriteContext, first: int) -> Sequence[bytes | None]:
    """Return the bytes of each row, the first of which is the slot's row ``first``. Executor."""
    if envelope == JSON:
        # Another try at an epoch may deal the same rows to other slots.
        names = {
            "query": context.query, "sink": context.sink, "epoch": context.epoch, "try": context.index,
            "slot": context.slot,
        }  # fmt: skip
        head = json.dumps(names, ensure_ascii=False, separators=(",", ":"))[:-1]
        return [
            f'{head},"number":{number},"row":{row}}}'.encode()
            for number, row in enumerate(json_rows(batch), first)
        ]
    import pyarrow as pa

    # Texts go as they are, whatever bytes they have.
    found: list[bytes | None] = batch.column(VALUE).cast(pa.binary()).to_pylist()
    return found

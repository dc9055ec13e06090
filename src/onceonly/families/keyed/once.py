"""No two rows of an epoch have one key, unless something says which of them stays. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_NAME_SEQUENCE = "name the column whose greatest value is the newest in the option sequence"
_REPARTITION = "bring all rows of a key into one slot, by df.repartition of its columns"


def require_once(keys: Mapping[str, pa.ChunkedArray], sink: str, *, has_sequence: bool) -> None:
    """See that no two of an epoch's rows have one key, of the ``keys`` by names of attempts. Driver.

    Raises ``RecordRefusedError``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    together = pa.chunked_array([chunk for each in keys.values() for chunk in each.chunks], pa.string())
    if pc.count_distinct(together).as_py() == len(together):
        return
    counts = pc.value_counts(together)
    [key] = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[:1].to_pylist()
    # A name begins with its epoch and slot.
    names = [name.split(".") for name, mine in keys.items() if key in mine.to_pylist()]
    epoch, slots = names[0][0], sorted(int(name[1]) for name in names)
    if len(slots) == 1:
        where, next_step = f"in slot {slots[0]}", _NAME_SEQUENCE
    else:
        where, next_step = f"in slots {slots[0]} and {slots[1]}", _REPARTITION
        if not has_sequence:
            next_step += f"; and {_NAME_SEQUENCE}"
    raise RecordRefusedError(
        f"the key {key} of the sink {sink} is twice in chk-{epoch}, {where}, and nothing says which row stays",
        next_step=next_step,
    )

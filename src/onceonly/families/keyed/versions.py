"""Versions of rows: fixed in the plan, and never less than what an earlier try, epoch or query has given. Pure.

A version has three parts: the *generation*, which the target counts for each query that comes to it, the epoch, and the
number of the link that is to decide it. So a later try at an epoch wins over an earlier one, and a query on a new
checkpoint, whose epochs begin at 0 again, over the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from onceonly.ports import WriteContext

GENERATION = "generation"
"""The fact of a sink's check that all its versions begin with."""
# Together 63, so that every version is a positive number of 64 bits, as stores have them.
_GENERATION_BITS, _EPOCH_BITS, _INDEX_BITS = 20, 31, 12
_PREFIX = b"onceonly."


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the rows of one attempt come from. It travels with what is staged of them.

    ``early`` says that they are in the target already, and only their keys are staged. ``life`` is that of the target
    when they came there, and may be empty; see ``KeyedSink.life``. ``chosen`` says whether a sequence chose among rows
    of one key, so that several batches may have it: who applies them may have other options. None for those of an older
    version.
    """

    query: str
    sink: str
    epoch: int
    version: int
    early: bool = False
    life: str = ""
    chosen: bool | None = None

    @classmethod
    def of(cls, context: WriteContext, *, chosen: bool) -> Origin:
        """Return that of an attempt. Executor. Raises ``ConfigurationError`` where the versions are used up."""
        generation = context.facts.get(GENERATION)
        if not isinstance(generation, int):
            raise ProtocolError(
                f"the sink {context.sink} was planned without the generation of its versions",
                next_step="let the sink's check give what KeyedSink.check gives: a defect of the sink",
            )
        return cls(
            query=context.query,
            sink=context.sink,
            epoch=context.epoch,
            version=version_of(generation=generation, epoch=context.epoch, index=context.index),
            early=context.early,
            chosen=chosen,
        )

    @classmethod
    def read(cls, schema: pa.Schema) -> Origin:
        """Return that of staged rows."""
        held: Mapping[bytes, bytes] = schema.metadata or {}
        texts = {name: held.get(_PREFIX + name.encode(), b"").decode() for name in cls.__slots__}
        return cls(
            query=texts["query"],
            sink=texts["sink"],
            epoch=int(texts["epoch"]),
            version=int(texts["version"]),
            early=texts["early"] == "True",
            life=texts["life"],
            chosen={"True": True, "False": False}.get(texts["chosen"]),
        )

    def marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch that says where it comes from."""
        own = {_PREFIX + name.encode(): str(getattr(self, name)).encode() for name in self.__slots__}
        return batch.replace_schema_metadata({**(batch.schema.metadata or {}), **own})


def generation_of(version: int) -> int:
    """Return the generation that a version begins with, 0 for one that is none of ours."""
    return version >> (_EPOCH_BITS + _INDEX_BITS)


def try_of(version: int) -> tuple[int, int]:
    """Return epoch and link in a version of ours."""
    return (version >> _INDEX_BITS) & ((1 << _EPOCH_BITS) - 1), version & ((1 << _INDEX_BITS) - 1)


def version_of(*, generation: int, epoch: int, index: int) -> int:
    """Return the version of a try's rows. Raises ``ConfigurationError`` where a part is used up."""
    version = 0
    for name, value, bits in (
        ("queries on this target", generation, _GENERATION_BITS),
        ("epochs of this query", epoch, _EPOCH_BITS),
        (f"tries at chk-{epoch}", index, _INDEX_BITS),
    ):
        if not 0 <= value < 1 << bits:
            raise ConfigurationError(
                f"there were {value} {name}, and versions of rows count {(1 << bits) - 1}",
                next_step="find out why there were so many; a new target begins anew",
            )
        version = version << bits | value
    return version

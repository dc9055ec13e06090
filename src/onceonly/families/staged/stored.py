"""A staging area on a distant store: objects that are put once, in parts, as no slot may need memory for all its rows.

An attempt first puts an object without rows, under its name alone. A sweep lists it from then on, and removes it before
the parts: an attempt that wakes up late looks for it when all its parts are there, and votes only then.

A put that nobody waits for any more may land after a sweep. It does no harm: the sweep stands under a link, so that no
vote of before counts, and the name is never given again. The next sweep removes it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly import background
from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.families.staged.files import counted, damaged, swept
from onceonly.families.staged.names import (
    PARTS,
    ROWS,
    grouped,
    new_name,
    owner_of,
    part_name,
    parts_of,
    rows_of,
    told,
)
from onceonly.model import Handle
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.staged.area import StagedRows
    from onceonly.ports import WriteContext
    from onceonly.stores.port import Store

PART_BYTES: Final = 8 << 20
"""When a part is put: what an attempt holds in memory, and what the driver reads at a time."""
_BEGUN = b"begun"
_COMPRESSION = "zstd"


class StoredAttempt:
    """The rows of one attempt; fulfils ``StagedAttempt``."""

    def __init__(self, store: Store, context: WriteContext, data: Mapping[str, str | int]) -> None:
        self.name = new_name(context)
        self._store = store
        self._data = data
        self._rows = self._parts = 0
        self._part: tuple[pa.BufferOutputStream, pa.RecordBatchStreamWriter] | None = None
        self._put(self.name, _BEGUN)

    @property
    def data(self) -> Mapping[str, str | int]:
        return {**self._data, ROWS: self._rows, PARTS: self._parts}

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        from pyarrow import ipc

        if self._part is None:
            memory = pa.BufferOutputStream()
            options = ipc.IpcWriteOptions(compression=_COMPRESSION)
            self._part = memory, ipc.new_stream(memory, batch.schema, options=options)
        memory, writer = self._part
        writer.write_batch(batch)
        self._rows += batch.num_rows
        if memory.tell() >= PART_BYTES:
            self._put_part()

    def finish(self) -> None:
        self._put_part()
        if self._store.get(self.name) is None:
            raise swept(self._store.where(self.name))

    def discard(self) -> None:
        with contextlib.suppress(OnceonlyError):  # the next sweep removes it
            remove(self._store, [Handle(transaction=self.name, data=self.data)])

    def _put_part(self) -> None:
        if self._part is None:
            return
        memory, writer = self._part
        writer.close()
        self._part = None
        self._parts += 1  # also where it is not clear whether it was put
        self._put(part_name(self.name, self._parts - 1), memory.getvalue().to_pybytes())

    def _put(self, name: str, data: bytes) -> None:
        if put_once(self._store, name, data) != data:
            raise swept(self._store.where(name))


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What an attempt has put; fulfils ``StagedRows``."""

    store: Store
    name: str
    objects: tuple[str, ...]
    """Those that hold the rows, in their order."""
    rows: int | None = None
    """How many the handle says there are; None where it does not."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        return counted(self._read(), self.rows, self.store.where(self.name))

    def _read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import ipc

        for name in self.objects:
            data = self.store.get(name)
            if data is None:
                raise UnavailableError(
                    f"{self.store.where(name)} is not there any more",
                    next_step="start the query again: it finds out whether these rows were applied",
                )
            try:
                yield from ipc.open_stream(pa.py_buffer(data))
            except (pa.ArrowInvalid, OSError) as error:  # in memory, both say that it is none
                raise damaged(self.store.where(name), str(error)) from error


class StagingStore:
    """Objects in one folder of a store; fulfils ``StagingArea``. ``data`` leads back to it, from any process."""

    def __init__(self, store: Store, data: Mapping[str, str | int]) -> None:
        self._store = store
        self._data = data

    def begin(self, context: WriteContext) -> StoredAttempt:
        return StoredAttempt(self._store, context, self._data)

    def standing(self, handles: Sequence[Handle]) -> dict[str, StagedRows]:
        listed = set(self._store.list_names(""))

        def stands(rows: StoredRows) -> bool:
            # First what a sweep removes first. What a list does not tell yet is asked for.
            wanted = dict.fromkeys((rows.name, *rows.objects))
            return all(name in listed or self._store.get(name) is not None for name in wanted)

        found = [
            StoredRows(self._store, handle.transaction, rows_of(handle), told(handle, ROWS))
            for handle in handles
        ]
        there = background.spread("onceonly-staged", stands, found, threads_max=self._store.abreast)
        return {rows.name: rows for rows, is_there in zip(found, there, strict=True) if is_there}

    def listed(self) -> dict[str, Mapping[str, str | int]]:
        return grouped(self._store.list_names(""), self._data)

    def remove(self, handles: Sequence[Handle]) -> None:
        remove(self._store, handles)


def remove(store: Store, handles: Sequence[Handle]) -> None:
    """Remove what is staged, first that by which its attempt sees it. Idempotent. Raises a typed error."""
    names = [handle.transaction for handle in handles]
    parts = [part for handle in handles for part in parts_of(handle)]
    for some in (names, parts):
        background.spread("onceonly-staged", store.delete, some, threads_max=store.abreast)
    gone = set(names)
    store.drop_leftovers(lambda name: owner_of(name) in gone)

"""A staging area on a distant store: objects that are put once, in parts, as no slot may need memory for all its rows.

An attempt first puts an object without rows, under its name alone. A sweep lists it from then on, and removes it before
the parts: an attempt that wakes up late looks for it when all its parts are there, and votes only then.

A put that nobody waits for any more may land after a sweep. It does no harm: the sweep stands under a link, so that no
vote of before counts, and the name is never given again. The next sweep removes it.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly import background
from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.families.staged.files import swept
from onceonly.families.staged.names import epoch_of, new_name
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
_OBJECT = re.compile(r"(?P<name>.+\.arrow)(?:\.(?P<part>\d{1,9}))?")


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
        return {**self._data, "rows": self._rows, "parts": self._parts}

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
        self._put(_part(self.name, self._parts - 1), memory.getvalue().to_pybytes())

    def _put(self, name: str, data: bytes) -> None:
        if put_once(self._store, name, data) != data:
            raise swept(self._store.where(name))


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What an attempt has put; fulfils ``StagedRows``."""

    store: Store
    name: str
    parts: int

    @property
    def objects(self) -> tuple[str, ...]:
        """All that must be there, first what a sweep removes first."""
        return (self.name, *_parts(self.name, self.parts))

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import ipc

        for name in _parts(self.name, self.parts):
            data = self.store.get(name)
            if data is None:
                raise UnavailableError(
                    f"{self.store.where(name)} is not there any more",
                    next_step="start the query again: it finds out whether these rows were applied",
                )
            yield from ipc.open_stream(pa.py_buffer(data))


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
            # What a list does not tell yet is asked for.
            return all(name in listed or self._store.get(name) is not None for name in rows.objects)

        found = [StoredRows(self._store, handle.transaction, _parts_of(handle)) for handle in handles]
        told = background.spread("onceonly-staged", stands, found, threads_max=self._store.abreast)
        return {rows.name: rows for rows, is_there in zip(found, told, strict=True) if is_there}

    def listed(self) -> dict[str, Mapping[str, str | int]]:
        parts: dict[str, int] = {}
        for each in sorted(self._store.list_names("")):
            match = _OBJECT.fullmatch(each)
            if match is not None and epoch_of(match["name"]) is not None:
                many = 0 if match["part"] is None else int(match["part"]) + 1
                parts[match["name"]] = max(parts.get(match["name"], 0), many)
        return {name: {**self._data, "parts": many} for name, many in parts.items()}

    def remove(self, handles: Sequence[Handle]) -> None:
        remove(self._store, handles)


def remove(store: Store, handles: Sequence[Handle]) -> None:
    """Remove what is staged, first that by which its attempt sees it. Idempotent. Raises a typed error."""
    names = [handle.transaction for handle in handles]
    parts = [part for handle in handles for part in _parts(handle.transaction, _parts_of(handle))]
    for some in (names, parts):
        background.spread("onceonly-staged", store.delete, some, threads_max=store.abreast)
    gone = set(names)

    def is_gone(name: str) -> bool:
        match = _OBJECT.fullmatch(name)
        return match is not None and match["name"] in gone

    store.drop_leftovers(is_gone)


def _part(name: str, number: int) -> str:
    return f"{name}.{number}"


def _parts(name: str, many: int) -> Iterator[str]:
    return (_part(name, number) for number in range(many))


def _parts_of(handle: Handle) -> int:
    return int(handle.data.get("parts", 0))

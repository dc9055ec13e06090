"""What has no server: a collection, whose rows are all there from the start, and files that come into a folder."""

from __future__ import annotations

import json
import random
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from onceonly_proof.auditor import Input
from onceonly_proof.campaign.sources.port import Flow, Source
from onceonly_proof.campaign.workload import row
from onceonly_proof.handover import put

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceonly_proof.auditor.log import Ends, EndsOf
    from onceonly_proof.campaign.sources.port import Place
    from onceonly_proof.campaign.workload import Workload

_COLLECTION: Final = "collection/0"
_FILES: Final = "files/0"
"""The input partition that a folder is; a row's position there is how many were read before it."""
_ROWS: Final = 4_000
_ROWS_PER_EPOCH: Final = 20
"""So few that a collection lasts for minutes, at an epoch in a second: it cannot grow while a query runs."""
_TASKS_MAX: Final = 2
_FILES_PER_EPOCH: Final = 4


class Rows(Flow):
    """The rows of a collection. Nothing is fed: a query has them all, and reads a few in an epoch."""

    def __init__(self, workload: Workload, place: Place) -> None:
        super().__init__(workload)
        draw = random.Random(f"{workload.seed}/collection")
        self._tasks = min(workload.partitions, _TASKS_MAX)
        self.is_ordered = self._tasks == 1
        rows: list[bytes] = []
        self._distinct = 0
        for _ in range(_ROWS):
            if rows and draw.random() < workload.repeated:
                rows.append(draw.choice(rows))
                continue
            padding = "x" * draw.randint(0, min(workload.bytes_max, 50))
            rows.append(row(self._distinct, 0, self._distinct, padding))
            self._distinct += 1
        self._rows = rows
        self._path = place.folder / "collection.txt"
        put(self._path, b"\n".join(rows))

    @property
    def distinct(self) -> int:
        return self._distinct

    def options(self) -> dict[str, str]:
        return {
            "path": str(self._path),
            "rows_per_epoch": str(_ROWS_PER_EPOCH),
            "partitions": str(self._tasks),
        }

    def start(self) -> None:
        """All is there."""

    def stop(self) -> int:
        return len(self._rows)

    def is_read(self, offsets: str) -> bool:
        return self.rows_until(offsets) == len(self._rows)

    def rows_until(self, offsets: str) -> int:
        try:
            return int(json.loads(offsets.splitlines()[-1])["rows"])
        except (IndexError, ValueError, KeyError):
            return 0  # not there, or being written

    def inputs(self) -> list[Input]:
        return [Input(number, _COLLECTION, number, None, value) for number, value in enumerate(self._rows)]

    @property
    def ends_of(self) -> EndsOf:
        """Its offsets are numbers of rows."""
        return lambda barriers: {
            epoch: {_COLLECTION: json.loads(lines[0])["rows"]} for epoch, lines in barriers.items() if lines
        }

    def _produce(self, partition: int, key: str, value: bytes) -> int:  # noqa: ARG002  nothing is
        return 0

    def _flush(self) -> None:
        """Nothing waits."""

    def _finish(self) -> int:
        return len(self._rows)


class Lines(Flow):
    """Files of lines, for Spark's own source of them. Which are of an epoch, its list in the checkpoint says."""

    is_ordered = False

    def __init__(self, workload: Workload, place: Place) -> None:
        super().__init__(workload)
        self._place = place
        self._folder = place.folder / "incoming"
        self._folder.mkdir()
        self._waiting: list[bytes] = []
        self._files: dict[str, list[bytes]] = {}
        """The rows of each file, by its name."""
        self._lists: dict[str, dict[str, int]] = {}
        """What is in each list of the checkpoint: the batch in which a file is read."""

    def options(self) -> dict[str, str]:
        return {"path": str(self._folder), "maxFilesPerTrigger": str(_FILES_PER_EPOCH)}

    def is_read(self, offsets: str) -> bool:
        return self.rows_until(offsets) == sum(map(len, self._files.values()))

    def rows_until(self, offsets: str) -> int:
        try:
            newest = int(json.loads(offsets.splitlines()[-1])["logOffset"])
        except (IndexError, ValueError, KeyError):
            return 0  # not there, or being written
        return sum(len(self._files[name]) for name, batch in self._batches().items() if batch <= newest)

    def inputs(self) -> list[Input]:
        """Return all rows, those that were read in the order of their batches; what no batch has comes last."""
        batches = self._batches()
        names = sorted(self._files, key=lambda name: (batches.get(name, len(batches)), name))
        values = [value for name in names for value in self._files[name]]
        return [Input(number, _FILES, number, None, value) for number, value in enumerate(values)]

    @property
    def ends_of(self) -> EndsOf:
        """Its offsets are numbers of batches, and lists in the checkpoint say which files these are."""
        return self._ends_of

    def _ends_of(self, barriers: Mapping[int, list[str]]) -> dict[int, Ends]:
        batches = self._batches()
        counts = [0] * (1 + max(batches.values(), default=-1))
        for name, batch in batches.items():
            counts[batch] += len(self._files[name])
        ends = list(accumulate(counts))
        newest = {epoch: json.loads(lines[0])["logOffset"] for epoch, lines in barriers.items() if lines}
        return {epoch: {_FILES: ends[at] if at >= 0 else 0} for epoch, at in newest.items()}

    def _batches(self) -> dict[str, int]:
        """Return the batch of each file, from all lists that there are: some hold what was in those before."""
        store, address = self._place.checkpoints, f"{self._place.checkpoint}/sources/0"
        for name in store.names(address):
            if name.partition(".")[0].isdecimal() and name not in self._lists:
                text = (store.data(address, name) or b"").decode()
                entries = map(json.loads, text.splitlines()[1:])  # the first line is the version
                found = {entry["path"].rpartition("/")[2]: int(entry["batchId"]) for entry in entries}
                if found:
                    self._lists[name] = found
        return {name: batch for each in self._lists.values() for name, batch in each.items()}

    def _produce(self, partition: int, key: str, value: bytes) -> int:  # noqa: ARG002  lines alone
        self._waiting.append(value)
        return 1

    def _flush(self) -> None:
        if len(self._waiting) * _FILES_PER_EPOCH >= self._workload.per_epoch:
            self._write_file()

    def _finish(self) -> int:
        if self._waiting:
            self._write_file()
        return self.distinct

    def _write_file(self) -> None:
        """Put a whole file into the folder, under a name that sorts behind the others."""
        rows, self._waiting = self._waiting, []
        name = f"{len(self._files):08d}.txt"
        self._files[name] = rows
        written = self._place.folder / name  # beside the folder: what is in there is read
        written.write_bytes(b"\n".join(rows) + b"\n")
        written.replace(self._folder / name)


class _Serverless(Source):
    """A source that nothing serves."""

    def __init__(self, folder: Path) -> None:
        del folder  # each round has its own

    def kill(self) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def close(self) -> None:
        """There is no server."""


class Collection(_Serverless):
    """Collections."""

    def flow(self, name: str, workload: Workload, place: Place) -> Rows:
        del name  # its file is the round's own
        return Rows(workload, place)


class Files(_Serverless):
    """Folders into which files come."""

    def flow(self, name: str, workload: Workload, place: Place) -> Lines:
        del name  # its folder is the round's own
        return Lines(workload, place)
